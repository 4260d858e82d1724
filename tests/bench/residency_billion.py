"""One billion block accesses, exact, every capacity, on one core; prints time and peak memory.

usage: python tests/bench/residency_billion.py [ACCESSES]

A chain trace of 20 M accesses is repeated under fresh ids until ACCESSES are reached.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import residency_traces as traces

from kvbudget.residency.curve import curve
from kvbudget.residency.trace import Trace


def tiled(part: Trace, copies: int) -> Trace:
    """`copies` of a trace one after the other, each under ids of its own, in narrow columns."""
    ids = np.empty(part.accesses * copies, np.uint32)
    offsets = np.zeros(part.requests * copies + 1, np.int32)
    lengths = np.empty(part.requests * copies, np.int32)
    for k in range(copies):
        at = slice(k * part.accesses, (k + 1) * part.accesses)
        np.add(part.ids, np.uint32(k * part.blocks), out=ids[at])
        rows = slice(k * part.requests, (k + 1) * part.requests)
        offsets[1:][rows] = part.offsets[1:] + k * part.accesses
        lengths[rows] = part.lengths
    times = np.broadcast_to(np.int64(0), len(lengths))
    for column in (ids, offsets, lengths):
        column.flags.writeable = False
    return Trace(ids, offsets, lengths, times, part.blocks * copies, part.block_tokens)


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000_000
    part = traces.chains(min(wanted, 20_000_000))
    copies = -(-wanted // part.accesses)
    curve(tiled(traces.chains(100_000), 1))
    trace = tiled(part, copies)
    del part
    wall, cpu = time.perf_counter(), time.thread_time()
    found = curve(trace)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{trace.accesses:,} accesses, {trace.blocks:,} distinct, ceiling {found.ceiling:,}: "
        f"{time.perf_counter() - wall:.1f} s wall, {time.thread_time() - cpu:.1f} s CPU, "
        f"peak {peak:.2f} GiB with the trace"
    )


main()
