"""What the policy's release takes for a step where the user states nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file
from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.budget import Amount
    from kvbudget.derive.catalogue import Gpu
    from kvbudget.model.config import Model
    from kvbudget.profile.policy import Policy


@dataclass(frozen=True)
class Defaults:
    """Tokens and requests of a step, the fraction, and on which card they are the engine's."""

    tokens: int
    requests: int
    fraction: float
    card: str


def engine_defaults(
    policy: Policy, model: Model, *, card: str | None, capacity: int | None, device: str,
    index: int, ranks: tuple[int, int],
) -> Defaults:  # fmt: skip
    """The release's own values for this model on this card, from the data `derive` reads.

    card: a name of the catalogue; capacity: bytes; on `cuda` the device itself. Without any the
    values are those the release takes where it cannot tell the card. ranks: tensor-parallel, stages.
    """
    from kvbudget.derive.assemble import settled
    from kvbudget.derive.catalogue import find_gpu
    from kvbudget.derive.request import Request
    from kvbudget.formula.registry import load_engine

    gpu: Gpu | None = find_gpu(card) if card else None
    memory, named = capacity, card
    if device == "cuda":
        gpu, memory, named = _present(index)
    roles = load_engine(policy.engine).raw["roles"]
    flags = {
        roles[name]: count
        for name, count in zip(
            ("tensor_parallel_size", "pipeline_parallel_size"), ranks, strict=True
        )
        if count > 1
    }
    found = settled(Request(policy.engine, policy.version, model, gpu, memory, flags=flags))
    tokens, requests = (_first(found, names) for names in (policy.tokens, policy.requests))
    fraction = found.get(policy.fraction)
    unknown = _unknown_card(policy)
    if fraction is None or tokens is None or (gpu is None and memory is None and unknown):
        return Defaults(int(unknown["tokens"]), int(unknown["requests"]),
                        float(unknown["fraction"]), "a card it does not know")  # fmt: skip
    known = f"a card of {format_size(memory)}" if memory else "a card it does not know"
    return Defaults(
        int(tokens), int(requests or unknown["requests"]), float(fraction.value), named or known
    )


def _first(found: Mapping[str, Amount], names: tuple[str, ...]) -> float | None:
    return next((found[name].value for name in names if name in found), None)


def _unknown_card(policy: Policy) -> dict[str, float]:
    data = load_shipped(knowledge_file("formulas", "profile_policies.yaml"))
    for row in data["defaults"][policy.engine].get("unknown_card") or ():
        if holds(policy.version, row["versions"]):
            return dict(row)
    return {}


def _present(index: int) -> tuple[Gpu | None, int | None, str | None]:
    """The device of this number: its catalogue entry, its bytes and its name, as far as known."""
    from kvbudget.derive.catalogue import find_gpu
    from kvbudget.gpu.nvml import open_nvml

    with suppress(InputError), open_nvml() as nvml:
        usable = nvml.visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if index < len(usable):
            card = nvml.snapshot(usable[index])
            gpu = None
            with suppress(InputError):
                gpu = find_gpu(card.name or "")
            return gpu, card.total, card.name
    return None, None, None
