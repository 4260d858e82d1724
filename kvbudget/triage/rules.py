"""Reasoning that needs several facts: each rule is named, small, and tested on its own.

A rule gets the situation of one refused allocation and returns a Finding or None. `RULES` is the
order in which they are asked; the first that answers names the cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.facts import Fact
    from kvbudget.triage.sentence import Sentence
    from kvbudget.triage.timeline import Event

MIB = 2**20
STARTUP = frozenset(
    ("startup_check", "dist_init", "weights", "profile", "kv_sizing", "kv_alloc", "graph_capture",
     "warmup", "offload_init")
)  # fmt: skip
_UNIFIED = re.compile(
    r"\b(?:Jetson|Orin|Tegra|tegra|NvMap|GB10|DGX Spark|gfx115[0-3]|Strix Halo|Apple M\d|metal::|MPS backend)\b"
)


@dataclass(frozen=True)
class Situation:
    """A refused allocation and what stands around it."""

    event: Event
    sentence: Sentence
    phase: str | None
    owner: Event | None = None
    """the frame that shows who asked"""
    owners: tuple[Event, ...] = ()
    facts: dict[str, Fact] = field(default_factory=dict)
    surroundings: str = ""
    starting: bool = False
    """a line shows that the server was not up yet, without the phase"""
    shown_by: int | None = None
    """line of the start-up figure that shows the phase"""


@dataclass(frozen=True)
class Finding:
    """What a rule concludes. `lines` are further evidence."""

    cause: str
    confidence: str
    why: str
    rule: str
    phase: str | None = None
    lines: tuple[int, ...] = ()


def gib(size: int | float) -> str:
    return format_size(int(size))


def pinned_host_memory(s: Situation) -> Finding | None:
    """Frames of a pinned buffer: the words say GPU, the memory is the host's."""
    owner = next((e for e in s.owners if e.cause == "host.pinned_alloc_failed"), None)
    if owner is None:
        return None
    return Finding(
        "host.pinned_alloc_failed",
        "likely",
        "the frames are in the creation of a pinned host buffer",
        "pinned_host_memory",
        "offload_init",
        (owner.line,),
    )


def unified_memory(s: Situation) -> Finding | None:
    """The driver shows far more memory than the runtime can give: one memory, divided in two."""
    driver = s.facts.get("driver_total_memory")
    total = s.sentence.total
    if driver is not None and total and int(driver.value) > 1.5 * total:
        return Finding(
            "vram.unified_memory",
            "likely",
            f"the runtime sees {gib(total)}, the driver {gib(int(driver.value))}: part of one shared memory",
            "unified_memory",
            None,
            (driver.line,),
        )
    return None


def encoder_or_buffer(s: Situation) -> Finding | None:
    """Frames that show the owner win over sizes: the encoder in the profile run."""
    encoder = next(
        (
            e
            for e in s.owners
            if e.cause == "vram.mm_encoder_peak" or e.entry.id == "vllm.mm_advice"
        ),
        None,
    )
    if encoder is None or s.phase not in (None, "profile", "kv_sizing"):
        return None
    if s.phase is None and encoder.entry.id != "vllm.mm_advice":
        return None
    return Finding(
        "vram.mm_encoder_peak",
        "likely" if s.phase == "profile" else "possible",
        "the multi-modal dummy batch was being run",
        "encoder_or_buffer",
        "profile",
        (encoder.line,),
    )


def single_huge_tensor(s: Situation) -> Finding | None:
    """Larger than the card; or, with a quarter of it free, than free and unallocated together."""
    f = s.sentence
    if f.request is None or not f.total:
        return None
    if f.request > f.total:
        return Finding(
            "vram.single_huge_tensor",
            "likely",
            f"{gib(f.request)} are asked for on a card of {gib(f.total)}",
            "single_huge_tensor",
        )
    if (
        f.free is not None
        and f.unallocated is not None
        and f.free >= f.total // 4
        and f.request > f.free + f.unallocated
    ):
        return Finding(
            "vram.single_huge_tensor",
            "likely",
            f"{gib(f.request)} are asked for; free {gib(f.free)} and unallocated {gib(f.unallocated)} together are less",
            "single_huge_tensor",
        )
    return None


