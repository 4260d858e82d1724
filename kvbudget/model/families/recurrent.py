"""Decoders in which most layers keep a state instead of every token: Qwen3-Next, Nemotron-H, Jamba."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model import blocks
from kvbudget.model.families.common import attention_heads, embeddings, listed_kinds
from kvbudget.model.families.experts import expert_block, has_experts
from kvbudget.model.parts import Anatomy, Layer, Mixer, Weight

if TYPE_CHECKING:
    from kvbudget.model.fields import Fields


def qwen_hybrid(c: Fields) -> Anatomy:
    """Qwen3-Next and Qwen3.5: gated DeltaNet with gated full attention every fourth layer."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = attention_heads(c)
    count = c.int("num_hidden_layers")
    step = c.int("full_attention_interval", default=4)
    kinds = listed_kinds(c, count, "")
    if not c.list("layer_types"):
        kinds = ["linear_attention" if (i + 1) % step else "full_attention" for i in range(count)]
    full = blocks.grouped_query(
        hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim, qk_norm=2 * dim,
        gated=c.flag("attn_output_gate", True), qkv_bias=c.flag("attention_bias"),
        o_bias=c.flag("attention_bias"),
    )  # fmt: skip
    delta = blocks.gated_delta(
        hidden=hidden, k_heads=c.int("linear_num_key_heads"),
        v_heads=c.int("linear_num_value_heads"), k_dim=c.int("linear_key_head_dim"),
        v_dim=c.int("linear_value_head_dim"), kernel=c.int("linear_conv_kernel_dim"),
    )  # fmt: skip
    is_moe = c.get("num_experts") is not None and c.int("num_experts") > 0
    layers = []
    for i, kind in enumerate(kinds):
        moe = is_moe and has_experts(c, i, False)
        feed = (
            expert_block(c, "shared_expert_intermediate_size", True, "none")
            if moe
            else blocks.mlp(hidden, c.int("intermediate_size"))
        )
        mixer = delta if kind == "linear_attention" else full
        layers.append(Layer(mixer, tuple(feed), (blocks.vector("norm", 2 * hidden),), moe))
    tied = c.flag("tie_word_embeddings")
    first, last = embeddings(c, tied=tied)
    rotary = int(dim * c.float("partial_rotary_factor", 0.25))
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=rotary)


def nemotron_h(c: Fields) -> Anatomy:
    """Nemotron-H: a pattern of Mamba-2 (M), attention (*), MLP (-) and expert (E) layers."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = attention_heads(c)
    bias = c.flag("mlp_bias")
    mamba = blocks.mamba2(
        hidden=hidden, heads=c.int("mamba_num_heads"), head_dim=c.int("mamba_head_dim"),
        groups=c.int("n_groups"), state=c.int("ssm_state_size", default=128),
        kernel=c.int("conv_kernel"), conv_bias=c.flag("use_conv_bias", True),
        proj_bias=c.flag("mamba_proj_bias") or c.flag("use_bias"),
    )  # fmt: skip
    attention = blocks.grouped_query(
        hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim,
        qkv_bias=c.flag("attention_bias"), o_bias=c.flag("attention_bias"),
    )  # fmt: skip
    none = Mixer("none")
    norm = (blocks.vector("norm", hidden),)
    made: dict[str, Layer] = {
        "M": Layer(mamba, (), norm),
        "*": Layer(attention, (), norm),
        "-": Layer(
            none,
            tuple(blocks.mlp(hidden, c.int("intermediate_size"), gated=False, bias=bias)),
            norm,
        ),
    }
    if c.get("n_routed_experts") is not None:
        made["E"] = Layer(none, tuple(_latent_experts(c, hidden)), norm, True)
    pattern = c.text("hybrid_override_pattern", "")
    layers = tuple(made[letter] for letter in pattern if letter in made)
    tied = c.flag("tie_word_embeddings")
    first, last = embeddings(c, tied=tied)
    return Anatomy(layers, first, last, tied, rotary_dim=0)


def _latent_experts(c: Fields, hidden: int) -> list[Weight]:
    """Plain (ungated) experts, in a narrower latent space where the config has one."""
    count, latent = c.int("n_routed_experts"), c.int("moe_latent_size", default=0)
    weights = blocks.router(hidden, count, correction="buffer")
    weights += blocks.experts(latent or hidden, c.int("moe_intermediate_size"), count, gated=False)
    if latent:
        weights += blocks.linear("mlp", latent, hidden) + blocks.linear("mlp", hidden, latent)
    wide = c.int("moe_shared_expert_intermediate_size", default=0)
    if wide:
        wide *= c.int("n_shared_experts", default=1)
        weights += blocks.mlp(hidden, wide, gated=False, shard="shared")
    return weights


def jamba(c: Fields) -> Anatomy:
    """Jamba: Mamba-1 with attention at an interval, experts in every other layer."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = attention_heads(c)
    attention = blocks.grouped_query(hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim)
    rank = c.get("mamba_dt_rank")
    mamba = blocks.mamba1(
        hidden=hidden, inner=hidden * c.int("mamba_expand", default=2),
        state=c.int("mamba_d_state", default=16), kernel=c.int("mamba_d_conv", default=4),
        rank=rank if isinstance(rank, int) else -(-hidden // 16),
    )  # fmt: skip
    layers = []
    for i in range(c.int("num_hidden_layers")):
        is_attention = i % c.int("attn_layer_period", default=8) == c.int(
            "attn_layer_offset", default=4
        )
        moe = c.int("num_experts", default=1) > 1 and i % c.int(
            "expert_layer_period", default=2
        ) == c.int("expert_layer_offset", default=1)
        feed = (
            expert_block(c, "", False, "none")
            if moe
            else blocks.mlp(hidden, c.int("intermediate_size"))
        )
        mixer = attention if is_attention else mamba
        layers.append(Layer(mixer, tuple(feed), (blocks.vector("norm", 2 * hidden),), moe))
    tied = c.flag("tie_word_embeddings")
    first, last = embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied)
