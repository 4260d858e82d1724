"""Replay of vLLM's lazy store: what nears the head of the device's free queue is copied first.

The order inside a request is the engine's: match, refresh, allocate and copy in steps, free, copy.
"""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel
from kvbudget.residency.ledger import (
    D2H,
    EV1,
    EV2,
    H2D,
    L1,
    L2,
    LOST,
    TOKENS,
    UNUSABLE,
    admitted,
    book,
)
from kvbudget.residency.lists import append, unlink

Array = Any


@kernel
def copy_ahead(
    nxt1: Array, prv1: Array, nxt2: Array, prv2: Array, in2: Array, end: int, unused: int,
    used2: int, c2: int, ahead: int, reinsert: int, picked: Array, stat: Array,
) -> int:  # fmt: skip
    """Copy to the host what the first `ahead` entries of the free queue lack there; -> host use."""
    left = ahead - unused
    b = nxt1[end]
    n = 0
    while left > 0 and b != end:
        if not in2[b]:
            picked[n] = b
            n += 1
        b = nxt1[b]
        left -= 1
    if c2 == 0:
        return used2
    for k in range(n):
        b = picked[k]
        if used2 == c2:
            old = nxt2[end]
            unlink(nxt2, prv2, old)
            in2[old] = 0
            used2 -= 1
            stat[EV2] += 1
        in2[b] = 1
        append(nxt2, prv2, end, b)
        used2 += 1
        stat[D2H] += 1
        if reinsert:
            unlink(nxt1, prv1, b)
            append(nxt1, prv1, end, b)
    return used2


@kernel
def replay_lazy(
    ids: Array, off: Array, length: Array, blocks: int, size: int, c1: int, c2: int,
    step: int, ahead: int, head_first: int, reinsert: int,
    nxt1: Array, prv1: Array, in1: Array, nxt2: Array, prv2: Array, in2: Array, picked: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """Lazy store: blocks near the head of the device's free queue are copied before they go.

    in1 is 1 for a block in the queue, 2 for one the running request holds.
    """
    end = blocks
    nxt1[end] = end
    prv1[end] = end
    nxt2[end] = end
    prv2[end] = end
    unused = c1
    used2 = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = admitted(off, r, c1, stat)
        hit = 0
        while hit < m and in1[ids[s + hit]]:
            hit += 1
        both = hit
        while both < m and in2[ids[s + both]]:
            both += 1
        for p in range(both, m):
            if in2[ids[s + p]]:
                stat[UNUSABLE] += 1
        stat[L1] += hit
        stat[L2] += both - hit
        stat[H2D] += both - hit
        stat[TOKENS] += min(size * both, length[r])
        for k in range(both - hit):
            b = ids[s + hit + k] if head_first else ids[s + both - 1 - k]
            unlink(nxt2, prv2, b)
            append(nxt2, prv2, end, b)
        need = 0
        for p in range(m):
            b = ids[s + p]
            if in1[b]:
                unlink(nxt1, prv1, b)
                in1[b] = 2
            else:
                need += 1
        while need > 0:
            take = min(step, need)
            need -= take
            while take > 0:
                take -= 1
                if unused > 0:
                    unused -= 1
                    continue
                b = nxt1[end]
                unlink(nxt1, prv1, b)
                in1[b] = 0
                stat[EV1] += 1
                if not in2[b]:
                    stat[LOST] += 1
            used2 = copy_ahead(
                nxt1, prv1, nxt2, prv2, in2, end, unused, used2, c2, ahead, reinsert, picked, stat
            )
        p = m - 1
        while p >= 0:
            b = ids[s + p]
            in1[b] = 1
            append(nxt1, prv1, end, b)
            p -= 1
        used2 = copy_ahead(
            nxt1, prv1, nxt2, prv2, in2, end, unused, used2, c2, ahead, reinsert, picked, stat
        )
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)
