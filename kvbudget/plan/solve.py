"""Which levers a plan tries, which answers it keeps, and in which order it gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.plan.gains import gains
from kvbudget.plan.names import names_of
from kvbudget.plan.search import (
    HIGHEST,
    Asked,
    Option,
    Search,
    largest_safe,
    longest_context,
    requests_served,
    seats,
    smallest_share,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.derive.flags import FlagValue
    from kvbudget.derive.request import Request
    from kvbudget.plan.names import Names

Flags = dict[str, "FlagValue"]
ORDER = {"fits": 0, "tight": 1, "no": 2}
WORTH = 0.005
"""A smaller batch is worth naming where it frees more than this share of the card."""
NEAREST = 3
MOST_CARDS = 1024
NODE = 16
"""Cards up to which a plan looks on where those allowed do not do."""


def solve(request: Request, asked: Asked) -> list[Option]:
    """Answers, the best first: few cards, no loss of precision, no slower prefill, few flags.

    Where none serves what is wanted, the nearest: those that lack least.

    Raises MissingFact where no budget can be derived.
    """
    names = names_of(request.engine, request.version)
    found: list[Option] = []
    fewest_found = False
    for cards in _ranks(request, asked, names):
        plain = list(_answers(Search.of(request, asked, cards)))
        found += plain
        if fewest_found:
            continue
        for levers in _levers(request, asked, names, cards, plain):
            found += _answers(Search.of(request, asked, levers))
        fewest_found = any(option.verdict == "fits" for option in found)
    served = [option for option in found if option.verdict != "no"]
    ordered = _nearest(found, asked, names)
    if served:
        kept = _undominated(served, names)
        ordered = sorted(kept, key=lambda option: _rank(option, asked, names))
    return [replace(option, buys=tuple(gains(option, names))) for option in ordered]


def _rank(option: Option, asked: Asked, names: Names) -> tuple[float, ...]:
    """The smaller share first where the share is the question, else the one that reaches more."""
    found = option.derived.amount(names.fraction)
    share = float(found.value) if found is not None else 0.0
    return (
        ORDER[option.verdict],
        int(option.flags.get(names.tensor) or 1),
        names.kv_dtype in option.levers,
        names.batch in option.levers,
        len(option.levers),
        share if asked.context is not None and asked.concurrency is not None else -share,
    )


def _nearest(options: list[Option], asked: Asked, names: Names) -> list[Option]:
    def lack(option: Option) -> tuple[float, ...]:
        pool = option.derived.amount("kv_cache_memory")
        return (
            -option.concurrency,
            -pool.value if pool is not None and not option.concurrency else 0.0,
            *_rank(option, asked, names),
        )

    return sorted(options, key=lack)[:NEAREST]


def more_cards(request: Request, asked: Asked) -> int | None:
    """The fewest cards of one node, beyond those allowed, that serve it; None where none do."""
    names = names_of(request.engine, request.version)
    wider = replace(asked, gpus=NODE)
    for cards in _ranks(request, wider, names):
        count = int(cards.get(names.tensor) or 1)
        if count > asked.gpus and any(
            option.verdict != "no" for option in _answers(Search.of(request, wider, cards))
        ):
            return count
    return None


def _undominated(options: list[Option], names: Names) -> list[Option]:
    """Without answers that set more flags than another and reach no more."""
    return [o for o in options if not any(_beats(p, o, names) for p in options if p is not o)]


def _beats(one: Option, other: Option, names: Names) -> bool:
    if not one.levers < other.levers or ORDER[one.verdict] > ORDER[other.verdict]:
        return False
    if one.flags.get(names.tensor) != other.flags.get(names.tensor):
        return False
    cheap = float(one.flags.get(names.fraction) or 0) <= float(other.flags.get(names.fraction) or 0)
    return cheap and one.concurrency >= other.concurrency and _length(one) >= _length(other)


def _length(option: Option) -> float:
    found = option.derived.amount("max_model_len")
    return 0.0 if found is None else float(found.value)


def _ranks(request: Request, asked: Asked, names: Names) -> Iterator[Flags]:
    """Tensor parallelism: powers of two, and all the cards, where they divide the heads."""
    if names.tensor in request.flags:
        yield {}
        return
    if asked.gpus > MOST_CARDS:
        raise InputError(f"--gpus {asked.gpus}: no more than {MOST_CARDS}", "cards of one replica")
    heads = request.model.num_attention_heads if request.model is not None else 0
    ways = sorted({2**n for n in range(asked.gpus.bit_length())} | {asked.gpus})
    for tp in ways:
        if tp <= asked.gpus and (tp == 1 or not heads or heads % tp == 0):
            yield {} if tp == 1 else {names.tensor: tp}


def _levers(
    request: Request, asked: Asked, names: Names, cards: Flags, plain: list[Option]
) -> Iterator[Flags]:
    """Sets of flags beside the plain answer, the least costly first."""
    if asked.context is None and asked.concurrency is None:
        return
    search = Search.of(request, asked, cards)
    cap = _seats_for(asked, names, request, search)
    if cap:
        yield {**cards, **cap}
    batch = _smaller_batch(Search.of(request, asked, {**cards, **cap}))
    if batch:
        yield {**cards, **cap, **batch}
    if names.kv_dtype in request.flags or names.kv_dtype_value is None:
        return
    small: Flags = {names.kv_dtype: names.kv_dtype_value}
    yield {**cards, **small}
    if not any(option.verdict == "fits" for option in plain) and (cap or batch):
        yield {**cards, **cap, **batch, **small}


def _seats_for(asked: Asked, names: Names, request: Request, search: Search) -> Flags:
    """The engine's limit on requests, set to what is wanted."""
    if asked.concurrency is None or names.requests in request.flags:
        return {}
    flags: Flags = {names.requests: asked.concurrency}
    tokens = search.at(None).amount(names.batch)
    short = tokens is not None and tokens.value < asked.concurrency
    if short and names.batch not in request.flags:
        flags[names.batch] = asked.concurrency
    return flags


