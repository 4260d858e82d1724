"""The pool that a log prints, under another share of the card: it moves as the request does.

Everything that is held back stays what it was, printed or not, so the log's pool and the
arithmetic's difference between the two shares say more than modelled terms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance
from kvbudget.formula.evaluate import Run, evaluate
from kvbudget.formula.interval import Interval
from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.derive.gathered import Gathered
    from kvbudget.derive.request import Evidence
    from kvbudget.formula.program import Program
    from kvbudget.formula.registry import Engine


def carried_pool(
    engine: Engine, evidence: Mapping[str, Evidence], changed: Sequence[str]
) -> str | None:
    """The fact of the pool, where the log has it and only the share of the card (index.yaml:
    pool_follows) is another one than the log's."""
    rule = engine.raw.get("pool_follows") or {}
    pool = evidence.get(rule.get("pool", ""))
    if pool is None or pool.provenance.kind != "log" or list(changed) != [rule["share"]]:
        return None
    before = evidence.get(rule["share"])
    known = before is not None and isinstance(before.value, Amount)
    return str(rule["pool"]) if known else None


def carry(
    facts: Gathered, run: Run, programs: list[Program], evidence: Mapping[str, Evidence],
    pool: str, share: str,
) -> Run:  # fmt: skip
    """Put the log's pool at this share into `facts` and run the arithmetic on from it."""
    printed, before = evidence[pool], evidence[share].value
    assert isinstance(printed.value, Amount)
    assert isinstance(before, Amount)
    given = facts.facts()
    then = {**given.numbers, share: Interval(before.low, before.value, before.high)}
    old, new = evaluate(programs, replace(given, numbers=then)).amount(pool), run.amount(pool)
    if old is None or new is None:
        return run
    best = new.value - old.value
    steps = sorted((new.low - old.low, best, new.high - old.high))
    moved = Amount(
        printed.value.value + best, printed.value.low + steps[0], printed.value.high + steps[2], "B"
    )
    by = f"moved by {'-' if best < 0 else '+'}{format_size(abs(int(best)))}"
    facts.number(pool, moved, Provenance("derived", f"{printed.provenance.source}, {by}"))
    facts.notes.append(f"{pool} is the log's, {by}: what the engine holds back stays the same")
    return evaluate(programs, facts.facts())
