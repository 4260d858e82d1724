"""Pure rules over samples: what went wrong, on which card or server, and what it leads to.

Three different deaths are kept apart: the margin of this process goes (it will run out of
memory), the KV pool is full (requests are preempted, nothing dies), a neighbour eats the card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kvbudget.units import MIB, format_size
from kvbudget.watch.attribution import Growth, Owners
from kvbudget.watch.slope import BUCKETS, Trend

if TYPE_CHECKING:
    from kvbudget.watch.samples import EngineReading, GpuReading, Sample

AlarmId = Literal["margin_low", "margin_eta", "neighbour_growth", "pool_pressure", "gpu_lost"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a reading becomes an alarm. Sizes in bytes, times in seconds."""

    min_margin: int = 512 * MIB
    eta_s: float = 1800.0
    min_drop: int = 64 * MIB
    neighbour: int = 256 * MIB
    pool_usage: float = 0.95
    window_s: float = 1800.0
    rate_window_s: float = 60.0
    step_share: float = 0.05
    """A change of this share of the card between two readings is a load or an unload."""


@dataclass(frozen=True, slots=True)
class Alarm:
    id: AlarmId
    where: str
    message: str
    leads_to: str


@dataclass(frozen=True, slots=True)
class GpuState:
    """What is known of a card after a sample; null where it cannot be known yet."""

    reading: GpuReading
    low_water: int | None
    baseline_free: int | None
    slope: float | None
    eta_s: float | None
    growth: Growth | None


@dataclass(frozen=True, slots=True)
class EngineState:
    reading: EngineReading
    preemption_rate: float | None
    """per second over the last `rate_window_s`; null before two readings"""


@dataclass(frozen=True, slots=True)
class State:
    sample: Sample
    gpus: tuple[GpuState, ...]
    engines: tuple[EngineState, ...]
    alarms: tuple[Alarm, ...]
    events: tuple[str, ...]


@dataclass(slots=True)
class _Gpu:
    trend: Trend
    owners: Owners = field(default_factory=Owners)
    low_water: int | None = None
    baseline_free: int | None = None
    last_free: int | None = None
    total: int | None = None

    def rebase(self) -> None:
        self.trend.clear()
        self.owners.clear()
        self.low_water = self.baseline_free = self.last_free = None


@dataclass(slots=True)
class _Engine:
    history: list[tuple[float, float]] = field(default_factory=list)  # elapsed, counter
    started: float | None = None
    was_up: bool = False


