"""Who grew on a card: this server, a neighbour, or nobody the driver names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.watch.samples import GpuReading


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes since the baseline. Null: the platform does not tell processes apart."""

    total: int
    engine: int | None
    neighbour: int | None
    unknown: int
    neighbour_pids: tuple[int, ...] = ()

    @property
    def culprit(self) -> str:
        if self.engine is None or self.neighbour is None:
            return "unknown (the driver names no processes here)"
        largest = max(self.engine, self.neighbour, self.unknown)
        if largest <= 0:
            return "nobody"
        if largest == self.neighbour:
            return "a neighbour"
        if largest == self.engine:
            return "this server, outside the KV pool"
        return "unknown (outside every listed process)"


@dataclass(slots=True)
class Owners:
    """Which processes are the server's: the largest one at the baseline, an assumption.

    It stands until that process is gone; everything else on the card is a neighbour.
    """

    own: int | None = None
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def clear(self) -> None:
        self.own = None
        self.first.clear()
        self.last.clear()

    def see(self, reading: GpuReading) -> None:
        usage = _usage(reading)
        if usage is None:
            return
        if self.own is None and usage:
            self.own = max(usage, key=lambda pid: usage[pid])
            self.first = dict(usage)
        self.last = usage

    def foreign_change(self, reading: GpuReading) -> int | None:
        """Bytes by which others than the server moved since the last reading."""
        usage = _usage(reading)
        if usage is None or self.own is None:
            return None
        before = sum(size for pid, size in self.last.items() if pid != self.own)
        return sum(size for pid, size in usage.items() if pid != self.own) - before

    def growth(self, reading: GpuReading, baseline_free: int) -> Growth:
        free = reading.free_memory if reading.free_memory is not None else baseline_free
        total = baseline_free - free
        usage = _usage(reading)
        if usage is None or self.own is None or self.own not in usage:
            return Growth(total, None, None, total)
        engine = usage[self.own] - self.first.get(self.own, usage[self.own])
        moved = {
            pid: usage.get(pid, 0) - self.first.get(pid, 0)
            for pid in usage.keys() | self.first.keys()
            if pid != self.own
        }
        neighbour = sum(moved.values())
        pids = tuple(sorted((p for p in moved if moved[p] > 0), key=lambda p: -moved[p]))
        return Growth(total, engine, neighbour, total - engine - neighbour, pids[:4])


def _usage(reading: GpuReading) -> dict[int, int] | None:
    """pid -> bytes; None when any process hides its usage."""
    if reading.processes is None:
        return None
    usage: dict[int, int] = {}
    for process in reading.processes:
        if process.used_memory is None:
            return None
        usage[process.pid] = usage.get(process.pid, 0) + process.used_memory
    return usage
