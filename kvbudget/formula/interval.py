"""Numbers known to lie in [low, high]: each operation gives the tightest interval of its operands.

Integers stay exact integers; an operation on a float is the IEEE double operation an engine in
Python performs. An interval of width zero gives exactly Python's result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.errors import KnowledgeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.units import Number


class FormulaError(KnowledgeError):
    """A formula cannot be read or evaluated."""


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= best <= high."""

    low: Number
    best: Number
    high: Number

    @classmethod
    def exact(cls, value: Number) -> Interval:
        return cls(value, value, value)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


def corners(op: Callable[[Number, Number], Number], a: Interval, b: Interval) -> Interval:
    """`op` on an operation that is monotone in each operand over the whole box."""
    best = op(a.best, b.best)
    if a.is_exact and b.is_exact:
        return Interval.exact(best)
    values = [op(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(*values, best), best, max(*values, best))


def divide(op: Callable[[Number, Number], Number], a: Interval, b: Interval) -> Interval:
    """A quotient; raises FormulaError when the divisor can be 0."""
    if b.low <= 0 <= b.high:
        raise FormulaError("division by zero")
    return corners(op, a, b)


def modulo(a: Interval, b: Interval) -> Interval:
    """Python's `%` on a positive divisor; inexact operands give the remainder's whole range."""
    if b.low <= 0:
        raise FormulaError("remainder of a division by zero or by a negative number")
    best = a.best % b.best
    if a.is_exact and b.is_exact:
        return Interval.exact(best)
    if b.is_exact and a.low // b.best == a.high // b.best:
        return Interval(a.low % b.best, best, a.high % b.best)
    return Interval(0, best, max(best, b.high - 1 if isinstance(b.high, int) else b.high))


def ceil_div(a: Number, b: Number) -> Number:
    """-(-a // b): how many of size b it takes to hold a."""
    return -(-a // b)


def monotone(op: Callable[[Number], Number], a: Interval) -> Interval:
    """A function that never falls."""
    return Interval(op(a.low), op(a.best), op(a.high))


def hull(best: Interval, other: Interval) -> Interval:
    return Interval(min(best.low, other.low), best.best, max(best.high, other.high))


def finite(value: Interval) -> Interval:
    """Raises FormulaError on infinity and NaN: they are not numbers of bytes."""
    if not all(math.isfinite(x) for x in (value.low, value.best, value.high)):
        raise FormulaError("the result is not a finite number")
    return value