class Watcher:
    """Feeds on samples in order; keeps a bounded memory of each card and server."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._gpus: dict[str, _Gpu] = {}
        self._engines: dict[str, _Engine] = {}
        self._last: float | None = None

    def feed(self, sample: Sample) -> State:
        events: list[str] = []
        if self._last is not None and sample.elapsed <= self._last:
            self._gpus.clear()
            self._engines.clear()
            events.append("the clock of the readings went back: starting over")
        self._last = sample.elapsed
        engines, restarted = self._feed_engines(sample, events)
        serving = not sample.engines or any(engine.up for engine in sample.engines)
        gpus: list[GpuState] = []
        alarms: list[Alarm] = []
        for reading in sample.gpus:
            state = self._feed_gpu(sample.elapsed, reading, restarted, serving, events, alarms)
            gpus.append(state)
        for engine in engines:
            alarm = self._pool_alarm(engine)
            if alarm:
                alarms.append(alarm)
        return State(sample, tuple(gpus), tuple(engines), tuple(alarms), tuple(events))

    # -- servers -----------------------------------------------------------------------------

    def _feed_engines(self, sample: Sample, events: list[str]) -> tuple[list[EngineState], bool]:
        states = []
        restarted = False
        for reading in sample.engines:
            memory = self._engines.setdefault(reading.url, _Engine())
            if not reading.up:
                if memory.was_up:
                    events.append(f"{reading.url} stopped answering: {reading.error}")
                memory.was_up = False
                states.append(EngineState(reading, None))
                continue
            started = reading.figures.get("process_start_time")
            counter = reading.figures.get("preemptions")
            fell = counter is not None and memory.history and counter < memory.history[-1][1]
            moved = started is not None and memory.started is not None and started > memory.started
            if fell or moved:
                events.append(f"{reading.url} was restarted")
                memory.history.clear()
                restarted = True
            memory.started = started if started is not None else memory.started
            memory.was_up = True
            rate = None
            if counter is not None:
                memory.history.append((sample.elapsed, counter))
                oldest = sample.elapsed - self.limits.rate_window_s
                while len(memory.history) > 2 and (
                    memory.history[1][0] <= oldest or len(memory.history) > 512
                ):
                    memory.history.pop(0)
                if len(memory.history) > 1:
                    (t0, c0), (t1, c1) = memory.history[0], memory.history[-1]
                    rate = (c1 - c0) / (t1 - t0)
            states.append(EngineState(reading, rate))
        return states, restarted

    def _pool_alarm(self, engine: EngineState) -> Alarm | None:
        usage = engine.reading.figures.get("kv_cache_usage")
        rate = engine.preemption_rate
        now = engine.reading.figures.get("retracted_now")
        busy = (rate is not None and rate > 0) or (now is not None and now > 0)
        if usage is None or usage <= self.limits.pool_usage or not busy:
            return None
        how_often = f"{rate * 60:.1f} preemptions a minute" if rate else f"{now:.0f} retracted now"
        return Alarm(
            "pool_pressure",
            engine.reading.url,
            f"KV pool {usage:.0%} full, {how_often}",
            "requests are preempted and recomputed; the process itself is not at risk",
        )

    # -- cards -------------------------------------------------------------------------------

    def _feed_gpu(
        self,
        elapsed: float,
        reading: GpuReading,
        restarted: bool,
        serving: bool,
        events: list[str],
        alarms: list[Alarm],
    ) -> GpuState:
        key = reading.uuid or str(reading.index)
        where = f"GPU {reading.index}"
        memory = self._gpus.get(key)
        if memory is None:
            memory = self._gpus[key] = _Gpu(Trend(self.limits.window_s / BUCKETS))
        if reading.error is not None or reading.free_memory is None:
            if memory.last_free is not None:
                alarms.append(
                    Alarm("gpu_lost", where, f"no longer readable: {reading.error}",
                          "the driver lost the card or access to it was taken away")
                )  # fmt: skip
            return GpuState(reading, memory.low_water, memory.baseline_free, None, None, None)
        free = reading.free_memory
        total = reading.total_memory or memory.total or 0
        memory.total = total or None
        step = abs(free - memory.last_free) if memory.last_free is not None else 0
        jumped = total > 0 and step > self.limits.step_share * total
        foreign = memory.owners.foreign_change(reading)
        own_jump = jumped and (foreign is None or abs(foreign) < step / 2)
        if memory.baseline_free is not None and (restarted or not serving or own_jump):
            if own_jump or restarted:
                events.append(f"{where}: memory was loaded or given back; starting over from here")
            memory.rebase()
        memory.owners.see(reading)
        if memory.baseline_free is None:
            memory.baseline_free = free
        memory.last_free = free
        memory.low_water = free if memory.low_water is None else min(memory.low_water, free)
        if not serving:  # loading: memory moves for good reasons
            return GpuState(reading, memory.low_water, None, None, None, None)
        memory.trend.add(elapsed, free)
        growth = memory.owners.growth(reading, memory.baseline_free)
        slope, eta = self._eta(memory, free)
        neighbour = self._neighbour_alarm(where, growth)
        if neighbour:
            alarms.append(neighbour)
        margin = self._margin_alarms(where, free, slope, eta, growth, bool(neighbour))
        alarms.extend(margin)
        return GpuState(reading, memory.low_water, memory.baseline_free, slope, eta, growth)

    def _eta(self, memory: _Gpu, free: int) -> tuple[float | None, float | None]:
        fit = memory.trend.fit()
        if fit is None:
            return None, None
        slope, falling = fit
        if slope >= 0 or falling < 0.75 or memory.trend.drop() < self.limits.min_drop:
            return slope, None
        eta = free / -slope
        # A tooth of a sawtooth is a leak that ends: believe a projection only after watching for
        # half as long as it reaches ahead, ten minutes at most.
        believed = memory.trend.observed() >= min(600.0, eta / 2)
        return slope, (eta if believed else None)

    def _neighbour_alarm(self, where: str, growth: Growth) -> Alarm | None:
        if growth.neighbour is None or growth.neighbour < self.limits.neighbour:
            return None
        pids = ", ".join(str(pid) for pid in growth.neighbour_pids) or "unknown"
        return Alarm(
            "neighbour_growth",
            where,
            f"other processes took {format_size(growth.neighbour)} since the start (pid {pids})",
            "this server runs out of memory through no change of its own",
        )

    def _margin_alarms(
        self,
        where: str,
        free: int,
        slope: float | None,
        eta: float | None,
        growth: Growth,
        neighbour_alarmed: bool,
    ) -> list[Alarm]:
        alarms = []
        who = growth.culprit
        if free < self.limits.min_margin:
            alarms.append(
                Alarm("margin_low", where,
                      f"{format_size(free)} of the card is free, below "
                      f"{format_size(self.limits.min_margin)}; grew most: {who}",
                      "the next allocation outside the pool may kill the process")
            )  # fmt: skip
        by_neighbour = neighbour_alarmed and who == "a neighbour"
        if eta is not None and slope is not None and eta < self.limits.eta_s and not by_neighbour:
            alarms.append(
                Alarm("margin_eta", where,
                      f"free memory falls by {format_size(int(-slope * 3600))}/h and is gone in "
                      f"{eta / 60:.0f} min; grew most: {who}",
                      "the process runs out of memory then")
            )  # fmt: skip
        return alarms
