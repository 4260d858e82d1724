"""One input read whole: its facts, the lines that hit, the engine it is about, and oddities."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kvbudget.knowledge.patterns import PatternSet, load_patterns
from kvbudget.logs.engines import engines, traces
from kvbudget.logs.figures import facts_of
from kvbudget.logs.match import Hit, Matcher, records
from kvbudget.logs.scan import Literals, lines, open_input, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.facts import Fact
    from kvbudget.logs.record import Record

EVERYTHING = 1 << 20
"""Inputs up to this size (bytes) are looked at whole, so that hard wraps can be undone."""
KEPT_RECORDS = 4000
"""Records without a hit that are kept at most, for readers that need the surroundings."""
MAX_FACTS = 20_000
SIZED = frozenset({"kv_sizing", "kv_alloc", "ready", "runtime"})


@dataclass
class LogReading:
    """What an input says. `records` holds the looked-at messages in input order."""

    name: str
    facts: list[Fact] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    milestones: list[tuple[int, str]] = field(default_factory=list)
    engine: str | None = None
    engine_version: str | None = None
    engines: dict[str, int] = field(default_factory=dict)
    reversed: bool = False
    total_lines: int = 0
    truncated: bool = False
    """the input ends without a newline"""
    repeated_lines: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """lines on which a start-up begins after an earlier one had come as far as its pool"""
    sized: set[str | None] = field(default_factory=set)
    """ranks whose pool is sized in the run at hand"""

    def best(self, name: str, rank: str | None = None) -> Fact | None:
        """The last fact of that name (for that rank, if the rank printed one)."""
        own = [f for f in self.facts if f.name == name and (rank is None or f.rank == rank)]
        return own[-1] if own else None


def read_log(
    source: str | Path | BinaryIO,
    patterns: PatternSet | None = None,
    *,
    name: str | None = None,
) -> LogReading:
    """Read a log (path, `-`, or a byte stream). Raises InputError when it cannot be read."""
    if patterns is None:
        patterns = load_patterns()
    if isinstance(source, (str, Path)):
        label = name or str(source)
        stream = open_input(source)
        if label == "-":
            stream = unpacked(stream, label)
    else:
        label, stream = name or "-", source
    reading = LogReading(label)
    try:
        raw = lines(stream, label, Literals(patterns.literals), everything=EVERYTHING)
        _read(reading, records(_counted(raw, reading)), Matcher(patterns))
    finally:
        if label != "-" and isinstance(source, (str, Path)):
            stream.close()
    _engine(reading, patterns)
    _order(reading)
    return reading


def _counted(raw: Iterable, reading: LogReading) -> Iterable:  # type: ignore[type-arg]
    for line in raw:
        reading.total_lines = line.number
        reading.truncated = not line.complete
        yield line


def _read(reading: LogReading, found: Iterable[Record], matcher: Matcher) -> None:
    seen: set[tuple[str, str | None, object]] = set()
    for record in found:
        hits = _best(matcher.hits(record))
        limit = 4 * KEPT_RECORDS if hits else KEPT_RECORDS
        if len(reading.records) < limit:
            reading.records.append(record)
        if any("[repeated " in part for part in record.parts):
            reading.repeated_lines.append(record.line)
        for hit in hits:
            if len(reading.hits) < MAX_FACTS:
                reading.hits.append(hit)
            if hit.pattern.entry.milestone:
                _reached(reading, hit.line, hit.pattern.entry.milestone, hit.rank)
            for fact in facts_of(hit):
                key = (fact.name, fact.rank, fact.value)
                if key not in seen and len(seen) < MAX_FACTS:
                    seen.add(key)
                    reading.facts.append(fact)
    reading.facts.sort(key=lambda fact: fact.line)


def _reached(reading: LogReading, line: int, phase: str, rank: str | None) -> None:
    """Notes a change of phase; a start after this rank sized its pool is another run."""
    if phase in SIZED:
        reading.sized.add(rank)
    elif phase == "dist_init" and (
        rank in reading.sized or None in reading.sized or (rank is None and reading.sized)
    ):
        reading.starts.append(line)
        reading.sized.clear()
    if not reading.milestones or reading.milestones[-1][1] != phase:
        reading.milestones.append((line, phase))


def _best(hits: list[Hit]) -> list[Hit]:
    """Of line patterns whose matches overlap, only the longest: one line, one reading."""
    kept: list[Hit] = []
    lines_first = sorted(
        hits, key=lambda h: (h.pattern.is_failure, -(h.match.end() - h.match.start()))
    )
    for hit in lines_first:
        clash = any(
            other.text is hit.text
            and other.pattern.is_failure == hit.pattern.is_failure
            and not hit.pattern.is_failure
            and other.match.start() < hit.match.end()
            and hit.match.start() < other.match.end()
            and set(other.pattern.entry.yields) & set(hit.pattern.entry.yields)
            for other in kept
        )
        if not clash:
            kept.append(hit)
    return sorted(kept, key=lambda h: (h.line, h.match.start()))


def _engine(reading: LogReading, patterns: PatternSet) -> None:
    """The engine the text is mainly about, and its version if the text states it."""
    votes: Counter[str] = Counter()
    versions: list[tuple[str, str]] = []
    for hit in reading.hits:
        entry = hit.pattern.entry
        evidence = entry.evidence_of
        if evidence is False:
            continue
        named = evidence if isinstance(evidence, str) else hit.pattern.engine
        if evidence is None and named not in engines():
            continue
        votes[named] += 1
        group = getattr(entry, "engine_version", None)
        if group:
            text = hit.match.groupdict().get(group)
            if text:
                versions.append((named, text.removeprefix("v")))
    reading.engines = dict(votes)
    for engine, pattern in traces().items():
        mentions = sum(bool(pattern.search(part)) for r in reading.records for part in r.parts)
        if mentions:
            votes[engine] += mentions
    if votes:
        reading.engine = votes.most_common(1)[0][0]
    reading.engine_version = next((v for e, v in versions if e == reading.engine), None)


_STAMP = re.compile(r"(?:\d{4}-\d\d-\d\d[ T]|\b\d\d-\d\d )(\d\d):(\d\d):(\d\d)")


def _order(reading: LogReading) -> None:
    """Newest-first logs: the stamps fall from line to line."""
    stamps: list[str] = []
    for record in reading.records:
        match = _STAMP.search(record.parts[0])
        if match:
            stamps.append(match.group())
    if len(stamps) >= 3:
        pairs = [(a, b) for a, b in itertools.pairwise(stamps) if a != b]
        falling = sum(a > b for a, b in pairs)
        reading.reversed = bool(pairs) and falling >= 2 and falling > 0.8 * len(pairs)
