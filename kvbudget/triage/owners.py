"""Who asked for the memory: the frames of the traceback around a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.triage.timeline import Event, Timeline

REACH = 120
"""Lines around a failure whose frames may belong to it."""

BAR_REACH = 4
"""Lines behind an exception in which the bar that it tore down is drawn for the last time."""

# Outer frames are shared by many phases; the more particular frame says more.
PARTICULAR = (
    "frame.pinned", "frame.destroy_group", "frame.sampler", "sglang.capture_failed", "frame.capture",
    "frame.weights_transient", "frame.kv_alloc", "frame.logprobs", "frame.map_back",
    "frame.wake_up", "frame.torch_symm_mem",
    "frame.load_model", "frame.profile", "frame.tgi_warmup", "frame.warmup", "frame.dist_init",
    "frame.kv_check", "frame.kv_init", "frame.runtime", "vllm.dump_input", "frame.http_body",
)  # fmt: skip
BACKGROUND = frozenset(("frame.mm_encoder", "vllm.mm_advice"))
"""Show what ran, never alone who asked."""


def frames_near(event: Event, time: Timeline) -> list[Event]:
    """Frames of the same traceback: those before the exception, else those printed after it."""
    around = [
        e
        for e in time.of_kind("frame")
        if (e.entry.id in PARTICULAR or e.entry.id in BACKGROUND)
        and abs(e.line - event.line) <= REACH
    ]
    own = [
        e
        for e in around
        if e.rank == event.rank or None in (e.rank, event.rank) or e.line == event.line
    ]
    frames = own if any(e.entry.id in PARTICULAR for e in own) else around
    before = [e for e in frames if e.position < event.position or e.line == event.line]
    if any(e.entry.id in PARTICULAR for e in before):
        return before
    return frames


def owner_of(frames: list[Event]) -> Event | None:
    """The frame that says most about who asked."""
    for name in PARTICULAR:
        of_name = [e for e in frames if e.entry.id == name]
        if of_name:
            return of_name[-1]
    return None


def bar_after(event: Event, time: Timeline) -> int | None:
    """Line of the unfinished bar of loading weights, drawn when the exception had unwound it."""
    bars = [
        e
        for e in time.of_kind("frame")
        if e.entry.id == "mark.shards" and 0 < e.line - event.line <= BAR_REACH
    ]
    return bars[0].line if bars and "100%" not in bars[0].text else None
