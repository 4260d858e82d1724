"""Run by the peers' own interpreter: libcachesim's LRU over ids in a .npy file, best of repeats.

usage: residency_peers.py IDS.npy CAPACITY HASHPOWER[,HASHPOWER...] [--cpu] -> best seconds and its misses
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import libcachesim as lcs
import numpy as np


def main() -> None:
    clock = time.thread_time if "--cpu" in sys.argv else time.perf_counter
    ids = np.load(sys.argv[1])
    capacity = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.oracleGeneral"
        rows = np.zeros(
            len(ids), np.dtype([("t", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
        )
        rows["id"], rows["size"], rows["next"] = ids + 1, 1, -1
        rows.tofile(path)
        best, at, ratio = float("inf"), 0, 0.0
        for power in (int(p) for p in sys.argv[3].split(",")):
            for _ in range(3):
                reader = lcs.TraceReader(
                    trace=str(path),
                    trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE,
                    reader_init_params=lcs.ReaderInitParam(ignore_obj_size=True),
                )
                cache = lcs.LRU(cache_size=capacity, hashpower=power)
                start = clock()
                ratio = cache.process_trace(reader)[0]
                took = clock() - start
                if took < best:
                    best, at = took, power
        print(best, at, ratio)


main()
