"""From a config to the anatomy of a decoder: one builder per family of architectures."""

from __future__ import annotations

from collections.abc import Callable

from kvbudget.model import blocks
from kvbudget.model.fields import Fields
from kvbudget.model.parts import Anatomy, Kind, Layer, Mixer, Weight

Builder = Callable[[Fields], Anatomy]


def _heads(c: Fields) -> tuple[int, int, int]:
    """(query heads, KV heads, head dimension)."""
    heads = c.int("num_attention_heads")
    return heads, c.int("num_key_value_heads", default=heads), c.head_dim(heads)


def _embeddings(
    c: Fields, *, tied: bool, head_bias: bool = False, norm: int = 1
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Embedding of the first stage; final norm and head of the last (a tied head counts once)."""
    vocab, hidden = c.int("vocab_size"), c.int("hidden_size")
    last = [blocks.vector("norm", norm * hidden)]
    if not tied:
        last.append(Weight("head", vocab, hidden + int(head_bias)))
    return (Weight("embedding", vocab, hidden),), tuple(last)


def _rotary(c: Fields, dim: int) -> int:
    return int(dim * c.float("partial_rotary_factor", 1.0))


def _kinds(c: Fields, count: int, default: str) -> list[str]:
    """`layer_types`, or `default` everywhere. Raises through Fields when the length differs."""
    listed = c.list("layer_types")
    return [str(kind) for kind in listed] if listed and len(listed) == count else [default] * count


_WINDOWED: dict[str, Kind] = {
    "full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked",
}  # fmt: skip


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
        heads, kv_heads, dim = _heads(c)
        count = c.int("num_hidden_layers")
        config_bias = c.flag("attention_bias") or c.flag("use_bias")
        norm = {"": 0, "head": 2 * dim, "full": (heads + kv_heads) * dim}[qk_norm]
        is_tied = c.flag("tie_word_embeddings", tied)
        bias = c.flag("mlp_bias") or c.flag("use_bias") if mlp_bias is None else mlp_bias
        layers = []
        for kind in _window_kinds(c, count, windows):
            mixer = blocks.grouped_query(
                hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim, kind=kind,
                window=c.int("sliding_window") if kind == "sliding" else None,
                qkv_bias=config_bias if qkv_bias is None else qkv_bias,
                o_bias=config_bias if o_bias is None else o_bias, qk_norm=norm,
            )  # fmt: skip
            feed = tuple(blocks.mlp(hidden, inner, gated=gated_mlp, bias=bias))
            layers.append(Layer(mixer, feed, (blocks.vector("norm", norms * norm_width * hidden),)))
        first, last = _embeddings(c, tied=is_tied, norm=norm_width, head_bias=head_bias)
        return Anatomy(tuple(layers), first, last, is_tied, rotary_dim=_rotary(c, dim))

    return build


def _window(c: Fields, kind: str) -> Kind:
    if kind not in _WINDOWED:
        raise c.wrong("layer_types", kind, f"one of {', '.join(_WINDOWED)}")
    return _WINDOWED[kind]


def _window_kinds(c: Fields, count: int, windows: str) -> list[Kind]:
    """Full or sliding for every layer, from layer_types, a pattern, or the family's habit."""
    if c.list("layer_types"):
        return [_window(c, kind) for kind in _kinds(c, count, "full_attention")]
    if windows == "alternate" and c.get("sliding_window"):
        return ["full" if i % 2 else "sliding" for i in range(count)]
    if windows == "pattern" and c.get("sliding_window"):
        step = c.int("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return ["sliding" if (i + 1) % step else "full" for i in range(count)]
    if windows == "all" and c.get("sliding_window"):
        return ["sliding"] * count
    return ["full"] * count


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
    dim = _heads(c)[2]
    return Anatomy(
        body.layers, body.first, body.last, body.tied,
        rotary_dim=int(dim * c.float("partial_rotary_factor", 0.5)),
    )  # fmt: skip


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
        heads, kv_heads, dim = _heads(c)
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
        sparse = tuple(_expert_block(c, shared, shared_gate, correction, bits32=router_bits32))
        norm = (blocks.vector("norm", 2 * hidden),)
        layers = []
        for i in range(count):
            moe = _is_moe(c, i, first_dense)
            feed = sparse if moe else tuple(blocks.mlp(hidden, c.int("intermediate_size")))
            layers.append(Layer(mixer, feed, norm, moe))
        tied = c.flag("tie_word_embeddings")
        first, last = _embeddings(c, tied=tied)
        mtp = _mtp(c, layers[-1], c.int("num_nextn_predict_layers", default=0))
        return Anatomy(tuple(layers), first, last, tied, mtp=mtp, rotary_dim=_rotary(c, dim))

    return build


def _is_moe(c: Fields, index: int, first_dense: bool) -> bool:
    if index in (c.list("mlp_only_layers") or []):
        return False
    if first_dense:
        return index >= c.int("first_k_dense_replace", default=0)
    return (index + 1) % c.int("decoder_sparse_step", default=1) == 0


def _expert_count(c: Fields) -> int:
    return c.int("num_experts", "n_routed_experts", "num_local_experts")


def _expert_block(
    c: Fields, shared: str, shared_gate: bool, correction: str, *, bits32: bool = False
) -> list[Weight]:
    hidden, count = c.int("hidden_size"), _expert_count(c)
    inner = c.int("moe_intermediate_size", "intermediate_size")
    weights = blocks.router(hidden, count, correction=correction, bits32=bits32)
    weights += blocks.experts(hidden, inner, count)
    wide = c.int(shared, default=0) if shared else 0
    wide = wide or inner * c.int("n_shared_experts", default=0)
    if wide:
        weights += blocks.mlp(hidden, wide)
    if wide and shared_gate:
        weights.append(Weight("router", 1, hidden, 1, "replicated"))
    return weights


def _mtp(c: Fields, layer: Layer, count: int) -> tuple[Weight, ...]:
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
        sparse = tuple(_expert_block(c, "", False, correction, bits32=router_bits32))
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
        first, last = _embeddings(c, tied=tied)
        mtp = _mtp(
            c, Layer(mixer, sparse, norm, True), c.int("num_nextn_predict_layers", default=0)
        )
        return Anatomy(
            tuple(layers), first, last, tied, mtp=mtp, rotary_dim=c.int("qk_rope_head_dim")
        )

    return build


def gpt_oss(c: Fields) -> Anatomy:
    """gpt-oss: sinks, biases everywhere, experts as wide as the model."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = _heads(c)
    count = c.int("num_hidden_layers")
    feed = (
        *blocks.router(hidden, _expert_count(c), bias=True),
        *blocks.experts(hidden, c.int("intermediate_size"), _expert_count(c), bias=True),
    )
    kinds = _kinds(c, count, "full_attention")
    if not c.list("layer_types"):
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(count)]
    layers = [
        Layer(
            blocks.grouped_query(
                hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim,
                kind=_window(c, kind),
                window=c.int("sliding_window") if kind == "sliding_attention" else None,
                qkv_bias=True, o_bias=True, sinks=True,
            ),
            feed, (blocks.vector("norm", 2 * hidden),), True,
        )
        for kind in kinds
    ]  # fmt: skip
    first, last = _embeddings(c, tied=c.flag("tie_word_embeddings"))
    return Anatomy(tuple(layers), first, last, c.flag("tie_word_embeddings"), rotary_dim=dim)


def llama4(c: Fields) -> Anatomy:
    """Llama 4: three of four layers attend within a chunk, experts beside a shared one."""
    hidden, inner = c.int("hidden_size"), c.int("intermediate_size")
    heads, kv_heads, dim = _heads(c)
    count = c.int("num_hidden_layers")
    step = c.int("interleave_moe_layer_step", default=1)
    listed = c.list("no_rope_layers")
    roped = [bool(x) for x in listed] if listed else [(i + 1) % 4 != 0 for i in range(count)]
    moe_feed = (
        *blocks.router(hidden, _expert_count(c)),
        *blocks.experts(hidden, inner, _expert_count(c)),
        *blocks.mlp(hidden, inner),
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
    first, last = _embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=dim)


def qwen_hybrid(c: Fields) -> Anatomy:
    """Qwen3-Next and Qwen3.5: gated DeltaNet with gated full attention every fourth layer."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = _heads(c)
    count = c.int("num_hidden_layers")
    step = c.int("full_attention_interval", default=4)
    kinds = _kinds(c, count, "")
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
        moe = is_moe and _is_moe(c, i, False)
        feed = (
            _expert_block(c, "shared_expert_intermediate_size", True, "none")
            if moe
            else blocks.mlp(hidden, c.int("intermediate_size"))
        )
        mixer = delta if kind == "linear_attention" else full
        layers.append(Layer(mixer, tuple(feed), (blocks.vector("norm", 2 * hidden),), moe))
    tied = c.flag("tie_word_embeddings")
    first, last = _embeddings(c, tied=tied)
    rotary = int(dim * c.float("partial_rotary_factor", 0.25))
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=rotary)


def gemma4(c: Fields) -> Anatomy:
    """Gemma 4: wider global heads whose values are the keys, experts beside a dense MLP."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = _heads(c)
    count = c.int("num_hidden_layers")
    wide = c.int("global_head_dim", default=dim)
    wide_kv = c.int("num_global_key_value_heads", default=kv_heads)
    same = c.flag("attention_k_eq_v")
    experts = c.int("num_experts", default=0) if c.flag("enable_moe_block") else 0
    shared_from = count - c.int("num_kv_shared_layers", default=0)
    per_layer = c.int("hidden_size_per_layer_input", default=0)
    layers = []
    for i, kind in enumerate(_kinds(c, count, "full_attention")):
        is_full = kind == "full_attention"
        mixer = blocks.grouped_query(
            hidden=hidden, heads=heads, kv_heads=wide_kv if is_full and same else kv_heads,
            head_dim=wide if is_full else dim, kind=_window(c, kind),
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
    first, last = _embeddings(c, tied=tied)
    if per_layer:
        rows = c.int("vocab_size_per_layer_input")
        first = (
            *first,
            Weight("embedding", rows, count * per_layer),
            Weight("mlp", count * per_layer, hidden),
            blocks.vector("norm", per_layer),
        )
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=wide + dim)


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
    sparse = tuple(_expert_block(c, "", False, "buffer"))
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
    first, last = _embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied, rotary_dim=_rotary(c, c.int("head_dim")))


def nemotron_h(c: Fields) -> Anatomy:
    """Nemotron-H: a pattern of Mamba-2 (M), attention (*), MLP (-) and expert (E) layers."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = _heads(c)
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
    first, last = _embeddings(c, tied=tied)
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
        weights += blocks.mlp(hidden, wide * c.int("n_shared_experts", default=1), gated=False)
    return weights


def jamba(c: Fields) -> Anatomy:
    """Jamba: Mamba-1 with attention at an interval, experts in every other layer."""
    hidden = c.int("hidden_size")
    heads, kv_heads, dim = _heads(c)
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
            _expert_block(c, "", False, "none")
            if moe
            else blocks.mlp(hidden, c.int("intermediate_size"))
        )
        mixer = attention if is_attention else mamba
        layers.append(Layer(mixer, tuple(feed), (blocks.vector("norm", 2 * hidden),), moe))
    tied = c.flag("tie_word_embeddings")
    first, last = _embeddings(c, tied=tied)
    return Anatomy(tuple(layers), first, last, tied)


