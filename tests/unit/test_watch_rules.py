"""The alarms of `kvbudget watch` on synthetic days: exactly the expected ones, and no other."""

from __future__ import annotations

import pytest
from watch_series import SERIES, TOTAL, leak, sample

from kvbudget.units import GIB, MIB
from kvbudget.watch.alarms import Watcher
from kvbudget.watch.samples import EngineReading, GpuReading, Sample, decode, encode
from kvbudget.watch.slope import BUCKETS, Trend


def alarms_of(samples):
    watcher = Watcher()
    return {alarm.id for s in samples for alarm in watcher.feed(s).alarms}


@pytest.mark.parametrize("name", SERIES)
def test_each_day_raises_exactly_its_alarms(name):
    make, expected = SERIES[name]
    assert alarms_of(make()) == expected


@pytest.mark.parametrize("rate", [MIB // 2, MIB, 2 * MIB])
def test_the_eta_of_a_linear_leak_is_right_within_ten_percent(rate):
    watcher = Watcher()
    checked = 0
    for s in leak(1400, 2, rate):
        eta = watcher.feed(s).gpus[0].eta_s
        if eta is not None:
            truth = s.gpus[0].free_memory / rate
            assert abs(eta - truth) <= 0.1 * truth
            checked += 1
    assert checked > 100


def test_a_leak_without_process_sizes_says_that_the_culprit_is_unknown():
    watcher = Watcher()
    messages = [
        alarm.message
        for t in range(0, 2400, 2)
        for alarm in watcher.feed(sample(t, 3 * GIB - t * MIB, named=False)).alarms
    ]
    assert messages
    assert all("unknown" in message for message in messages)


def test_a_leak_of_the_server_itself_is_blamed_on_it():
    watcher = Watcher()
    messages = [a.message for s in leak(2000, 2, MIB) for a in watcher.feed(s).alarms]
    assert messages
    assert all("this server" in message for message in messages)


def test_little_free_memory_is_an_alarm_at_once():
    assert alarms_of([sample(0, 300 * MIB)]) == {"margin_low"}


def test_a_full_pool_without_preemption_is_no_alarm():
    assert alarms_of(sample(t, 4 * GIB, usage=0.99) for t in range(0, 300, 2)) == set()


def test_a_card_that_disappears_is_reported_and_comes_back():
    gone = Sample(2.0, "t", (GpuReading(0, "GPU-0", error="GPU is lost"),))
    watcher = Watcher()
    assert not watcher.feed(sample(0, 4 * GIB)).alarms
    assert {a.id for a in watcher.feed(gone).alarms} == {"gpu_lost"}
    assert not watcher.feed(sample(4, 4 * GIB)).alarms


def test_a_clock_that_goes_back_starts_over():
    watcher = Watcher()
    for s in leak(1600, 2, MIB):
        watcher.feed(s)
    state = watcher.feed(sample(0, 4 * GIB))
    assert state.events
    assert state.gpus[0].slope is None
    assert state.gpus[0].low_water == 4 * GIB


def test_a_server_that_stops_answering_is_an_event_not_an_alarm():
    watcher = Watcher()
    watcher.feed(sample(0, 4 * GIB))
    state = watcher.feed(sample(2, 4 * GIB, up=False))
    assert state.events
    assert not state.alarms


def test_the_trend_keeps_a_bounded_number_of_points():
    trend = Trend(1.0)
    for t in range(100_000):
        trend.add(t, TOTAL - t)
    assert len(trend.points) == BUCKETS


def test_a_sample_survives_its_record():
    s = sample(1.5, 4 * GIB, others={200: GIB})
    assert decode(encode(s), 1, "x") == s


def test_unknown_figures_stay_absent():
    reading = EngineReading("http://x", up=True, engine="vllm")
    state = Watcher().feed(Sample(0.0, "t", (), (reading,)))
    assert state.engines[0].preemption_rate is None
