"""Hits at every capacity from one pass over the trace (chain-Mattson).

The blocks last touched by request q are a suffix of q's chain, because later requests re-touch
prefixes. So one count per request, and one query and update per run of blocks with the same last
toucher, replace one per block; the result is exact at every capacity at once. The counts stand in
a Fenwick tree that grows with the requests: each sum is put together once, when its request ends.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass
from operator import lt, sub
from typing import TYPE_CHECKING, Any

from kvbudget.residency import jit
from kvbudget.residency.jit import kernel, signed, unsigned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.residency.trace import Trace

Array = Any


@kernel
def stack_distances(
    ids: Array, off: Array, lengths: Array, tokens: int,
    last: Array, tree: Array, steps: Array, short: Array,
) -> None:  # fmt: skip
    """Add every reuse to a histogram of the smallest capacities that serve it.

    last (zeros, one per block) holds 1 + the last toucher, tree (zeros, one per request and one)
    how many blocks each request touched last, summed over ranges of requests. steps[c] - its
    running sum is the number of reuses that need a capacity of c - is a difference array of
    blocks+2; short[c] counts the tokens by which these blocks are smaller than `tokens`.
    """
    one = unsigned(1)
    distinct = 0
    end = unsigned(off[0])
    for r in range(len(off) - 1):
        start = end
        end = unsigned(off[r + 1])
        mark = unsigned(r + 1)
        p = start
        while p < end:
            toucher = last[ids[p]]
            if toucher == 0:
                break
            a = p
            # the run of blocks last touched by the same request
            while p < end and last[ids[p]] == toucher:
                last[ids[p]] = mark
                p += one
            n = signed(p - a)
            # blocks whose last toucher is no later are as old or older; the others are newer
            need = distinct + 1
            k = unsigned(toucher)
            while k > 0:
                need -= tree[k]
                k &= k - one
            steps[need] += 1
            steps[need + n] -= 1
            k = unsigned(toucher)
            while k < mark:
                tree[k] -= n
                k += k & (~k + one)
            if lengths[r] < tokens * signed(p - start):
                at = max(signed(a - start), lengths[r] // tokens)
                while at < signed(p - start):
                    missing = tokens * (at + 1) - lengths[r]
                    short[need + at - signed(a - start)] += min(tokens, missing)
                    at += 1
        if p < end:
            distinct += signed(end - p)
            while p < end:
                last[ids[p]] = mark
                p += one
        held = signed(end - start)
        below = one
        while not mark & below:
            held += tree[mark - below]
            below <<= one
        tree[mark] = held


@kernel
def sum_twice(steps: Array, out: Array) -> None:
    """out[c] is the sum over all i <= c of the sum of steps up to i."""
    need = 0
    total = 0
    for c in range(len(out)):
        need += steps[c]
        total += need
        out[c] = total


@dataclass(frozen=True, slots=True)
class Curve:
    """hit_blocks[c] are the hits of one LRU tier of c blocks, c = 0..blocks; lost_tokens[c] is what
    they lack to whole blocks, because a prompt ends inside its last one."""

    trace: Trace
    hit_blocks: Array
    lost_tokens: Array

    @property
    def ceiling(self) -> int:
        """Block hits of an unlimited tier."""
        return int(self.hit_blocks[-1])

    @property
    def token_ceiling(self) -> int:
        """Token hits of an unlimited tier."""
        return self.at(self.trace.blocks)[1]

    def at(self, capacity: int) -> tuple[int, int]:
        """(block hits, token hits) of `capacity` blocks."""
        place = min(capacity, len(self.hit_blocks) - 1)
        hits = int(self.hit_blocks[place])
        return hits, hits * self.trace.block_tokens - int(self.lost_tokens[place])

    def distinct(self) -> list[int]:
        """Every capacity at which one more block gains hits, and 0."""
        gains = self._gains()
        if jit.COMPILED:
            import numpy as np

            return [0, *(np.flatnonzero(gains) + 1).tolist()]
        return [0, *itertools.compress(itertools.count(1), gains)]

    def knee(self) -> int:
        """The capacity farthest above the straight line from nothing to the smallest capacity that
        reaches the ceiling: where a further block starts to earn less than the average one."""
        ceiling = self.ceiling
        if not ceiling:
            return 0
        top = bisect_left(self.hit_blocks, ceiling)
        gains = self._gains()[:top]
        # the highest place of a line of straight pieces is one where it turns down, or its end
        if jit.COMPILED:
            import numpy as np

            turns = (np.flatnonzero(gains[1:] < gains[:-1]) + 1).tolist()
        else:
            turns = list(itertools.compress(itertools.count(1), map(lt, gains[1:], gains)))
        return max([0, *turns, top], key=lambda c: int(self.hit_blocks[c]) * top - ceiling * c)

    def _gains(self) -> Array:
        """What one more block gains at each capacity."""
        if jit.COMPILED:
            import numpy as np

            return np.diff(self.hit_blocks)
        return list(map(sub, itertools.islice(self.hit_blocks, 1, None), self.hit_blocks))

    def surface(
        self, first: Sequence[int], second: Sequence[int], exclusive: bool
    ) -> list[list[int]]:
        """L1+L2 block hits for every (C1, C2), without a replay: an inclusive host tier reaches
        the larger pool, an exclusive one the sum (exact for write_through, eager, exclusive)."""
        if jit.COMPILED:
            import numpy as np

            a, b = np.asarray(first)[:, None], np.asarray(second)[None, :]
            reach = a + b if exclusive else np.maximum(a, b)
            cells = self.hit_blocks[np.minimum(reach, len(self.hit_blocks) - 1)]
            return [[int(v) for v in row] for row in cells]
        return [[self.at(a + b if exclusive else max(a, b))[0] for b in second] for a in first]


def curve(trace: Trace) -> Curve:
    """All capacities at once. State: 16 B per distinct block and 4 B per request, then 20 B per
    block. A request has one block at each depth, so counts of `steps` fit 32 bits, their sums not.
    """
    size = trace.blocks + 2
    steps, short = jit.zeros(size), jit.zeros(size, "i8")
    stack_distances(
        trace.ids, trace.offsets, trace.lengths, trace.block_tokens,
        jit.zeros(trace.blocks), jit.zeros(trace.requests + 1), steps, short,
    )  # fmt: skip
    if jit.COMPILED:
        hits = jit.zeros(size, "i8")
        sum_twice(steps, hits)
    else:
        hits = jit.running_sum(jit.running_sum(steps))
    lost = jit.running_sum(short)
    return Curve(trace, hits[: trace.blocks + 1], lost[: trace.blocks + 1])
