"""The pools of two engines explained, term by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.derive.document import RESULT
from kvbudget.diff.movement import Movement

if TYPE_CHECKING:
    from kvbudget.diff.sides import Side

SHARED = (
    ("context_memory", "in place before the weights; outside the other engine's budget"),
    ("weights_memory", "both load the same weights"),
    ("load_growth_memory", "comes up while loading; the other counts it as non-torch"),
    ("peak_activation_memory", "measured by a profile run; the other holds a reserve for it"),
    ("non_torch_memory", "measured by a profile run; the other holds a reserve for it"),
    ("cuda_graph_memory_applied", "estimated by a capture; the other holds a reserve for it"),
    ("multimodal_reserve", "set aside for a vision tower"),
    ("state_memory", "recurrent states have a pool of their own in one engine"),
)  # fmt: skip
"""Terms that share the card with the pool, and why one engine may have none of the name."""


def across(a: Side, b: Side) -> list[Movement]:
    """The pools of two engines explained: the deltas of the terms and of what is left outside add
    up, with the pool's own, to the delta of the total.
    """
    rows = []
    for name, why in SHARED:
        left, right = a.numbers.get(name), b.numbers.get(name)
        if (left is None or not left.value) and (right is None or not right.value):
            continue
        delta = (right.value if right else 0) - (left.value if left else 0)
        silent = "" if left and right else f"no such term in {(b if left else a).label}: "
        values = (left.value if left else None, right.value if right else None)
        rows.append(Movement(name, *values, delta, "B", "engine", silent + why))
    left_out, right_out = _outside(a), _outside(b)
    if left_out is not None and right_out is not None:
        why = "left of the card after terms and pool: margin, reserve"
        moved = right_out - left_out
        rows.append(Movement("outside_memory", left_out, right_out, moved, "B", "engine", why))
    for name in ("kv_cache_memory", *(n for n in RESULT if n != "kv_cache_memory")):
        left, right = a.numbers.get(name), b.numbers.get(name)
        if left is None or right is None or left.value == right.value:
            continue
        why = ENGINE_TEXT.get(name, "counted by each engine in its own way")
        moved = right.value - left.value
        rows.append(Movement(name, left.value, right.value, moved, left.unit, "engine", why))
    return rows


ENGINE_TEXT = {
    "requested_memory": "a share of the total in one, of what is free in the other",
    "kv_cache_memory": "what each subtraction leaves: the terms above, sign reversed",
    "margin_memory": "the complement of a share; in one it must hold activations too",
    "kv_cache_tokens": "pool divided by bytes per token, each engine's rounding",
}  # fmt: skip


def _outside(side: Side) -> float | None:
    total, pool = side.numbers.get("total_memory"), side.numbers.get("kv_cache_memory")
    if total is None or pool is None:
        return None
    taken = sum(side.numbers[name].value for name, _ in SHARED if name in side.numbers)
    return total.value - taken - pool.value
