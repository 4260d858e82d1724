"""What a run will use: sampler variant and expert workspace by release, and the plan as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.model.activation import default_sampler, kernel_bytes
from kvbudget.model.eras import Setting, choose, constants
from kvbudget.model.runner import for_model
from kvbudget.profile.device import TRACKED

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job


@dataclass(frozen=True, slots=True)
class SamplerPlan:
    """Bytes per logit beyond the logits, bytes per column and multiprocessor, multiprocessors.

    float_copy: the logits are copied to float32 first.
    """

    variant: str
    per_logit: int
    per_row: int
    rows: int
    float_copy: bool = True
    notes: list[str] = field(default_factory=list)


def sampler_plan(
    job: Job, model: Model, policy: Policy, *, sm_count: int | None = None,
    compute_capability: str | None = None,
) -> SamplerPlan:  # fmt: skip
    """The sampler of the release's model runner for `model` (formulas/activation.yaml).

    sm_count, compute_capability: of the device; None: of the card the user named, if any.
    """
    if "sampler" not in constants(policy.engine):
        return SamplerPlan("none", 0, 0, 0)
    card = None
    if job.card is not None:
        from kvbudget.derive.catalogue import find_gpu

        card = find_gpu(job.card)
    setting = for_model(Setting(
        policy.engine, policy.version, tp=job.tp, pp=job.pp,
        compute_capability=compute_capability or (card.compute_capability if card else None),
    ), model)  # fmt: skip
    era = choose(setting, "sampler") or {}
    name = default_sampler(era, setting)
    per_row = int(era.get("per_sm", {}).get(name, 0))
    rows = sm_count or (card.sm_count if card else None)
    notes = []
    if per_row and not rows:
        notes.append("sampler: one row per multiprocessor is left out, no card was named (--gpu)")
    if not era.get("known", True):
        notes.append(f"sampler: {name} is taken; {policy.name} may choose another per model")
    return SamplerPlan(name, kernel_bytes(era, name, min(job.requests, job.tokens)), per_row, rows or 0,
                       bool(era.get("float_copy", True)), notes)  # fmt: skip


def describe(job: Job, model: Model, policy: Policy) -> list[str]:
    """The plan of a run in lines, for --dry-run."""
    sampler = sampler_plan(job, model, policy)
    stages = [int(model.weights_bytes(job.shares, job.pp, stage=n).value)
              for n in range(job.pp)]  # fmt: skip
    weights = f"{max(stages):,} B" if min(stages) == max(stages) else (
        f"{min(stages):,} to {max(stages):,} B")  # fmt: skip
    graphs = "modelled" if job.device in TRACKED else "ladder into a throw-away pool"
    ranks = f"TP {job.tp}" + (f", PP {job.pp}" if job.pp > 1 else "")
    ranks += f", experts over {job.ep}" if job.ep > 1 else ""
    return [
        f"model {model.name} ({model.architecture}): {weights} of {job.load} weights per rank, "
        f"{ranks}; runner {job.runner}",
        f"device {job.device}; policy {policy.name}: baseline after phase {policy.baseline!r}, "
        f"{policy.consumed} ({policy.reason})",
        f"forward of {job.tokens:,} tokens; sampler {sampler.variant} on "
        f"[{min(job.requests, job.tokens):,}, {model.vocab_size:,}]",
        "graphs: " + (graphs if job.graphs else "off"),
        f"budget: {job.utilization:g} of the device's total ({policy.fraction})",
    ]
