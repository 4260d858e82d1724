"""One row of a difference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Movement:
    """One row of a difference. `delta` is b - a in `unit`, None where a side is silent."""

    name: str
    a: float | None
    b: float | None
    delta: float | None
    unit: str
    cause: str
    explanation: str
