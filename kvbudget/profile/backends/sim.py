"""A seeded device without memory: 2 MiB segments, a driver, a neighbour. For tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kvbudget.profile.protocols import OutOfMemory
from kvbudget.profile.types import Scene, Snapshot

SEGMENT = 2 * 2**20


def _segments(size: int) -> int:
    return -(-size // SEGMENT) * SEGMENT


@dataclass
class SimBackend:
    """All a rank would cost, in bytes, as given. `neighbour`: bytes by phase (+ takes).

    workspaces: what libraries take from torch's allocator with their handles.
    """

    total: int = 80 * 2**30
    driver_reserve: int = 600 * 2**20
    other: int = 0
    context: int = 450 * 2**20
    nccl: int = 0
    handles: int = 72 * 2**20
    weights: tuple[int, ...] = (1 * 2**30,)
    forward: int = 800 * 2**20
    sampler: int = 1600 * 2**20
    persistent: int = 0
    profile_non_torch: int = 0
    graphs: int = 400 * 2**20
    workspaces: int = 0
    neighbour: dict[str, int] = field(default_factory=dict)
    fail_in: str | None = None
    allocated: int = 0
    reserved: int = 0
    peak: int = 0
    outside: int = 0
    graph_memory: int | None = None

    @classmethod
    def seeded(cls, seed: int) -> SimBackend:
        """A random but reproducible device and model."""
        rng = random.Random(seed)
        total = rng.randrange(16 * 2**30, 192 * 2**30)
        weights = tuple(rng.randrange(1, total // 64) for _ in range(rng.randrange(1, 24)))
        return cls(
            total=total, driver_reserve=rng.randrange(700 * 2**20),
            other=rng.randrange(2**30), context=rng.randrange(200 * 2**20, 700 * 2**20),
            nccl=rng.choice((0, rng.randrange(2**30))), handles=rng.randrange(128 * 2**20),
            weights=weights, forward=rng.randrange(2**30), sampler=rng.randrange(2**31),
            persistent=rng.randrange(64 * 2**20), profile_non_torch=rng.randrange(256 * 2**20),
            graphs=rng.randrange(2**30), workspaces=rng.randrange(64 * 2**20),
        )  # fmt: skip

    @property
    def free(self) -> int:
        return self.total - self.other - self.outside - self.reserved

    def scene(self) -> Scene:
        return Scene(
            "sim", "simulated device", "SIM-0", self.total, self.driver_reserve, self.other
        )

    def _outside(self, size: int) -> None:
        if size > self.free:
            raise OutOfMemory(size, self.free)
        self.outside += size

    def _allocate(self, size: int) -> None:
        new = _segments(size)
        if new > self.free:
            raise OutOfMemory(size, self.free)
        self.allocated += size
        self.reserved += new
        self.peak = max(self.peak, self.allocated)

    def _release(self, size: int) -> None:
        self.allocated -= size
        self.reserved -= _segments(size)

    def run(self, phase: str) -> None:
        self.other += self.neighbour.get(phase, 0)
        if phase == self.fail_in:
            raise OutOfMemory(self.free + 1, self.free)
        if phase in ("context", "nccl", "handles"):
            self._outside(getattr(self, phase))
            if phase == "handles":
                self._allocate(self.workspaces)
        elif phase == "weights":
            for size in self.weights:
                self._allocate(size)
        elif phase == "reset":
            self.peak = self.allocated
        elif phase == "forward":
            self._outside(self.profile_non_torch)
            self._allocate(self.persistent)
            self._allocate(self.forward)
            self._release(self.forward)
        elif phase == "sampler":
            self.peak = self.allocated
            self._allocate(self.sampler)
            self._release(self.sampler)
        elif phase == "graphs":
            if self.graphs > self.free:
                raise OutOfMemory(self.graphs, self.free)
            self.graph_memory = self.graphs
        elif phase == "free":
            for size in (*self.weights, self.persistent):
                self._release(size)
        elif phase == "exit":
            self.outside = 0

    def read(self, phase: str) -> Snapshot:
        used = self.total - self.free
        extra = {} if self.graph_memory is None else {"graph_memory": self.graph_memory}
        return Snapshot(
            phase, self.free, self.total, self.allocated, self.reserved, self.peak, used, 0.0,
            extra if phase == "graphs" else {},
        )  # fmt: skip

    def notes(self) -> list[str]:
        return []

    def close(self) -> None:
        return None
