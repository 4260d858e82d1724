"""The public JSON object of `kvbudget oom-triage` (schema kvbudget.oom-triage/1)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvbudget.triage.advice import remedies, useless
from kvbudget.triage.arithmetic import rows
from kvbudget.triage.timeline import Timeline

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading
    from kvbudget.triage.result import Verdict

SCHEMA = "kvbudget.oom-triage/1"


def document(
    reading: LogReading, verdict: Verdict, startup: LogReading | None = None
) -> dict[str, Any]:
    """`startup`: a start-up log of the same server, for facts that the failure does not print."""
    from kvbudget.triage.cost import costs

    time = Timeline(reading)
    facts = {f.name: f for f in (startup.facts if startup else [])} | verdict.facts
    engine = reading.engine or (startup.engine if startup else None)
    return {
        "schema": SCHEMA,
        "engine": engine,
        "verdict": {
            "cause": verdict.cause,
            "family": verdict.family,
            "phase": verdict.phase,
            "rank": verdict.rank,
            "confidence": verdict.confidence,
            "fatal": verdict.fatal,
            "evidence": [{"line": n, "text": time.text_of(n)} for n in verdict.lines],
            "explanation": verdict.explanation,
            "remedies": [asdict(r) for r in remedies(verdict, engine, facts)],
            "cannot_help": list(useless(verdict)),
            "missing": list(verdict.missing),
            "rule": verdict.rule,
        },
        "arithmetic": rows(verdict.sentence),
        "costs": costs(facts, verdict),
        "alternatives": [{"cause": c, "confidence": s} for c, s in verdict.alternatives],
        "ruled_out": [{"line": n, "text": t, "why": w} for n, t, w in verdict.ruled_out],
        "facts": [fact_object(f) for f in reading.facts],
    }


def unfit_startup(startup: LogReading, engine: str | None) -> str | None:
    """Why a start-up log says nothing about a failure of `engine`; None where it may."""
    if not startup.facts:
        return "no line of a known engine stands in it"
    if engine and startup.engine not in (None, engine):
        return f"it is a log of {startup.engine}, the failure is of {engine}"
    return None


def fact_object(fact: Fact) -> dict[str, Any]:
    """One fact as the contract of both log commands spells it."""
    return {
        "name": fact.name, "value": fact.value, "unit": fact.unit, "printed": fact.printed,
        "low": fact.low, "high": fact.high, "rank": fact.rank, "line": fact.line,
        "pattern": fact.pattern, "source": fact.source,
    }  # fmt: skip


def exit_code(verdict: Verdict) -> int:
    """0: a cause was named. 3: no failure recognised."""
    return 3 if verdict.cause == "none.no_failure" else 0
