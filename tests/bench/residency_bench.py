"""Residency benchmarks in one run, ours beside the peers', ratios as Markdown.

usage: python tests/bench/residency_bench.py [TRACE.jsonl] [--peers VENV] [--accesses 2000000] [--cpu]
VENV holds libcachesim==0.3.5 and kvcache-simulator==0.1.3. --cpu counts CPU time on both sides, for a
machine with other work on it; the sweep stays wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import residency_traces as traces

from kvbudget.residency import sweep
from kvbudget.residency.curve import curve
from kvbudget.residency.load import load
from kvbudget.residency.replay import Policy, Setup, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    Clock = Callable[[], float]

HERE = Path(__file__).parent
BUDGETS = (8, 16, 32, 64, 128, 256, 512)


CLOCK = time.thread_time if "--cpu" in sys.argv else time.perf_counter


def best(action: Callable[[], object], times: int = 5, clock: Clock = CLOCK) -> float:
    action()
    found = float("inf")
    for _ in range(times):
        start = clock()
        action()
        found = min(found, clock() - start)
    return found


def libcachesim(venv: Path, ids: np.ndarray, capacity: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.npy"
        np.save(path, ids)
        powers = ",".join(str(p) for p in (14, 16, 18, 20))
        out = subprocess.run(
            [
                venv / "bin/python", HERE / "residency_peers.py", path, str(capacity), powers,
                *(["--cpu"] if "--cpu" in sys.argv else []),
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(out.stdout.split()[0])


def process(command: list[str], **rest: object) -> float:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **rest)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if "--cpu" in sys.argv:
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start


def row(what: str, ours: float, theirs: float | None, wanted: str) -> None:
    ratio = "" if theirs is None else f"{theirs / ours:.1f}x"
    other = "" if theirs is None else f"{theirs:.3f}"
    print(f"| {what} | {ours:.3f} | {other} | {ratio} | {wanted} |", flush=True)


def write_jsonl(trace: traces.Trace, path: Path) -> None:
    with path.open("w") as out:
        for r in range(trace.requests):
            a, z = int(trace.offsets[r]), int(trace.offsets[r + 1])
            record = {
                "timestamp": int(trace.times_us[r]) // 1000, "input_length": int(trace.lengths[r]),
                "output_length": 1, "hash_ids": trace.ids[a:z].tolist(),
            }  # fmt: skip
            out.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path, nargs="?", help="a short real trace, one more row")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--accesses", type=int, default=2_000_000)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    peers = args.peers and args.peers.absolute()
    chain = traces.chains(args.accesses)
    flat = traces.flat_zipf(args.accesses)
    c1 = max(1000, chain.blocks // 20)
    print(f"chains: {chain.accesses:,} accesses, {chain.blocks:,} distinct; C1 = {c1:,}; "
          f"flat zipf: {flat.accesses:,}, {flat.blocks:,}; load {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    print("| what | kvbudget s | peer s | ratio | wanted |\n|---|---:|---:|---:|---:|")
    peer = libcachesim(peers, chain.ids, c1) if peers else None
    whole = best(lambda: curve(chain))
    row("full curve, chains, against libcachesim LRU at one capacity", whole, peer, ">= 10x")
    for policy in (Policy.write_through, Policy.write_through_selective, Policy.exclusive):
        took = best(lambda p=policy: replay(chain, Setup(p, c1, 3 * c1)), 3)
        row(f"two-tier replay, {policy}, chains, against libcachesim LRU", took, peer, ">= 2x")

    def surface() -> None:
        found = curve(chain)
        sizes = [chain.blocks * k // 32 + 1 for k in range(32)]
        found.surface(sizes, sizes, exclusive=False)
        found.surface(sizes, sizes, exclusive=True)

    row("2 x 1,024-cell surface against one pass", best(surface), 2 * whole, ">= 1x of 2 passes")
    peer = libcachesim(peers, flat.ids, c1) if peers else None
    row("full curve, flat zipf (the weak case)", best(lambda: curve(flat), 3), peer, "published")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "chains.jsonl"
        write_jsonl(chain, large)
        for name, path in (("short", args.trace), ("chains", large)):
            if path is None:
                continue
            ours = {**os.environ, "KVBUDGET_CACHE_DIR": folder}
            command = [sys.executable, "-m", "kvbudget", "residency", "curve", str(path)]
            at = [*command, "--at", "1000,2000,4000,8000,16000,32000,64000", "--format", "json"]
            process(at, env=ours)
            cold = min(process([*at, "--no-cache"], env=ours) for _ in range(2))
            warm = min(process(at, env=ours) for _ in range(3))
            parse = best(lambda p=path: curve(load(str(p), cache=False)), 3)
            theirs = None
            if peers:
                theirs = min(
                    process([
                        str(peers / "bin/kvcache-simulator"), "run", "--trace", str(path),
                        "--model", "llama-3.1-8b", "--policies", "lru",
                        "--block-size", "512", "--no-progress",
                        "--budgets-gib", ",".join(map(str, BUDGETS)),
                    ])
                    for _ in range(2)
                )  # fmt: skip
            label = "JSONL to every capacity"
            row(f"{label}, {name}, warm process, no cache", parse, theirs, ">= 20x")
            row(f"{label}, {name}, process start, no cache", cold, theirs, ">= 4x")
            row(f"{label}, {name}, process start, columns kept", warm, theirs, "")
    cells = sweep.cells(
        Setup(Policy.write_through, c1), [Policy.write_through, Policy.exclusive],
        [c1 // 4, c1 // 2, c1, 2 * c1], [c1 * k for k in range(1, 9)], [0], [256],
    )  # fmt: skip
    serial = sweep.run(chain, cells, executor="serial")
    slow = best(lambda: sweep.run(chain, cells, executor="serial"), 2, time.perf_counter)
    fast = best(lambda: sweep.run(chain, cells, executor="local"), 2, time.perf_counter)
    assert sweep.run(chain, cells, executor="local") == serial
    row(f"sweep of {len(cells)} cells, local against serial", fast, slow, ">= 1.6x on 2 cores")
    tracemalloc.start()
    curve(chain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"\nmemory beyond the trace for the curve: {peak / chain.blocks:.1f} B per distinct block"
    )


main()
