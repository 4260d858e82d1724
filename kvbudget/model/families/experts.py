"""Decoders with routed experts: Mixtral, Qwen, DeepSeek, gpt-oss, Llama 4, MiMo."""

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
)
from kvbudget.model.parts import Anatomy, Layer, Weight

if TYPE_CHECKING:
    from kvbudget.model.fields import Fields


def has_experts(c: Fields, index: int, first_dense: bool) -> bool:
    if index in (c.list("mlp_only_layers") or []):
        return False
    if first_dense:
        return index >= c.int("first_k_dense_replace", default=0)
    return (index + 1) % c.int("decoder_sparse_step", default=1) == 0


def expert_count(c: Fields) -> int:
    return c.int("num_experts", "n_routed_experts", "num_local_experts")


def expert_block(
    c: Fields, shared: str, shared_gate: bool, correction: str, *, bits32: bool = False
) -> list[Weight]:
    hidden, count = c.int("hidden_size"), expert_count(c)
    inner = c.int("moe_intermediate_size", "intermediate_size")
    weights = blocks.router(hidden, count, correction=correction, bits32=bits32)
    weights += blocks.experts(hidden, inner, count)
    wide = c.int(shared, default=0) if shared else 0
    wide = wide or inner * c.int("n_shared_experts", default=0)
    if wide:
        weights += blocks.mlp(hidden, wide, shard="shared")
    if wide and shared_gate:
        weights.append(Weight("router", 1, hidden, 1, "replicated"))
    return weights


def prediction_layer(c: Fields, layer: Layer, count: int) -> tuple[Weight, ...]:
    """Multi-token-prediction layers: a decoder layer, a 2h x h projection, four norms, own
    embedding and head (as checkpoints of the DeepSeek kind store them)."""
    if not count:
        return ()
    hidden, vocab = c.int("hidden_size"), c.int("vocab_size")
    once = [
        *layer.weights,
        Weight("mtp", hidden, 2 * hidden, 1, "replicated", quantised=False),
        blocks.vector("norm", 3 * hidden),
        Weight("embedding", vocab, hidden, 2),
    ]
    return tuple(once * count)


def mixture(
    *,
    qkv_bias: bool | None = False,
    qk_norm: bool | None = False,
    qk_norm_width: str = "head",
    shared: str = "",
    shared_gate: bool = False,
    first_dense: bool = False,
    correction: str = "none",
    router_bits32: bool = False,
) -> Builder:
    """Mixture-of-experts on grouped-query attention (Mixtral, Qwen-MoE, GLM-4.5).

    qk_norm_width full: query and key norms as wide as the projections.
    shared: name of the field with the shared expert's width; `n_shared_experts` counts copies of
    the routed width. first_dense: `first_k_dense_replace` leading layers are dense.
    """

    def build(c: Fields) -> Anatomy:
        hidden = c.int("hidden_size")
        heads, kv_heads, dim = attention_heads(c)
        count = c.int("num_hidden_layers")
        with_norm = c.flag("use_qk_norm") if qk_norm is None else qk_norm
        norm_size = 2 * dim if with_norm else 0
        if qk_norm_width == "full":
            norm_size = (heads + kv_heads) * dim
        mixer = blocks.grouped_query(
            hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim,
            qkv_bias=c.flag("attention_bias") if qkv_bias is None else qkv_bias,
            qk_norm=norm_size,
        )  # fmt: skip
        sparse = tuple(expert_block(c, shared, shared_gate, correction, bits32=router_bits32))
        norm = (blocks.vector("norm", 2 * hidden),)
        layers = []
        for i in range(count):
            moe = has_experts(c, i, first_dense)
            feed = sparse if moe else tuple(blocks.mlp(hidden, c.int("intermediate_size")))
            layers.append(Layer(mixer, feed, norm, moe))
        tied = c.flag("tie_word_embeddings")
        first, last = embeddings(c, tied=tied)
        mtp = prediction_layer(c, layers[-1], c.int("num_nextn_predict_layers", default=0))
        return Anatomy(tuple(layers), first, last, tied, mtp=mtp, rotary_dim=rotary(c, dim))

    return build


def deepseek(*, correction: str = "none", router_bits32: bool = False) -> Builder:
    """Latent attention with routed experts, with or without the sparse indexer."""

    def build(c: Fields) -> Anatomy:
        hidden = c.int("hidden_size")
        mixer = blocks.latent_attention(
            hidden=hidden, heads=c.int("num_attention_heads"),
            q_rank=c.int("q_lora_rank", default=0), kv_rank=c.int("kv_lora_rank"),
            nope=c.int("qk_nope_head_dim"), rope=c.int("qk_rope_head_dim"),
            v_dim=c.int("v_head_dim"), index_heads=c.int("index_n_heads", default=0),
            index_dim=c.int("index_head_dim", default=0),
        )  # fmt: skip
        sparse = tuple(expert_block(c, "", False, correction, bits32=router_bits32))
        norm = (blocks.vector("norm", 2 * hidden),)
        step = c.get("moe_layer_freq")
        every = step if isinstance(step, int) and step > 0 else 1
        first_dense = c.int("first_k_dense_replace", default=0)
        layers = [
            Layer(mixer, sparse, norm, True)
            if i >= first_dense and i % every == 0
            else Layer(mixer, tuple(blocks.mlp(hidden, c.int("intermediate_size"))), norm)
            for i in range(c.int("num_hidden_layers"))
        ]
        tied = c.flag("tie_word_embeddings")
        first, last = embeddings(c, tied=tied)
        mtp = prediction_layer(
            c, Layer(mixer, sparse, norm, True), c.int("num_nextn_predict_layers", default=0)
        )
        return Anatomy(
            tuple(layers), first, last, tied, mtp=mtp, rotary_dim=c.int("qk_rope_head_dim")
        )

    return build


