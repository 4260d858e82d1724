"""What a change of the share costs, from the facts of a start-up log. Sizes in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.triage.causes import catalogue

if TYPE_CHECKING:
    from kvbudget.facts import Fact
    from kvbudget.triage.result import Verdict

REQUEST_TOKENS = 8192
SAFE_SHARE = 0.92
"""The share to compare with when the one in force is above it; else 0.05 below it."""


def costs(facts: dict[str, Fact], verdict: Verdict) -> list[dict[str, Any]]:
    """One row for a lower (or higher) share: bytes moved, KV tokens, blocks, 8k requests.

    Empty when total, share, KV bytes or KV tokens are not known: no number is guessed.
    """
    direction = catalogue().cause(verdict.cause).knob
    share, total = facts.get("gpu_memory_utilization"), facts.get("total_memory")
    kv, tokens = facts.get("kv_cache_memory"), facts.get("kv_cache_tokens")
    if direction == "none" or share is None or total is None or kv is None:
        return []
    now = float(share.value)
    if direction == "lower":
        to = SAFE_SHARE if now > SAFE_SHARE else round(now - 0.05, 2)
    else:
        to = min(round(now + 0.05, 2), 0.95)
    if to <= 0 or to == now:
        return []
    moved = int((to - now) * int(total.value))
    row: dict[str, Any] = {
        "from": now, "to": to, "kv_bytes": moved,
        "of_pool": round(moved / int(kv.value), 4) if int(kv.value) > 0 else None,
        "tokens": None, "blocks": None, "requests_8k": None,
    }  # fmt: skip
    if tokens is not None and int(kv.value) > 0:
        per_token = int(kv.value) / int(tokens.value)
        row["tokens"] = int(moved / per_token)
        row["requests_8k"] = round(moved / per_token / REQUEST_TOKENS, 1)
        blocks = facts.get("num_gpu_blocks")
        if blocks is not None:
            row["blocks"] = int(moved / (int(kv.value) / int(blocks.value)))
    return [row]
