"""A sweep of 64 cells, serial beside a local Ray, in one run; results must be identical.

usage (in an environment with kvbudget[sim,ray]): python tests/bench/residency_ray.py [ACCESSES]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import ray

sys.path.insert(0, str(Path(__file__).parent))
import residency_traces as traces

from kvbudget.residency import sweep
from kvbudget.residency.replay import Policy, Setup


def timed(trace: traces.Trace, cells: list[Setup], executor: str) -> tuple[float, object]:
    start = time.perf_counter()
    found = sweep.run(trace, cells, executor=executor)
    return time.perf_counter() - start, found


def main() -> None:
    trace = traces.chains(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
    c1 = trace.blocks // 20
    cells = sweep.cells(
        Setup(Policy.write_through, c1), [Policy.write_back, Policy.vllm_lazy],
        [c1 // 4, c1 // 2, c1, 2 * c1], [c1 * k for k in range(1, 9)], [0], [256],
    )  # fmt: skip
    timed(trace, cells[::32], "serial")
    slow, expected = timed(trace, cells, "serial")
    cores = os.cpu_count() or 1
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    first, found = timed(trace, cells, "ray")
    assert found == expected
    fast, found = timed(trace, cells, "ray")
    assert found == expected
    print(
        f"{len(cells)} cells of {trace.accesses:,} accesses, {cores} cores, load "
        f"{os.getloadavg()[0]:.1f}: serial {slow:.1f} s, Ray {fast:.1f} s ({slow / fast:.2f}x), "
        f"its first sweep, workers starting, {first:.1f} s; identical"
    )


main()
