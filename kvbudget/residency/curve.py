"""Hits at every capacity from one pass over the trace (chain-Mattson).

The blocks last touched by request q are a suffix of q's chain, because later requests re-touch
prefixes. So one count per request, and one query and update per run of blocks with the same last
toucher, replace one per block; the result is exact at every capacity at once. The counts stand in
a Fenwick tree that grows with the requests: each sum is put together once, when its request ends.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from operator import ne
from typing import TYPE_CHECKING, Any

from kvbudget.residency import jit
from kvbudget.residency.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.residency.trace import Trace

Array = Any


@kernel
def stack_distances(
    ids: Array, off: Array, lengths: Array, tokens: int,
    last: Array, tree: Array, steps: Array, short: Array,
) -> int:  # fmt: skip
    """Add every reuse to a histogram of the smallest capacities that serve it; -> distinct blocks.

    last (zeros, one per block) holds 1 + the last toucher, tree (zeros, one per request and one)
    how many blocks each request touched last, summed over ranges of requests. steps[c] - its
    running sum is the number of reuses that need a capacity of c - is a difference array of
    blocks+2; short[c] counts the tokens by which these blocks are smaller than `tokens`.
    """
    distinct = 0
    for r in range(len(off) - 1):
        start = off[r]
        end = off[r + 1]
        mark = r + 1
        p = start
        while p < end:
            toucher = last[ids[p]]
            if toucher == 0:
                break
            a = p
            # the run of blocks last touched by the same request
            while p < end and last[ids[p]] == toucher:
                last[ids[p]] = mark
                p += 1
            n = p - a
            # blocks whose last toucher is no later are as old or older; the others are newer
            need = distinct + 1
            k = toucher
            while k > 0:
                need -= tree[k]
                k &= k - 1
            steps[need] += 1
            steps[need + n] -= 1
            k = toucher
            while k <= r:
                tree[k] -= n
                k += k & -k
            if lengths[r] < tokens * (p - start):
                k = max(a, start + lengths[r] // tokens)
                while k < p:
                    missing = tokens * (k - start + 1) - lengths[r]
                    short[need + k - a] += min(tokens, missing)
                    k += 1
        distinct += end - p
        while p < end:
            last[ids[p]] = mark
            p += 1
        held = end - start
        below = 1
        while not mark & below:
            held += tree[mark - below]
            below <<= 1
        tree[mark] = held
    return distinct


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
        if jit.COMPILED:
            import numpy as np

            return [0, *(np.flatnonzero(np.diff(self.hit_blocks)) + 1).tolist()]
        gains = map(ne, self.hit_blocks, itertools.islice(self.hit_blocks, 1, None))
        return [0, *itertools.compress(itertools.count(1), gains)]

    def knee(self) -> int:
        """The capacity farthest above the straight line from nothing to the smallest capacity that
        reaches the ceiling: where a further block starts to earn less than the average one."""
        places = self.distinct()
        top, ceiling = places[-1], self.ceiling
        if not ceiling:
            return 0
        return max(places, key=lambda c: int(self.hit_blocks[c]) * top - ceiling * c)

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
    steps, short = jit.zeros(trace.blocks + 2), jit.zeros(trace.blocks + 2, "i8")
    stack_distances(
        trace.ids, trace.offsets, trace.lengths, trace.block_tokens,
        jit.zeros(trace.blocks), jit.zeros(trace.requests + 1), steps, short,
    )  # fmt: skip
    hits, lost = jit.running_sum(jit.running_sum(steps), "i8"), jit.running_sum(short)
    return Curve(trace, hits[: trace.blocks + 1], lost[: trace.blocks + 1])
