"""Values for remedies, where the facts give one. Each rule returns text for people, or None.

Only what the facts decide: a value that would need a guess is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.facts import Fact
    from kvbudget.triage.result import Verdict

Facts = dict[str, "Fact"]
HOST_RESERVE = 10 * 10**9
"""Bytes that SGLang's check leaves to the host (sglang memory_pool_host.py)."""


def _number(facts: Facts, name: str) -> float | None:
    fact = facts.get(name)
    return float(fact.value) if fact is not None and not isinstance(fact.value, str) else None


SHARES = (
    ("gpu_memory_utilization", ("total_memory",)),
    ("mem_fraction_static", ("avail_memory_before_weights", "total_memory")),
)
"""The share in force, and what it is a share of: the first figure that the text states."""


def share_in_force(verdict: Verdict, facts: Facts) -> tuple[float | None, float | None]:
    """The share and the bytes it is a share of; None where the text does not state them."""
    printed = verdict.sentence.total if verdict.sentence is not None else None
    for name, wholes in SHARES:
        share = _number(facts, name)
        if share is not None:
            known = [_number(facts, whole) for whole in wholes]
            return share, next((n for n in known if n), printed)
    return None, _number(facts, "total_memory") or printed


def startup_fit(verdict: Verdict, facts: Facts) -> str | None:
    """Largest two-digit share that passes the start-up check: floor(free / total * 100) / 100."""
    free, total = _number(facts, "free_memory"), _number(facts, "total_memory")
    if not free or not total or free >= total:
        return None
    share = math.floor(free / total * 100) / 100
    return f"{share:.2f}" if share > 0 else None


def positive_kv(verdict: Verdict, facts: Facts) -> str | None:
    """The smallest two-digit share with a positive KV budget.

    The engine's own figure; else (requested - kv) / total; else 1 - free after the weights / free
    before them, where the share is of what was free before.
    """
    printed = facts.get("suggested_mem_fraction_static")
    if printed is not None:
        return f"above {printed.printed}"
    share, total = share_in_force(verdict, facts)
    kv = _number(facts, "kv_cache_memory")
    before = _number(facts, "avail_memory_before_weights")
    after = _number(facts, "avail_memory_after_weights")
    if kv is not None and kv <= 0:
        if not total or share is None:
            return f"by more than {format_size(int(-kv))} of the card" if kv else None
        needed = share - kv / total
    elif "mem_fraction_static" in facts and before and after is not None and after < before:
        needed = 1 - after / before
    else:
        return None
    return _above(needed, "above {}")


def whole_request(verdict: Verdict, facts: Facts) -> str | None:
    """The smallest two-digit share whose pool holds one request of max_model_len."""
    need, have = _number(facts, "kv_memory_needed"), _number(facts, "kv_cache_memory")
    if need is None or have is None or need <= have:
        return None
    share, total = share_in_force(verdict, facts)
    if share is None or not total:
        return f"by {format_size(int(need - have))} of the card"
    return _above(share + (need - have) / total, "{} or more")


def _above(needed: float, said: str) -> str:
    cents = math.ceil(needed * 100 + 1e-9) / 100
    return said.format(f"{cents:.2f}") if cents < 1 else "more than the card: no share is enough"


def smaller_share(verdict: Verdict, facts: Facts) -> float | None:
    """The largest two-digit share that leaves the refused request its bytes; None if unknown."""
    short = _short_of(verdict)
    share, whole = share_in_force(verdict, facts)
    if short is None or share is None or not whole:
        return None
    cents = math.floor((share - short / whole) * 100 + 1e-9) / 100
    return cents if cents > 0 else None


def room_for_request(verdict: Verdict, facts: Facts) -> str | None:
    """What to lower the share to, or by: the refused request less what was free."""
    share = smaller_share(verdict, facts)
    if share is not None:
        return f"{share:.2f} or less"
    short = _short_of(verdict)
    whole = verdict.sentence.total if verdict.sentence is not None else None
    if short is None or not whole or short >= whole:
        return None
    return f"by {math.ceil(short / whole * 100 - 1e-9) / 100:.2f} or more"


def _short_of(verdict: Verdict) -> int | None:
    """Bytes that the refused request was short of."""
    said = verdict.sentence
    if said is None or said.request is None or said.free is None or said.request <= said.free:
        return None
    return said.request - said.free


def shm_fit(verdict: Verdict, facts: Facts) -> str | None:
    """The size of the segment that failed: /dev/shm holds it and whatever is there already."""
    size = _number(facts, "host.shm_segment")
    return f"more than {format_size(int(size))}" if size else None


def max_len_fit(verdict: Verdict, facts: Facts) -> str | None:
    """The length that fits: the engine's own estimate, else the pool in tokens, else the ratio."""
    estimate = _number(facts, "estimated_max_model_len")
    if estimate is not None:
        return f"{int(estimate)}"
    tokens = _number(facts, "kv_cache_tokens")
    length, blocks = _number(facts, "max_model_len"), _number(facts, "num_gpu_blocks")
    if tokens is not None and length is not None and tokens < length:
        return f"{int(tokens)}"
    need, have = _number(facts, "kv_memory_needed"), _number(facts, "kv_cache_memory")
    if need and have and length and 0 < have < need:
        return f"about {int(length * have / need)}"
    if blocks is not None and length is not None and blocks * 16 < length:
        return f"{int(blocks * 16)} (blocks of 16)"
    return None


def sampler_fit(verdict: Verdict, facts: Facts) -> str | None:
    """The next power of two below what failed: half the requests need half the buffers."""
    requests = _number(facts, "sampler_warmup_requests") or _number(facts, "max_num_seqs")
    if requests is None or requests < 2:
        return None
    sentence = verdict.sentence
    if sentence is not None and sentence.request and sentence.free is not None:
        fitting = int(requests * sentence.free / sentence.request)
        if 1 <= fitting < requests:
            return f"{2 ** int(math.log2(fitting))}"
    return f"{2 ** (math.ceil(math.log2(requests)) - 1)}"


def host_pool_fit(verdict: Verdict, facts: Facts) -> str | None:
    """The pool per rank that the printed figures allow, in whole GB (10^9) as the engine counts."""
    free, asked = _number(facts, "host.free_memory"), _number(facts, "host.requested_memory")
    if free is None or asked is None:
        return None
    room = free - HOST_RESERVE if asked <= free else free
    return f"{int(room // 10**9)} GB per rank" if room >= 10**9 else None


RULES: dict[str, Callable[[Verdict, Facts], str | None]] = {
    "startup_fit": startup_fit,
    "positive_kv": positive_kv,
    "whole_request": whole_request,
    "room_for_request": room_for_request,
    "shm_fit": shm_fit,
    "max_len_fit": max_len_fit,
    "sampler_fit": sampler_fit,
    "host_pool_fit": host_pool_fit,
}
