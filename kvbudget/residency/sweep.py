"""Many cells of one trace: in turn, on all cores, or on a Ray cluster, with the same result."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.residency import jit
from kvbudget.residency.replay import TREE, Policy, Result, Setup, replay

if TYPE_CHECKING:
    from kvbudget.residency.trace import Trace

Progress = Callable[[str, int, int], None]

EXECUTORS = ("serial", "local", "ray")


def cells(
    base: Setup,
    policies: Sequence[Policy],
    l1: Sequence[int | None],
    l2: Sequence[int | None],
    l3: Sequence[int | None],
    thresholds: Sequence[int],
) -> list[Setup]:
    """The product, without cells that only differ in a number their policy ignores."""
    found: dict[str, Setup] = {}
    for policy, a, b, c, threshold in itertools.product(policies, l1, l2, l3, thresholds):
        tree = policy in TREE
        setup = replace(
            base,
            policy=policy,
            l1_blocks=a,
            l2_blocks=0 if policy is Policy.lru else b,
            l3_blocks=c if tree and b != 0 else 0,
            prefetch_threshold=threshold,
        )
        setup.check()
        found.setdefault(repr(setup.as_config()), setup)
    return list(found.values())


def run(
    trace: Trace,
    setups: Sequence[Setup],
    *,
    executor: str = "local",
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Replay every cell; results stand in the order of `setups` whatever the executor.

    Raises InputError for an unknown executor and for ray where Ray is not installed.
    """
    if executor not in EXECUTORS:
        raise InputError(f"unknown executor {executor!r}", "one of: " + ", ".join(EXECUTORS))
    if executor == "ray":
        return _on_ray(trace, setups, ray_address, progress)
    workers = min(jobs or os.cpu_count() or 1, len(setups)) if executor == "local" else 1
    if workers > 1 and jit.COMPILED:
        return _threads(trace, setups, workers, progress)
    if workers > 1:
        return _processes(trace, setups, workers, progress)
    return [_told(replay(trace, s), k, setups, progress) for k, s in enumerate(setups, 1)]


def _told(result: Result, done: int, setups: Sequence[Setup], progress: Progress | None) -> Result:
    if progress is not None:
        progress("cells", done, len(setups))
    return result


def _threads(
    trace: Trace, setups: Sequence[Setup], workers: int, progress: Progress | None
) -> list[Result]:
    """Compiled kernels release the interpreter, so threads share one trace and use every core."""
    from concurrent.futures import ThreadPoolExecutor

    warm(trace, setups)
    with ThreadPoolExecutor(workers) as pool:
        return [
            _told(result, k, setups, progress)
            for k, result in enumerate(pool.map(lambda s: replay(trace, s), setups), 1)
        ]


def warm(trace: Trace, setups: Sequence[Setup]) -> None:
    """Compile what the cells need before several threads ask for it at once."""
    few = replace(
        trace,
        ids=trace.ids[:0],
        offsets=trace.offsets[:1],
        lengths=trace.lengths[:0],
        times_us=trace.times_us[:0],
    )
    for setup in {s.policy: s for s in setups}.values():
        replay(few, setup)


def _processes(
    trace: Trace, setups: Sequence[Setup], workers: int, progress: Progress | None
) -> list[Result]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, initializer=_keep, initargs=(trace,)) as pool:
        return [
            _told(result, k, setups, progress)
            for k, result in enumerate(pool.map(_cell, setups), 1)
        ]


_KEPT: dict[str, Trace] = {}


def _keep(trace: Trace) -> None:
    _KEPT["trace"] = trace


def _cell(setup: Setup) -> Result:
    return replay(_KEPT["trace"], setup)


def _on_ray(
    trace: Trace, setups: Sequence[Setup], address: str | None, progress: Progress | None
) -> list[Result]:
    try:
        import ray
    except ImportError as exc:
        raise InputError(
            "the ray executor needs Ray", 'pip install "kvbudget[ray]", or --executor local'
        ) from exc
    started = not ray.is_initialized()
    if started:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            options["include_dashboard"] = False
        ray.init(address=address, **options)
    try:
        shared = ray.put(trace)
        batch = max(1, len(setups) // (8 * max(1, int(ray.cluster_resources().get("CPU", 1)))))
        task = ray.remote(num_cpus=1)(_batch)
        parts = [setups[k : k + batch] for k in range(0, len(setups), batch)]
        waiting = [task.remote(shared, list(part)) for part in parts]
        results: list[Result] = []
        for reference in waiting:
            results += ray.get(reference)
            if progress is not None:
                progress("cells", len(results), len(setups))
        return results
    finally:
        if started:
            ray.shutdown()


def _batch(trace: Trace, setups: list[Setup]) -> list[Result]:
    return [replay(trace, setup) for setup in setups]
