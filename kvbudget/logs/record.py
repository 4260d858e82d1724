"""One message of a log: the physical lines that were written together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """Its physical lines (cleaned), the first one's number, who printed it."""

    numbers: list[int]
    parts: list[str]
    raw: list[str]
    rank: str | None
    complete: bool = True
    speaker: str | None = None
    """rank whose traceback this message ends, where its own line bears no tag"""

    @property
    def line(self) -> int:
        return self.numbers[0]
