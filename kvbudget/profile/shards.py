"""Which part of which checkpoint tensor one rank holds, and what an engine keeps together."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.model.layers import stage_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.model.checkpoint import Tensor
    from kvbudget.model.config import Model

LAYER = re.compile(
    r"^(?:(?:model|language_model|transformer|backbone|decoder)\.)*(?:layers|h)\.(\d+)\."
)
EXPERT = re.compile(r"\bexperts\.(\d+)\.")
TOWER = re.compile(r"vision|visual|audio|multi_modal|image|projector|\bmerger\b")
WHOLE = re.compile(
    r"norm|router|\.gate\.|shared_expert_gate|q_a_proj|kv_a_proj|indexer|correction_bias|embed_pos"
)
"""Tensors that every rank holds whole."""
INWARD = re.compile(r"\b(?:o_proj|out_proj|down_proj|w2|fc2|c_proj|dense_4h_to_h|wo)\b")
"""Matrices divided by their inputs; their bias is whole."""
VOCABULARY = re.compile(r"embed_tokens|lm_head|\bwte\b|word_embeddings|\boutput\.weight")
KEYS = re.compile(r"\b[kv]_proj\b")
SKIPPED = re.compile(r"rotary_emb\.|^mtp\.")
TYPED = frozenset({"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "F8_E4M3", "F8_E5M2"})
"""Formats whose elements are kept as such; any other is held as bytes."""
FUSED = (
    (re.compile(r"\b[qkv]_proj\b"), "qkv_proj"),
    (re.compile(r"\b(?:gate|up)_proj\b"), "gate_up_proj"),
    (re.compile(r"\bw[13]\b"), "w13"),
    (EXPERT, "experts."),
)
"""Names of tensors that engines put into one allocation."""


@dataclass(frozen=True, slots=True)
class Place:
    """One rank: `rank` of `tp`, `stage` of `pp`, experts spread whole over `ep` ranks."""

    rank: int = 0
    tp: int = 1
    stage: int = 0
    pp: int = 1
    ep: int = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Indices start .. stop of dimension `dim` of a checkpoint tensor."""

    tensor: Tensor
    dim: int
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        size = self.tensor.shape
        return (*size[: self.dim], self.stop - self.start, *size[self.dim + 1 :])

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Shard:
    """Allocations of one rank by (name, dtype as in the file), and how many tensors it skips."""

    buffers: dict[tuple[str, str], list[Piece]]
    skipped: int


def stored(model: Model) -> tuple[Tensor, ...]:
    """The tensors of the model's own files. Raises InputError where there are none to read."""
    if model.checkpoint is None or not model.checkpoint.tensors:
        raise InputError(
            "no safetensors files beside config.json", "--load-format dummy fills in random weights"
        )
    return model.checkpoint.tensors


def shard(tensors: Iterable[Tensor], model: Model, place: Place) -> Shard:
    """The pieces of `tensors` that the rank at `place` holds, grouped as an engine allocates."""
    buffers: dict[tuple[str, str], list[Piece]] = {}
    skipped = 0
    for tensor in tensors:
        if _unused(tensor.name, model):
            skipped += 1
            continue
        here = _here(tensor.name, model, place)
        piece = _piece(_plain(tensor), model, place) if here else None
        if piece is not None and piece.numel:
            name = tensor.name
            for pattern, together in FUSED:
                name = pattern.sub(together, name)
            buffers.setdefault((name, piece.tensor.dtype), []).append(piece)
    return Shard(buffers, skipped)


def _plain(tensor: Tensor) -> Tensor:
    """At least one dimension; formats without elements of their own as U8."""
    shape = tensor.shape or (1,)
    if tensor.dtype not in TYPED:
        shape = (*shape[:-1], tensor.bytes // max(1, prod(shape[:-1])))
        return replace(tensor, dtype="U8", shape=shape)
    return replace(tensor, shape=shape)


def _unused(name: str, model: Model) -> bool:
    """Prediction layers, tables that are computed, and the copy of a tied head."""
    layer = LAYER.match(name)
    beyond = layer is not None and int(layer.group(1)) >= len(model.anatomy.layers)
    tied = model.anatomy.tied and re.search(r"\blm_head\b", name) is not None
    return beyond or tied or SKIPPED.search(name) is not None


def _here(name: str, model: Model, place: Place) -> bool:
    """True where the tensor belongs to this pipeline stage."""
    if place.pp == 1:
        return True
    layer = LAYER.match(name)
    if layer is not None and not TOWER.search(name):
        return int(layer.group(1)) in stage_ranges(len(model.anatomy.layers), place.pp)[place.stage]
    first, last = place.stage == 0, place.stage == place.pp - 1
    if TOWER.search(name):
        return first
    if VOCABULARY.search(name) and "head" not in name and not name.endswith("output.weight"):
        return first or (last and model.anatomy.tied)
    return last if re.search(r"head|norm|output", name) else first


def _piece(tensor: Tensor, model: Model, place: Place) -> Piece | None:
    """None where another rank holds the tensor."""
    name, shape = tensor.name, tensor.shape
    whole = Piece(tensor, 0, 0, shape[0])
    expert = EXPERT.search(name)
    stacked = "experts." in name and expert is None and len(shape) > 1
    if place.ep > 1 and (stacked or expert is not None):
        mine = _experts_of(shape[0] if expert is None else model.num_experts, place)
        if expert is None:
            return Piece(tensor, 0, mine.start, mine.stop)
        return whole if int(expert.group(1)) in mine else None
    inward = INWARD.search(name) is not None
    tower = TOWER.search(name) and all(w.shard == "replicated" for w in model.anatomy.tower)
    bias = len(shape) == 1 and inward
    if place.tp == 1 or WHOLE.search(name) or tower or bias:
        return whole
    if KEYS.search(name) and model.num_key_value_heads < place.tp:
        heads = model.num_key_value_heads
        return _part(tensor, 0, place.rank * heads // place.tp, heads)
    first = 1 if stacked and len(shape) > 2 else 0
    order = list(range(first, len(shape)))
    for dim in reversed(order) if inward else order:
        if shape[dim] % place.tp == 0:
            return _part(tensor, dim, place.rank, place.tp)
    return _part(tensor, 0, place.rank, place.tp) if VOCABULARY.search(name) else whole


def _experts_of(count: int, place: Place) -> range:
    """Whole experts of a rank: as even as they go, one more on the first ranks."""
    each, more = divmod(count, place.ep)
    start = place.rank * each + min(place.rank, more)
    return range(start, start + each + (place.rank < more))


def _part(tensor: Tensor, dim: int, index: int, ways: int) -> Piece:
    size = tensor.shape[dim]
    each = -(-size // ways)
    return Piece(tensor, dim, min(size, index * each), min(size, (index + 1) * each))
