"""A hit's groups -> facts: the number in the unit the engine means, and the interval of its digits."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from kvbudget.errors import KnowledgeError
from kvbudget.facts import FACTS, Fact
from kvbudget.knowledge.schema import Line, Yield
from kvbudget.units import BYTE_FACTORS

if TYPE_CHECKING:
    from kvbudget.logs.match import Hit

_PRINTED = {
    **BYTE_FACTORS,
    "bytes": 1, "byte": 1, "Bytes": 1,
    "KB": 10**3, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_BINARY = {"KB": 2**10, "kB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


def facts_of(hit: Hit) -> list[Fact]:
    """The facts of one hit; a number cut off by the end of the input is none."""
    facts = []
    source = hit.pattern.entry.kind if isinstance(hit.pattern.entry, Line) else "log"
    for name, spec in hit.pattern.entry.yields.items():
        for part in spec if isinstance(spec, tuple) else (spec,):
            fact = _fact(hit, name, part, source)
            if fact is not None:
                facts.append(fact)
    return facts


def _fact(hit: Hit, name: str, spec: Yield, source: str) -> Fact | None:
    try:
        printed = hit.match.group(spec.group)
    except IndexError as exc:
        raise KnowledgeError(
            f"{hit.id}: no group {spec.group!r} in the pattern", file=hit.pattern.file
        ) from exc
    if printed is None:
        return None
    start, end = hit.match.span(spec.group)
    line = hit.line_of(start)
    rank = None if spec.rank == "none" else hit.rank
    unit = FACTS[name].unit
    if spec.value is not None:
        number = spec.value if not isinstance(spec.value, str) else None
        return Fact(name, spec.value, unit, printed, number, number, rank, line, hit.id, source)
    if _cut(hit, end):
        return None
    if unit is None:
        return Fact(name, printed, None, printed, None, None, rank, line, hit.id, source)
    try:
        read = Decimal(printed.replace(",", "").replace("_", "").strip())
    except InvalidOperation:
        return None
    factor = _factor(hit, spec, unit)
    if factor is None:
        return None
    exponent = read.as_tuple().exponent
    whole = not isinstance(exponent, int) or exponent >= 0
    if factor == 1 and spec.scale == 1 and whole:
        count = int(read)
        return Fact(name, count, unit, printed, count, count, rank, line, hit.id, source)
    digit = Decimal(1).scaleb(int(exponent))
    if spec.resolution:  # an engine that rounds to two decimals and drops zeros prints 30.3
        digit = min(digit, Decimal(str(spec.resolution)))
    scale = Decimal(factor) * Decimal(str(spec.scale))
    value = read * scale
    half = digit * scale / 2 if source == "log" else Decimal(0)  # a setting is what was typed
    if unit == "B":
        if factor == 1:
            half = Decimal(0)
        rounded = math.floor(value + Decimal("0.5"))
        low, high = math.ceil(value - half), math.floor(value + half)
        return Fact(
            name,
            rounded,
            unit,
            printed,
            min(low, rounded),
            max(high, rounded),
            rank,
            line,
            hit.id,
            source,
        )
    if unit in ("tok", "blk", "req", "n", "slot", "dev", "code") and value == int(value):
        count = int(value)
        return Fact(name, count, unit, printed, count, count, rank, line, hit.id, source)
    return Fact(
        name, float(value), unit, printed, float(value - half), float(value + half), rank, line,
        hit.id, source,
    )  # fmt: skip


def _factor(hit: Hit, spec: Yield, unit: str) -> int | None:
    """Factor from the printed number to the fact's unit; None when the unit is unknown."""
    if spec.unit_group:
        printed = hit.match.group(spec.unit_group)
        if printed is None:
            return (
                1 if spec.unit in (None, "B") and unit != "B" else BYTE_FACTORS.get(spec.unit or "")
            )
        if spec.unit == "binary" and printed in _BINARY:
            return _BINARY[printed]
        return _PRINTED.get(printed)
    if spec.unit in BYTE_FACTORS:
        return BYTE_FACTORS[spec.unit]
    if spec.unit in (None, unit):
        return 1
    raise KnowledgeError(
        f"{hit.id}: unit {spec.unit!r} of group {spec.group!r} is not known",
        file=hit.pattern.file,
    )


def _cut(hit: Hit, end: int) -> bool:
    """True when the number ends where the input ends without a newline: digits may be missing."""
    return (
        not hit.record.complete
        and end == len(hit.text)
        and hit.line_of(end - 1) == hit.record.numbers[-1]
    )
