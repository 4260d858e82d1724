"""What a run will use: sampler variant and expert workspace by release, and the plan as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.model.eras import Setting, choose, constants

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job


@dataclass(frozen=True, slots=True)
class SamplerPlan:
    """Bytes per logit beyond the logits, bytes per column and multiprocessor, multiprocessors."""

    variant: str
    per_logit: int
    per_row: int
    rows: int
    notes: list[str] = field(default_factory=list)


def sampler_bytes(job: Job, policy: Policy, sm_count: int | None = None) -> SamplerPlan:
    """The release's sampler variant (formulas/activation.yaml)."""
    setting = Setting(policy.engine, policy.version, tp=job.tp)
    if "sampler" not in constants(policy.engine):
        return SamplerPlan("none", 0, 0, 0)
    era = choose(setting, "sampler") or {}
    name = str(era.get("default", "torch"))
    per_row = int(era.get("per_sm", {}).get(name, 0))
    notes = []
    rows = sm_count or _card_rows(job)
    if per_row and not rows:
        notes.append("sampler: one row per multiprocessor is left out, no card was named (--gpu)")
    if not era.get("known", True):
        notes.append(f"sampler: {name} is taken; {policy.name} may choose another per model")
    return SamplerPlan(name, int(era.get("per_logit", {}).get(name, 0)), per_row, rows or 0, notes)


def _card_rows(job: Job) -> int | None:
    if job.card is None:
        return None
    from kvbudget.derive.catalogue import find_gpu

    return find_gpu(job.card).sm_count


def workspace_used(model: Model, policy: Policy) -> bool:
    """False where the experts' kernels of this quantisation need no workspace buffers."""
    row = choose(Setting(policy.engine, policy.version), "expert_workspace")
    if "expert_workspace" not in constants(policy.engine):
        return True
    method = (model.quantization_config or {}).get("quant_method")
    return row is not None and method not in row["except"]


def describe(job: Job, model: Model, policy: Policy) -> list[str]:
    """The plan of a run in lines, for --dry-run."""
    sampler = sampler_bytes(job, policy)
    weights = int(model.weights_bytes(job.tp).value)
    return [
        f"model {model.name} ({model.architecture}): {weights:,} B of weights per rank, "
        f"TP {job.tp}",
        f"device {job.device}; policy {policy.name}: baseline after phase {policy.baseline!r}, "
        f"{policy.consumed} ({policy.reason})",
        f"forward of {job.tokens:,} tokens; sampler {sampler.variant} on "
        f"[{min(job.requests, job.tokens):,}, {model.vocab_size:,}]",
        "graphs: " + ("ladder into a throw-away pool" if job.graphs else "off"),
        f"budget: {job.utilization:g} of the device's total ({policy.fraction})",
    ]