_QWEN2 = dense(qkv_bias=True)
_LLAMA = dense(qkv_bias=None, o_bias=None)

FAMILIES: dict[str, Builder] = {
    "llama": _LLAMA,
    "mistral": dense(windows="all"),
    "ministral": dense(windows="all"),
    "mistral3": dense(windows="all"),
    "granite": dense(qkv_bias=None, o_bias=None),
    "phi3": dense(),
    "phi": phi2,
    "opt": opt,
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": dense(qkv_bias=None, o_bias=None, qk_norm="head"),
    "qwen3_vl_text": dense(qkv_bias=None, o_bias=None, qk_norm="head"),
    "olmo2": dense(qk_norm="full"),
    "olmo3": dense(qk_norm="full"),
    "cohere": dense(norms=1, tied=True),
    "cohere2": dense(norms=1, tied=True, windows="pattern"),
    "ernie4_5": dense(tied=True),
    "exaone4": dense(qk_norm="head", windows="pattern"),
    "glm": dense(qkv_bias=None),
    "glm4": dense(qkv_bias=None, norms=4),
    "hunyuan_v1_dense": dense(qk_norm="head"),
    "nemotron": dense(gated_mlp=False, norm_width=2),
    "seed_oss": dense(qkv_bias=None),
    "smollm3": dense(tied=True),
    "starcoder2": dense(qkv_bias=None, o_bias=None, tied=True, gated_mlp=False, norm_width=2),
    "gemma": dense(tied=True),
    "gemma2": dense(tied=True, norms=4, windows="alternate"),
    "gemma3_text": dense(tied=True, norms=4, qk_norm="head", windows="pattern"),
    "gemma4_text": gemma4,
    "mixtral": mixture(),
    "granitemoe": mixture(),
    "minimax_m2": mixture(qk_norm_width="full", correction="buffer"),
    "olmoe": mixture(qk_norm_width="full"),
    "qwen2_moe": mixture(qkv_bias=True, shared="shared_expert_intermediate_size", shared_gate=True),
    "qwen3_moe": mixture(qkv_bias=None, qk_norm=True),
    "qwen3_vl_moe_text": mixture(qkv_bias=None, qk_norm=True),
    "glm4_moe": mixture(qkv_bias=None, qk_norm=None, first_dense=True, correction="buffer"),
    "deepseek_v2": deepseek(),
    "deepseek_v3": deepseek(correction="parameter"),
    "deepseek_v32": deepseek(correction="buffer"),
    "kimi_k2": deepseek(correction="buffer"),
    "glm_moe_dsa": deepseek(correction="buffer"),
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "qwen3_next": qwen_hybrid,
    "qwen3_5_text": qwen_hybrid,
    "qwen3_5_moe_text": qwen_hybrid,
    "mimo_v2_flash": mimo_v2,
    "nemotron_h": nemotron_h,
    "jamba": jamba,
}
"""By `model_type` of the (text) config."""

TEXT_OF: dict[str, str] = {
    "gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "kimi_k2",
    "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "mistral3": "mistral",
}  # fmt: skip
"""A multimodal type and the type of its text part, where `text_config` does not say."""
