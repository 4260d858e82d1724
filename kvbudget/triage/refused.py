"""A request that is longer than the context allows is refused: a limit that was set, not memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.triage.result import Verdict

if TYPE_CHECKING:
    from kvbudget.triage.timeline import Event, Timeline

KEPT_BACK = 6
"""Tokens by which an engine's limit on a prompt lies below the context length, at most: SGLang takes
1 off for the answer and 5 more (0.5.7 managers/tp_worker.py:327-331, 0.5.23 :569-572), vLLM none."""


def refused_for_length(event: Event, time: Timeline) -> bool:
    """The limit that a refused request met is the context length, which the pool can hold."""
    if event.cause != "kv.pool_smaller_than_context":
        return False
    limits = time.facts_at(event.record).get("max_request_tokens", [])
    lengths = [f for f in time.reading.facts if f.name == "max_model_len"]
    pools = [int(f.value) for f in time.reading.facts if f.name == "kv_cache_tokens"]
    return any(
        0 <= int(length.value) - int(limit.value) <= KEPT_BACK
        and all(pool > int(length.value) for pool in pools)
        for limit in limits
        for length in lengths
    )


def only_refused(trouble: list[Event], time: Timeline) -> Verdict | None:
    """none.no_failure when requests were refused for their length and nothing else went wrong."""
    refused = [
        e for e in time.events
        if e.cause == "none.no_failure" or refused_for_length(e, time)
    ]  # fmt: skip
    if not refused:
        return None
    lines = {n for e in refused for n in e.record.numbers}
    if any(e.entry.id != "generic.traceback" and e.line not in lines for e in trouble):
        return None
    said = time.facts_at(refused[0].record)
    asked, limit = (
        next(iter(said.get(name, ())), None) for name in ("request_tokens", "max_request_tokens")
    )
    figures = f" ({asked.printed} > {limit.printed} tokens)" if asked and limit else ""
    return Verdict(
        "none.no_failure", "likely", None, refused[0].rank, False, (),
        f"a request was refused for its length{figures}: a limit that was set, not memory",
    )  # fmt: skip
