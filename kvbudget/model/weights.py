"""Parameter counts and weight bytes: of the whole model and of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model.layers import stage_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.model.parts import Anatomy, Weight
    from kvbudget.model.quantisation import Quantisation


def all_weights(anatomy: Anatomy, *, mtp: bool = False) -> list[Weight]:
    """Every tensor once (a tied head is the embedding)."""
    found = [*anatomy.first, *anatomy.last, *anatomy.tower, *anatomy.projector]
    for layer in anatomy.layers:
        found += layer.weights
    return found + list(anatomy.mtp) if mtp else found


def count(weights: Iterable[Weight]) -> int:
    """Parameters, without buffers."""
    return sum(weight.numel for weight in weights if weight.counted)


def weight_bytes(weight: Weight, dtype_bytes: int, quantisation: Quantisation | None) -> int:
    """Bytes of one tensor (all its copies) in the checkpoint's form."""
    if quantisation is not None and quantisation.reaches(weight):
        return quantisation.bytes_of(weight)
    return weight.numel * (4 if weight.bits32 else dtype_bytes)


def rank_bytes(
    anatomy: Anatomy,
    *,
    tp: int,
    pp: int,
    stage: int,
    ep: int,
    dtype_bytes: int,
    quantisation: Quantisation | None,
    mtp: bool,
) -> int:
    """Bytes of the weights one rank of stage `stage` holds."""
    weights: list[Weight] = [
        weight
        for index in stage_ranges(len(anatomy.layers), pp)[stage]
        for weight in anatomy.layers[index].weights
    ]
    if stage == 0:
        weights += [*anatomy.first, *anatomy.tower, *anatomy.projector]
    if stage == pp - 1:
        weights += anatomy.last
        if anatomy.tied and pp > 1:
            weights += [w for w in anatomy.first if w.part == "embedding"]
        if mtp:
            weights += anatomy.mtp
    total = 0
    for weight in weights:
        whole = weight_bytes(weight, dtype_bytes, quantisation)
        share = weight.rank_numel(tp, ep)
        total += whole if share == weight.numel else -(-whole * share // weight.numel)
    return total
