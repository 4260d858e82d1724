"""`kvbudget watch`."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli.page import Page, epilog
from kvbudget.errors import InputError

EPILOG = epilog(
    """
    kvbudget watch                                     # every GPU of this machine, live
    kvbudget watch --url http://localhost:8000/metrics --startup-log serve.log
    kvbudget watch --once --gpu 0 || page-someone      # a probe
    kvbudget watch --exporter :9114 --format json-lines > watch.jsonl
    kvbudget watch --replay incident.jsonl             # look at a recording again
    """,
    {
        0: "no alarm",
        1: "an alarm (--once, --replay)",
        2: "bad usage, or an extra is missing",
        4: "nothing could be read",
    },
)


class WatchFormat(StrEnum):
    text = "text"
    json_lines = "json-lines"


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?\Z")


def _seconds(text: str) -> float:
    match = _DURATION.match(text.strip())
    if not match:
        raise InputError(f"not a duration: {text!r}", "write 2s, 500ms, 30m or 1h")
    return float(match[1]) * {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def watch(
    url: Annotated[
        list[str] | None,
        typer.Option("--url", metavar="URL", help="Metrics endpoint of a server (repeatable)."),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="N|UUID", help="Only these cards (repeatable)."),
    ] = None,
    startup_log: Annotated[
        Path | None,
        typer.Option("--startup-log", metavar="FILE", help="Show the budget of this log beside."),
    ] = None,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="TIME", help="Time between readings: 2s, 500ms, 1m."),
    ] = "2s",
    once: Annotated[
        bool,
        typer.Option("--once", help="One reading, and its verdict as the exit code."),
    ] = False,
    min_margin: Annotated[
        str,
        typer.Option("--min-margin", metavar="SIZE", help="Alarm when less of the card is free."),
    ] = "512MiB",
    eta: Annotated[
        str,
        typer.Option(
            "--eta", metavar="TIME", help="Alarm when the margin is projected to last less long."
        ),
    ] = "30m",
    format: Annotated[
        WatchFormat,
        typer.Option(
            "--format",
            metavar="text|json-lines",
            help="text (live on a terminal) or json-lines for scripts.",
        ),
    ] = WatchFormat.text,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append raw readings to FILE.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Read readings from FILE.")
    ] = None,
    exporter: Annotated[
        str | None,
        typer.Option("--exporter", metavar=":PORT", help="Serve kvbudget_* Prometheus metrics."),
    ] = None,
) -> None:
    """Watch a running server's margin and warn before it is gone.

    Three alarms are kept apart: this process will run out of memory (margin_low, margin_eta), this
    server will preempt requests (pool_pressure), a neighbour eats the card (neighbour_growth).
    """
    from kvbudget.render.watch_sinks import sink
    from kvbudget.units import parse_size
    from kvbudget.watch.alarms import Limits
    from kvbudget.watch.session import Options, judge, startup_facts

    seconds = _seconds(interval)
    if seconds <= 0:
        raise InputError("--interval must be longer than 0", "write 2s")
    options = Options(
        urls=tuple(url or ()),
        gpus=tuple(gpu or ()),
        startup_log=startup_log,
        interval=seconds,
        once=once,
        limits=Limits(min_margin=parse_size(min_margin, "--min-margin"), eta_s=_seconds(eta)),
        record=record,
        replay=replay,
        exporter=exporter,
    )
    budget = startup_facts(startup_log)
    as_json = format is WatchFormat.json_lines
    with sink(budget, json_lines=as_json, live=not once and replay is None) as target:
        code = judge(options, target)
    raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    app.command("watch", cls=Page, epilog=EPILOG)(watch)
