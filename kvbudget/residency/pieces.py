"""Replays whose tiers give up blocks in the order of the requests: whole pieces at a time.

The blocks last touched by request q are a suffix of its chain, from head[q] on. A tier that gives
up the oldest block first, and of one request the tail first, cuts that suffix from behind: it
holds the positions below upper[q] (device) or lower[q] (host). So a tier is one number per request,
its oldest block lies in the first request with any left, and matching, eviction, demotion and
backup cost one step per piece instead of one per block. What a tier holds of any chain is a prefix.

`ids` are dense block numbers, `off` has one entry more than there are requests, `last` (zeros, one
per block) holds 1 + the last toucher. `stat` receives the integers of ledger.COUNTERS.
"""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel, signed, unsigned
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

Array = Any

LOAD_BACK_TOKENS = 10


@kernel
def touch(
    ids: Array, first: int, m: int, r: int, last: Array, head: Array, upper: Array, lower: Array
) -> tuple[int, int]:
    """Match the `m` blocks from `first` on and make request `r` their last toucher.

    -> blocks of the prefix that upper and lower hold. Behind the first block in neither, nothing
    is held either.
    """
    one = unsigned(1)
    mark = r + 1
    on_upper = 0
    on_lower = 0
    p = start = unsigned(first)
    end = unsigned(first + m)
    while p < end and max(on_upper, on_lower) == signed(p - start):
        toucher = last[ids[p]]
        if toucher == 0:
            break
        a = signed(p - start)
        while p < end and last[ids[p]] == toucher:
            last[ids[p]] = mark
            p += one
        z = signed(p - start)
        q = unsigned(toucher - 1)
        head[q] = z
        if upper[q] > a:
            on_upper = min(z, upper[q])
        if lower[q] > a:
            on_lower = min(z, lower[q])
    while p < end:
        last[ids[p]] = mark
        p += one
    return on_upper, on_lower


@kernel
def give_up(oldest: int, count: int, head: Array, tier: Array, other: Array) -> tuple[int, int]:
    """Take `count` blocks out of `tier`, oldest first.

    -> the oldest request that may have more, and how many of the blocks the other tier holds.
    """
    kept = 0
    while count > 0:
        top = tier[oldest]
        n = min(count, top - head[oldest])
        if n > 0:
            count -= n
            tier[oldest] = top - n
            kept += max(0, min(top, other[oldest]) - (top - n))
        if count > 0:
            oldest += 1
    return oldest, kept


@kernel
def release(oldest: int, count: int, head: Array, upper: Array, lower: Array) -> int:
    """Take `count` blocks that the upper tier lacks out of the lower, oldest first; -> as above."""
    while count > 0:
        n = min(count, lower[oldest] - max(head[oldest], upper[oldest]))
        if n > 0:
            count -= n
            lower[oldest] -= n
        if count > 0:
            oldest += 1
    return oldest


@kernel
def replay_exclusive(
    ids: Array, off: Array, length: Array, tokens: int, c1: int, c2: int,
    last: Array, head: Array, upper: Array, lower: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """A block is on the device or in host RAM, never both; c2 = 0 is one tier alone.

    Host blocks of q are those from upper[q] to below lower[q].
    """
    used1 = 0
    used2 = 0
    oldest1 = 0
    oldest2 = 0
    for r in range(len(off) - 1):
        m = admitted(off, r, c1, stat)
        hit, both = touch(ids, off[r], m, r, last, head, upper, lower)
        used2 -= both - hit
        stat[L1] += hit
        stat[L2] += both - hit
        stat[H2D] += both - hit
        stat[TOKENS] += min(tokens * both, length[r])
        over = max(0, used1 + m - hit - c1)
        stat[EV1] += over
        if c2 == 0:
            stat[LOST] += over
        else:
            stat[D2H] += over
        used1 += m - hit - over
        used2 += over
        oldest1, _ = give_up(oldest1, over, head, upper, lower)
        if used2 > c2:
            if c2 > 0:
                stat[EV2] += used2 - c2
            oldest2 = release(oldest2, used2 - c2, head, upper, lower)
            used2 = c2
        upper[r] = m
        lower[r] = m
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)


@kernel
def replay_eager(
    ids: Array, off: Array, length: Array, tokens: int, c1: int, c2: int,
    last: Array, head: Array, upper: Array, lower: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """Eager store: a host LRU of its own, refreshed for the whole chain, nothing pinned."""
    used1 = 0
    used2 = 0
    oldest1 = 0
    oldest2 = 0
    for r in range(len(off) - 1):
        m = admitted(off, r, c1, stat)
        hit, held = touch(ids, off[r], m, r, last, head, upper, lower)
        both = max(hit, held)
        stat[L1] += hit
        stat[L2] += both - hit
        stat[H2D] += both - hit
        stat[TOKENS] += min(tokens * both, length[r])
        over = max(0, used1 + m - hit - c1)
        oldest1, kept = give_up(oldest1, over, head, upper, lower)
        stat[EV1] += over
        stat[LOST] += over - kept
        used1 += m - hit - over
        stored = min(m, c2)
        over = max(0, used2 + stored - held - c2)
        oldest2, kept = give_up(oldest2, over, head, lower, upper)
        stat[EV2] += over
        stat[D2H] += stored - held
        used2 += stored - held - over
        upper[r] = m
        lower[r] = stored
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)


