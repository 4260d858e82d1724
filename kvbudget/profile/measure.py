"""Snapshots of one rank -> differences in bytes, under an engine's policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import RankRecord, Snapshot

LEAK_TOLERANCE = 64 * 2**20
"""Bytes by which free memory may differ before and after without anything being said."""


def non_torch(snapshot: Snapshot) -> int:
    """Bytes of the device in use outside torch's allocator at that moment, all owners together."""
    total, free = snapshot.need("driver_total"), snapshot.need("driver_free")
    return total - free - snapshot.need("torch_reserved")


@dataclass(frozen=True)
class Measured:
    """The differences between snapshots, in bytes."""

    total: int
    free_at_baseline: int
    weights: int
    slack: int
    persistent: int
    transient: int
    non_torch: int
    graphs: int | None
    forward: int
    before_baseline: int
    context: int | None

    @property
    def activations(self) -> int:
        return self.persistent + self.transient


def _at(record: RankRecord, phase: str) -> Snapshot:
    found = record.at(phase)
    if found is None:
        raise InputError(f"the record of {record.rank} has no phase {phase!r}", "record it again")
    return found


def baseline_of(record: RankRecord, policy: Policy) -> Snapshot:
    """The snapshot the policy's engine starts counting from."""
    name = "baseline" if policy.baseline == "handles" else policy.baseline
    return _at(record, name)


def measure(record: RankRecord, policy: Policy) -> Measured:
    """Differences of snapshots under `policy`. Raises InputError for an incomplete record."""
    base, weights = baseline_of(record, policy), _at(record, "weights")
    reset, after = _at(record, "reset"), _at(record, "after")
    ready = _at(record, "baseline").need("torch_allocated")
    allocated = weights.need("torch_allocated") - ready
    forward, sampler = (_at(record, phase).need("torch_peak") for phase in ("forward", "sampler"))
    # Libraries' workspaces come from torch's allocator. An engine whose snapshot precedes them
    # first meets them in its profile run, so they are activations that stay.
    workspaces = ready - base.need("torch_allocated")
    transient = max(forward, sampler) - after.need("torch_allocated")
    persistent = after.need("torch_allocated") - reset.need("torch_allocated") + workspaces
    end = after if policy.consumed == "driver" else weights
    slack = end.need("torch_reserved") - base.need("torch_reserved")
    slack -= end.need("torch_allocated") - base.need("torch_allocated")
    last = weights if policy.consumed == "load" else after
    graphs = record.at("graphs")
    context = record.at("context")
    first = context or base
    before, opened = record.at("before"), record.at("context")
    cost = None
    if before and opened and before.nvml_used is not None and opened.nvml_used is not None:
        cost = opened.nvml_used - before.nvml_used - opened.need("torch_reserved")
    return Measured(
        total=base.need("driver_total"),
        free_at_baseline=base.need("driver_free"),
        weights=allocated,
        slack=slack,
        persistent=persistent,
        transient=max(0, transient),
        non_torch=non_torch(last) - non_torch(base),
        graphs=None if graphs is None else graphs.extra.get("graph_memory"),
        forward=max(0, forward - reset.need("torch_allocated")),
        before_baseline=first.need("driver_free") - base.need("driver_free"),
        context=cost,
    )


def is_stable(record: RankRecord, policy: Policy) -> tuple[bool, list[str]]:
    """False, and why, when somebody else's memory moved while we measured."""
    base, after = baseline_of(record, policy), _at(record, "after")
    reasons = []
    if after.need("driver_free") > base.need("driver_free"):
        reasons.append("free memory grew while we allocated: a neighbour released memory")
    before, gone = record.at("before"), record.at("exit")
    if before and gone and before.nvml_used is not None and gone.nvml_used is not None:
        moved = gone.nvml_used - before.nvml_used
        if abs(moved) > LEAK_TOLERANCE:
            reasons.append(f"the device holds {moved:+,} bytes after we left: a neighbour moved")
    return not reasons, reasons


def leak(record: RankRecord) -> list[str]:
    """A sentence where freeing everything did not bring the memory of the baseline back."""
    base, freed = record.at("baseline"), record.at("free")
    if base is None or freed is None:
        return []
    held = base.need("driver_free") - freed.need("driver_free")
    if held <= LEAK_TOLERANCE:
        return []
    return [f"{held:,} B more than at the baseline are held after everything was freed"]
