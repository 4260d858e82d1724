"""Lines -> hits: which pattern matched where, what its groups hold, who printed it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kvbudget.logs.clean import rank_before, starts_record, strip_colours, strip_stamps
from kvbudget.logs.record import Record
from kvbudget.logs.speaker import Speaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbudget.knowledge.patterns import Pattern, PatternSet
    from kvbudget.logs.scan import RawLine

MAX_PARTS = 13
"""Physical lines that one record may span."""
_SPACES = re.compile(r"(?<=\S) {2,}")


@dataclass(slots=True)
class Hit:
    """One match of one pattern. `line` is the physical line on which the match begins."""

    pattern: Pattern
    match: re.Match[str]
    text: str
    line: int
    rank: str | None
    record: Record
    starts: list[int] = field(default_factory=list)
    """offset in `text` at which each physical line of the record begins"""

    @property
    def id(self) -> str:
        return self.pattern.id

    def line_of(self, position: int) -> int:
        """The physical line that holds this offset of `text`."""
        if not self.starts:
            return self.line
        index = max(i for i, start in enumerate(self.starts) if start <= max(position, 0))
        return self.record.numbers[index]


def records(lines: Iterable[RawLine]) -> Iterator[Record]:
    """Groups physical lines: a line without a head of its own continues the one before it."""
    current: Record | None = None
    speaker = Speaker()
    for line in lines:
        text = strip_colours(line.text)
        if not line.complete:
            text = _mend_unit(text)
        continues = (
            current is not None
            and line.number == current.numbers[-1] + 1
            and len(current.parts) < MAX_PARTS
            and text.strip() != ""
            and current.parts[-1].strip() != ""
            and not starts_record(strip_stamps(text))
        )
        if continues and current is not None:
            current.numbers.append(line.number)
            current.parts.append(text)
            current.raw.append(line.text)
            current.complete = line.complete
        else:
            if current is not None:
                yield current
            rank = rank_before(text, len(text))
            current = Record(
                [line.number], [text], [line.text], rank, line.complete,
                speaker.of(line.number, text, rank, current),
            )  # fmt: skip
    if current is not None:
        yield current


def _mend_unit(text: str) -> str:
    """A unit cut by the end of the text, where one reading is possible: 10.74Gi -> 10.74GiB."""
    return text + "B" if re.search(r"\d ?[KMGT]i$", text) else text


class Matcher:
    """Tries on each record the patterns whose literals stand in it."""

    def __init__(self, patterns: PatternSet) -> None:
        self.patterns = patterns

    @cached_property
    def _automaton(self) -> object:
        import ahocorasick_rs as ac

        return ac.AhoCorasick(self.patterns.literals)

    def candidates(self, text: str) -> list[Pattern]:
        seen: dict[str, Pattern] = {}
        for literal in self._automaton.find_matches_as_strings(text, overlapping=True):  # type: ignore[attr-defined]
            for pattern in self.patterns.by_literal[literal]:
                seen.setdefault(pattern.id, pattern)
        return list(seen.values())

    def hits(self, record: Record) -> list[Hit]:
        found: list[Hit] = []
        for index, (number, text) in enumerate(zip(record.numbers, record.parts, strict=True)):
            for pattern in self.candidates(text):
                matches = list(pattern.regex.finditer(text))
                body = text
                if not matches and "  " in text:
                    body = _SPACES.sub(" ", text)
                    matches = list(pattern.regex.finditer(body))
                for match in matches:
                    rank = rank_before(body, match.start())
                    if index and rank is None:
                        rank = record.rank
                    found.append(Hit(pattern, match, body, number, rank, record))
        if len(record.parts) > 1:
            found += self._spanning(record, found)
        return found

    def _spanning(self, record: Record, plain: list[Hit]) -> list[Hit]:
        """Matches that begin on one physical line and end on a later one."""
        done = {(hit.id, hit.line) for hit in plain}
        found: list[Hit] = []
        for glue in _glues(record):
            text, starts = _join(record, glue)
            for pattern in self.candidates(text):
                for match in pattern.regex.finditer(text):
                    first = _index(starts, match.start())
                    if _index(starts, max(match.end() - 1, match.start())) == first:
                        continue
                    line = record.numbers[first]
                    if (pattern.id, line) in done:
                        continue
                    done.add((pattern.id, line))
                    rank = rank_before(text, match.start())
                    found.append(Hit(pattern, match, text, line, rank, record, starts))
        return found


def _glues(record: Record) -> list[list[str]]:
    """What may stand between the lines of a record: nothing (hard wrap) or a blank (soft wrap)."""
    widths = [len(part) for part in record.parts[:-1]]
    full = max(widths)
    by_width = ["" if width >= 60 and width >= full - 1 else " " for width in widths]
    soft, hard = [" "] * len(widths), [""] * len(widths)
    return [
        glue
        for i, glue in enumerate((by_width, soft, hard))
        if glue not in (by_width, soft, hard)[:i]
    ]


def _join(record: Record, glue: list[str]) -> tuple[str, list[int]]:
    text = _SPACES.sub(" ", record.parts[0])
    starts = [0]
    for between, part in zip(glue, record.parts[1:], strict=True):
        body = _SPACES.sub(" ", strip_stamps(part))
        if between:
            text = text.rstrip() + between
            body = body.lstrip()
        starts.append(len(text))
        text += body
    return text, starts


def _index(starts: list[int], position: int) -> int:
    return max(i for i, start in enumerate(starts) if start <= position)
