"""One run of `kvbudget watch`: read, judge, hand over, wait."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kvbudget.errors import (
    EXIT_EVIDENCE,
    EXIT_FINDINGS,
    EXIT_OK,
    InputError,
    KvbudgetError,
    MissingFact,
)
from kvbudget.logs.scan import open_input, unpacking
from kvbudget.watch.alarms import Limits, State, Watcher
from kvbudget.watch.samples import Sample, decode, encode
from kvbudget.watch.sources import Endpoints, Live

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvbudget.facts import Fact
    from kvbudget.watch.cards import Cards

HISTORY = 240
"""Readings kept per card for the sparkline."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for; sizes in bytes, times in seconds."""

    urls: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    startup_log: Path | None = None
    interval: float = 2.0
    once: bool = False
    limits: Limits = field(default_factory=Limits)
    record: Path | None = None
    replay: Path | None = None
    exporter: str | None = None


class Sink(Protocol):
    """Takes each judged reading; `history` holds the free bytes per card for a sparkline."""

    def show(self, state: State, history: dict[str, deque[int]]) -> None: ...


def gpu_reader(wanted: tuple[str, ...]) -> Cards:
    """The wanted cards. Raises KvbudgetError without a driver."""
    from kvbudget.watch.cards import Cards

    return Cards(wanted)


def startup_facts(path: Path | None) -> tuple[Fact, ...]:
    """The figures of a start-up log."""
    if path is None:
        return ()
    from kvbudget.logs.collect import read_log

    return tuple(read_log(path).facts)


def samples(options: Options, stack: ExitStack) -> Iterator[Sample]:
    """Readings from a recording, or live ones for ever. Raises InputError, KvbudgetError."""
    if options.replay:
        yield from _replayed(options.replay)
        return
    cards = None
    try:
        cards = gpu_reader(options.gpus)
        stack.callback(cards.close)
    except KvbudgetError:
        if not options.urls or options.gpus:
            raise
    timeout = min(2.0, options.interval) if not options.once else 2.0
    endpoints = Endpoints(options.urls, timeout) if options.urls else None
    live = Live(cards.read if cards else None, endpoints)
    stack.callback(live.close)
    due = time.monotonic()
    while True:
        yield live.read()
        due = max(due + options.interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _readable(options: Options, stack: ExitStack) -> Iterator[Sample]:
    """The readings; with `--once` a machine without a driver is "nothing read", not a mistake."""
    try:
        yield from samples(options, stack)
    except KvbudgetError as error:
        if not options.once or options.replay or options.urls:
            raise
        raise MissingFact(error.what, hint=error.hint) from error


def _replayed(path: Path) -> Iterator[Sample]:
    with open_input(path) as stream, unpacking(str(path)):
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield decode(line, number, str(path))


def judge(options: Options, sink: Sink) -> int:
    """Feed every reading to the rules and the sink; returns the exit code.

    `--once` takes a second look at the servers one interval later, because a rate needs two.
    """
    watcher = Watcher(options.limits)
    history: dict[str, deque[int]] = {}
    alarmed = read = False
    with ExitStack() as stack:
        out = None
        if options.record:
            try:
                out = stack.enter_context(options.record.open("ab"))
            except OSError as exc:
                raise InputError(
                    f"cannot write {options.record}: {exc.strerror}", "give a writable file"
                ) from exc
        exporter = None
        if options.exporter:
            from kvbudget.watch.exporter import Exporter

            exporter = Exporter(options.exporter)
            stack.callback(exporter.close)
        looks = 2 if options.once and options.urls and not options.replay else 1
        readings = enumerate(_readable(options, stack), 1)
        for number, sample in readings:
            if out:
                out.write(encode(sample) + b"\n")
                out.flush()
            state = watcher.feed(sample)
            for gpu in sample.gpus:
                if gpu.free_memory is not None:
                    key = gpu.uuid or str(gpu.index)
                    history.setdefault(key, deque(maxlen=HISTORY)).append(gpu.free_memory)
            read = read or not sample.empty
            alarmed = bool(state.alarms) if options.once else alarmed or bool(state.alarms)
            if exporter:
                exporter.update(state)
            if options.once and not options.replay:
                if number < looks:
                    continue
                sink.show(state, history)
                break
            sink.show(state, history)
    if not read:
        return EXIT_EVIDENCE
    return EXIT_FINDINGS if alarmed and (options.once or options.replay) else EXIT_OK
