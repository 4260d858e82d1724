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


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000_000
    part = traces.chains(min(wanted, 20_000_000))
    copies = max(1, wanted // part.accesses)
    curve(traces.chains(100_000))
    ids = np.empty(part.accesses * copies, np.uint32)
    for k in range(copies):
        at = slice(k * part.accesses, (k + 1) * part.accesses)
        np.add(part.ids, np.uint32(k * part.blocks), out=ids[at])
    steps = np.tile(np.diff(part.offsets), copies)
    offsets = np.concatenate([[0], np.cumsum(steps)])
    lengths = steps * part.block_tokens
    times = np.arange(len(lengths))
    for column in (ids, offsets, lengths, times):
        column.flags.writeable = False
    trace = Trace(ids, offsets, lengths, times, part.blocks * copies, part.block_tokens)
    wall, cpu = time.perf_counter(), time.thread_time()
    found = curve(trace)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{trace.accesses:,} accesses, {trace.blocks:,} distinct, ceiling {found.ceiling:,}: "
        f"{time.perf_counter() - wall:.1f} s wall, {time.thread_time() - cpu:.1f} s CPU, "
        f"peak {peak:.2f} GiB with the trace"
    )


main()
