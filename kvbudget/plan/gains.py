"""What each flag of an option buys, in figures: the option beside itself without the flag."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.derive.assemble import derive
from kvbudget.derive.flags import load_flags
from kvbudget.errors import KvbudgetError
from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.derive.assemble import Derived
    from kvbudget.derive.request import Request
    from kvbudget.plan.names import Names
    from kvbudget.plan.search import Option

LABELS = {
    "weights_memory": "weights of a card",
    "bytes_per_token": "KV of a token",
    "state_bytes_per_request": "state of a request",
    "kv_cache_memory": "pool",
    "margin_memory": "margin",
}


def gains(option: Option, names: Names) -> Iterator[str]:
    """One line a flag: what it moves, from and to. Flags that answer the question have none."""
    spelled = load_flags(option.derived.engine.name)
    request = option.derived.request
    for name in (*sorted(option.levers), names.fraction):
        if name not in option.flags:
            continue
        keep, after = request, option.derived
        if names.cushion_default and name in (names.requests, names.batch):
            # These move the share that the engine would take: a stated one hides what they buy.
            keep = _without(request, names.fraction)
            after = derive(keep)
        try:
            before = derive(_without(keep, name))
        except KvbudgetError:
            continue
        moved = ", ".join(filter(None, (_step(t, before, after) for t in _terms(name, names))))
        if moved:
            old = before.amount(name)
            instead = "" if old is None else f" instead of {old.value:g}"
            yield f"{spelled[name].cli[0]} {option.flags[name]}{instead}: {moved}"


def _without(request: Request, name: str) -> Request:
    return replace(request, flags={k: v for k, v in request.flags.items() if k != name})


def _terms(name: str, names: Names) -> tuple[str, ...]:
    if name == names.tensor:
        return ("weights_memory",)
    if name == names.kv_dtype:
        return ("bytes_per_token", "state_bytes_per_request")
    return ("kv_cache_memory", "margin_memory")


def _step(term: str, before: Derived, after: Derived) -> str:
    old, new = before.amount(term), after.amount(term)
    if old is None or new is None or old.value == new.value:
        return ""
    return f"{LABELS[term]} {format_size(int(old.value))} -> {format_size(int(new.value))}"
