"""Searches over derivations: the smallest utilisation, the longest context, the most requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from kvbudget.budget import Amount
from kvbudget.derive.assemble import Derived, derive
from kvbudget.errors import MissingFact
from kvbudget.plan.names import Names, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """One answer. `flags` are those to set, `levers` those of them that are not the question's."""

    flags: Mapping[str, FlagValue]
    derived: Derived
    verdict: Verdict
    concurrency: int
    levers: frozenset[str] = frozenset()
    buys: tuple[str, ...] = field(default_factory=tuple)


@dataclass
class Search:
    """One request with some levers set, and the derivations made of it by utilisation."""

    request: Request
    asked: Asked
    names: Names
    levers: Mapping[str, FlagValue]
    _seen: dict[int | None, Derived] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request, asked: Asked, levers: Mapping[str, FlagValue]) -> Search:
        names = names_of(request.engine, request.version)
        flags = {**request.flags, **levers}
        if asked.context is not None:
            flags[names.context] = asked.context
        return cls(replace(request, flags=flags), asked, names, levers)

    @property
    def fixed(self) -> bool:
        """True where the user decides the pool, so that no utilisation is to be found."""
        given = {*self.request.flags, *self.request.stated}
        pool = {"kv_cache_memory", "kv_cache_memory_bytes", "num_gpu_blocks", "kv_cache_tokens"}
        return bool(given & (pool | {self.names.fraction}))

    @property
    def asks_share(self) -> bool:
        """True where context and concurrency are known and the utilisation is not."""
        asked = self.asked
        return asked.context is not None and asked.concurrency is not None and not self.fixed

    @property
    def wanted(self) -> int:
        """Requests at once; one where nothing is said."""
        return self.asked.concurrency or 1

    def is_own_share(self, cents: int) -> bool:
        """True where the engine takes this utilisation (to hundredths) by itself."""
        own = self.at(None).amount(self.names.fraction)
        return own is not None and round(own.value * CENT) == cents

    def at(self, cents: int | None) -> Derived:
        """The derivation at a utilisation in hundredths; None: the engine's own, or the user's."""
        if cents not in self._seen:
            request = self.request
            if cents is not None:
                request = _with(request, self.names.fraction, cents / CENT)
            try:
                self._seen[cents] = derive(request)
            except MissingFact as error:
                raise MissingFact(f"plan cannot derive a budget: {error.what}", error.facts,
                                  error.hint) from error  # fmt: skip
        return self._seen[cents]

    def option(
        self, derived: Derived, cents: int | None, flags: Mapping[str, FlagValue] | None = None
    ) -> Option:
        """The answer that this derivation is."""
        shown = {**self.levers, **(flags or {})}
        if self.asked.context is not None:
            shown[self.names.context] = self.asked.context
        if cents is not None:
            shown[self.names.fraction] = cents / CENT
        return Option(shown, derived, self.verdict(derived), requests_served(derived, self),
                      frozenset(self.levers))  # fmt: skip

    def verdict(self, derived: Derived) -> Verdict:
        """fits: even at the unfavourable ends, with the cushion kept; tight: at the best values."""
        if not self.serves(derived, "value"):
            return "no"
        check = derived.amount("startup_check") or Amount.exact(1, "n")
        if not check.value:
            return "no"
        sure = self.serves(derived, "low") and check.low
        return "fits" if sure and self.keeps_cushion(derived) else "tight"

    def serves(self, derived: Derived, edge: str) -> bool:
        """True where the requests wanted fit by memory and by the engine's own limit.

        The limit too may depend on memory: a request of a recurrent model needs slots for states.
        """
        enough = seats(derived, self, edge) >= self.wanted
        return enough and serves(derived, self.wanted, edge)

    def keeps_cushion(self, derived: Derived) -> bool:
        """True where the margin surely holds what no profile measures."""
        margin = derived.amount("margin_memory")
        return margin is None or margin.low >= cushion(self)


def serves(derived: Derived, wanted: float, edge: str) -> bool:
    """True where `wanted` requests of the longest length fit at this end of every interval."""
    many, fits = derived.amount("max_concurrency"), derived.amount("fits")
    enough = many is not None and getattr(many, edge) >= wanted
    return enough and (derived.fits if fits is None else bool(getattr(fits, edge)))


