"""What a triage says: one verdict with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.triage.sentence import Sentence


@dataclass(frozen=True)
class Verdict:
    """What happened, as far as the text supports it. Lines count from 1 in the input."""

    cause: str
    confidence: str
    phase: str | None = None
    rank: str | None = None
    fatal: bool = True
    lines: tuple[int, ...] = ()
    explanation: str = ""
    alternatives: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    ruled_out: tuple[tuple[int, str, str], ...] = ()
    """(line, text, why) of lines that only look like the cause"""
    sentence: Sentence | None = None
    rule: str | None = None
    facts: dict[str, Fact] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.cause.split(".", 1)[0]
