"""Remedies for a verdict: one direction per knob, spelled for the engine, with a value if known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.triage.causes import catalogue
from kvbudget.triage.values import RULES

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.triage.result import Verdict


@dataclass(frozen=True)
class Remedy:
    """One step. direction: raise, lower, set, unset or None (nothing to turn)."""

    action: str
    flag: str | None
    direction: str | None
    value: str | None
    why: str


def remedies(verdict: Verdict, engine: str | None, facts: dict[str, Fact]) -> tuple[Remedy, ...]:
    """The steps of the cause's row. A knob that `engine` does not have is left out."""
    book = catalogue()
    found = []
    for step in book.cause(verdict.cause).do:
        flag = step.flag
        if step.knob is not None:
            flag = book.flag(step.knob, engine)
            if flag is None:
                continue
        value = RULES[step.value](verdict, facts) if step.value else None
        found.append(Remedy(step.action, flag, step.direction, value, step.why))
    return tuple(found)


def useless(verdict: Verdict) -> tuple[str, ...]:
    """What people try here and cannot help."""
    return catalogue().cause(verdict.cause).cannot
