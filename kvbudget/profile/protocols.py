"""What a device must be able to do for the phase machine, and how it says that memory ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvbudget.profile.types import Scene, Snapshot


class OutOfMemory(Exception):
    """A phase asked for `requested` bytes while `free` were left (None: not known)."""

    def __init__(self, requested: int | None, free: int | None, message: str = "") -> None:
        super().__init__(message or "out of memory")
        self.requested, self.free = requested, free


class Backend(Protocol):
    """One rank on one device. `run` does a phase's work, `read` takes the readings after it."""

    def scene(self) -> Scene: ...

    def run(self, phase: str) -> None:
        """Raises OutOfMemory."""

    def read(self, phase: str) -> Snapshot: ...

    def close(self) -> None: ...

    def notes(self) -> list[str]: ...
