"""Texts in which no line states the cause: frames, tails, kills, and texts that merely stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.triage.owners import BACKGROUND, PARTICULAR, owner_of
from kvbudget.triage.refine import NO_BUDGET
from kvbudget.triage.refused import only_refused
from kvbudget.triage.result import Verdict
from kvbudget.triage.rules import neighbour_counted

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.triage.timeline import Event, Timeline

_ALONE = frozenset(
    ("frame.logprobs", "frame.kv_alloc", "frame.sampler", "frame.weights_transient",
     "frame.map_back")
)  # fmt: skip
"""A frame that fits one cause only names it although the exception is cut."""
_FITS = {
    "weights": ("vram.weights", "vram.weights_transient"),
    "profile": ("vram.profile_peak", "vram.mm_encoder_peak"),
    "kv_sizing": (NO_BUDGET, "kv.max_len_exceeds_pool"),
    "kv_alloc": ("vram.kv_pool_alloc", "kv.max_len_exceeds_pool", NO_BUDGET),
    "graph_capture": ("vram.graph_capture", "not_oom.kernel_failure"),
    "warmup": ("vram.sampler_warmup", "vram.runtime_buffers"),
    "runtime": ("vram.activation_runtime", "kv.pool_exhausted"),
}
_WARNINGS = frozenset(("kv.pool_pressure", "kv.connector_pool_full"))
_KILLS = ("host.oom_killer", "host.killed_unproven")


def verdict_without_line(time: Timeline, facts: dict[str, Fact]) -> Verdict:
    """none.no_failure, a consequence that is named as such, or what frames and figures allow."""
    consequences = [e for e in time.of_kind("consequence") if e.cause]
    for cause in _KILLS:
        kills = [e for e in consequences if e.cause == cause]
        if kills:
            best = kills[0]
            return Verdict(
                cause,
                best.entry.confidence,
                _phase(best, time),
                best.rank,
                True,
                (best.line,),
                best.entry.doc,
                (("host.cgroup_oom", "possible"),),
                ("the kernel's or the container's own line about the kill",),
            )
    trouble = [
        e
        for e in time.of_kind("frame")
        if e.entry.id
        in ("generic.traceback", "generic.exception", "vllm.dump_input", "sglang.capture_failed")
    ]
    trouble = trouble or _cut_at_error(time)
    named = [e for e in consequences if e.cause == "not_oom.secondary_symptom"]
    if not trouble and not named:
        return only_refused(trouble, time) or Verdict(
            "none.no_failure",
            "likely",
            None,
            None,
            False,
            (),
            _nothing_failed(time),
        )
    refused = None if named else only_refused(trouble, time)
    if refused is not None:
        return refused
    if trouble and not named and _went_on(trouble, time):
        return Verdict(
            "none.no_failure",
            "likely",
            None,
            None,
            False,
            (),
            "the program went on after the traceback",
        )
    frames = [
        e for e in time.of_kind("frame") if e.entry.id in PARTICULAR or e.entry.id in BACKGROUND
    ]
    owner = owner_of(frames)
    first = (trouble or named)[0]
    phase = (owner.entry.phase if owner else None) or _phase(first, time)
    peers = [e for e in named if e.entry.confidence == "likely"]
    last_frame = max((e.position for e in trouble if e.entry.id == "generic.traceback"), default=-1)
    if peers:
        return Verdict(
            "not_oom.secondary_symptom",
            "likely",
            phase,
            peers[0].rank,
            True,
            (peers[0].line,),
            peers[0].entry.doc,
            (),
            ("the log of the process that died first",),
        )
    if named and named[-1].position > last_frame and not _plain_exception(trouble, named):
        return Verdict(
            "not_oom.secondary_symptom",
            "possible",
            None,
            named[-1].rank,
            True,
            (named[-1].line,),
            named[-1].entry.doc,
            (),
            ("the exception of the process that died first",),
        )
    guessed = _from_frames(frames, owner, phase, facts, time, first)
    if guessed is not None:
        return guessed
    why = "something failed, and the line that says why is not in this text"
    missing = "the exception line below the last frame"
    tails = {e.line for e in consequences}
    own = [e for e in trouble if e.entry.id == "generic.exception" and e.line not in tails]
    if own:
        why = f"it failed with an exception that no memory cause prints (line {own[0].line})"
        missing = "an earlier error about memory, if there was one; else it is not about memory"
    return Verdict(
        "unknown.insufficient_evidence", "unknown", phase, first.rank, True, (first.line,),
        why, tuple((c, "possible") for c in _FITS.get(phase or "", ())), (missing,),
    )  # fmt: skip


def _nothing_failed(time: Timeline) -> str:
    """What was looked for; a text that no engine wrote is likely the wrong one."""
    if not time.reading.total_lines:
        return "the text is empty"
    said = "no error, traceback or kill in this text"
    known = time.reading.hits or time.reading.engine
    return said if known else f"{said}, nor any line of a known engine: is it the server's log?"


def outlived(event: Event, time: Timeline) -> bool:
    """A mere warning, and then an exception of another kind, cut or not, that nothing came after."""
    if event.entry.fatal is not False or event.cause not in _WARNINGS:
        return False
    later = [
        e for e in time.of_kind("frame")
        if e.entry.id in ("generic.traceback", "generic.exception")
        and e.position > event.position and e.line != event.line
    ]  # fmt: skip
    raised = any(not e.quiet for e in later)
    return raised and not _went_on(later, time)


def _phase(event: Event, time: Timeline) -> str | None:
    return event.entry.phase or time.phase_before(event.line)[0]


def _cut_at_error(time: Timeline) -> list[Event]:
    """A line of error level with which the text ends: its message is cut."""
    end = 1 if time.reading.reversed else time.reading.total_lines
    levels = [e for e in time.of_kind("frame") if e.entry.id == "generic.error_level"]
    return [e for e in levels if abs(e.line - end) <= 1][-1:]


def _plain_exception(trouble: list[Event], named: list[Event]) -> bool:
    """An exception of its own beside the tails: it failed for a reason that is not known here."""
    lines = {e.line for e in named}
    return any(e.entry.id == "generic.exception" and e.line not in lines for e in trouble)


def _went_on(trouble: list[Event], time: Timeline) -> bool:
    """The server came up afterwards; after a lone exception line any later start-up line will do."""
    last = max(trouble, key=lambda e: e.position)
    if any(e.entry.phase == "ready" and e.position > last.position for e in time.of_kind("frame")):
        return True
    only_lines = all(e.entry.id == "generic.exception" for e in trouble)
    return only_lines and any(time.before(last.line, line) for line, _ in time.marks)


def _no_block(facts: dict[str, Fact]) -> Verdict | None:
    """The profile run left not one block, and the engine failed next."""
    blocks = facts.get("num_gpu_blocks")
    if blocks is None or int(blocks.value) != 0:
        return None
    neighbour = neighbour_counted(facts)
    return Verdict(
        neighbour.cause if neighbour else NO_BUDGET,
        neighbour.confidence if neighbour else "likely",
        "kv_sizing", blocks.rank, True,
        (blocks.line, *(neighbour.lines if neighbour else ())),
        neighbour.why if neighbour else "the profile run left 0 blocks for the KV cache",
        ((NO_BUDGET if neighbour else "vram.neighbour_counted", "possible"),),
        () if neighbour else ("the memory-profiling figures before this line",),
        rule=neighbour.rule if neighbour else None,
    )  # fmt: skip


def _from_frames(
    frames: list[Event],
    owner: Event | None,
    phase: str | None,
    facts: dict[str, Fact],
    time: Timeline,
    first: Event,
) -> Verdict | None:
    missing = ("the exception line below the last frame",)
    empty = _no_block(facts)
    if empty is not None:
        return empty
    encoder = next((e for e in frames if e.entry.id in BACKGROUND), None)
    profiling = next((e for e in frames if e.entry.id == "frame.profile"), None)
    if encoder is not None and profiling is not None:
        return Verdict(
            "vram.mm_encoder_peak",
            "possible",
            "profile",
            profiling.rank,
            True,
            (encoder.line, profiling.line),
            "the profile run of a multi-modal model failed; its exception is not here",
            (("vram.profile_peak", "possible"), ("unknown.insufficient_evidence", "possible")),
            missing,
        )
    if owner is not None and owner.cause and owner.entry.id in _ALONE:
        return Verdict(
            owner.cause,
            "possible",
            owner.entry.phase,
            owner.rank,
            True,
            (owner.line,),
            "the last frames fit this cause only; the exception is not here",
            (("unknown.insufficient_evidence", "possible"),),
            missing,
        )
    short = facts.get("max_concurrency")
    if short is not None and float(short.value) < 1:
        return Verdict(
            "kv.max_len_exceeds_pool",
            "likely",
            "kv_sizing",
            short.rank,
            True,
            (short.line,),
            f"the pool holds {short.printed} of one request of full length",
            (),
            missing,
        )
    weights, left = facts.get("weights_memory"), facts.get("avail_memory_after_weights")
    if (
        weights is not None
        and left is not None
        and "avail_memory_after_pool" not in facts
        and "kv_cache_tokens" not in facts
        and owner is None
    ):
        total = int(weights.value) + int(left.value)
        if int(left.value) < 0.2 * total and time.before(
            left.line, first.line + (0 if time.reading.reversed else 1)
        ):
            return Verdict(
                "vram.kv_budget_nonpositive",
                "possible",
                "kv_sizing",
                left.rank,
                True,
                (left.line,),
                f"the weights leave {left.printed} of free memory and the scheduler fails next; its exception is not here",
                (("unknown.insufficient_evidence", "possible"),),
                missing,
            )
    return None
