"""What the user asked a derivation of, and the facts other sources contribute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance
from kvbudget.errors import InputError
from kvbudget.facts import FACTS
from kvbudget.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.derive.catalogue import Gpu
    from kvbudget.derive.flags import FlagValue
    from kvbudget.model.config import Model


@dataclass(frozen=True)
class Evidence:
    """A fact from outside the model: a number with its provenance, or a text."""

    value: Amount | str
    provenance: Provenance


@dataclass(frozen=True)
class Request:
    """One derivation. `flags` are those the user set, by the engine's names."""

    engine: str
    version: str | None = None
    model: Model | None = None
    gpu: Gpu | None = None
    gpu_memory: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    stated: Mapping[str, Evidence] = field(default_factory=dict)
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    notes: Sequence[str] = ()


TEXT_FACTS = frozenset({"sampler", "state_layers", "attention", "page_layout", "hybrid_manager"})


def parse_stated(items: Sequence[str]) -> dict[str, Evidence]:
    """`--set FACT=VALUE` -> facts. Sizes take units; a printed `54.4GiB` is taken as exact.

    Raises InputError for a missing `=` or a value that is not a number of a numeric fact.
    """
    out: dict[str, Evidence] = {}
    for item in items:
        name, sep, text = item.partition("=")
        name = name.strip()
        if not sep or not name or not text.strip():
            raise InputError(
                f"--set takes FACT=VALUE, not {item!r}", "--set kv_cache_memory=54.4GiB"
            )
        out[name] = Evidence(_stated_value(name, text.strip()), Provenance("flag", f"--set {item}"))
    return out


def _stated_value(name: str, text: str) -> Amount | str:
    spec = FACTS.get(name)
    if name in TEXT_FACTS or (spec is not None and spec.unit is None):
        return text
    unit = spec.unit if spec is not None and spec.unit is not None else None
    if unit is None:
        unit = "B" if name.endswith(("_memory", "_bytes")) else "n"
    if unit == "B":
        return Amount.exact(parse_size(text), "B")
    bare = text.replace(",", "").replace("_", "")
    bare = bare.removesuffix(unit) if unit not in ("n", "ratio") else bare
    try:
        return Amount.exact(int(bare), unit)
    except ValueError:
        pass
    try:
        return Amount.exact(float(bare), unit)
    except ValueError:
        if spec is None:
            return text
        raise InputError(f"{name} takes a number of {unit}, not {text!r}", spec.doc) from None
