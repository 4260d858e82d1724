"""How long a block stays: closed forms from rates, and windows measured on a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.residency import jit
from kvbudget.residency.jit import kernel, zeros
from kvbudget.residency.pieces import eviction_ages

if TYPE_CHECKING:
    from kvbudget.residency.trace import Trace

Array = Any

SIMPLE_FORM_NOTE = (
    "simple form: C/lambda with lambda counting unique insertions. lambda must be the rate of "
    "distinct blocks inserted or re-touched while resident; the rate of never-seen blocks alone "
    "overstates the window, the more the smaller the pool. Windows are bands: give a trace for "
    "p5/p50/p95"
)


@kernel
def reuse_gaps(ids: Array, off: Array, times: Array, last: Array, out: Array) -> int:
    """Microseconds between consecutive touches of a block into `out`; -> how many.

    `last` starts as -1 everywhere and holds the last request of each block.
    """
    n = 0
    for r in range(len(off) - 1):
        for i in range(off[r], off[r + 1]):
            b = ids[i]
            if last[b] >= 0:
                out[n] = times[r] - times[last[b]]
                n += 1
            last[b] = r
    return n


def gaps_us(trace: Trace) -> Array:
    """The gap in microseconds before every reuse of a block."""
    last = zeros(trace.blocks)
    for b in range(0 if jit.COMPILED else trace.blocks):
        last[b] = -1
    if jit.COMPILED:
        last[:] = -1
    out = zeros(trace.accesses, "i8")
    return out[: int(reuse_gaps(trace.ids, trace.offsets, trace.times_us, last, out))]


def measured(trace: Trace, capacity: int | None) -> dict[str, float | None]:
    """p5, p50 and p95 in seconds of how long evicted blocks had stayed since their last touch.

    All None when nothing was ever evicted: then the window is longer than the trace.
    """
    room = trace.blocks + 1 if capacity is None else min(capacity, trace.blocks + 1)
    out = zeros(trace.accesses, "i8")
    n = int(
        eviction_ages(
            trace.ids, trace.offsets, trace.times_us, room,
            zeros(trace.blocks), zeros(trace.requests), zeros(trace.requests), out,
        )
    )  # fmt: skip
    ages = _sorted(out[:n])
    return {f"p{p}_s": percentile_s(ages, p) for p in (5, 50, 95)}


def _sorted(values: Array) -> Array:
    if not jit.COMPILED:
        return sorted(values)
    import numpy as np

    return np.sort(values)


def percentile_s(ordered_us: Array, percent: int) -> float | None:
    """The nearest-rank percentile of sorted microseconds, in seconds."""
    n = len(ordered_us)
    if not n:
        return None
    return float(ordered_us[min(n - 1, max(0, -(-n * percent // 100) - 1))]) / 1e6


EDGES_S = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1200, 1800,
    2700, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400,
)  # fmt: skip
"""Upper edges of the gap histogram, seconds; a last bin has none."""


def histogram(gaps: Array) -> list[dict[str, float | int | None]]:
    """Reuses per gap class: [{"from_s", "to_s", "reuses"}], empty classes at the end left out."""
    counts = [0] * (len(EDGES_S) + 1)
    if jit.COMPILED:
        import numpy as np

        at = np.searchsorted(np.asarray(EDGES_S) * 1e6, gaps, side="right")
        counts = np.bincount(at, minlength=len(counts)).tolist()
    else:
        from bisect import bisect_right

        edges = [edge * 1e6 for edge in EDGES_S]
        for gap in gaps:
            counts[bisect_right(edges, gap)] += 1
    rows: list[dict[str, float | int | None]] = [
        {
            "from_s": EDGES_S[k - 1] if k else 0,
            "to_s": EDGES_S[k] if k < len(EDGES_S) else None,
            "reuses": int(count),
        }
        for k, count in enumerate(counts)
    ]
    while rows and not rows[-1]["reuses"]:
        rows.pop()
    return rows


def working_set(trace: Trace, gaps: Array, capacity_blocks: int) -> float | None:
    """The window T that solves W(T) = C from the histogram of reuse gaps, in seconds.

    W(T), the mean number of distinct blocks touched in the last T seconds, grows at the rate of
    the accesses whose previous touch is more than T ago: W'(T) = (accesses - reuses with a gap
    <= T) / span. None when the pool holds every block the trace ever touches together.
    """
    if not trace.span_s:
        return None
    ordered: Array = _sorted(gaps)
    slope, held, before = trace.accesses, 0.0, 0
    target = capacity_blocks * trace.span_s * 1e6
    if jit.COMPILED:
        import numpy as np

        points = ordered.astype(float)
        widths = np.diff(points, prepend=0.0)
        slopes = trace.accesses - np.arange(len(points), dtype=float)
        held_at = np.cumsum(widths * slopes)
        k = int(np.searchsorted(held_at, target))
        if k:
            held, before = float(held_at[k - 1]), int(points[k - 1])
        slope = trace.accesses - k
    else:
        for gap in ordered:
            more = (gap - before) * slope
            if held + more >= target:
                break
            held, before, slope = held + more, gap, slope - 1
    if slope <= 0:
        return None
    seconds = (before + (target - held) / slope) / 1e6
    return seconds if seconds <= trace.span_s else None
