"""Searches over derivations: the smallest utilisation, the longest context, the most requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kvbudget.budget import Amount
from kvbudget.derive.assemble import Derived, derive
from kvbudget.errors import InputError, MissingFact
from kvbudget.formula.registry import load_engine
from kvbudget.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kvbudget.derive.flags import FlagValue
    from kvbudget.derive.request import Request

Verdict = Literal["fits", "tight", "no"]

CENT = 100
"""Utilisations are searched on hundredths."""
HIGHEST = 99


@dataclass(frozen=True)
class Asked:
    """What is wanted; None: the unknown to solve for. gpus: cards of one node to use at most."""

    context: int | None = None
    concurrency: int | None = None
    gpus: int = 1


@dataclass(frozen=True)
class Option:
    """One answer. `flags` are those to set; `buys` says what they are for."""

    flags: Mapping[str, FlagValue]
    derived: Derived
    verdict: Verdict
    concurrency: int
    buys: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class Names:
    """How the engine spells the knobs of a plan (index.yaml: plan)."""

    fraction: str
    context: str
    requests: str
    kv_dtype: str
    tensor: str
    cushion_terms: tuple[str, ...]
    cushion_bytes: int
    cushion_share: float
    cushion_default: bool


def names_of(engine: str) -> Names:
    """The knobs of `engine`. Raises InputError for an engine without a plan section."""
    index = load_engine(engine)
    raw: dict[str, Any] | None = index.raw.get("plan")
    if raw is None:
        raise InputError(f"plan does not know the knobs of {engine}")
    roles = index.raw["roles"]
    return Names(
        raw["fraction"], raw["context"], raw["requests"], roles["kv_cache_dtype"],
        roles["tensor_parallel_size"], tuple(raw.get("cushion_terms") or ()),
        int(raw.get("cushion_mib", 0)) * MIB, float(raw.get("cushion_share", 0.0)),
        bool(raw.get("cushion_default")),
    )  # fmt: skip


def solve(request: Request, asked: Asked) -> list[Option]:
    """Answers, the best first. Raises MissingFact where no budget can be derived."""
    names = names_of(request.engine)
    found: list[Option] = []
    for flags, buys in _variants(request, asked, names):
        base = replace(request, flags={**request.flags, **flags})
        found += _answers(base, asked, names, flags, buys)
    order = {"fits": 0, "tight": 1, "no": 2}
    served = [option for option in found if option.verdict != "no"]
    pool = served or _nearest(found)
    return sorted(
        pool,
        key=lambda o: (
            order[o.verdict], int(o.flags.get(names.tensor) or 1),
            bool(o.flags.get(names.kv_dtype)), len(o.flags),
        ),
    )  # fmt: skip


def _nearest(options: list[Option]) -> list[Option]:
    return sorted(options, key=lambda o: -o.concurrency)[:3]


def _variants(
    request: Request, asked: Asked, names: Names
) -> Iterator[tuple[dict[str, FlagValue], tuple[str, ...]]]:
    """Sets of flags to try: tensor parallelism, the KV format, a smaller batch."""
    set_tp = request.flags.get(names.tensor)
    ways = [1]
    while ways[-1] * 2 <= asked.gpus:
        ways.append(ways[-1] * 2)
    for tp in ways if set_tp is None else [None]:
        flags: dict[str, FlagValue] = {} if tp in (None, 1) else {names.tensor: tp}
        buys: tuple[str, ...] = () if not flags else (f"weights and KV heads over {tp} cards",)
        yield flags, buys
        if asked.concurrency is not None and names.requests not in request.flags:
            yield (
                {**flags, names.requests: asked.concurrency},
                (*buys, "no memory for requests that will not come"),
            )
        if names.kv_dtype not in request.flags:
            yield {**flags, names.kv_dtype: "fp8"}, (*buys, "half the bytes per token")


def _answers(
    request: Request, asked: Asked, names: Names, flags: Mapping[str, FlagValue],
    buys: tuple[str, ...],
) -> Iterator[Option]:  # fmt: skip
    fixed = names.fraction in request.flags
    if asked.context is not None:
        request = _with(request, names.context, asked.context)
        flags = {**flags, names.context: asked.context}
    if asked.context is not None and asked.concurrency is not None:
        yield from _smallest(request, asked.concurrency, names, flags, buys, fixed=fixed)
    elif asked.concurrency is not None:
        yield _longest(request, asked.concurrency, names, flags, buys)
    else:
        yield _option(derive(request), 1, names, flags, buys)
        if not fixed:
            top = largest_safe(request, names)
            if top is not None:
                share = top / CENT
                best = derive(_with(request, names.fraction, share))
                yield _option(best, 1, names, {**flags, names.fraction: share},
                              (*buys, "the largest share that keeps the cushion"))  # fmt: skip


def _with(request: Request, name: str, value: FlagValue) -> Request:
    return replace(request, flags={**request.flags, name: value})


def _smallest(
    request: Request, wanted: int, names: Names, flags: Mapping[str, FlagValue],
    buys: tuple[str, ...], *, fixed: bool,
) -> Iterator[Option]:  # fmt: skip
    """The smallest share that serves `wanted` requests: surely, and at the best estimate."""
    if fixed:
        yield _option(derive(request), wanted, names, flags, buys)
        return
    seen: set[int] = set()
    for edge in ("low", "value"):
        share = first_true(1, HIGHEST, partial(_serves, request, names, wanted, edge))
        if share is None:
            share = HIGHEST
        if share not in seen:
            seen.add(share)
            done = derive(_with(request, names.fraction, share / CENT))
            yield _option(done, wanted, names, {**flags, names.fraction: share / CENT}, buys)


def _serves(request: Request, names: Names, wanted: int, edge: str, cents: int) -> bool:
    try:
        derived = derive(_with(request, names.fraction, cents / CENT))
    except MissingFact as error:
        raise MissingFact(f"plan cannot derive a budget: {error.what}", error.facts,
                          error.hint) from error  # fmt: skip
    return _edge(derived, "max_concurrency", edge) >= wanted and _fits(derived, edge)


def _edge(derived: Derived, name: str, edge: str) -> float:
    amount = derived.amount(name)
    return 0.0 if amount is None else float(getattr(amount, edge))


def _fits(derived: Derived, edge: str) -> bool:
    amount = derived.amount("fits")
    return derived.fits if amount is None else bool(getattr(amount, edge))


def first_true(low: int, high: int, test: Callable[[int], bool]) -> int | None:
    """The smallest whole number in [low, high] for which a monotone test holds, or None."""
    if not test(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle + 1
    return low


def largest_safe(request: Request, names: Names) -> int | None:
    """The largest share in hundredths whose margin keeps the cushion, or None."""

    def unsafe(cents: int) -> bool:
        return not keeps_cushion(derive(_with(request, names.fraction, cents / CENT)), names)

    first = first_true(1, CENT, unsafe)
    top = HIGHEST if first is None else first - 1
    return top if top >= 1 else None


def keeps_cushion(derived: Derived, names: Names) -> bool:
    """True where the margin surely holds what no profile measures (index.yaml: cushion)."""
    margin = derived.amount("margin_memory")
    if margin is None:
        return True
    return margin.low >= cushion(derived, names)


def cushion(derived: Derived, names: Names) -> float:
    """Bytes to keep outside the budget, by the engine's plan section.

    A stated amount or share of the card, plus the terms the engine leaves outside; or, where the
    engine derives its own default share from a reserve, the reserve of that default.
    """
    if names.cushion_default:
        flags = {k: v for k, v in derived.request.flags.items() if k != names.fraction}
        own = derive(replace(derived.request, flags=flags)).amount("margin_memory")
        return 0.0 if own is None else float(own.low)
    total = derived.amount("total_memory")
    need = max(float(names.cushion_bytes), names.cushion_share * (total.value if total else 0))
    for name in names.cushion_terms:
        amount = derived.amount(name)
        need += 0 if amount is None else max(0, amount.value)
    return need


def _longest(
    request: Request, wanted: int, names: Names, flags: Mapping[str, FlagValue],
    buys: tuple[str, ...],
) -> Option:  # fmt: skip
    """The longest context at which `wanted` requests still fit."""
    most = derive(request).amount("model_max_len") or derive(request).amount("max_model_len")
    if most is None:
        raise MissingFact("the model's longest context is not known", ("max_model_len",),
                          "give a MODEL, or --context")  # fmt: skip

    def too_long(length: int) -> bool:
        derived = derive(_with(request, names.context, length))
        return not (_edge(derived, "max_concurrency", "value") >= wanted and derived.fits)

    first = first_true(1, int(most.value), too_long)
    length = int(most.value) if first is None else max(1, first - 1)
    done = derive(_with(request, names.context, length))
    return _option(done, wanted, names, {**flags, names.context: length}, buys)


def _option(
    derived: Derived, wanted: int, names: Names, flags: Mapping[str, FlagValue],
    buys: tuple[str, ...],
) -> Option:  # fmt: skip
    best = _edge(derived, "max_concurrency", "value")
    sure = _edge(derived, "max_concurrency", "low")
    check = derived.amount("startup_check") or Amount.exact(1, "n")
    verdict: Verdict = "no"
    if best >= wanted and derived.fits and check.value:
        verdict = "tight"
        if sure >= wanted and _fits(derived, "low") and check.low and keeps_cushion(derived, names):
            verdict = "fits"
    return Option(dict(flags), derived, verdict, int(best), buys)
