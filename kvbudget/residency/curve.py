"""Hits at every capacity from one pass over the trace (chain-Mattson).

The blocks last touched by request q are a suffix of q's chain, because later requests re-touch
prefixes. So one count per request, and one query and update per run of blocks with the same last
toucher, replace one per block; the result is exact at every capacity at once. The counts stand in
three levels of sums, 256 to one: an update is three additions, a query three short vector sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.residency import jit
from kvbudget.residency.jit import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.residency.trace import Trace

Array = Any


@kernel
def total(values: Array) -> int:
    """The sum of a short slice (a plain loop without indices, which compiles to vectors)."""
    found = 0
    for value in values:
        found += value
    return found


@kernel
def stack_distances(
    ids: Array, off: Array, lengths: Array, tokens: int,
    last: Array, live: Array, mid: Array, top: Array, steps: Array, short: Array,
) -> int:  # fmt: skip
    """Add every reuse to a histogram of stack depths; -> reuses counted.

    last (zeros, one per block) holds 1 + the last toucher, live how many blocks each request
    touched last, mid and top the sums of live over 256 and 65,536 requests. steps[d] - its running
    sum is the number of reuses at depth d - is a difference array of blocks+1; short[d] counts the
    tokens by which blocks reused at depth d are smaller than `tokens`.
    """
    reuses = 0
    for r in range(len(off) - 1):
        chain = ids[off[r] : off[r + 1]]
        m = len(chain)
        mark = r + 1
        p = 0
        while p < m:
            toucher = last[chain[p]]
            if toucher == 0:
                break
            a = p
            # the run of blocks last touched by the same request
            while p < m and last[chain[p]] == toucher:
                last[chain[p]] = mark
                p += 1
            # newer: all live blocks of later requests, and those of this chain before `a`, which
            # have left their requests already
            q = toucher - 1
            near, far = q >> 8, q >> 16
            depth = a + total(live[q + 1 : min((near + 1) << 8, mark)])
            depth += total(mid[near + 1 : min((far + 1) << 8, (r >> 8) + 1)])
            depth += total(top[far + 1 : (r >> 16) + 1])
            n = p - a
            steps[depth] += 1
            steps[depth + n] -= 1
            reuses += n
            live[q] -= n
            mid[near] -= n
            top[far] -= n
            if lengths[r] < tokens * p:
                k = a
                while k < p:
                    weight = min(tokens * (k + 1), lengths[r]) - min(tokens * k, lengths[r])
                    short[depth + k - a] += tokens - weight
                    k += 1
        for b in chain[p:]:
            last[b] = mark
        live[r] = m
        mid[r >> 8] += m
        top[r >> 16] += m
    return reuses


@dataclass(frozen=True, slots=True)
class Curve:
    """hit_blocks[c] and hit_tokens[c] are the hits of one LRU tier of c blocks, c = 0..blocks."""

    trace: Trace
    hit_blocks: Array
    hit_tokens: Array

    @property
    def ceiling(self) -> int:
        """Block hits of an unlimited tier."""
        return int(self.hit_blocks[-1])

    @property
    def token_ceiling(self) -> int:
        return int(self.hit_tokens[-1])

    def at(self, capacity: int) -> tuple[int, int]:
        """(block hits, token hits) of `capacity` blocks."""
        place = min(capacity, len(self.hit_blocks) - 1)
        return int(self.hit_blocks[place]), int(self.hit_tokens[place])

    def distinct(self) -> list[int]:
        """Every capacity at which one more block gains hits, and 0."""
        if jit.COMPILED:
            import numpy as np

            return [0, *(np.flatnonzero(np.diff(self.hit_blocks)) + 1).tolist()]
        hits = self.hit_blocks
        return [0, *(c for c in range(1, len(hits)) if hits[c] != hits[c - 1])]

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
    """All capacities at once. State: 20 B per distinct block and 4 B per request."""
    requests, blocks = trace.requests, trace.blocks
    # one place more in front, so that two running sums in place give hits below each capacity
    steps, short = jit.zeros(blocks + 2, "i8"), jit.zeros(blocks + 2, "i8")
    by_depth, short_by_depth = steps[1:], short[1:]
    stack_distances(
        trace.ids, trace.offsets, trace.lengths, trace.block_tokens,
        jit.zeros(blocks), jit.zeros(requests), jit.zeros((requests >> 8) + 1),
        jit.zeros((requests >> 16) + 1, "i8"), by_depth, short_by_depth,
    )  # fmt: skip
    if jit.COMPILED:
        return _summed(trace, steps, short)
    hits, tokens = [0], [0]
    here = 0
    for depth in range(blocks):
        here += by_depth[depth]
        hits.append(hits[-1] + here)
        tokens.append(tokens[-1] + here * trace.block_tokens - short_by_depth[depth])
    return Curve(trace, hits, tokens)


PIECE = 1 << 16


def _summed(trace: Trace, steps: Array, short: Array) -> Curve:
    """Differences of the depth histogram -> hits by capacity, without further large arrays."""
    import numpy as np

    np.cumsum(steps, out=steps)
    np.cumsum(steps, out=steps)
    np.cumsum(short, out=short)
    for at in range(0, len(steps), PIECE):
        part = slice(at, at + PIECE)
        short[part] = steps[part] * trace.block_tokens - short[part]
    return Curve(trace, steps[: trace.blocks + 1], short[: trace.blocks + 1])