def other_process(s: Situation) -> Finding | None:
    """This process is small, others hold most of the card."""
    f = s.sentence
    others, own = f.others, f.own
    if others is None or own is None or not f.total or f.free is None:
        return None
    if others > f.total // 2 and own < others:
        sure = "likely" if f.listed or f.this_process is not None else "possible"
        return Finding(
            "vram.other_process",
            sure,
            f"this process holds {gib(own)}, others {gib(others)} of {gib(f.total)}",
            "other_process",
        )
    return None


def driver_refused(s: Situation) -> Finding | None:
    """Free clearly exceeds the request (by a quarter and by 64 MiB), yet it is refused."""
    f = s.sentence
    if f.request is None or f.free is None:
        return None
    if f.free > 1.25 * f.request and f.free - f.request > 64 * MIB:
        return Finding(
            "vram.driver_refused",
            "likely",
            f"{gib(f.free)} are free, more than the {gib(f.request)} asked for",
            "driver_refused",
        )
    return None


def fragmentation(s: Situation) -> Finding | None:
    """Unallocated covers the request, free does not, and nothing places it before serving."""
    f = s.sentence
    spare = f.unallocated
    if f.request is None or f.free is None or spare is None or s.starting or s.phase in STARTUP:
        return None
    if f.request <= MIB or spare < f.request or f.free >= f.request:
        return None
    if f.total and f.torch and f.torch > f.total:
        return None  # spilled to host memory (WDDM): not the allocator's pieces
    if s.owner is not None and s.owner.cause == "vram.logprobs_spike":
        return None
    sure = "likely" if f.printed_unallocated is not None else "possible"
    return Finding(
        "vram.fragmentation",
        sure,
        f"{gib(spare)} are reserved but unallocated, at least the {gib(f.request)} asked for; only {gib(f.free)} are free",
        "fragmentation",
    )


def sampler_size(s: Situation) -> Finding | None:
    """In the warm-up, a size of requests x vocabulary x 4, 8 or 12 B is the sampler's."""
    requests = s.facts.get("sampler_warmup_requests") or s.facts.get("max_num_seqs")
    if s.phase != "warmup" or s.sentence.request is None or requests is None:
        return None
    for width in (4, 8, 12):
        vocabulary = s.sentence.request / (int(requests.value) * width)
        if 30_000 <= vocabulary <= 300_000:
            return Finding(
                "vram.sampler_warmup",
                "possible",
                f"{int(requests.value)} requests x {vocabulary:,.0f} words x {width} B is the size asked for",
                "sampler_size",
                "warmup",
                (requests.line,),
            )
    return None


def owner_frame(s: Situation) -> Finding | None:
    """The frame nearest to the exception that belongs to one cause."""
    if s.owner is None or s.owner.cause is None:
        return None
    return Finding(
        s.owner.cause,
        "likely",
        "the frames show who asked",
        "owner_frame",
        s.owner.entry.phase,
        (s.owner.line,),
    )


_BY_PHASE = {
    "weights": "vram.weights",
    "profile": "vram.profile_peak",
    "kv_alloc": "vram.kv_pool_alloc",
    "graph_capture": "vram.graph_capture",
    "warmup": "vram.profile_peak",
    "runtime": "vram.activation_runtime",
    "ready": "vram.activation_runtime",
    "wake_up": "vram.wake_up_no_room",
    "dist_init": "vram.collective_buffers",
    "teardown": "not_oom.secondary_symptom",
}


