"""An engine's /metrics text -> figures under kvbudget's names (data: formulas/metrics.yaml)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file
from kvbudget.watch.samples import EngineReading


@cache
def catalogue() -> tuple[dict[str, Any], ...]:
    """The engines of formulas/metrics.yaml."""
    return tuple(load_shipped(knowledge_file("formulas", "metrics.yaml"))["engines"])


def read_metrics(url: str, text: str) -> EngineReading:
    """Prometheus text format -> EngineReading; `up` is false when no known engine speaks."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except (ValueError, KeyError, IndexError, TypeError) as exc:
        return EngineReading(url, up=False, error=f"not Prometheus text: {exc}"[:200])
    for engine in catalogue():
        if any(name.startswith(engine["prefix"]) for name in values):
            figures, budget = _figures(engine, values)
            start = values.get("process_start_time_seconds")
            if start:
                figures["process_start_time"] = start[0][1]
            return EngineReading(
                url, up=True, engine=engine["engine"], figures=figures, budget=budget
            )
    known = ", ".join(engine["engine"] for engine in catalogue())
    return EngineReading(url, up=False, error=f"no metrics of a known engine ({known}) here")


def _figures(
    engine: dict[str, Any], values: dict[str, list[tuple[dict[str, str], float]]]
) -> tuple[dict[str, float], dict[str, float]]:
    figures: dict[str, float] = {}
    budget: dict[str, float] = {}
    for figure, spec in engine["readings"].items():
        found = [
            [value for _, value in values[entry["name"]] if math.isfinite(value)]
            for entry in spec["names"]
            if entry["name"] in values
        ]
        found = [series for series in found if series]
        if not found:
            continue
        value = _combine(figure, spec, found)
        if spec["unit"] == "ratio" and not 0 <= value <= 1.5:
            continue  # an endpoint that lies: no figure is better than a wrong one
        (budget if spec.get("budget") else figures)[figure] = value * spec.get("factor", 1)
    info = engine.get("info")
    if info and info["metric"] in values:
        labels = values[info["metric"]][0][0]
        for label, target in info["labels"].items():
            number = _number(labels.get(label))
            if number is not None:
                budget.setdefault(target["fact"], number)
    return figures, budget


def _combine(figure: str, spec: dict[str, Any], found: list[list[float]]) -> float:
    """Several engines of one server (DP ranks): usage is the fullest one, counts add up."""
    how = spec.get("combine")
    if how == "max":
        return max(max(series) for series in found)
    series = found[0]
    if spec["unit"] == "ratio":
        return max(series)
    if spec.get("budget") and how != "sum":
        return min(series)
    return sum(series)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
