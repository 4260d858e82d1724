"""Decoders with plain feed-forward layers: Llama and its relatives, OPT, Phi-2, Gemma 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model import blocks
from kvbudget.model.families.common import (
    Builder,
    attention_heads,
    embeddings,
    listed_kinds,
    rotary,
    window,
    window_kinds,
)
from kvbudget.model.parts import Anatomy, Layer, Weight

if TYPE_CHECKING:
    from kvbudget.model.fields import Fields


def dense(
    *,
    qkv_bias: bool | None = False,
    o_bias: bool | None = False,
    qk_norm: str = "",
    norms: int = 2,
    tied: bool = False,
    gated_mlp: bool = True,
    mlp_bias: bool | None = None,
    norm_width: int = 1,
    windows: str = "",
    head_bias: bool = False,
) -> Builder:
    """Llama and its many relatives.

    qkv_bias/o_bias None: as `attention_bias` says. qk_norm: head (one vector of head_dim each)
    or full (as wide as the projections). norms: RMS norms per layer. windows: alternate (Gemma-2)
    or pattern (Gemma-3) when `layer_types` is absent. norm_width 2: LayerNorms with a bias.
    """

    def build(c: Fields) -> Anatomy:
        hidden, inner = c.int("hidden_size"), c.int("intermediate_size", "ffn_dim")
        heads, kv_heads, dim = attention_heads(c)
        count = c.int("num_hidden_layers")
        config_bias = c.flag("attention_bias") or c.flag("use_bias")
        norm = {"": 0, "head": 2 * dim, "full": (heads + kv_heads) * dim}[qk_norm]
        is_tied = c.flag("tie_word_embeddings", tied)
        bias = c.flag("mlp_bias") or c.flag("use_bias") if mlp_bias is None else mlp_bias
        layers = []
        for kind in window_kinds(c, count, windows):
            mixer = blocks.grouped_query(
                hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim, kind=kind,
                window=c.int("sliding_window") if kind == "sliding" else None,
                qkv_bias=config_bias if qkv_bias is None else qkv_bias,
                o_bias=config_bias if o_bias is None else o_bias, qk_norm=norm,
            )  # fmt: skip
            feed = tuple(blocks.mlp(hidden, inner, gated=gated_mlp, bias=bias))
            layers.append(Layer(mixer, feed, (blocks.vector("norm", norms * norm_width * hidden),)))
        first, last = embeddings(c, tied=is_tied, norm=norm_width, head_bias=head_bias)
        return Anatomy(tuple(layers), first, last, is_tied, rotary_dim=rotary(c, dim))

    return build


def opt(c: Fields) -> Anatomy:
    """OPT: learned positions (two more than stated), biases everywhere, LayerNorms."""
    hidden = c.int("hidden_size")
    body = dense(
        qkv_bias=True, o_bias=True, tied=True, gated_mlp=False, mlp_bias=True, norm_width=2
    )(c)
    positions = Weight("embedding", c.int("max_position_embeddings") + 2, hidden, 1, "replicated")
    return Anatomy(body.layers, (*body.first, positions), body.last, body.tied)


def phi2(c: Fields) -> Anatomy:
    """Phi-1.5/2: one LayerNorm a layer (attention and MLP in parallel), biases everywhere."""
    body = dense(
        qkv_bias=True, o_bias=True, gated_mlp=False, mlp_bias=True, norms=1, norm_width=2,
        head_bias=True,
    )(c)  # fmt: skip
    dim = attention_heads(c)[2]
    return Anatomy(
        body.layers, body.first, body.last, body.tied,
        rotary_dim=int(dim * c.float("partial_rotary_factor", 0.5)),
    )  # fmt: skip


def gemma4(c: Fields) -> Anatomy:
    """Gemma 4: wider global heads whose values are the keys, experts beside a dense MLP."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = attention_heads(c)
    count = c.int("num_hidden_layers")
    wide = c.int("global_head_dim", default=dim)
    wide_kv = c.int("num_global_key_value_heads", default=kv_heads)
    same = c.flag("attention_k_eq_v")
    experts = c.int("num_experts", default=0) if c.flag("enable_moe_block") else 0
    shared_from = count - c.int("num_kv_shared_layers", default=0)
    per_layer = c.int("hidden_size_per_layer_input", default=0)
    layers = []
    for i, kind in enumerate(listed_kinds(c, count, "full_attention")):
        is_full = kind == "full_attention"
        mixer = blocks.grouped_query(
            hidden=hidden, heads=heads, kv_heads=wide_kv if is_full and same else kv_heads,
            head_dim=wide if is_full else dim, kind=window(c, kind),
            window=None if is_full else c.int("sliding_window"),
            qk_norm=2 * (wide if is_full else dim), values_are_keys=is_full and same,
            shares_kv=i >= shared_from,
        )  # fmt: skip
        feed = blocks.mlp(hidden, c.int("intermediate_size"))
        norms = [blocks.vector("norm", 4 * hidden)]
        if experts:
            feed += blocks.router(hidden, experts)
            feed += [blocks.vector("router", hidden + experts)]
            feed += blocks.experts(hidden, c.int("moe_intermediate_size"), experts)
            norms.append(blocks.vector("norm", 3 * hidden))
        if per_layer:
            feed += [Weight("mlp", per_layer, hidden, 2), blocks.vector("norm", hidden)]
        layers.append(Layer(mixer, tuple(feed), tuple(norms), bool(experts)))
    tied = c.flag("tie_word_embeddings", True)
    first, last = embeddings(c, tied=tied)
    if per_layer:
        rows = c.int("vocab_size_per_layer_input")
        first = (
            *first,
            Weight("embedding", rows, count * per_layer),
            Weight("mlp", count * per_layer, hidden),
            blocks.vector("norm", per_layer),
        )
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=wide + dim)
