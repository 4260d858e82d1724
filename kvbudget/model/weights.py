"""Parameter counts and weight bytes: of the whole model and of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model.layers import stage_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.model.parts import Anatomy, Ranks, Weight
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


def stage_weights(
    anatomy: Anatomy, *, pp: int, stage: int, mtp: bool = False
) -> list[list[Weight]]:
    """Weights of one pipeline stage: one list per layer, then one of everything else."""
    rest: list[Weight] = []
    if stage == 0:
        rest += [*anatomy.first, *anatomy.tower, *anatomy.projector]
    if stage == pp - 1:
        rest += anatomy.last
        if anatomy.tied and pp > 1:
            rest += [w for w in anatomy.first if w.part == "embedding"]
        if mtp:
            rest += anatomy.mtp
    layers = [
        list(anatomy.layers[index].weights)
        for index in stage_ranges(len(anatomy.layers), pp)[stage]
    ]
    return [*layers, rest]


def rank_bytes(
    anatomy: Anatomy,
    ranks: Ranks,
    *,
    pp: int,
    stage: int,
    dtype_bytes: int,
    quantisation: Quantisation | None,
    mtp: bool,
) -> int:
    """Bytes of the weights one rank of stage `stage` holds."""
    groups = stage_weights(anatomy, pp=pp, stage=stage, mtp=mtp)
    return sum(share_bytes(w, ranks, dtype_bytes, quantisation) for group in groups for w in group)


def share_bytes(
    weight: Weight, ranks: Ranks, dtype_bytes: int, quantisation: Quantisation | None
) -> int:
    """Bytes of one tensor on the rank that holds most of it."""
    whole = weight_bytes(weight, dtype_bytes, quantisation)
    share = weight.rank_numel(ranks)
    return whole if share == weight.numel else -(-whole * share // weight.numel)


def draft_bytes(
    anatomy: Anatomy, ranks: Ranks, *, dtype_bytes: int, quantisation: Quantisation | None
) -> int:
    """Bytes of the prediction layers on one rank: embedding and head are the main model's."""
    return sum(
        share_bytes(w, ranks, dtype_bytes, quantisation)
        for w in anatomy.mtp
        if w.part != "embedding"
    )


MIB = 2**20
LARGE_ALLOCATION, LARGE_GRAIN, KEPT_REMAINDER = 10 * MIB, 2 * MIB, MIB
"""torch's caching allocator: from 10 MiB up a tensor gets a segment of its own, rounded up to
2 MiB, and a remainder of at most 1 MiB is not split off: it counts as allocated
(c10/cuda/CUDACachingAllocator: kMinLargeAlloc, kRoundLarge, kSmallSize)."""


def allocator_slack(
    anatomy: Anatomy, ranks: Ranks, *, pp: int, stage: int, dtype_bytes: int, mtp: bool = False
) -> int:
    """Bytes an unquantised rank holds beyond its tensors, because large blocks are rounded up.

    Tensors an engine fuses (query, key and value; gate and up; all experts of a layer) are one
    allocation each.
    """
    slack = 0
    for group in stage_weights(anatomy, pp=pp, stage=stage, mtp=mtp):
        sizes: dict[str, int] = {}
        for number, weight in enumerate(group):
            name = weight.fuse or str(number)
            sizes[name] = sizes.get(name, 0) + share_bytes(weight, ranks, dtype_bytes, None)
        for size in sizes.values():
            spare = -size % LARGE_GRAIN
            if size >= LARGE_ALLOCATION and spare <= KEPT_REMAINDER:
                slack += spare
    return slack
