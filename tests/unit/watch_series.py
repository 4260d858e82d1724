"""Synthetic days of a server, for the watch tests and the bench: samples without any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.units import GIB, MIB
from kvbudget.watch.samples import EngineReading, GpuReading, ProcessReading, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOTAL = 80 * GIB
URL = "http://127.0.0.1:8000/metrics"


def sample(
    elapsed: float,
    free: int,
    *,
    own: int | None = None,
    others: dict[int, int] | None = None,
    usage: float = 0.5,
    preemptions: float = 0.0,
    up: bool = True,
    pid: int = 100,
    named: bool = True,
) -> Sample:
    """One reading: the server (`pid`), its neighbours, one endpoint."""
    used = TOTAL - free
    others = others or {}
    own = used - sum(others.values()) if own is None else own
    processes = tuple(
        ProcessReading(p, u if named else None) for p, u in {pid: own, **others}.items()
    )
    figures = {"kv_cache_usage": usage, "preemptions": preemptions}
    engine = (
        EngineReading(URL, up=True, engine="vllm", figures=figures)
        if up
        else EngineReading(URL, up=False, error="connection refused")
    )
    gpu = GpuReading(0, "GPU-0", "Test card", TOTAL, used, free, 512 * MIB, processes)
    return Sample(elapsed, "2026-01-01T00:00:00.000+00:00", (gpu,), (engine,))


def leak(seconds: int, step: int, rate: int, start: int = 3 * GIB) -> Iterator[Sample]:
    """The server itself grows by `rate` bytes per second."""
    for t in range(0, seconds, step):
        yield sample(t, start - rate * t)


def sawtooth(seconds: int, step: int) -> Iterator[Sample]:
    """Scratch memory that always comes back: period 300 s, 1 GiB deep."""
    for t in range(0, seconds, step):
        yield sample(t, 4 * GIB - (t % 300) * GIB // 300)


def quiet(seconds: int, step: int) -> Iterator[Sample]:
    for t in range(0, seconds, step):
        yield sample(t, 4 * GIB + (t * 7919 % 5) * MIB)


def neighbour(seconds: int, step: int) -> Iterator[Sample]:
    """Another process takes memory step by step, down to 1 GiB free."""
    for t in range(0, seconds, step):
        theirs = min(3 * GIB, t * 2 * MIB)
        yield sample(t, 4 * GIB - theirs, others={200: 256 * MIB + theirs})


def storm(seconds: int, step: int) -> Iterator[Sample]:
    """The pool is full from t=120 on and preempts once a second."""
    for t in range(0, seconds, step):
        full = t >= 120
        yield sample(t, 4 * GIB, usage=0.99 if full else 0.6, preemptions=max(0.0, t - 120.0))


def restart(seconds: int, step: int) -> Iterator[Sample]:
    """A restart in the middle: endpoint down, memory back, loaded again, counter from 0."""
    for t in range(0, seconds, step):
        phase = t - seconds // 2
        if phase < 0:
            yield sample(t, 4 * GIB, preemptions=50.0)
        elif phase < 20:
            yield sample(t, 79 * GIB, up=False, own=0, pid=101)
        elif phase < 80:
            yield sample(t, 79 * GIB - (phase - 20) * 75 * GIB // 60, up=False, pid=101)
        else:
            yield sample(t, 4 * GIB, preemptions=0.0, pid=101)


SERIES: dict[str, tuple[Callable[[], Iterator[Sample]], set[str]]] = {
    "quiet": (lambda: quiet(3600, 2), set()),
    "leak": (lambda: leak(2400, 2, MIB), {"margin_eta"}),
    "sawtooth": (lambda: sawtooth(7200, 2), set()),
    "neighbour": (lambda: neighbour(3000, 2), {"neighbour_growth"}),
    "preemption storm": (lambda: storm(1200, 2), {"pool_pressure"}),
    "restart": (lambda: restart(1800, 2), set()),
}
