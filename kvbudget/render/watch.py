"""The watch view: a live screen, one plain line per reading, or one JSON object per reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.text import can_unicode, foreign, plain
from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from kvbudget.facts import Fact
    from kvbudget.watch.alarms import EngineState, GpuState, State

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKS_ASCII = "_.-~=+*#"
BUDGET_NAMES = (
    "weights_memory", "peak_activation_memory", "non_torch_memory", "cuda_graph_memory",
    "kv_cache_memory",
)  # fmt: skip


def sparkline(values: Sequence[float], width: int, *, unicode: bool) -> str:
    """The last `width` values, scaled to their own range."""
    tail = list(values)[-width:]
    if not tail:
        return ""
    low, high = min(tail), max(tail)
    marks = _SPARKS if unicode else _SPARKS_ASCII
    span = (high - low) or 1
    return "".join(marks[int((value - low) / span * (len(marks) - 1))] for value in tail)


def bar(share: float, width: int, *, unicode: bool) -> str:
    filled = max(0, min(width, round(share * width)))
    return ("█" if unicode else "#") * filled + ("░" if unicode else ".") * (width - filled)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def to_json(state: State, budget: Sequence[Fact]) -> dict[str, Any]:
    """`kvbudget.watch/1`: bytes, seconds and ratios; null where it is not known."""
    return {
        "schema": "kvbudget.watch/1",
        "time": state.sample.time,
        "elapsed_s": round(state.sample.elapsed, 3),
        "gpus": [_gpu_json(gpu) for gpu in state.gpus],
        "engines": [_engine_json(engine) for engine in state.engines],
        "startup": {
            fact.name: {"value": fact.value, "line": fact.line, "rank": fact.rank}
            for fact in budget
        },
        "alarms": [
            {"id": a.id, "where": a.where, "message": a.message, "leads_to": a.leads_to}
            for a in state.alarms
        ],
        "events": list(state.events),
    }


def _gpu_json(gpu: GpuState) -> dict[str, Any]:
    reading, growth = gpu.reading, gpu.growth
    return {
        "index": reading.index,
        "uuid": reading.uuid,
        "name": reading.name,
        "total_memory": reading.total_memory,
        "used_memory": reading.used_memory,
        "free_memory": reading.free_memory,
        "reserved_memory": reading.reserved_memory,
        "margin_memory": reading.free_memory,
        "low_water_memory": gpu.low_water,
        "baseline_free_memory": gpu.baseline_free,
        "slope_bytes_per_s": None if gpu.slope is None else round(gpu.slope, 1),
        "eta_s": None if gpu.eta_s is None else round(gpu.eta_s, 1),
        "growth": None
        if growth is None
        else {
            "total": growth.total,
            "engine": growth.engine,
            "neighbour": growth.neighbour,
            "unknown": growth.unknown,
            "neighbour_pids": list(growth.neighbour_pids),
        },
        "error": reading.error,
    }


def _engine_json(engine: EngineState) -> dict[str, Any]:
    reading = engine.reading
    figures = dict(reading.figures)
    rate = engine.preemption_rate
    return {
        "url": reading.url,
        "up": reading.up,
        "engine": reading.engine,
        "kv_cache_usage": figures.pop("kv_cache_usage", None),
        "preemptions": figures.pop("preemptions", None),
        "preemption_rate_per_s": None if rate is None else round(rate, 4),
        "figures": figures,
        "budget": reading.budget,
        "error": reading.error,
    }


def to_line(state: State, told: Collection[tuple[str, str]] = ()) -> str:
    """One plain line per reading, for pipes and log files.

    An alarm whose (id, place) the reader was `told` on the line before is only named.
    """
    parts = [state.sample.time[11:19]]
    for gpu in state.gpus:
        reading = gpu.reading
        if reading.free_memory is None or reading.total_memory is None:
            parts.append(f"gpu{reading.index} unreadable ({reading.error})")
            continue
        text = f"gpu{reading.index} free {format_size(reading.free_memory)}"
        if gpu.low_water is not None:
            text += f" low {format_size(gpu.low_water)}"
        if gpu.eta_s is not None:
            text += f" gone in {duration(gpu.eta_s)}"
        parts.append(text)
    parts += [_engine_words(engine) for engine in state.engines]
    parts += [
        f"ALARM {a.id}" if (a.id, a.where) in told else f"ALARM {a.id} {a.where}: {a.message}"
        for a in state.alarms
    ]
    parts += [f"event: {event}" for event in state.events]
    return plain("  ".join(parts))


def _engine_words(engine: EngineState) -> str:
    reading = engine.reading
    if not reading.up:
        return f"{reading.url} down ({reading.error})"
    usage = reading.figures.get("kv_cache_usage")
    words = [reading.engine or "?", "kv ?" if usage is None else f"kv {usage:.0%}"]
    for name, label in (("running_requests", "run"), ("queued_requests", "wait")):
        if name in reading.figures:
            words.append(f"{label} {reading.figures[name]:.0f}")
    if engine.preemption_rate is not None:
        words.append(f"preempt {engine.preemption_rate * 60:.1f}/min")
    return " ".join(words)


def to_screen(
    state: State,
    history: dict[str, Sequence[int]],
    budget: Sequence[Fact],
    width: int,
) -> RenderableType:
    """The live view; every line fits `width` columns."""
    from rich.console import Group
    from rich.text import Text

    unicode = can_unicode()
    lines: list[Text] = [foreign(f"kvbudget watch  {state.sample.time[:19].replace('T', ' ')} UTC")]
    for gpu in state.gpus:
        lines += _gpu_screen(gpu, history, width, unicode=unicode)
    lines += _budget_screen(state, budget, width, unicode=unicode)
    for engine in state.engines:
        lines += _engine_screen(engine, width, unicode=unicode)
    lines.append(Text(""))
    if state.alarms:
        for alarm in state.alarms:
            lines.append(foreign(f"ALARM {alarm.id} on {alarm.where}: {alarm.message}", "bold red"))
            lines.append(foreign(f"  leads to: {alarm.leads_to}"))
    else:
        lines.append(Text("no alarm", style="green"))
    lines += [foreign(f"event: {event}", "yellow") for event in state.events]
    for line in lines:
        line.truncate(width * 3)
    return Group(*lines)


def _gpu_screen(
    gpu: GpuState, history: dict[str, Sequence[int]], width: int, *, unicode: bool
) -> list[Text]:
    reading = gpu.reading
    head = f"GPU {reading.index} {reading.name or ''}".rstrip()
    total, used, free = reading.total_memory, reading.used_memory, reading.free_memory
    if total is None or used is None or free is None:
        return [foreign(f"{head}: unreadable: {reading.error}", "bold red")]
    space = max(10, width - 34)
    lines = [
        foreign(head, "bold"),
        foreign(f"  used {format_size(used):>11} {bar(used / total, space, unicode=unicode)}"),
        foreign(
            f"  free {format_size(free):>11} "
            + sparkline(history.get(reading.uuid or "", ()), space, unicode=unicode)
        ),
    ]
    words = f"  of {format_size(total)}"
    if gpu.low_water is not None:
        words += f"; low-water mark {format_size(gpu.low_water)}"
    if gpu.eta_s is not None:
        words += f"; gone in {duration(gpu.eta_s)}"
    elif gpu.slope is not None:
        words += "; not shrinking"
    lines.append(foreign(words))
    growth = gpu.growth
    if growth is not None and growth.total:
        moved = [f"grew {_signed(growth.total)} since the start"]
        if growth.engine is None:
            moved.append("by whom is not known here")
        else:
            moved.append(f"server {_signed(growth.engine)}")
            moved.append(f"neighbours {_signed(growth.neighbour or 0)}")
            moved.append(f"unlisted {_signed(growth.unknown)}")
        lines.append(foreign("  " + ", ".join(moved)))
    return lines


def _signed(size: int) -> str:
    return ("+" if size > 0 else "") + format_size(size)


def _budget_screen(
    state: State, budget: Sequence[Fact], width: int, *, unicode: bool
) -> list[Text]:
    """The terms the start-up log or the endpoint states, as bars against the card."""
    terms: dict[str, float] = {}
    for fact in budget:
        if fact.name in BUDGET_NAMES and isinstance(fact.value, int):
            terms.setdefault(fact.name, fact.value)
    for engine in state.engines:
        for name in BUDGET_NAMES:
            if name in engine.reading.budget:
                terms.setdefault(name, engine.reading.budget[name])
    totals = [gpu.reading.total_memory for gpu in state.gpus if gpu.reading.total_memory]
    if not terms:
        return []
    whole = max(totals) if totals else sum(terms.values())
    space = max(8, width - 42)
    lines = [foreign("budget at start-up", "bold")]
    for name in BUDGET_NAMES:
        if name in terms:
            share = terms[name] / whole
            lines.append(
                foreign(
                    f"  {name:<24} {format_size(int(terms[name])):>11} "
                    + bar(share, space, unicode=unicode)
                )
            )
    return lines


def _engine_screen(engine: EngineState, width: int, *, unicode: bool) -> list[Text]:
    reading = engine.reading
    lines = [foreign(f"{reading.engine or 'server'} {reading.url}", "bold")]
    if not reading.up:
        return [*lines, foreign(f"  not answering: {reading.error}", "yellow")]
    usage = reading.figures.get("kv_cache_usage")
    if usage is not None:
        space = max(10, width - 34)
        lines.append(foreign(f"  pool {usage:>10.0%}  {bar(usage, space, unicode=unicode)}"))
    lines.append(foreign("  " + _engine_words(engine).split(" ", 1)[1]))
    return lines
