"""Two sides of one engine: what moved, and the flag, version or figure it moved with."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kvbudget.budget import Amount
from kvbudget.derive.document import RESULT
from kvbudget.diff.engines import across
from kvbudget.diff.movement import Movement
from kvbudget.errors import InputError
from kvbudget.formula.program import joined
from kvbudget.formula.registry import engine_names, load_engine
from kvbudget.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.diff.sides import Side

MEMORY_ORDER = (
    "total_memory", "free_memory", "requested_memory", "weights_memory", "peak_activation_memory",
    "non_torch_memory", "cuda_graph_memory_estimate", "cuda_graph_memory_applied",
    "cuda_graph_memory", "non_kv_memory", "kv_cache_memory",
)  # fmt: skip
SIGNED_AGAINST = frozenset(
    {"weights_memory", "peak_activation_memory", "non_torch_memory", "cuda_graph_memory_applied",
     "non_kv_memory"}
)  # fmt: skip
"""Terms that take from the KV pool when they grow."""


def compare(a: Side, b: Side) -> list[Movement]:
    """Every number that moved or that only one side has, memory first.

    Two printed figures whose intervals overlap did not move, nor did a modelled one whose best
    value is what the other side prints. The cause is the changed flag the figure depends on, else
    the version, else the engine, else `unexplained`; a default that another release changed, and
    nobody set, is that release's doing.
    """
    if a.engine and b.engine and a.engine != b.engine:
        return across(a, b)
    changed = changed_flags(a, b)
    names = sorted({*a.numbers, *b.numbers}, key=_position)
    differ = [
        name for name in names
        if name not in a.numbers or name not in b.numbers
        or not _same(a.numbers[name], b.numbers[name])
    ]  # fmt: skip
    moved = [name for name in differ if name in a.numbers and name in b.numbers]
    return [_movement(name, a, b, changed, moved) for name in differ]


PRINTED_WIDTH = 2**24
"""Bytes: an interval no wider comes of printed digits (two of a GiB); a wider one is a band."""


def _same(a: Amount, b: Amount) -> bool:
    if a.value == b.value:
        return True
    if a.unit != "B":
        return False
    narrow = [side for side in (a, b) if side.high - side.low <= PRINTED_WIDTH]
    if len(narrow) == 2:
        return a.overlaps(b)
    return any(side.low <= other.value <= side.high for side in narrow for other in (a, b)
               if other is not side)  # fmt: skip


def _position(name: str) -> tuple[int, str]:
    if name in MEMORY_ORDER:
        return MEMORY_ORDER.index(name), name
    return (len(MEMORY_ORDER) + (1 if name in RESULT else 2)), name


def changed_flags(a: Side, b: Side) -> list[str]:
    """Settings both sides state differently, or that only one of two derivations states."""
    both = [n for n in a.flags if n in b.flags and a.flags[n] != b.flags[n]]
    return both if a.engine == b.engine else []


def _movement(
    name: str, a: Side, b: Side, changed: Sequence[str], moved: Sequence[str]
) -> Movement:
    left, right = a.numbers.get(name), b.numbers.get(name)
    unit = (left or right or Amount.exact(0, "n")).unit
    delta = None if left is None or right is None else right.value - left.value
    cause, why = _cause(name, a, b, changed)
    if left is None or right is None:
        silent = a.label if left is None else b.label
        why = f"not stated by {silent}"
    elif cause == "unexplained":
        reasons = [_beside_a_band(left, right, a, b), _follows(name, a, b, moved)]
        why = "; ".join(reason for reason in reasons if reason) or why
    if delta is not None and name in SIGNED_AGAINST:
        why += f"; {'takes from' if delta > 0 else 'gives to'} the KV pool"
    return Movement(
        name, None if left is None else left.value, None if right is None else right.value,
        delta, unit, cause, why,
    )  # fmt: skip


def _cause(name: str, a: Side, b: Side, changed: Sequence[str]) -> tuple[str, str]:
    depends = _depends(name, a, b) | {name}
    moved = [flag for flag in changed if flag in depends]
    shown = ", ".join(f"{f} {a.flags[f]} -> {b.flags[f]}" for f in moved)
    other_release = bool(a.version and b.version and a.version != b.version)
    defaults = other_release and all(f in a.unset and f in b.unset for f in moved)
    if moved and not defaults:
        return f"flag {', '.join(moved)}", shown
    if "model" in changed:
        return "flag model", f"{a.flags['model']} -> {b.flags['model']}"
    if other_release:
        own = f"; default {shown}" if moved else ""
        return "version", f"{a.engine} {a.version} -> {b.version}{own}"
    if name in ("total_memory", "free_memory", "avail_memory_before_weights"):
        return "unexplained", "another card, driver or neighbour"
    return "unexplained", "no changed flag or version that this figure depends on"


def _depends(name: str, a: Side, b: Side) -> set[str]:
    """Facts and flags the figure comes of in the release of either side."""
    if a.engine not in engine_names():
        return set()
    sides = (dependencies(str(a.engine), version) for version in (a.version, b.version))
    return {fact for reads in sides for fact in reads.get(name, ())}


def _follows(name: str, a: Side, b: Side, moved: Sequence[str]) -> str | None:
    """The moved figures this one is computed from; the pool alone where it goes through it."""
    depends = _depends(name, a, b) - {name}
    sources = [other for other in moved if other in depends and other in MEMORY_ORDER]
    if "kv_cache_memory" in sources:
        sources = ["kv_cache_memory"]
    return f"follows from {', '.join(sources)}" if sources else None


def _beside_a_band(left: Amount, right: Amount, a: Side, b: Side) -> str | None:
    """What a printed or measured figure says of the band a model gave; None for two of a kind."""
    for banded, model, other in ((left, a, right), (right, b, left)):
        narrow = other.high - other.low <= PRINTED_WIDTH
        if banded.unit == "B" and narrow and banded.high - banded.low > PRINTED_WIDTH:
            inside = banded.low <= other.high and other.low <= banded.high
            place = "inside" if inside else "outside"
            low, high = format_gib(banded.low), format_gib(banded.high)
            return f"{place} the band {low} .. {high} of {model.label}"
    return None


@cache
def dependencies(engine: str, version: str | None) -> dict[str, set[str]]:
    """Every step and modelled term of a release -> the facts and flags it depends on."""
    index = load_engine(engine)
    release = version or index.latest
    moved_by: Mapping[str, Sequence[str]] = index.raw.get("moved_by") or {}
    found = {term: set(flags) for term, flags in moved_by.items()}
    try:
        texts = index.selectors(release, {})
        inputs, steps = joined(index.programs(release, texts))
    except InputError:
        return found
    del inputs
    for step in steps:
        names = {n for case in step.cases for n in (*case.expr.names, *case.when)}
        names |= {str(arg).removeprefix("=") for arg in step.args.values()}
        names |= {step.over} if step.over else set()
        reach = set(names)
        for name in names:
            reach |= found.get(name, set())
        found[step.name] = found.get(step.name, set()) | reach
        for column in step.columns:
            found[column] = reach
    return found
