"""What a change of the share costs, from the facts of a start-up log. Sizes in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.triage.causes import catalogue
from kvbudget.triage.values import share_in_force, smaller_share

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
    now, whole = share_in_force(verdict, facts)
    pool, tokens = _pool(facts), facts.get("kv_cache_tokens")
    if direction == "none" or now is None or not whole or pool is None:
        return []
    if direction == "lower":
        usual = SAFE_SHARE if now > SAFE_SHARE else round(now - 0.05, 2)
        to = min(usual, smaller_share(verdict, facts) or usual)
    else:
        to = min(round(now + 0.05, 2), 0.95)
    if to <= 0 or to == now or (direction == "raise" and to < now):
        return []
    moved = int((to - now) * int(whole))
    row: dict[str, Any] = {
        "from": now, "to": to, "kv_bytes": moved,
        "of_pool": round(moved / pool, 4) if pool > 0 else None,
        "tokens": None, "blocks": None, "requests_8k": None,
    }  # fmt: skip
    if tokens is not None and pool > 0:
        per_token = pool / int(tokens.value)
        row["tokens"] = int(moved / per_token)
        row["requests_8k"] = round(moved / per_token / REQUEST_TOKENS, 1)
        blocks = facts.get("num_gpu_blocks")
        if blocks is not None:
            row["blocks"] = int(moved / (pool / int(blocks.value)))
    return [row]


def _pool(facts: dict[str, Fact]) -> int | None:
    """Bytes of the pool: printed as one figure, or as K and V."""
    whole = facts.get("kv_cache_memory")
    if whole is not None:
        return int(whole.value)
    halves = [facts.get(name) for name in ("kv_cache_k_memory", "kv_cache_v_memory")]
    known = [int(half.value) for half in halves if half is not None]
    return sum(known) if len(known) == len(halves) else None
