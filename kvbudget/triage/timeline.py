"""A reading as a sequence of events in time: failures, frames, consequences and phase marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kvbudget.knowledge.schema import Failure
from kvbudget.logs.figures import facts_of
from kvbudget.triage.causes import PHASES

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading
    from kvbudget.logs.match import Hit
    from kvbudget.logs.record import Record

_TEXT = 400
_QUIET_LEVEL = re.compile(r"(?<!NCCL )\b(?:WARN|WARNING|INFO|DEBUG)\b")
_LOUD_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b")

# A figure shows how far a start-up got: what comes after its line belongs to the phase named.
_FACT_PHASES = {
    "dist_init_memory": "weights",
    "avail_memory_before_weights": "weights",
    "weights_memory": "profile",
    "avail_memory_after_weights": "kv_alloc",
    "kv_cache_memory": "kv_alloc",
    "num_gpu_blocks": "kv_alloc",
    "kv_cache_k_memory": "kv_alloc",
    "avail_memory_after_pool": "graph_capture",
    "avail_memory_before_graph": "graph_capture",
    "avail_memory_before_prefill_graph": "graph_capture",
    "cuda_graph_memory": "warmup",
    "avail_memory_ready": "runtime",
    "running_requests": "runtime",
    "kv_cache_usage": "runtime",
    "token_usage": "runtime",
    "preemptions": "runtime",
    "sleep_freed_memory": "sleep",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One failure pattern that matched. `position` orders events in time."""

    position: int
    line: int
    end_line: int
    text: str
    rank: str | None
    entry: Failure
    hit: Hit

    @property
    def cause(self) -> str | None:
        return self.entry.cause

    @property
    def record(self) -> Record:
        return self.hit.record

    @property
    def quiet(self) -> bool:
        """The line itself says that it is no more than a warning."""
        return bool(_QUIET_LEVEL.search(self.text)) and not _LOUD_LEVEL.search(self.text)


class Timeline:
    """Events of a reading in the order in which they happened (newest-first logs turned round)."""

    def __init__(self, reading: LogReading) -> None:
        self.reading = reading
        hits = [h for h in reading.hits if isinstance(h.pattern.entry, Failure)]
        turned = -1 if reading.reversed else 1
        hits.sort(key=lambda h: (turned * h.record.line, h.line, h.match.start()))
        self.events = [self._event(i, h) for i, h in enumerate(hits)]

    @staticmethod
    def _event(position: int, hit: Hit) -> Event:
        entry = hit.pattern.entry
        assert isinstance(entry, Failure)
        start = hit.line_of(hit.match.start())
        end = hit.line_of(max(hit.match.end() - 1, hit.match.start()))
        index = hit.record.numbers.index(start)
        rank = hit.rank if hit.rank is not None else hit.record.speaker
        return Event(position, start, end, hit.record.raw[index][:_TEXT], rank, entry, hit)

    def of_kind(self, kind: str) -> list[Event]:
        return [e for e in self.events if e.entry.kind == kind]

    def before(self, line: int, other: int) -> bool:
        """True when `line` was printed before `other`."""
        return line > other if self.reading.reversed else line < other

    @cached_property
    def marks(self) -> list[tuple[int, str]]:
        """(line, phase that is under way after it) from start-up figures and milestones."""
        found = [
            (f.line, _FACT_PHASES[f.name]) for f in self.reading.facts if f.name in _FACT_PHASES
        ]
        found += [(line, phase) for line, phase in self.reading.milestones if phase in PHASES]
        found += [
            (e.line, "runtime" if e.entry.phase == "ready" else e.entry.phase)
            for e in self.of_kind("frame")
            if e.entry.phase == "ready" or (e.entry.id.startswith("mark.") and e.entry.phase)
        ]
        turned = -1 if self.reading.reversed else 1
        return sorted(found, key=lambda mark: (turned * mark[0], PHASES.index(mark[1])))

    def phase_before(self, line: int) -> tuple[str | None, int | None]:
        """The phase under way at `line` and the line that shows it, from the marks before it."""
        phase: str | None = None
        shown: int | None = None
        for mark, name in self.marks:
            if not self.before(mark, line):
                break
            phase, shown = name, mark
        return phase, shown

    def facts_at(self, record: Record) -> dict[str, list[Fact]]:
        """Every figure printed in one record, by name (a value that occurred before included)."""
        found: dict[str, list[Fact]] = {}
        for hit in self.reading.hits:
            if hit.record is record:
                for fact in facts_of(hit):
                    found.setdefault(fact.name, []).append(fact)
        return found

    def text_of(self, line: int) -> str:
        for record in self.reading.records:
            if line in record.numbers:
                return record.raw[record.numbers.index(line)][:_TEXT]
        return ""
