"""Replay kernels: one request after the other through one or two LRU tiers, counting integers.

All arrays are flat and hold dense block numbers (0..blocks-1, in order of first appearance).
Lists are doubly linked through `nxt`/`prv` with the sentinel at index `blocks`: nxt[sentinel] is
the oldest entry, prv[sentinel] the newest. `off` has one entry more than there are requests.
`stat` receives the integers in the order of replay.COUNTERS. The step order inside a request is
the engines': match, refresh, make room, enter, insert.
"""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel

Array = Any

L1, L2, L3, TOKENS, D2H, H2D, H2S, S2H, EV1, LOST, EV2, REFUSED, SHORT, UNUSABLE, CUT = range(15)


@kernel
def unlink(nxt: Array, prv: Array, b: int) -> None:
    """Take block `b` out of a list."""
    n = nxt[b]
    p = prv[b]
    nxt[p] = n
    prv[n] = p


@kernel
def append(nxt: Array, prv: Array, end: int, b: int) -> None:
    """Put block `b` at the newest end of a list whose sentinel is `end`."""
    p = prv[end]
    nxt[p] = b
    prv[b] = p
    nxt[b] = end
    prv[end] = b


@kernel
def book(traffic: Array, bin_of: Array, bins: int, r: int, stat: Array, seen: Array) -> None:
    """Add what request `r` moved to its time bin: D2H, H2D, H2S, S2H rows of `bins` columns."""
    at = bin_of[r]
    for k in range(4):
        now = stat[D2H + k]
        traffic[k * bins + at] += now - seen[k]
        seen[k] = now


@kernel
def replay_lru(
    ids: Array, off: Array, length: Array, blocks: int, size: int, c1: int,
    nxt: Array, prv: Array, here: Array, stat: Array,
) -> None:  # fmt: skip
    """One tier of `c1` blocks of `size` tokens, tail-first LRU with atomic matching."""
    end = blocks
    nxt[end] = end
    prv[end] = end
    used = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = off[r + 1] - s
        if m > c1:
            m = c1
            stat[CUT] += 1
        hit = 0
        while hit < m and here[ids[s + hit]]:
            unlink(nxt, prv, ids[s + hit])
            hit += 1
        stat[L1] += hit
        stat[TOKENS] += min(size * hit, length[r])
        room = c1 - used
        while room < m - hit:
            b = nxt[end]
            unlink(nxt, prv, b)
            here[b] = 0
            used -= 1
            room += 1
            stat[EV1] += 1
        p = m - 1
        while p >= 0:
            b = ids[s + p]
            if p >= hit:
                here[b] = 1
            append(nxt, prv, end, b)
            p -= 1
        used += m - hit
    stat[LOST] = stat[EV1]


@kernel
def replay_eager(
    ids: Array, off: Array, length: Array, blocks: int, size: int, c1: int, c2: int,
    nxt1: Array, prv1: Array, in1: Array, nxt2: Array, prv2: Array, in2: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """Eager store: a host LRU of its own, refreshed for the whole chain, nothing pinned."""
    end = blocks
    nxt1[end] = end
    prv1[end] = end
    nxt2[end] = end
    prv2[end] = end
    used1 = 0
    used2 = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = off[r + 1] - s
        if m > c1:
            m = c1
            stat[CUT] += 1
        hit = 0
        while hit < m and in1[ids[s + hit]]:
            unlink(nxt1, prv1, ids[s + hit])
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
        while c1 - used1 < m - hit:
            b = nxt1[end]
            unlink(nxt1, prv1, b)
            in1[b] = 0
            used1 -= 1
            stat[EV1] += 1
            if not in2[b]:
                stat[LOST] += 1
        p = m - 1
        while p >= 0:
            b = ids[s + p]
            in1[b] = 1
            append(nxt1, prv1, end, b)
            p -= 1
        used1 += m - hit
        store = min(m, c2)
        new = 0
        for p in range(store):
            b = ids[s + p]
            if in2[b]:
                unlink(nxt2, prv2, b)
            else:
                new += 1
        while c2 - used2 < new:
            b = nxt2[end]
            unlink(nxt2, prv2, b)
            in2[b] = 0
            used2 -= 1
            stat[EV2] += 1
        p = store - 1
        while p >= 0:
            b = ids[s + p]
            in2[b] = 1
            append(nxt2, prv2, end, b)
            p -= 1
        used2 += new
        stat[D2H] += new
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)


@kernel
def replay_exclusive(
    ids: Array, off: Array, length: Array, blocks: int, size: int, c1: int, c2: int,
    nxt: Array, prv: Array, where: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """A block is on the device (where 1) or in host RAM (where 2), never both.

    The two lists share `nxt`/`prv`; sentinels are `blocks` (device) and `blocks + 1` (host).
    """
    end1 = blocks
    end2 = blocks + 1
    nxt[end1] = end1
    prv[end1] = end1
    nxt[end2] = end2
    prv[end2] = end2
    used1 = 0
    used2 = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = off[r + 1] - s
        if m > c1:
            m = c1
            stat[CUT] += 1
        hit = 0
        while hit < m and where[ids[s + hit]] == 1:
            unlink(nxt, prv, ids[s + hit])
            hit += 1
        both = hit
        while both < m and where[ids[s + both]] == 2:
            unlink(nxt, prv, ids[s + both])
            both += 1
        used2 -= both - hit
        for p in range(both, m):
            if where[ids[s + p]] == 2:
                unlink(nxt, prv, ids[s + p])
                used2 -= 1
                stat[UNUSABLE] += 1
        stat[L1] += hit
        stat[L2] += both - hit
        stat[H2D] += both - hit
        stat[TOKENS] += min(size * both, length[r])
        while c1 - used1 < m - hit:
            b = nxt[end1]
            unlink(nxt, prv, b)
            used1 -= 1
            stat[EV1] += 1
            if c2 == 0:
                where[b] = 0
                stat[LOST] += 1
            else:
                if used2 == c2:
                    old = nxt[end2]
                    unlink(nxt, prv, old)
                    where[old] = 0
                    used2 -= 1
                    stat[EV2] += 1
                where[b] = 2
                append(nxt, prv, end2, b)
                used2 += 1
                stat[D2H] += 1
        p = m - 1
        while p >= 0:
            b = ids[s + p]
            where[b] = 1
            append(nxt, prv, end1, b)
            p -= 1
        used1 += m - hit
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)


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
        m = off[r + 1] - s
        if m > c1:
            m = c1
            stat[CUT] += 1
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
