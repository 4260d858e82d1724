"""Replay of write_back: a block is copied to the host when the device gives it up.

Host-only blocks stand in one queue in the order of their demotion. That order is recency order,
oldest first and deeper first: the device gives blocks up oldest first, a matched host block moves
back to the device, and a parent is never older than its child. So the head of the queue never has
a child. Blocks loaded back have both copies; the host gives those up first, in the order in which
they were loaded, blocks with a child on the device before device leaves.
"""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel
from kvbudget.residency.ledger import (
    D2H,
    EV1,
    EV2,
    H2D,
    H2S,
    L1,
    L2,
    L3,
    LOST,
    REFUSED,
    S2H,
    SHORT,
    TOKENS,
    UNUSABLE,
    admitted,
    book,
)
from kvbudget.residency.lists import append, store, unlink
from kvbudget.residency.pieces import LOAD_BACK_TOKENS

Array = Any


@kernel
def sift(heap: Array, base: int, count: int, at: int, pos: Array, key: Array) -> None:
    """Restore the order of the min-heap heap[base : base + count] around index `at`."""
    b = heap[base + at]
    k = key[b]
    while at > 0:
        up = (at - 1) // 2
        other = heap[base + up]
        if key[other] <= k:
            break
        heap[base + at] = other
        pos[other] = at
        at = up
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        if down + 1 < count and key[heap[base + down + 1]] < key[heap[base + down]]:
            down += 1
        other = heap[base + down]
        if key[other] >= k:
            break
        heap[base + at] = other
        pos[other] = at
        at = down
    heap[base + at] = b
    pos[b] = at


