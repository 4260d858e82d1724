"""KV layers of one rank: kinds, pages, bytes per token, state per request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.model.parts import Kind, Layer, Mixer

DTYPE_BYTES: dict[str, int] = {
    "float32": 4, "float": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "half": 2, "fp16": 2,
}  # fmt: skip

KV_BYTES: dict[str, int] = {
    **DTYPE_BYTES,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "mxfp8": 1,
}  # fmt: skip
"""Formats that are so many bytes per number, and nothing else (mxfp8 adds its scales)."""

_PACKED = {"nvfp4", "fp4_e2m1", "fp8_ds_mla", "nvfp4_ds_mla",
           "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"}  # fmt: skip

KV_FORMATS: tuple[str, ...] = ("auto", *KV_BYTES, *sorted(_PACKED))


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of one rank that cost the same. All byte figures are those of ONE layer.

    page_bytes: one block of `block_size` tokens (linear layers: the state of one request).
    bytes_per_token: 0 for linear layers, whose state_bytes count per request.
    num_kv_heads: KV heads on this rank (after replication). window: tokens kept, or None.
    """

    kind: Kind
    layers: int
    page_bytes: int
    bytes_per_token: int
    state_bytes: int
    window: int | None
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    block_size: int

    @property
    def grows(self) -> bool:
        """True when one more token of a request costs memory for ever (full and latent layers)."""
        return self.kind in ("full", "mla", "indexer")


def element_bytes(kv_dtype: str, model_dtype_bytes: int) -> int:
    """Bytes of one number of a plain format; `auto` follows the model. Raises InputError."""
    name = kv_dtype.removeprefix("torch.")
    if name == "auto":
        return model_dtype_bytes
    if name in KV_BYTES:
        return KV_BYTES[name]
    raise InputError(f"unknown KV cache dtype {kv_dtype!r}", f"one of: {', '.join(KV_FORMATS)}")


def _side(dim: int, heads: int, fmt: str, model_bytes: int) -> int:
    """Bytes per token of the keys (or the values) of one layer."""
    if fmt in ("nvfp4", "fp4_e2m1"):
        return heads * (dim // 2 + dim // 16)
    if fmt in ("int8_per_token_head", "fp8_per_token_head"):
        return heads * (dim + 4)
    if fmt == "int4_per_token_head":
        return heads * (dim // 2 + 4)
    scales = heads * dim // 32 if fmt == "mxfp8" else 0
    return heads * dim * element_bytes(fmt, model_bytes) + scales


def latent_bytes(mixer: Mixer, fmt: str, model_bytes: int) -> int:
    """Bytes per token of a latent layer: rank + rope numbers, or the packed sparse layouts.

    fp8_ds_mla: one byte per latent number, a float32 scale per 128 of them, the rotary part in
    two bytes (656 for 512 + 64). nvfp4_ds_mla: half a byte, a scale byte per 16, rope in one.
    """
    wide = mixer.latent + mixer.rope
    if fmt == "fp8_ds_mla":
        return mixer.latent + mixer.latent // 128 * 4 + 2 * mixer.rope
    if fmt == "nvfp4_ds_mla":
        return mixer.latent // 2 + mixer.latent // 16 + mixer.rope
    if fmt in ("nvfp4", "fp4_e2m1"):
        return wide // 2 + wide // 16
    return wide * element_bytes(fmt, model_bytes)


def index_bytes(mixer: Mixer) -> int:
    """Bytes per token of a sparse-attention indexer: one byte a number, a float32 per 128."""
    return mixer.index_dim + mixer.index_dim // 128 * 4


def group_layers(
    layers: Sequence[Layer],
    *,
    tp: int,
    kv_dtype: str,
    block_size: int,
    dtype_bytes: int,
    state_dtype_bytes: int,
    conv_dtype_bytes: int,
    dcp: int = 1,
    draft_tokens: int = 0,
) -> list[LayerGroup]:
    """Groups of equal layers in order of appearance; indexers form a group of their own.

    `dcp` (decode context parallelism) divides tensor parallelism for the count of KV heads.
    `draft_tokens`: tokens drafted per step, for whose sake some states are wider.
    """
    fmt = kv_dtype.removeprefix("torch.")
    counts: dict[tuple[object, ...], tuple[LayerGroup, int]] = {}
    ways = max(1, tp // dcp)

    def add(group: LayerGroup) -> None:
        key = (group.kind, group.page_bytes, group.window, group.num_kv_heads, group.head_dim)
        counts[key] = (group, counts.get(key, (group, 0))[1] + 1)

    for layer in layers:
        mixer = layer.mixer
        if mixer.kind == "none" or mixer.shares_kv:
            continue
        if mixer.kind == "linear":
            conv = mixer.conv + mixer.conv_per_draft * draft_tokens
            state = (conv * conv_dtype_bytes + mixer.ssm * state_dtype_bytes) // tp
            add(LayerGroup("linear", 1, state, 0, state, None, 0, mixer.head_dim,
                           mixer.v_head_dim, block_size))  # fmt: skip
            continue
        if mixer.kind == "mla":
            per_token = latent_bytes(mixer, fmt, dtype_bytes)
            heads = 1
        else:
            heads = max(1, mixer.kv_heads // ways)
            per_token = _side(mixer.head_dim, heads, fmt, dtype_bytes) + _side(
                mixer.v_head_dim, heads, fmt, dtype_bytes
            )
        add(LayerGroup(mixer.kind, 1, per_token * block_size, per_token, 0, mixer.window, heads,
                       mixer.head_dim, mixer.v_head_dim, block_size))  # fmt: skip
        if mixer.index_dim:
            index = index_bytes(mixer)
            add(LayerGroup("indexer", 1, index * block_size, index, 0, None, 1, mixer.index_dim,
                           0, block_size))  # fmt: skip
    return [
        LayerGroup(g.kind, n, g.page_bytes, g.bytes_per_token, g.state_bytes, g.window,
                   g.num_kv_heads, g.head_dim, g.v_head_dim, g.block_size)
        for g, n in counts.values()
    ]  # fmt: skip


def merge_groups(groups: Sequence[LayerGroup]) -> list[LayerGroup]:
    """The groups with like ones in one, in order of appearance."""
    counts: dict[LayerGroup, int] = {}
    for group in groups:
        like = replace(group, layers=1)
        counts[like] = counts.get(like, 0) + group.layers
    return [replace(like, layers=layers) for like, layers in counts.items()]


def stage_ranges(layers: int, pp: int) -> list[range]:
    """Layers of every pipeline stage: an even split, the remainder to the stages before the last.

    Raises InputError when there are more stages than layers.
    """
    if pp > layers:
        raise InputError(
            f"{pp} pipeline stages for {layers} layers", "lower --pipeline-parallel-size"
        )
    sizes = [layers // pp] * pp
    for i in range(2, layers % pp + 2):
        sizes[-i] += 1
    starts = [sum(sizes[:i]) for i in range(pp)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
