"""Values for remedies, where the facts give one. Each rule returns text for people, or None.

Only what the facts decide: a value that would need a guess is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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


def startup_fit(verdict: Verdict, facts: Facts) -> str | None:
    """Largest two-digit share that passes the start-up check: floor(free / total * 100) / 100."""
    free, total = _number(facts, "free_memory"), _number(facts, "total_memory")
    if not free or not total or free >= total:
        return None
    share = math.floor(free / total * 100) / 100
    return f"{share:.2f}" if share > 0 else None


def positive_kv(verdict: Verdict, facts: Facts) -> str | None:
    """The smallest two-digit share with a positive KV budget: (requested - kv) / total, rounded up."""
    suggested = facts.get("suggested_gpu_memory_utilization")
    if suggested is not None:
        return suggested.printed
    kv, total = _number(facts, "kv_cache_memory"), _number(facts, "total_memory")
    share = _number(facts, "gpu_memory_utilization")
    if kv is None or total is None or share is None or kv > 0:
        return None
    needed = math.ceil((share - kv / total) * 100 + 1e-9) / 100
    return f"above {needed:.2f}" if needed <= 1 else "not below 1.00: more than the card is needed"


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
    "max_len_fit": max_len_fit,
    "sampler_fit": sampler_fit,
    "host_pool_fit": host_pool_fit,
}
