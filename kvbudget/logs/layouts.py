"""Budgets in the engines' own terms, from what one rank printed (logparsers/layouts.yaml)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Budget, Provenance, Term
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading


@cache
def layouts() -> tuple[dict[str, Any], ...]:
    """The layouts of logparsers/layouts.yaml, in the order in which they are tried."""
    return tuple(load_shipped(knowledge_file("logparsers", "layouts.yaml"))["layouts"])


def budgets_of(reading: LogReading) -> Iterator[tuple[Budget, str, tuple[str, ...]]]:
    """(budget, layout id, names of terms that were not printed) for each rank that says enough.

    Facts without a rank (settings, the summary of the whole server) serve every rank.
    """
    ranks = {fact.rank for fact in reading.facts if fact.unit == "B" and fact.source == "log"}
    tagged = sorted(rank for rank in ranks if rank is not None)
    every: list[str | None] = [*tagged] or [None]
    for rank in every:
        facts: dict[str, Fact] = {}
        for fact in reading.facts:
            if fact.rank is None:
                facts.setdefault(fact.name, fact)
        own: dict[str, Fact] = {}
        for fact in reading.facts:
            if rank is not None and fact.rank == rank:
                own.setdefault(fact.name, fact)
        facts.update(own)
        for layout in layouts():
            built = _build(layout, facts, rank)
            if built is not None:
                yield built
                break


def _build(
    layout: dict[str, Any], facts: dict[str, Fact], rank: str | None
) -> tuple[Budget, str, tuple[str, ...]] | None:
    capacity = _term(layout["capacity"], facts)
    if capacity is None:
        return None
    terms, missing = [], []
    for spec in layout["terms"]:
        term = _term(spec, facts)
        if term is not None:
            terms.append(term)
        elif spec.get("required"):
            return None
        elif not spec.get("optional"):
            missing.append(spec["name"])
    if len(terms) < layout.get("at_least", 2):
        return None
    return Budget(rank, capacity, tuple(terms)), layout["id"], tuple(missing)


def _term(spec: dict[str, Any], facts: dict[str, Fact]) -> Term | None:
    """A printed figure, else the sum or product its `derive` spells from printed ones."""
    fact = facts.get(spec["name"])
    if (
        fact is not None
        and isinstance(fact.value, int)
        and fact.low is not None
        and fact.high is not None
    ):
        amount = Amount(fact.value, fact.low, fact.high, "B")
        where = Provenance("log", f"line {fact.line}", fact.line, fact.pattern)
        return Term(spec["name"], amount, where, spec["label"], (fact.line,), (fact.name,))
    for way in spec.get("derive", ()):
        found = [facts.get(name) for name in way["from"]]
        used = [f for f in found if f is not None and f.low is not None and f.high is not None]
        if len(used) != len(found):
            continue
        amounts = [Amount(f.value, f.low, f.high, f.unit or "") for f in used]  # type: ignore[arg-type]
        amount = _combine(way["how"], amounts)
        lines = tuple(f.line for f in used)
        names = tuple(f.name for f in used)
        said = Provenance("derived", f"{way['how']} of {', '.join(names)}")
        return Term(spec["name"], amount, said, spec["label"], lines, names)
    return None


def _combine(how: str, amounts: list[Amount]) -> Amount:
    if how == "product":
        a, b = amounts
        return Amount(round(a.value * b.value), int(a.low * b.low), round(a.high * b.high), "B")
    rest = amounts[0]
    for amount in amounts[1:]:
        rest = rest - amount if how == "difference" else rest + amount
    return rest