def seats(derived: Derived, search: Search, edge: str = "value") -> float:
    """Requests the engine's own limit lets run at once, whatever the pool of tokens holds."""
    limit = derived.amount(search.names.requests)
    return float("inf") if limit is None else float(getattr(limit, edge))


def requests_served(derived: Derived, search: Search) -> int:
    """Requests of the longest length at once, by memory and by the engine's own limit."""
    many = derived.amount("max_concurrency")
    return 0 if many is None else int(min(many.value, seats(derived, search)))


def _with(request: Request, name: str, value: FlagValue) -> Request:
    return replace(request, flags={**request.flags, name: value})


def first_true(
    low: int, high: int, test: Callable[[int], bool], guess: int | None = None
) -> int | None:
    """The smallest whole number in [low, high] for which a monotone test holds, or None.

    A good guess saves most of the tests; a bad one costs two.
    """
    known = False
    if guess is not None and low <= guess <= high:
        if not test(guess):
            low = guess + 1
        elif guess == low or not test(guess - 1):
            return guess
        else:
            high, known = guess - 1, True
        if low > high:
            return None
    if not known and not test(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle + 1
    return low


def smallest_share(search: Search, edge: str) -> int | None:
    """The smallest utilisation in hundredths that serves the wanted requests, or None."""
    top, wanted = search.at(HIGHEST), search.wanted
    if not search.serves(top, edge):
        return None
    pool, many, total = (
        top.amount(name) for name in ("kv_cache_memory", "max_concurrency", "total_memory")
    )
    guess = None
    if pool is not None and many is not None and total is not None and many.value > 0:
        have, served = getattr(pool, edge), getattr(many, edge)
        guess = max(1, HIGHEST - int(have * (1 - wanted / served) / total.value * CENT))
    return first_true(1, HIGHEST, lambda c: search.serves(search.at(c), edge), guess)


def largest_safe(search: Search) -> int | None:
    """The largest utilisation in hundredths whose margin keeps the cushion, or None."""
    own = search.at(None)
    margin, total = own.amount("margin_memory"), own.amount("total_memory")
    share = own.amount(search.names.fraction)
    guess = None
    if margin is not None and total is not None and share is not None:
        spare = (margin.low - cushion(search)) / total.value
        guess = min(CENT, max(1, int((share.value + spare) * CENT) + 1))
    first = first_true(1, CENT, lambda c: not search.keeps_cushion(search.at(c)), guess)
    top = HIGHEST if first is None else first - 1
    return top if top >= 1 else None


def cushion(search: Search) -> float:
    """Bytes to keep outside the budget, by the engine's plan section."""
    names = search.names
    if names.cushion_default:
        flags = {k: v for k, v in search.request.flags.items() if k != names.fraction}
        plain = search if search.request.flags == flags else replace(
            search, request=replace(search.request, flags=flags), _seen={}
        )  # fmt: skip
        own = plain.at(None).amount("margin_memory")
        return 0.0 if own is None else float(own.low)
    derived = search.at(None)
    total = derived.amount("total_memory")
    need = max(float(names.cushion_bytes), names.cushion_share * (total.value if total else 0))
    for name in names.cushion_terms:
        amount = derived.amount(name)
        need += 0 if amount is None else max(0, amount.value)
    return need


def longest_context(search: Search, cents: int | None, edge: str) -> Option:
    """The longest context at which the wanted requests still fit at this utilisation."""
    base, wanted = search.request, search.wanted
    if cents is not None:
        base = _with(base, search.names.fraction, cents / CENT)
    own = search.at(cents)
    most = own.amount("model_max_len") or own.amount("max_model_len")
    if most is None:
        raise MissingFact("the model's longest context is not known", ("max_model_len",),
                          "give a MODEL, or --context")  # fmt: skip
    top = int(most.value)

    def too_long(length: int) -> bool:
        return not serves(derive(_with(base, search.names.context, length)), wanted, edge)

    tokens = own.amount("kv_cache_tokens")
    guess = None if tokens is None else int(getattr(tokens, edge) // wanted) + 1
    first = first_true(1, top, too_long, guess)
    length = top if first is None else max(1, first - 1)
    done = derive(_with(base, search.names.context, length))
    return search.option(done, cents, {search.names.context: length})
