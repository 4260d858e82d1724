"""The verdict: which failure came first, what it was, and how sure the text lets us be."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.triage.causes import CONFIDENCES, catalogue, weaker
from kvbudget.triage.owners import bar_after, frames_near, owner_of
from kvbudget.triage.refine import (
    BARE,
    NO_BUDGET,
    UNKNOWN,
    budget_words,
    negative_figure,
    refined,
)
from kvbudget.triage.refused import refused_for_length
from kvbudget.triage.result import Verdict
from kvbudget.triage.rules import Situation, neighbour_counted
from kvbudget.triage.sentence import Sentence
from kvbudget.triage.timeline import Event, Timeline
from kvbudget.triage.without_line import outlived, verdict_without_line

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading

CHAIN = 120
"""Lines within which a second message may be about the same failure (chained exceptions)."""
_MORE_EXACT = frozenset(
    ("vram.runtime_buffers", "vram.kv_pool_alloc", "vram.weights", "vram.graph_capture",
     "vram.sampler_warmup", "vram.wake_up_no_room",
     "host.pinned_alloc_failed", "host.ray_memory_monitor", "vram.profile_peak")
)  # fmt: skip
_REFINED = frozenset((BARE, "vram.runtime_buffers"))
_RECOVERY = 60
_SLEEPING = ("sleep", "wake_up")
_RAISED = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\w(?:Error|Exception):")


def judge(reading: LogReading) -> Verdict:
    """One verdict for one reading. Never raises for any input that could be read."""
    time = Timeline(reading)
    facts = _last_facts(reading)
    primary = _first_failure(time)
    if primary is None or outlived(primary, time):
        verdict = _from_figures(time, facts) or verdict_without_line(time, facts)
    else:
        verdict = _of(primary, time, facts)
        recovered = _recovered(primary, time)
        if verdict.cause == "vram.rank_imbalance" and _only_warned(primary, time) is not None:
            verdict = verdict_without_line(time, facts)
        elif recovered is not None:
            verdict = replace(
                verdict, cause="none.recovered_retry", confidence="likely", fatal=False,
                lines=(*verdict.lines, recovered), alternatives=((verdict.cause, "possible"),),
                explanation="an allocation failed and the program went on by itself", missing=(),
            )  # fmt: skip
    return replace(_settle(verdict), facts=facts, ruled_out=_ruled_out(verdict, time))


def _last_facts(reading: LogReading) -> dict[str, Fact]:
    return {fact.name: fact for fact in reading.facts}


def _strength(event: Event) -> tuple[bool, bool, int]:
    entry = event.entry
    return (
        event.cause not in (BARE, "unknown.insufficient_evidence"),
        bool(entry.fatal),
        CONFIDENCES.index(entry.confidence),
    )


def _first_failure(time: Timeline) -> Event | None:
    """The first failure in time; a later line replaces it only when it is about the same one."""
    primary: Event | None = None
    advice = {e.line for e in time.of_kind("hint") if e.entry.id == "hint.advice"}
    causes = [
        e for e in time.of_kind("cause")
        if e.cause and not (e.cause == BARE and e.line in advice) and not refused_for_length(e, time)
    ]  # fmt: skip
    sites: dict[int, Event] = {}
    for event in causes:
        known = sites.get(event.line)
        if known is None or _strength(event) > _strength(known):
            sites[event.line] = event
    ordered = sorted(sites.values(), key=lambda e: e.position)
    for event in ordered:
        if primary is None or _supersedes(event, primary):
            primary = event
    if primary is not None and _RAISE.search(primary.text):
        return _as_printed(primary, ordered)
    return primary


_RAISE = re.compile(r"\braise [\w.]+\(")
_SOURCE_LINES = 8


def _as_printed(source: Event, ordered: list[Event]) -> Event:
    """The message itself instead of the line of source in the traceback above it."""
    said = (
        e for e in ordered
        if e.cause == source.cause and e.position > source.position
        and abs(e.line - source.line) <= _SOURCE_LINES and not _RAISE.search(e.text)
    )  # fmt: skip
    return next(said, source)


def _supersedes(new: Event, old: Event) -> bool:
    near = abs(new.line - old.line) <= CHAIN
    if old.cause == UNKNOWN:
        return near and new.cause != old.cause
    if old.entry.fatal is False and new.entry.fatal is not False:
        return True
    if old.cause == BARE and new.cause in _MORE_EXACT:
        return near and (new.rank == old.rank or None in (new.rank, old.rank))
    if old.cause == new.cause:
        return near and CONFIDENCES.index(new.entry.confidence) > CONFIDENCES.index(
            old.entry.confidence
        )
    if old.cause == "host.killed_unproven" or (
        old.cause == "host.oom_killer" and old.entry.confidence != "certain"
    ):
        return (
            near
            and (new.cause or "").startswith("host.")
            and CONFIDENCES.index(new.entry.confidence) >= 2
        )
    return False


def _of(event: Event, time: Timeline, facts: dict[str, Fact]) -> Verdict:
    cause = event.cause or UNKNOWN
    here = time.facts_at(event.record)
    near = frames_near(event, time)
    owner = owner_of(near)
    phase, shown_by = time.phase_before(event.line)
    phase = event.entry.phase or (owner.entry.phase if owner is not None else None) or phase
    marked = time.phase_before(event.line)[0]
    if (
        event.entry.phase is None
        and owner is not None
        and (
            owner.entry.phase is None
            or (owner.entry.id == "vllm.dump_input" and marked in _SLEEPING)
        )
    ):
        phase = marked
    unfinished = bar_after(event, time) if phase is None and cause == BARE else None
    if unfinished is not None:
        phase, shown_by = "weights", unfinished
    sentence = Sentence.of(here)
    if not sentence.has_figures and cause in _MORE_EXACT:
        sentence = _chained(event, time) or sentence
    finding = refined(
        cause,
        Situation(
            event, sentence, phase, owner, tuple(near), facts,
            "\n".join(p for r in time.reading.records[:400] for p in r.parts),
            starting=_starting(event, time),
            shown_by=shown_by if owner is None else None,
        ),
    )  # fmt: skip
    lines: tuple[int, ...] = tuple(range(event.line, event.end_line + 1))[:4]
    confidence, why, rule = event.entry.confidence, event.entry.doc, None
    if finding is not None:
        if finding.rule not in ("bare_sentence",):
            rule = finding.rule
        cause, confidence, why = finding.cause, finding.confidence, finding.why
        lines = (*lines, *finding.lines)
        phase = finding.phase or phase
    missing: tuple[str, ...] = ()
    if cause == BARE:
        missing = ("the frames above the allocator sentence, or the last start-up line before it",)
    elif cause == NO_BUDGET and confidence != "certain":
        missing = (
            "the memory-profiling figures before this line, which tell a neighbour from a model that is too large",
        )
    return Verdict(
        cause, confidence, phase, event.rank, _fatal(event, time), lines, why,
        _alternatives(cause, sentence, phase), missing, (), sentence if sentence.has_figures else None, rule,
    )  # fmt: skip


def _chained(event: Event, time: Timeline) -> Sentence | None:
    """The allocator sentence that a more exact message, raised from it, goes with."""
    before = [
        e for e in time.of_kind("cause")
        if e.cause == BARE and e.position < event.position and abs(e.line - event.line) <= CHAIN
        and (e.rank == event.rank or None in (e.rank, event.rank))
    ]  # fmt: skip
    said = Sentence.of(time.facts_at(before[-1].record)) if before else None
    return said if said is not None and said.has_figures else None


def _starting(event: Event, time: Timeline) -> bool:
    """A line nearby shows that the server was not up yet."""
    return any(
        e.entry.id == "frame.startup" and abs(e.line - event.line) <= CHAIN
        for e in time.of_kind("frame")
    )


def _from_figures(time: Timeline, facts: dict[str, Fact]) -> Verdict | None:
    """A negative KV figure is a failure whether or not its exception was pasted."""
    figure = negative_figure(facts)
    if figure is None:
        return None
    figure = next(  # of several ranks the one that said it first
        f for f in time.reading.facts if f.name == figure.name and f.printed == figure.printed
    )
    neighbour = neighbour_counted(facts)
    if neighbour is not None:
        return Verdict(
            neighbour.cause, neighbour.confidence, "kv_sizing", figure.rank, True,
            (figure.line, *neighbour.lines), neighbour.why,
            ((NO_BUDGET, "possible"),), rule=neighbour.rule,
        )  # fmt: skip
    return Verdict(
        NO_BUDGET,
        "certain",
        "kv_sizing",
        figure.rank,
        True,
        (figure.line,),
        f"the KV budget is {budget_words(figure)}: weights and peak exceed the share",
        rule="negative_budget",
    )


def _fatal(event: Event, time: Timeline) -> bool:
    """Warnings, refused requests and what the engine survives are not fatal."""
    after = [e for e in time.events if e.position > event.position and e.line != event.line]
    died = any(
        (
            e.entry.id == "generic.traceback"
            or (e.entry.kind == "consequence" and e.entry.fatal is not False and e.cause)
        )
        for e in after
    )
    if event.entry.fatal is False:
        return died and event.cause == "kv.pool_smaller_than_context"
    return not event.quiet or died or event.cause == "host.killed_unproven"


def _recovered(event: Event, time: Timeline) -> int | None:
    """The line on which the program says that it tries again, when nothing failed after it."""
    retry = [
        e for e in time.of_kind("hint")
        if e.cause == "none.recovered_retry" and abs(e.line - event.line) <= _RECOVERY
        and (e.position > event.position or e.line == event.line)
    ]  # fmt: skip
    if not retry:
        return _only_warned(event, time) if event.quiet and event.entry.fatal else None
    again = [
        e for e in time.events
        if e.position > retry[0].position and (
            (e.entry.kind == "cause" and e.entry.fatal is not False)
            or e.entry.id in ("generic.traceback", "generic.exception")
        )
    ]  # fmt: skip
    return None if again else retry[0].line


def _only_warned(event: Event, time: Timeline) -> int | None:
    """The next start-up line after a message without an error level, when nothing failed then."""
    if _RAISED.search(event.text):
        return None
    trouble = [
        e for e in time.events
        if e.line == event.line or e.position > event.position
        if e.entry.id in ("generic.traceback", "generic.exception")
        or (e.entry.kind == "consequence" and e.cause)
        or (e.entry.kind == "cause" and e.entry.fatal is not False and e.line != event.line)
    ]  # fmt: skip
    if trouble:
        return None
    return next((line for line, _ in time.marks if time.before(event.line, line)), None)


def _alternatives(cause: str, sentence: Sentence, phase: str | None) -> tuple[tuple[str, str], ...]:
    table = {
        BARE: ("vram.weights", "vram.activation_runtime", "vram.graph_capture"),
        "vram.kv_budget_nonpositive": ("vram.neighbour_counted",),
        "vram.neighbour_counted": ("vram.kv_budget_nonpositive",),
        "vram.fragmentation": ("vram.activation_runtime",),
        "vram.activation_runtime": (BARE,),
        "vram.weights": ("vram.weights_transient",),
        "vram.profile_peak": ("vram.mm_encoder_peak",),
        "vram.mm_encoder_peak": ("vram.profile_peak",),
        "vram.kv_pool_alloc": ("vram.other_process",),
        "host.killed_unproven": ("host.oom_killer", "host.cgroup_oom"),
        "host.pinned_alloc_failed": ("host.pinned_alloc_rejected",),
        "vram.driver_refused": ("vram.other_process",),
        "vram.single_huge_tensor": (BARE,),
        "vram.wake_up_no_room": (BARE,),
    }
    return tuple((name, "possible") for name in table.get(cause, ()))


def _settle(verdict: Verdict) -> Verdict:
    """The phase of a cause that has only one, and confidences that the contract bounds."""
    row = catalogue().cause(verdict.cause)
    phase = row.phases[0] if len(row.phases) == 1 else verdict.phase
    confidence = verdict.confidence
    if verdict.cause.startswith("unknown."):
        confidence = "unknown"
    elif verdict.cause in (BARE, "host.killed_unproven"):
        confidence = weaker(confidence, "possible")
    elif verdict.cause == "none.no_failure":
        confidence, phase = "likely", None
    lines = tuple(dict.fromkeys(n for n in verdict.lines if n))
    return replace(
        verdict,
        phase="runtime" if phase == "ready" and verdict.family != "none" else phase,
        confidence=confidence,
        lines=lines,
    )


_LOOKS = re.compile(r"(?i)out of memory|\boom\b|killed|insufficient")


def _ruled_out(verdict: Verdict, time: Timeline) -> tuple[tuple[int, str, str], ...]:
    """Tails, hints and consequences, at most a dozen, each line once."""
    found: dict[int, tuple[int, str, str]] = {}
    for event in time.events:
        if event.entry.kind in ("hint", "consequence") and event.line not in verdict.lines:
            found.setdefault(
                event.line, (event.line, event.text, event.entry.why or event.entry.doc)
            )
    kept: list[tuple[int, str, str]] = []
    seen: set[str] = set()
    for row in found.values():
        if row[2] not in seen or len(kept) < 6:
            kept.append(row)
            seen.add(row[2])
        if len(kept) >= 12:
            break
    return tuple(sorted(kept))