@kernel
def replay_write_through(
    ids: Array, off: Array, length: Array, tokens: int,
    c1: int, c2: int, c3: int, probe: int, threshold: int, passes: int,
    last: Array, head: Array, upper: Array, lower: Array,
    nxt: Array, prv: Array, stored: Array, used3: Array,
    stat: Array, bin_of: Array, traffic: Array, bins: int, seen: Array,
) -> None:  # fmt: skip
    """A radix tree that backs blocks up at birth (threshold 1) or at the first reuse (2).

    Counts fall along a chain, so the blocks due are a prefix: all, or those in the tree before;
    so `repair` and `refuse` do the same, an unbacked ancestor of a due block is due before it.
    `probe` is the prefetch threshold in tokens; c3 = 0 means no storage tier (then nxt, prv and
    stored are not used).
    """
    end = len(stored)
    nxt[end] = end
    prv[end] = end
    used1 = 0
    used2 = 0
    alone = 0  # host copies of blocks that are not on the device: all that can be given up
    oldest1 = 0
    oldest2 = 0
    for r in range(len(off) - 1):
        s = off[r]
        m = admitted(off, r, c1, stat)
        # 1: match; the matched blocks now belong to this request, so nothing below takes them
        hit, held = touch(ids, s, m, r, last, head, upper, lower)
        known = max(hit, held)
        alone -= known - hit
        both = known
        if (known - hit) * tokens < LOAD_BACK_TOKENS:
            both = hit
            stat[UNUSABLE] += known - hit
        # 2: prefetch from storage into host RAM
        more = 0
        if c3 > 0 and known < m and both == known:
            have = min(tokens * both, length[r])
            k = 0
            if min(tokens * m, length[r]) - have < probe:
                stat[SHORT] += 1
            else:
                while both + k < m and stored[ids[s + both + k]]:
                    k += 1
            if k > 0:
                if min(tokens * (both + k), length[r]) - have < probe:
                    stat[SHORT] += 1
                elif held < both:
                    stat[REFUSED] += 1
                else:
                    over = min(alone, max(0, k - (c2 - used2)))
                    oldest2 = release(oldest2, over, head, upper, lower)
                    stat[EV2] += over
                    alone -= over
                    used2 -= over
                    more = min(k, c2 - used2)
                    if more < k and more * tokens < probe:
                        more = 0
                    for j in range(more):
                        b = ids[s + both + j]
                        unlink(nxt, prv, b)
                        append(nxt, prv, end, b)
                    used2 += more
                    held += more
        total = both + more
        stat[L1] += hit
        stat[L2] += both - hit
        stat[L3] += more
        stat[S2H] += more
        stat[H2D] += total - hit
        stat[TOKENS] += min(tokens * total, length[r])
        # 3: device room, oldest first
        over = max(0, used1 + m - hit - c1)
        oldest1, kept = give_up(oldest1, over, head, upper, lower)
        stat[EV1] += over
        stat[LOST] += over - kept
        alone += kept
        used1 += m - hit - over
        # 4: insert passes
        for turn in range(passes):
            due = known if turn + 1 < threshold else m
            want = max(0, due - held)
            room = c2 - used2
            n = min(want, room + alone)
            over = max(0, n - room)
            oldest2 = release(oldest2, over, head, upper, lower)
            stat[EV2] += over
            alone -= over
            used2 += n - over
            stat[D2H] += n
            stat[REFUSED] += want - n
            if c3 > 0:
                for p in range(held, held + n):
                    stat[H2S] += store(nxt, prv, stored, end, c3, used3, ids[s + p])
            held += n
        upper[r] = m
        lower[r] = held
        if bins > 0:
            book(traffic, bin_of, bins, r, stat, seen)


@kernel
def eviction_ages(
    ids: Array, off: Array, times: Array, capacity: int,
    last: Array, head: Array, upper: Array, out: Array,
) -> int:  # fmt: skip
    """Microseconds from a block's last touch to its eviction from an LRU tier; -> how many."""
    used = 0
    oldest = 0
    n = 0
    for r in range(len(off) - 1):
        m = min(off[r + 1] - off[r], capacity)
        hit, _ = touch(ids, off[r], m, r, last, head, upper, upper)
        over = max(0, used + m - hit - capacity)
        used += m - hit - over
        while over > 0:
            if upper[oldest] > head[oldest]:
                upper[oldest] -= 1
                over -= 1
                out[n] = times[r] - times[oldest]
                n += 1
            else:
                oldest += 1
        upper[r] = m
    return n
