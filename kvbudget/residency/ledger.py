"""The integers every replay counts, and what of them is kept per interval of time."""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel

Array = Any

COUNTERS = (
    "l1_hit_blocks", "l2_hit_blocks", "l3_hit_blocks", "hit_tokens",
    "d2h_blocks", "h2d_blocks", "h2s_blocks", "s2h_blocks",
    "l1_evicted_blocks", "l1_lost_blocks", "l2_evicted_blocks", "backup_refused_blocks",
    "prefetch_short", "unusable_l2_blocks", "cut_requests",
)  # fmt: skip
"""The integers of simulate, in the order of a kernel's `stat` array."""

L1, L2, L3, TOKENS, D2H, H2D, H2S, S2H, EV1, LOST, EV2, REFUSED, SHORT, UNUSABLE, CUT = range(
    len(COUNTERS)
)

TRAFFIC = COUNTERS[D2H : S2H + 1]


@kernel
def admitted(off: Array, r: int, room: int, stat: Array) -> int:
    """Blocks of request `r` that a device pool of `room` blocks takes part with."""
    m: int = off[r + 1] - off[r]
    if m > room:
        m = room
        stat[CUT] += 1
    return m


@kernel
def book(traffic: Array, bin_of: Array, bins: int, r: int, stat: Array, seen: Array) -> None:
    """Add what request `r` moved to its time bin: D2H, H2D, H2S, S2H rows of `bins` columns."""
    at = bin_of[r]
    for k in range(4):
        now = stat[D2H + k]
        traffic[k * bins + at] += now - seen[k]
        seen[k] = now
