"""The modelled terms beside the measured ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.derive.catalogue import find_gpu
from kvbudget.model.activation import Batch, Peak, activation_peak
from kvbudget.model.eras import choose, constants
from kvbudget.model.estimate import estimate
from kvbudget.model.forward import profile_pass, recurrence_scratch
from kvbudget.profile.device import TRACKED
from kvbudget.profile.split import setting_of
from kvbudget.units import GIB, format_size

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.split import RankBudget
    from kvbudget.profile.types import Job, Record

TERMS = ("weights_memory", "peak_activation_memory", "non_torch_memory", "cuda_graph_memory",
         "context_memory")  # fmt: skip


def beside_the_model(
    worst: RankBudget, model: Model, job: Job, policy: Policy, record: Record
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows (bytes), one per term, and what there is to say about the forward.

    `agrees`: the measured value lies in the modelled band; null where it cannot be compared.
    """
    scene = record.scene
    setting = setting_of(job, policy, scene)
    card = find_gpu(job.card) if job.card is not None else None
    sms = scene.sm_count or (card.sm_count if card else None)
    batch = Batch(job.tokens, job.requests, sm_count=sms)
    terms = estimate(model, setting, batch, stage=worst.stage, eager=not job.graphs)
    tracked = scene.kind in TRACKED
    kept = choose(setting, "residue_gib") if "residue_gib" in constants(policy.engine) else None
    residue = int(max(kept["sampler"], kept["forward"]) * GIB) if kept and tracked else 0
    rows = []
    for name in TERMS:
        if name not in terms:
            continue
        if tracked and name == "weights_memory":
            rows.append(_weights(worst, model, job, int(terms[name].amount.value)))
            continue
        amount = terms[name].amount
        term = next((t for t in worst.terms if t.name == name), None)
        value = term.value if term and term.source == "measured" else None
        low = max(0, int(amount.low))
        if name == "peak_activation_memory":
            low = max(0, low - residue)  # the mirror keeps no engine's small persistent buffers
        agrees = None
        text = name == "peak_activation_memory" and not model.is_multimodal
        if value is not None and (not tracked or text):
            agrees = low <= value <= amount.high
        rows.append(_row(name, value, int(amount.value), low, int(amount.high), agrees,
                         terms[name].formula))  # fmt: skip
    if worst.forward is None or "activation_band" not in constants(policy.engine):
        return rows, _outside(rows)
    peak = activation_peak(model, setting, batch, stage=worst.stage)
    rows, said = _with_forward(rows, worst.forward, peak, model, job, policy)
    said += _outside(rows)
    scratch = recurrence_scratch(model, setting, batch.tokens)
    if scratch and not profile_pass(model, setting).kernels:
        said.append(
            f"no profile pass runs the recurrence: the first prompt of {batch.tokens:,} tokens needs "
            f"up to {scratch:,} B of chunk buffers beside the pool"
        )
    if model.is_multimodal:
        said.append("the encoder's pass is not run: its memory is in the modelled peak only")
    return rows, said


def _outside(rows: list[dict[str, Any]]) -> list[str]:
    """What was measured and is not where the model expects it: a sentence each."""
    return [
        f"{row['name']}: {format_size(row['measured'])} was measured, {format_size(off)} {side} the "
        f"modelled {format_size(row['low'])} to {format_size(row['high'])}; the figures here are from "
        "what was measured, and derive or plan without this profile will differ by as much"
        for row in rows
        if row["agrees"] is False
        for off, side in [_beyond(row)]
    ]


def _beyond(row: dict[str, Any]) -> tuple[int, str]:
    """How far (bytes) and on which side of its band a measured value lies."""
    if row["measured"] > row["high"]:
        return row["measured"] - row["high"], "above"
    return row["low"] - row["measured"], "below"


def _weights(worst: RankBudget, model: Model, job: Job, engine: int) -> dict[str, Any]:
    """Tensors alone, without what an engine (`engine` bytes in all) puts beside them."""
    amount = model.weights_bytes(job.shares, job.pp, stage=worst.stage)
    value, low, high = int(amount.value), int(amount.low), int(amount.high)
    measured = worst.term("weights_memory")
    agrees = None if measured is None else low <= measured <= high
    more = max(0, engine - value)
    return _row("weights_memory", measured, value, low, high, agrees,
                f"the rank's tensors; an engine holds {more:,} B more (tables, copies, rounding)")  # fmt: skip


def _with_forward(
    rows: list[dict[str, Any]], measured: int, peak: Peak, model: Model, job: Job, policy: Policy
) -> tuple[list[dict[str, Any]], list[str]]:
    """The forward alone, which the sampler hides in the peak, and transformers' difference."""
    closed = peak.forward + peak.workspace
    band = constants(policy.engine)["activation_band"]
    share = band["forward_share"] * peak.forward + band["moe_share"] * peak.workspace
    slack = int(band["gib"] * GIB + share)
    low, high = max(0, closed - slack), closed + slack
    own = job.runner == "own"
    agrees = low <= measured <= high if own else None
    rows.append(_row("forward_memory", measured, closed, low, high, agrees, "forward + workspace"))
    if own:
        return rows, []
    beside = 100 * (measured / closed - 1) if closed else 0.0
    return rows, [
        f"transformers' forward needs {measured:,} B, {beside:+.1f} % beside the closed form of an "
        f"engine's ({closed:,} B): it keeps buffers that an engine's fused kernels do not"
    ]


def _row(
    name: str, measured: int | None, value: int, low: int, high: int, agrees: bool | None,
    formula: str,
) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "measured": measured, "value": value, "low": low, "high": high,
            "agrees": agrees, "formula": formula}  # fmt: skip
