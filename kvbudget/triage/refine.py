"""What the lines around a failure add to the cause that its own words name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.triage.rules import Finding, Situation, neighbour_counted, page_rounding, who_asked
from kvbudget.units import format_amount

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.facts import Fact

BARE = "vram.capacity_exceeded"
"""The allocator's sentence alone: who asked is another question."""
UNKNOWN = "unknown.insufficient_evidence"
NO_BUDGET = "vram.kv_budget_nonpositive"


def refined(cause: str, situation: Situation) -> Finding | None:
    """The finding that takes the place of `cause` here, if there is one."""
    rule = _BY_CAUSE.get(cause)
    return rule(situation) if rule is not None else None


def negative_figure(facts: dict[str, Fact]) -> Fact | None:
    """A KV budget below zero, as printed."""
    for name in ("kv_cache_memory", "kv_cache_tokens_profiled"):
        fact = facts.get(name)
        if fact is not None and isinstance(fact.value, int | float) and fact.value < 0:
            return fact
    return None


def budget_words(figure: Fact) -> str:
    """What a negative figure comes to, to be read behind "the KV budget is"."""
    return format_amount(float(figure.value), figure.unit)


def _refused_as_invalid(s: Situation) -> Finding | None:
    pinned = next((e for e in s.owners if e.cause == "host.pinned_alloc_failed"), None)
    if pinned is None:
        return None
    return Finding(
        "host.pinned_alloc_rejected",
        "likely",
        "a pinned host buffer was being created when the call was refused as invalid",
        "pinned_rejected",
        "offload_init",
        (pinned.line,),
    )


def _torn_down(s: Situation) -> Finding | None:
    if not any(e.entry.id == "frame.destroy_group" for e in s.owners):
        return None
    return Finding(
        "not_oom.secondary_symptom",
        "likely",
        "the communicator was being torn down: the failure came before",
        "teardown",
        "teardown",
    )


def _no_budget(s: Situation) -> Finding | None:
    finding, figure = neighbour_counted(s.facts), negative_figure(s.facts)
    if finding is not None or figure is None:
        return finding
    return Finding(
        NO_BUDGET,
        "certain",
        f"the KV budget is {budget_words(figure)}: not positive",
        "negative_budget",
        "kv_sizing",
        (figure.line,),
    )


def _woken(s: Situation) -> Finding | None:
    first = s.owner is not None and s.owner.entry.phase in ("weights", "kv_alloc")
    if s.owner is None or not first or s.event.entry.confidence == "certain":
        return None
    return Finding(
        s.owner.cause or "vram.wake_up_no_room",
        "possible",
        "the allocator of sleep mode was refused at a first allocation",
        "first_allocation",
        s.owner.entry.phase,
        (s.owner.line,),
    )


_BY_CAUSE: dict[str, Callable[[Situation], Finding | None]] = {
    UNKNOWN: _refused_as_invalid,
    BARE: who_asked,
    "vram.collective_buffers": _torn_down,
    NO_BUDGET: _no_budget,
    "kv.pool_exhausted": lambda s: page_rounding(s.facts),
    "vram.wake_up_no_room": _woken,
}
