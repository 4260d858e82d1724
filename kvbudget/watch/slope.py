"""How fast the free memory of a card is going: a robust slope over minima, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

BUCKETS = 120
"""Bucket minima kept: memory and work per card are bounded whatever the interval or uptime."""


@dataclass(slots=True)
class Trend:
    """Minima of free memory per bucket of `bucket_s` seconds.

    Minima, because what kills a server is the low-water mark: a sawtooth that always comes back
    has level minima, a leak has falling ones.
    """

    bucket_s: float
    points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=BUCKETS))
    _open: tuple[int, float, int] | None = None  # bucket number, time of the minimum, minimum
    _fit: tuple[float, float] | None = None
    _stale: bool = True

    def add(self, elapsed: float, free: int) -> None:
        bucket = int(elapsed // self.bucket_s)
        if self._open is None or bucket != self._open[0]:
            if self._open is not None:
                self.points.append((self._open[1], self._open[2]))
                self._stale = True
            self._open = (bucket, elapsed, free)
        elif free < self._open[2]:
            self._open = (bucket, elapsed, free)

    def clear(self) -> None:
        self.points.clear()
        self._open, self._fit, self._stale = None, None, True

    def fit(self) -> tuple[float, float] | None:
        """(slope in bytes/s, share of falling pairs), Theil-Sen over the minima; None below 8."""
        if not self._stale:
            return self._fit
        self._stale = False
        points = list(self.points)
        if len(points) < 8:
            self._fit = None
            return None
        slopes = [
            (b[1] - a[1]) / (b[0] - a[0])
            for i, a in enumerate(points)
            for b in points[i + 1 :]
            if b[0] > a[0]
        ]
        if not slopes:
            self._fit = None
            return None
        falling = sum(slope < 0 for slope in slopes) / len(slopes)
        self._fit = (median(slopes), falling)
        return self._fit

    def observed(self) -> float:
        """Seconds from the first to the last minimum kept."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0

    def drop(self) -> int:
        """Bytes the minima fell from the first eighth to the last eighth of the window."""
        points = list(self.points)
        edge = max(1, len(points) // 8)
        if len(points) < 2 * edge:
            return 0
        first = median(value for _, value in points[:edge])
        last = median(value for _, value in points[-edge:])
        return int(first - last)