def _smaller_batch(search: Search) -> Flags:
    """Tokens of a step, halved as long as each halving frees memory worth the slower prefill."""
    names = search.names
    now = search.at(None).amount(names.batch)
    if now is None or names.batch in search.request.flags:
        return {}
    floor, tokens = max(names.batch_floor, search.asked.concurrency or 0), int(now.value)
    here, chosen = _room(search), None
    while tokens // 2 >= floor:
        tokens //= 2
        there = _room(Search.of(search.request, search.asked, {names.batch: tokens}))
        if there - here < WORTH * _total(search):
            break
        here, chosen = there, tokens
    return {} if chosen is None else {names.batch: chosen}


def _room(search: Search) -> float:
    """The pool at the share in force."""
    found = search.at(None).amount("kv_cache_memory")
    return 0.0 if found is None else float(found.value)


def _total(search: Search) -> float:
    found = search.at(None).amount("total_memory")
    return 0.0 if found is None else float(found.value)


def _answers(search: Search) -> Iterator[Option]:
    """The answers of one set of levers: sure ones, and for the plain set also the best estimate.

    A set with levers is worth one answer: the sure one, or the best estimate where none is sure.
    """
    found: list[Option] = []
    for option in _by_share(search) if search.asks_share else _at_shares(search):
        if not any(option.flags == other.flags for other in found):
            found.append(option)
    if set(search.levers) - {search.names.tensor} and any(o.verdict == "fits" for o in found):
        found = [option for option in found if option.verdict == "fits"]
    yield from found


def _by_share(search: Search) -> Iterator[Option]:
    """The smallest share for what is wanted; where none serves it, the largest safe one."""
    shares = [smallest_share(search, edge) for edge in ("low", "value")]
    none_serves = largest_safe(search) or HIGHEST if shares == [None, None] else 0
    for cents in [share for share in shares if share is not None] or [none_serves]:
        yield search.option(search.at(cents), cents)


def _at_shares(search: Search) -> Iterator[Option]:
    """What the share in force gives, and what the largest safe one gives."""
    safe = None if search.fixed else largest_safe(search)
    plain = not set(search.levers) - {search.names.tensor}
    shares: list[int | None] = [None] if plain or safe is None else []
    if safe is not None and not (plain and search.is_own_share(safe)):
        shares.append(safe)
    elif safe is not None and search.asked.context is None and search.asked.concurrency is None:
        shares = [safe]  # the question is this number, the engine's own or not
    for cents in shares:
        if search.asked.context is None and search.asked.concurrency is not None:
            yield longest_context(search, cents, "low")
            yield longest_context(search, cents, "value")
        else:
            yield _with_seats(search, cents)


def _with_seats(search: Search, cents: int | None) -> Option:
    """As many requests as memory holds: the engine's own limit is lifted where it is lower."""
    derived, names = search.at(cents), search.names
    many = derived.amount("max_concurrency")
    free = names.requests not in search.request.flags and search.asked.context is not None
    if many is None or not free or int(many.value) <= seats(derived, search):
        return search.option(derived, cents)
    wider = Search.of(
        search.request, search.asked, {**search.levers, names.requests: int(many.value)}
    )
    reached = requests_served(wider.at(cents), wider)
    done = Search.of(
        search.request, search.asked, {**search.levers, names.requests: max(1, reached)}
    )
    return done.option(done.at(cents), cents)
