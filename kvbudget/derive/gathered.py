"""The facts of one derivation as they come together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.formula.evaluate import Facts
from kvbudget.formula.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.budget import Amount, Provenance
    from kvbudget.formula.registry import Engine
    from kvbudget.model.config import Model
    from kvbudget.model.layers import LayerGroup


@dataclass(frozen=True)
class Draft:
    """What drafts. own_layers: prediction layers of the checkpoint itself, 0 where another does.

    model: the draft's model where its folder is at hand. layers: layers of the draft with a
    cache, None where nothing at hand says.
    """

    own_layers: int = 0
    model: Model | None = None
    layers: int | None = None


@dataclass
class Gathered:
    """Facts by name with their provenance; the first one put in wins."""

    numbers: dict[str, Amount] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Provenance] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    groups: list[LayerGroup] = field(default_factory=list)
    draft: Draft | None = None
    notes: list[str] = field(default_factory=list)

    def number(self, name: str, amount: Amount, source: Provenance) -> None:
        if name not in self.provenance:
            self.numbers[name], self.provenance[name] = amount, source

    def text(self, name: str, value: str, source: Provenance) -> None:
        if name not in self.provenance:
            self.texts[name], self.provenance[name] = value, source

    def value(self, name: str) -> int | None:
        found = self.numbers.get(name)
        return None if found is None else int(found.value)

    def facts(self) -> Facts:
        intervals = {k: Interval(a.low, a.value, a.high) for k, a in self.numbers.items()}
        return Facts(intervals, self.texts, self.tables)


def role(facts: Gathered, engine: Engine, role: str, fallback: int) -> int:
    name = engine.raw["roles"].get(role)
    value = facts.value(name) if name else None
    return fallback if value is None else value


def product(facts: Gathered, names: Iterable[str]) -> int:
    """The ranks these flags ask for together; an unset one counts one."""
    return math.prod(facts.value(name) or 1 for name in names)


def attention_ranks(facts: Gathered, engine: Engine) -> int | None:
    """Ranks of one attention replica where attention is data-parallel, else None."""
    rule = engine.raw.get("attention_replicas")
    if rule is None or any(facts.texts.get(k) != v for k, v in rule["when"].items()):
        return None
    tp = role(facts, engine, "tensor_parallel_size", 1)
    return max(1, tp // product(facts, [rule["of"]]))