def gpt_oss(c: Fields) -> Anatomy:
    """gpt-oss: sinks, biases everywhere, experts as wide as the model."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = attention_heads(c)
    count = c.int("num_hidden_layers")
    feed = (
        *blocks.router(hidden, expert_count(c), bias=True),
        *blocks.experts(hidden, c.int("intermediate_size"), expert_count(c), bias=True),
    )
    kinds = listed_kinds(c, count, "full_attention")
    if not c.list("layer_types"):
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]
    layers = [
        Layer(
            blocks.grouped_query(
                hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim,
                kind=window(c, kind),
                window=c.int("sliding_window") if kind == "sliding_attention" else None,
                qkv_bias=True, o_bias=True, sinks=True,
            ),
            feed, (blocks.vector("norm", 2 * hidden),), True,
        )
        for kind in kinds
    ]  # fmt: skip
    first, last = embeddings(c, tied=c.flag("tie_word_embeddings"))
    return Anatomy(tuple(layers), first, last, c.flag("tie_word_embeddings"), rotary_dim=dim)


def llama4(c: Fields) -> Anatomy:
    """Llama 4: three of four layers attend within a chunk, experts beside a shared one."""
    hidden, inner = c.int("hidden_size"), c.int("intermediate_size")
    heads, kv_heads, dim = attention_heads(c)
    count = c.int("num_hidden_layers")
    step = c.int("interleave_moe_layer_step", default=1)
    listed = c.list("no_rope_layers")
    roped = [bool(x) for x in listed] if listed else [(i + 1) % 4 != 0 for i in range(count)]
    moe_feed = (
        *blocks.router(hidden, expert_count(c)),
        *blocks.experts(hidden, inner, expert_count(c)),
        *blocks.mlp(hidden, inner, shard="shared"),
    )
    layers = []
    for i in range(count):
        local = roped[i] and c.get("attention_chunk_size") is not None
        mixer = blocks.grouped_query(
            hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim,
            kind="chunked" if local else "full",
            window=c.int("attention_chunk_size") if local else None,
        )  # fmt: skip
        moe = (i + 1) % step == 0
        feed = moe_feed if moe else tuple(blocks.mlp(hidden, c.int("intermediate_size_mlp")))
        layers.append(Layer(mixer, feed, (blocks.vector("norm", 2 * hidden),), moe))
    tied = c.flag("tie_word_embeddings")
    first, last = embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=dim)


def mimo_v2(c: Fields) -> Anatomy:
    """MiMo-V2: sliding layers with more KV heads and sinks, keys wider than values."""
    hidden = c.int("hidden_size")
    pattern = c.list("hybrid_layer_pattern")
    if pattern is None:
        c.int("hybrid_layer_pattern")
        pattern = []
    moe_layers = c.list("moe_layer_freq") or [1] * len(pattern)
    if len(moe_layers) != len(pattern):
        raise c.wrong("moe_layer_freq", moe_layers, "as long as hybrid_layer_pattern")
    sparse = tuple(expert_block(c, "", False, "buffer"))
    full = blocks.grouped_query(
        hidden=hidden, heads=c.int("num_attention_heads"),
        kv_heads=c.int("num_key_value_heads"), head_dim=c.int("head_dim"),
        v_head_dim=c.int("v_head_dim"), qkv_bias=c.flag("attention_bias"),
        sinks=c.flag("add_full_attention_sink_bias"),
    )  # fmt: skip
    local = blocks.grouped_query(
        hidden=hidden, heads=c.int("swa_num_attention_heads"),
        kv_heads=c.int("swa_num_key_value_heads"), head_dim=c.int("swa_head_dim"),
        v_head_dim=c.int("swa_v_head_dim"), kind="sliding",
        window=c.int("sliding_window_size", "sliding_window"),
        qkv_bias=c.flag("attention_bias"), sinks=c.flag("add_swa_attention_sink_bias"),
    )  # fmt: skip
    layers = [
        Layer(
            local if is_local else full,
            sparse if moe else tuple(blocks.mlp(hidden, c.int("intermediate_size"))),
            (blocks.vector("norm", 2 * hidden),),
            bool(moe),
        )
        for is_local, moe in zip(pattern, moe_layers, strict=True)
    ]
    tied = c.flag("tie_word_embeddings")
    first, last = embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=rotary(c, c.int("head_dim")))
