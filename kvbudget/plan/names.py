"""How an engine spells the knobs of a plan (index.yaml: plan)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.formula.versions import holds
from kvbudget.units import MIB


@dataclass(frozen=True)
class Names:
    """Flags by what they do. batch_floor: tokens below which a plan does not cut a step.

    cushion: what stays outside the budget: terms the engine leaves outside, bytes, a share of the
    card; or (cushion_default) the reserve that the engine's own default share keeps.
    """

    fraction: str
    context: str
    requests: str
    batch: str
    batch_floor: int
    kv_dtype: str
    kv_dtype_value: str | None
    tensor: str
    cushion_terms: tuple[str, ...]
    cushion_bytes: int
    cushion_share: float
    cushion_default: bool


def names_of(engine: str, version: str | None = None) -> Names:
    """The knobs of `engine` in a release. Raises InputError for an engine without a plan section."""
    index = load_engine(engine)
    raw: dict[str, Any] | None = index.raw.get("plan")
    if raw is None:
        raise InputError(f"plan does not know the knobs of {engine}")
    roles, release = index.raw["roles"], version or index.latest
    formats = (row["value"] for row in raw["kv_dtype"] if holds(release, row["versions"]))
    return Names(
        raw["fraction"], raw["context"], raw["requests"], raw["batch"], int(raw["batch_floor"]),
        roles["kv_cache_dtype"], next(formats, None), roles["tensor_parallel_size"],
        tuple(raw.get("cushion_terms") or ()), int(raw.get("cushion_mib", 0)) * MIB,
        float(raw.get("cushion_share", 0.0)), bool(raw.get("cushion_default")),
    )  # fmt: skip
