"""Two budgets aligned: which term moved, by how much, and because of which flag or version."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.derive.document import RESULT, SCHEMA, document
from kvbudget.derive.sources import fact_evidence, profile_terms, read_json
from kvbudget.errors import InputError
from kvbudget.formula.program import joined
from kvbudget.formula.registry import engine_names, load_engine
from kvbudget.units import format_gib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbudget.derive.assemble import Derived
    from kvbudget.derive.request import Evidence

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


@dataclass(frozen=True)
class Side:
    """One of the two: numbers by fact name, settings by flag name."""

    label: str
    engine: str | None
    version: str | None
    numbers: Mapping[str, Amount]
    flags: Mapping[str, Any] = field(default_factory=dict)


def read_side(path: Path) -> Side:
    """A log, a profile, or JSON of derive or explain-log. Raises InputError for anything else."""
    if not _looks_like_json(path):
        return _from_log(path)
    raw = read_json(path)
    kind = str(raw.get("schema", "")).partition("/")[0]
    if kind == "kvbudget.derive" and "engines" not in raw:
        return from_document(raw, path.name)
    if kind == "kvbudget.profile":
        terms = profile_terms(raw, path.name)
        engine, _, version = str(raw.get("policy") or "").partition("@")
        return Side(path.name, engine or None, version or None, _numbers(terms))
    if kind == "kvbudget.explain-log":
        return _from_explain(raw, path.name)
    raise InputError(
        f"{path.name} is not something to compare",
        "a start-up log, a profile, or JSON of derive (one engine) or explain-log",
    )


def _looks_like_json(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(4096).lstrip()
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}") from exc
    return head.startswith(b"{") and b'"schema"' in head


def _numbers(evidence: Mapping[str, Evidence]) -> dict[str, Amount]:
    return {k: e.value for k, e in evidence.items() if isinstance(e.value, Amount)}


def from_document(raw: Mapping[str, Any], label: str) -> Side:
    """A kvbudget.derive/1 object: terms, memory steps, results and flags."""
    numbers: dict[str, Amount] = {}
    for row in (*raw.get("terms", ()), *raw.get("steps", ())):
        wanted = row["unit"] == "B" or row["name"] in RESULT
        if wanted and "[" not in row["name"]:
            numbers[row["name"]] = Amount(row["value"], row["low"], row["high"], row["unit"])
    for name, value in (raw.get("result") or {}).items():
        if value is not None and name not in numbers:
            numbers[name] = Amount.exact(value, _unit(name))
    flags = {k: v.get("value") for k, v in (raw.get("flags") or {}).items()}
    model = (raw.get("model") or {}).get("name")
    if model:
        flags["model"] = model
    return Side(label, raw.get("engine"), raw.get("engine_version"), numbers, flags)


def _unit(name: str) -> str:
    from kvbudget.facts import FACTS

    spec = FACTS.get(name)
    return spec.unit if spec is not None and spec.unit is not None else "n"


def _from_log(path: Path) -> Side:
    from kvbudget.logs.collect import read_log

    reading = read_log(path)
    if not reading.facts:
        raise InputError(
            f"{path.name}: no line of a known engine", "kvbudget explain-log says more"
        )
    start = reading.starts[-1] if len(reading.starts) > 1 else 0
    facts = [fact for fact in reading.facts if fact.line >= start]
    evidence = fact_evidence(facts, path.name)
    return _split(path.name, reading.engine, reading.engine_version, evidence)


def _from_explain(raw: Mapping[str, Any], label: str) -> Side:
    from kvbudget.facts import Fact

    facts = [
        Fact(f["name"], f["value"], f["unit"], f["printed"], f["low"], f["high"], f["rank"],
             f["line"], f["pattern"], f.get("source", "log"))
        for f in raw.get("facts", ())
    ]  # fmt: skip
    if not facts:
        raise InputError(f"{label} holds no facts", "kvbudget explain-log recognised nothing")
    evidence = fact_evidence(facts, label)
    return _split(label, raw.get("engine"), raw.get("engine_version"), evidence)


def _split(
    label: str, engine: str | None, version: str | None, evidence: Mapping[str, Evidence]
) -> Side:
    """Settings to one side, measurements to the other."""
    from kvbudget.derive.flags import load_flags

    known = load_flags(engine) if engine in engine_names() else {}
    settings = {flag.fact for flag in known.values()} | set(known)
    flags: dict[str, Any] = {}
    numbers: dict[str, Amount] = {}
    for name, item in evidence.items():
        if name in settings and name not in ("kv_cache_memory", "num_gpu_blocks"):
            flags[name] = item.value.value if isinstance(item.value, Amount) else item.value
        elif isinstance(item.value, Amount):
            numbers[name] = item.value
    return Side(label, engine, version, numbers, flags)


@dataclass(frozen=True)
class Movement:
    """One row of a difference. `delta` is b - a in `unit`, None where a side is silent."""

    name: str
    a: float | None
    b: float | None
    delta: float | None
    unit: str
    cause: str
    explanation: str


def compare(a: Side, b: Side) -> list[Movement]:
    """Every number that moved or that only one side has, memory first.

    Two printed figures whose intervals overlap did not move, nor did a modelled one whose best
    value is what the other side prints. The cause is the changed flag the figure depends on, else
    the version, else the engine, else `unexplained`.
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
    if moved:
        shown = ", ".join(f"{f} {a.flags[f]} -> {b.flags[f]}" for f in moved)
        return f"flag {', '.join(moved)}", shown
    if "model" in changed:
        return "flag model", f"{a.flags['model']} -> {b.flags['model']}"
    if a.version and b.version and a.version != b.version:
        return "version", f"{a.engine} {a.version} -> {b.version}"
    if name in ("total_memory", "free_memory"):
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


def diff_document(a: Side, b: Side) -> dict[str, Any]:
    """The JSON object of `kvbudget diff`."""
    changed = changed_flags(a, b)
    return {
        "schema": "kvbudget.diff/1",
        "a": {"label": a.label, "engine": a.engine, "engine_version": a.version},
        "b": {"label": b.label, "engine": b.engine, "engine_version": b.version},
        "flags": [{"name": n, "a": a.flags[n], "b": b.flags[n]} for n in changed],
        "terms": [movement_object(row) for row in compare(a, b)],
    }


def movement_object(row: Movement) -> dict[str, Any]:
    """One row as JSON."""
    return {"name": row.name, "a": row.a, "b": row.b, "delta": row.delta, "unit": row.unit,
            "cause": row.cause, "explanation": row.explanation}  # fmt: skip


def both(results: Sequence[Derived]) -> dict[str, Any]:
    """The JSON of `derive --engine both`: two objects and the gap between their pools."""
    documents = [document(result) for result in results]
    sides = [from_document(d, str(d["engine"])) for d in documents]
    rows = [movement_object(row) for row in compare(sides[0], sides[1])]
    return {"schema": SCHEMA, "engine": "both", "engines": documents, "gap": rows}