@kernel
def twin_add(
    which: int, heap: Array, size: Array, pos: Array, key: Array, kind: Array, b: int
) -> None:
    """Enter block `b`, present on both tiers, among those with (1) or without (2) device child."""
    base = (which - 1) * (len(heap) // 2)
    count = size[which - 1]
    heap[base + count] = b
    size[which - 1] = count + 1
    kind[b] = which
    sift(heap, base, count + 1, count, pos, key)


@kernel
def twin_drop(heap: Array, size: Array, pos: Array, key: Array, kind: Array, b: int) -> None:
    """Take block `b` out of the heap it stands in."""
    which = kind[b]
    base = (which - 1) * (len(heap) // 2)
    count = size[which - 1] - 1
    at = pos[b]
    last = heap[base + count]
    size[which - 1] = count
    kind[b] = 0
    if last != b:
        heap[base + at] = last
        pos[last] = at
        sift(heap, base, count, at, pos, key)


@kernel
def free_host(
    nxt2: Array, prv2: Array, host: Array, end: int,
    heap: Array, size: Array, pos: Array, key: Array, kind: Array, stat: Array,
) -> bool:  # fmt: skip
    """Give up one host copy: duplicates first, then the oldest host-only block."""
    if size[0] > 0:
        b = heap[0]
        twin_drop(heap, size, pos, key, kind, b)
    elif size[1] > 0:
        b = heap[len(heap) // 2]
        twin_drop(heap, size, pos, key, kind, b)
    else:
        b = nxt2[end]
        if b == end:
            return False
        unlink(nxt2, prv2, b)
    host[b] = 0
    stat[EV2] += 1
    return True


@kernel
def replay_write_back(
    ids: Array, off: Array, length: Array, parent: Array, blocks: int, tokens: int,
    c1: int, c2: int, c3: int, probe: int,
    nxt1: Array, prv1: Array, in1: Array, nxt2: Array, prv2: Array, host: Array,
    nxt3: Array, prv3: Array, in3: Array, used3: Array,
    children: Array, heap: Array, size: Array, pos: Array, key: Array, kind: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """`probe` is the prefetch threshold in tokens; c3 = 0 means no storage tier.

    The lists (lists.py) are those of the device, of host-only blocks and of storage. kind says in
    which half of `heap` a block with both copies stands, key when it was loaded.
    """
    end = blocks
    end3 = len(in3)
    nxt1[end] = end
    prv1[end] = end
    nxt2[end] = end
    prv2[end] = end
    nxt3[end3] = end3
    prv3[end3] = end3
    used1 = 0
    used2 = 0
    clock = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = admitted(off, r, c1, stat)
        # 1: match; the matched blocks leave the lists, so nothing below can evict them
        hit = 0
        while hit < m and in1[ids[s + hit]]:
            unlink(nxt1, prv1, ids[s + hit])
            hit += 1
        on_host = hit
        while on_host < m and host[ids[s + on_host]]:
            unlink(nxt2, prv2, ids[s + on_host])
            on_host += 1
        both = on_host
        if (on_host - hit) * tokens < LOAD_BACK_TOKENS:
            both = hit
            stat[UNUSABLE] += on_host - hit
        # 2: prefetch from storage into host RAM
        total = both
        if c3 > 0 and on_host < m and both == on_host:
            known = min(tokens * both, length[r])
            if min(tokens * m, length[r]) - known < probe:
                stat[SHORT] += 1
            else:
                k = 0
                while both + k < m and in3[ids[s + both + k]]:
                    k += 1
                if k > 0:
                    if min(tokens * (both + k), length[r]) - known < probe:
                        stat[SHORT] += 1
                    else:
                        while c2 - used2 < k and free_host(
                            nxt2, prv2, host, end, heap, size, pos, key, kind, stat
                        ):
                            used2 -= 1
                        if c2 - used2 < k:
                            k = c2 - used2
                            if k * tokens < probe:
                                k = 0
                        for j in range(k):
                            b = ids[s + both + j]
                            host[b] = 1
                            unlink(nxt3, prv3, b)
                            append(nxt3, prv3, end3, b)
                        used2 += k
                        total = both + k
                        stat[S2H] += k
        stat[L1] += hit
        stat[L2] += both - hit
        stat[L3] += total - both
        stat[H2D] += total - hit
        stat[TOKENS] += min(tokens * total, length[r])
        # 3: device room, oldest first
        while c1 - used1 < m - hit:
            b = nxt1[end]
            unlink(nxt1, prv1, b)
            stat[EV1] += 1
            if host[b]:
                if kind[b] > 0:
                    twin_drop(heap, size, pos, key, kind, b)
                append(nxt2, prv2, end, b)
            else:
                if used2 >= c2 and free_host(
                    nxt2, prv2, host, end, heap, size, pos, key, kind, stat
                ):
                    used2 -= 1
                if used2 < c2:
                    host[b] = 1
                    used2 += 1
                    append(nxt2, prv2, end, b)
                    stat[D2H] += 1
                    stat[H2S] += store(nxt3, prv3, in3, end3, c3, used3, b)
                else:
                    stat[LOST] += 1
                    stat[REFUSED] += 1
            in1[b] = 0
            used1 -= 1
            if parent[b] >= 0:
                a = parent[b]
                children[a] -= 1
                if children[a] == 0 and kind[a] == 1:
                    twin_drop(heap, size, pos, key, kind, a)
                    twin_add(2, heap, size, pos, key, kind, a)
        p = m - 1
        while p >= 0:
            b = ids[s + p]
            in1[b] = 1
            append(nxt1, prv1, end, b)
            p -= 1
        used1 += m - hit
        for p in range(hit, m):
            b = ids[s + p]
            if p > 0:
                a = ids[s + p - 1]
                children[a] += 1
                if children[a] == 1 and kind[a] == 2:
                    twin_drop(heap, size, pos, key, kind, a)
                    twin_add(1, heap, size, pos, key, kind, a)
            if host[b]:
                clock += 1
                key[b] = clock
                twin_add(1 if children[b] > 0 else 2, heap, size, pos, key, kind, b)
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)
