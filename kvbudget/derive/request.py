"""What the user asked a derivation of, and the facts other sources contribute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance
from kvbudget.errors import InputError, near
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


SIGNED = frozenset({"kv_cache_memory", "margin_memory", "non_torch_memory"})
"""Sizes that may be negative: what is left, and what a release measures as a difference."""


def parse_stated(items: Sequence[str], units: Mapping[str, str | None]) -> dict[str, Evidence]:
    """`--set FACT=VALUE` -> facts. Sizes take units; a printed `54.4GiB` is taken as exact.

    units: every fact that can be stated, None for a text. Raises InputError for a missing `=`, a
    fact nobody asks for, or a value that is not a number of a numeric fact.
    """
    out: dict[str, Evidence] = {}
    for item in items:
        name, sep, text = item.partition("=")
        name = name.strip()
        if not sep or not name or not text.strip():
            raise InputError(
                f"--set takes FACT=VALUE, not {item!r}", "--set kv_cache_memory=54.4GiB"
            )
        if name not in units:
            raise InputError(
                f"--set: no arithmetic asks for {name!r}",
                near(name, units, "docs/words.md lists the facts"),
            )
        value = _stated_value(name, text.strip(), units[name])
        out[name] = Evidence(value, Provenance("flag", f"--set {item}"))
    return out


def _stated_value(name: str, text: str, unit: str | None) -> Amount | str:
    if unit is None:
        return text
    if unit.partition("/")[0] == "B":
        size = parse_size(text, f"--set {name}")
        if size < 0 and name not in SIGNED:
            raise InputError(f"{name} cannot be negative: {text!r}", f"--set {name}=SIZE")
        return Amount.exact(size, unit)
    bare = text.replace(",", "").replace("_", "")
    if unit not in ("n", "ratio"):
        bare = bare.removesuffix(unit).removesuffix(unit.partition("/")[0])
    try:
        return Amount.exact(int(bare), unit)
    except ValueError:
        pass
    try:
        return Amount.exact(float(bare), unit)
    except ValueError:
        raise InputError(
            f"{name} takes a number of {unit}, not {text!r}", f"--set {name}=NUMBER"
        ) from None