def phase_reached(s: Situation) -> Finding | None:
    """The phase that the last start-up line before it shows."""
    cause = _BY_PHASE.get(s.phase or "")
    if cause is None or (s.phase == "warmup" and s.owner is None):
        return None  # after the last graph: the warm-up or already serving
    sure = "likely" if s.owner is not None or s.event.entry.phase else "possible"
    return Finding(
        cause,
        sure,
        f"the text shows the phase: {s.phase}",
        "phase_reached",
        s.phase,
        (s.shown_by,) if s.shown_by else (),
    )


def shared_memory_machine(s: Situation) -> Finding | None:
    """Nothing else is known, and the text names a machine on which CPU and GPU share memory."""
    if _UNIFIED.search(s.surroundings):
        return Finding(
            "vram.unified_memory",
            "possible",
            "the text names a machine on which CPU and GPU share one memory",
            "shared_memory_machine",
        )
    return None


RULES: tuple[Callable[[Situation], Finding | None], ...] = (
    pinned_host_memory,
    unified_memory,
    encoder_or_buffer,
    single_huge_tensor,
    other_process,
    driver_refused,
    fragmentation,
    sampler_size,
    owner_frame,
    phase_reached,
    shared_memory_machine,
)


def who_asked(s: Situation) -> Finding:
    """The first rule that answers; else the bare sentence: the card is full, nobody is named."""
    for rule in RULES:
        found = rule(s)
        if found is not None:
            return found
    f = s.sentence
    why = "memory was refused, and nothing in the text says to whom"
    if f.request is not None and f.free is not None:
        why = f"{gib(f.request)} asked for, {gib(f.free)} free; nothing in the text says who asked"
    return Finding("vram.capacity_exceeded", "possible", why, "bare_sentence", s.phase)


def neighbour_counted(facts: dict[str, Fact]) -> Finding | None:
    """A second clue beside "no KV": use before start, or growth outside torch, that is not ours."""
    total, used = facts.get("total_memory"), facts.get("memory_used_before_profile")
    peak, weights = facts.get("peak_torch_memory"), facts.get("weights_memory")
    if used is not None and total is not None:
        own = peak or weights
        foreign = int(used.value) - (int(own.value) if own else 0)
        share = facts.get("gpu_memory_utilization")
        limit = (
            0.1 * int(total.value)
            if own
            else (float(share.value) * int(total.value) if share else 0.5 * int(total.value))
        )
        if foreign > limit:
            return Finding(
                "vram.neighbour_counted",
                "likely",
                f"{gib(int(used.value))} were in use before the profile run",
                "neighbour_counted",
                "kv_sizing",
                (used.line,),
            )
    outside = facts.get("non_torch_memory")
    if outside is not None and int(outside.value) > max(
        6 * 2**30, 0.12 * int(total.value) if total else 0
    ):
        return Finding(
            "vram.neighbour_counted",
            "possible",
            f"{gib(int(outside.value))} outside torch are more than communicators and context need",
            "neighbour_counted",
            "kv_sizing",
            (outside.line,),
        )
    return None


def page_rounding(facts: dict[str, Fact]) -> Finding | None:
    """The token allocator was asked for no more than available + evictable."""
    asked, free = facts.get("kv_pool.requested_tokens"), facts.get("kv_pool.available_tokens")
    evictable = facts.get("kv_pool.evictable_tokens")
    if asked is None or free is None:
        return None
    have = int(free.value) + (int(evictable.value) if evictable else 0)
    lines = tuple(f.line for f in (asked, free) if f)
    if int(asked.value) <= have:
        return Finding(
            "kv.allocator_page_rounding",
            "likely",
            f"{asked.printed} tokens asked for, {have:,} available: whole pages were needed",
            "page_rounding",
            "runtime",
            lines,
        )
    return Finding(
        "kv.pool_exhausted",
        "certain",
        f"{asked.printed} tokens asked for, {have:,} available",
        "page_rounding",
        "runtime",
        lines,
    )
