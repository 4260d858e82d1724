"""Synthetic traces for the benchmarks: chains (conversations that grow) and a flat zipf stream."""

from __future__ import annotations

import numpy as np

from kvbudget.residency.trace import Trace


def chains(accesses: int, seed: int = 1, block_tokens: int = 512) -> Trace:
    """Conversations picked by a recency-biased draw; each turn appends 1-4 blocks to its chain.

    About `accesses` block accesses, chains of 8 to 56 blocks below 16 shared system prompts.
    """
    rng = np.random.default_rng(seed)
    turns = accesses // 24 + 1
    live: list[list[int]] = []
    ids: list[np.ndarray] = []
    offsets = [0]
    fresh = 16 * 4
    roots = [list(range(4 * k, 4 * k + 4)) for k in range(16)]
    draws, fates = rng.random(turns * 2), rng.random(turns * 2)
    grows = rng.integers(1, 5, turns * 2)
    starts, total, r = rng.integers(0, 16, turns * 2), 0, 0
    while total < accesses:
        r = (r + 1) % len(draws)
        if not live or fates[r] < 0.12:
            chain = [*roots[starts[r]], *range(fresh, fresh + 4)]
            fresh += 4
            live.append(chain)
        else:
            reach = min(len(live), 4000)
            at = len(live) - 1 - int(reach * draws[r] ** 3)
            chain = live[at]
            n = int(grows[r])
            chain += range(fresh, fresh + n)
            fresh += n
            if len(chain) > 56:
                live[at] = live[-1]
                live.pop()
        ids.append(np.array(chain, np.int64))
        total += len(chain)
        offsets.append(total)
    return trace_of(np.concatenate(ids), np.array(offsets), block_tokens)


def flat_zipf(accesses: int, seed: int = 2) -> Trace:
    """Chains of one block whose ids follow a zipf law: nothing for a chain algorithm to gain."""
    raw = np.minimum(np.random.default_rng(seed).zipf(1.1, accesses), accesses)
    return trace_of(raw.astype(np.int64), np.arange(accesses + 1), 512)


def trace_of(raw: np.ndarray, offsets: np.ndarray, block_tokens: int) -> Trace:
    """Raw ids -> a trace with full last blocks and one request per millisecond."""
    first, inverse = np.unique(raw, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(first), np.uint32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.uint32)
    ids = rank[inverse.reshape(-1)]
    lengths = np.diff(offsets).astype(np.int64) * block_tokens
    times = np.arange(len(lengths), dtype=np.int64) * 1000
    columns = (ids, offsets.astype(np.int64), lengths, times)
    for values in columns:
        values.flags.writeable = False
    return Trace(*columns, len(first), block_tokens, "synthetic")
