"""Algorithms that no expression can say: grouping layers into pages, searching a length.

Each takes named arguments (fact names of the file that calls it, or literals) and returns a number
or the rows of a table. Names are looked up in PRIMITIVES.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.formula.interval import FormulaError, Interval, ceil_div

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = dict[str, "Interval | str"]
Outcome = Interval | list[Row]


@dataclass(frozen=True)
class Call:
    """What a primitive may look at. `again(name, value, goal)` re-evaluates the steps before it."""

    args: Mapping[str, str | int | float]
    numbers: Mapping[str, Interval]
    texts: Mapping[str, str]
    tables: Mapping[str, list[Row]]
    again: Callable[[str, int, str], Interval | None]

    def number(self, arg: str) -> Interval:
        """The number an argument names, or the literal it is."""
        value = self.args[arg]
        return self.numbers[value] if isinstance(value, str) else Interval.exact(value)

    def name(self, arg: str) -> str:
        """The text of an argument (a leading `=` marks a name that need not be known yet)."""
        return str(self.args[arg]).removeprefix("=")


class Unavailable(FormulaError):
    """A search needs a step whose facts are not known: the searching step stays untaken."""


PRIMITIVES: dict[str, Callable[[Call], Outcome]] = {}


def primitive(name: str) -> Callable[[Callable[[Call], Outcome]], Callable[[Call], Outcome]]:
    """Registers a primitive under the name formula files call it by."""

    def register(function: Callable[[Call], Outcome]) -> Callable[[Call], Outcome]:
        PRIMITIVES[name] = function
        return function

    return register


FULL_LENGTH = ("full", "mla", "indexer", "cross")
"""Kinds that keep every token: they may share one group whatever their page sizes."""


def _int(row: Row, key: str) -> int:
    value = row.get(key)
    if not isinstance(value, Interval) or not isinstance(value.best, int) or not value.is_exact:
        raise FormulaError(f"{key} of a layer must be an exact whole number")
    return value.best


@primitive("group_layers")
def group_layers(call: Call) -> list[Row]:
    """Layers with one block table each, as vLLM's hybrid manager cuts them.

    layers: rows with kind, layers, layer_page, layer_window; block: tokens of a block; factor: the
    largest bucket sets the group size when it is smaller than factor x the smallest. Rows out:
    group_kind, copies (groups of that kind), group_size (page columns of the shared pool),
    group_layers, group_page, group_bytes (one block of the group), group_block, group_window,
    padding_layers. One kind only, or `hybrid` off: one group, whatever its pages.
    """
    rows = call.tables[call.name("layers")]
    block = call.number("block").best
    factor = call.number("factor").best
    if not rows:
        raise FormulaError("the model has no layers with a cache")
    kinds = {_family(row) for row in rows}
    if len(kinds) == 1 or call.texts.get(call.name("hybrid")) == "off":
        return [_one_group(rows, int(block))]
    widest = max(_int(row, "layer_page") for row in rows)
    buckets: dict[tuple[str, int, int], int] = {}
    for row in rows:
        page, kind = _int(row, "layer_page"), str(row["kind"])
        times = widest // page if widest % page == 0 else 1
        key = (kind, _family(row)[1], times)
        buckets[key] = buckets.get(key, 0) + _int(row, "layers")
    smallest, largest = min(buckets.values()), max(buckets.values())
    size = largest if largest < factor * smallest else smallest
    out: list[Row] = []
    for (bucket, window, times), layers in buckets.items():
        copies = int(ceil_div(layers, size))
        out.append(
            _group(bucket, copies, size, layers, widest, size * widest, int(block) * times, window)
        )
    return out


def _family(row: Row) -> tuple[str, int]:
    window = row.get("layer_window")
    kind = "full" if row["kind"] in FULL_LENGTH else str(row["kind"])
    return kind, int(window.best) if isinstance(window, Interval) else 0


def _one_group(rows: list[Row], block: int) -> Row:
    layers = sum(_int(row, "layers") for row in rows)
    total = sum(_int(row, "layers") * _int(row, "layer_page") for row in rows)
    widest = max(_int(row, "layer_page") for row in rows)
    kind, window = _family(rows[0]) if len({_family(row) for row in rows}) == 1 else ("full", 0)
    return _group(kind, 1, layers, layers, widest, total, block, window)


def _group(
    kind: str, copies: int, size: int, layers: int, page: int, total: int, block: int, window: int
) -> Row:
    numbers = {
        "copies": copies, "group_size": size, "group_layers": layers, "group_page": page,
        "group_bytes": total, "group_block": block, "group_window": window,
        "padding_layers": copies * size - layers,
    }  # fmt: skip
    return {"group_kind": kind, **{k: Interval.exact(v) for k, v in numbers.items()}}


@primitive("largest_that_fits")
def largest_that_fits(call: Call) -> Interval:
    """The largest whole `variable` in [1, most] whose step `need` stays within `limit`; else 0.

    The need must not fall as the variable grows (binary search, as the engine does).
    """
    limit, most = call.number("limit"), call.number("most")
    variable, goal = call.name("variable"), call.name("need")

    def stays(value: int, bound: float, pick: str) -> bool:
        need = call.again(variable, value, goal)
        if need is None:
            raise Unavailable(f"{goal} cannot be computed for {variable}={value}")
        return bool(getattr(need, pick) <= bound)

    def search(bound: float, pick: str) -> int:
        low, high = 0, int(most.best)
        if high > 0 and stays(high, bound, pick):
            return high
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if stays(middle, bound, pick) else (low, middle)
        return low

    best = search(limit.best, "best")
    if limit.is_exact:
        return Interval.exact(best)
    return Interval(search(limit.low, "high"), best, search(limit.high, "low"))
