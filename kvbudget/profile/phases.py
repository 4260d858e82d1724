"""The phase machine: the same order on every device, a failure kept as a result."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.profile.protocols import Backend, OutOfMemory
from kvbudget.profile.types import PHASES, Failure, RankRecord, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_phases(
    backend: Backend,
    rank: str,
    *,
    phases: Iterable[str] = PHASES,
    on_phase: Callable[[str], None] | None = None,
    on_snapshot: Callable[[Snapshot], None] | None = None,
) -> RankRecord:
    """Run `phases` in order on one rank; an OutOfMemory ends the run and is kept with its phase."""
    record = RankRecord(rank)
    try:
        for phase in phases:
            if on_phase is not None:
                on_phase(phase)
            start = time.perf_counter()
            try:
                backend.run(phase)
            except OutOfMemory as exc:
                record.failure = Failure(phase, "oom", exc.requested, exc.free, str(exc))
                break
            snapshot = backend.read(phase)
            if snapshot.seconds is None:
                snapshot = replace(snapshot, seconds=round(time.perf_counter() - start, 4))
            record.snapshots.append(snapshot)
            if on_snapshot is not None:
                on_snapshot(snapshot)
    finally:
        record.notes += backend.notes()
        backend.close()
    return record
