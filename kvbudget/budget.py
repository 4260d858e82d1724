"""Amounts with their uncertainty, where a number comes from, and budgets whose terms add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvbudget.units import Number

ProvenanceKind = Literal[
    "log", "flag", "config", "headers", "profile", "derived", "measured", "modelled",
    "catalogue", "assumed", "engine_default",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity known to lie in [low, high], best value `value`; exact when all three agree."""

    value: Number
    low: Number
    high: Number
    unit: str

    @classmethod
    def exact(cls, value: Number, unit: str) -> Amount:
        return cls(value, value, value, unit)

    @property
    def is_exact(self) -> bool:
        return self.low == self.value == self.high

    def overlaps(self, other: Amount) -> bool:
        """True when one number could be both: the meaning of "explained" (design: intervals)."""
        return self.low <= other.high and other.low <= self.high

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.value + other.value, self.low + other.low, self.high + other.high, self.unit
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.value - other.value, self.low - other.high, self.high - other.low, self.unit
        )


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from. `source` is text for people; `line` counts from 1 in its input.

    kind: log and flag (read from a text), config and headers (files of a model), profile and
    measured (a device), derived (a step of a formula file), modelled (a formula with a band),
    catalogue (gpus.yaml), engine_default (an unset flag), assumed (the user said so).
    """

    kind: ProvenanceKind
    source: str
    line: int | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One row of a budget."""

    name: str
    amount: Amount
    provenance: Provenance
    label: str = ""
    lines: tuple[int, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """A capacity and the terms it is spent on; what they leave is a row of its own."""

    scope: str | None
    capacity: Term
    terms: tuple[Term, ...] = field(default_factory=tuple)

    @property
    def remainder(self) -> Amount:
        """capacity - sum(terms), in the capacity's unit; the interval widens with every term."""
        left = self.capacity.amount
        for term in self.terms:
            left = left - term.amount
        return left

    @property
    def closes(self) -> bool:
        rest = self.remainder
        return rest.low <= 0 <= rest.high
