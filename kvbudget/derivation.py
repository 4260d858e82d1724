"""The steps an engine takes from bytes to blocks, with numbers put in and sources named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.budget import Amount, Term


@dataclass(frozen=True, slots=True)
class Source:
    """Where an engine does this arithmetic. `versions` is the range in which it holds."""

    repo: str
    path: str
    lines: str | None = None
    commit: str | None = None
    versions: str | None = None
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """`name (symbol) = expr = substituted = amount`."""

    name: str
    symbol: str
    doc: str
    expr: str
    substituted: str
    amount: Amount
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """Inputs (terms with their provenance) and the steps taken from them, in order."""

    file: str
    engine: str
    version: str | None
    inputs: tuple[Term, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)
