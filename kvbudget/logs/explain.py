"""A reading of a log -> the report of explain-log: facts, budgets per rank, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.logs.blocks import derive_blocks
from kvbudget.logs.layouts import budgets_of
from kvbudget.logs.notes import Note, notes_of

if TYPE_CHECKING:
    from kvbudget.budget import Budget
    from kvbudget.derivation import Derivation
    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading


@dataclass(frozen=True, slots=True)
class RankBudget:
    """A budget in an engine's own terms; `complete` when no term of the layout is missing."""

    budget: Budget
    layout: str
    complete: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    engine: str | None
    engine_version: str | None
    facts: tuple[Fact, ...]
    budgets: tuple[RankBudget, ...]
    derivations: tuple[tuple[str | None, Derivation], ...]
    notes: tuple[Note, ...]


def explain(
    reading: LogReading, *, bytes_per_block: int | None = None, block_size: int = 16
) -> Report:
    """The report of one log. `bytes_per_block`: KV bytes of a block over all layers of a rank."""
    budgets = tuple(
        RankBudget(budget, layout, not missing, missing)
        for budget, layout, missing in budgets_of(reading)
    )
    derivations = tuple(derive_blocks(reading, bytes_per_block, block_size))
    return Report(
        reading.name,
        reading.engine,
        reading.engine_version,
        tuple(reading.facts),
        budgets,
        derivations,
        tuple(notes_of(reading, [entry.budget for entry in budgets])),
    )
