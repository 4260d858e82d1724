"""Weight tensors of the building blocks: attention of every kind, feed-forward, experts."""

from __future__ import annotations

from kvbudget.model.parts import Kind, Mixer, Shard, Weight


def linear(
    part: str, rows: int, cols: int, *, bias: bool = False, copies: int = 1, shard: Shard = "split"
) -> list[Weight]:
    """A matrix that quantisation and tensor parallelism reach, and its bias."""
    found = [Weight(part, rows, cols, copies, shard, quantised=True)]
    if bias:
        found.append(Weight(part, rows, 1, copies, shard))
    return found


def kv_linear(part: str, kv_heads: int, dim: int, cols: int, *, bias: bool) -> list[Weight]:
    """A key or value projection: replicated when there are more ranks than KV heads."""
    rows = kv_heads * dim
    found = [Weight(part, rows, cols, 1, "kv", heads=kv_heads, quantised=True, fuse="qkv")]
    if bias:
        found.append(Weight(part, rows, 1, 1, "kv", heads=kv_heads))
    return found


def vector(part: str, size: int, copies: int = 1) -> Weight:
    """A norm, scale or bias that every rank holds whole."""
    return Weight(part, size, 1, copies, "replicated")


def grouped_query(
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    v_head_dim: int | None = None,
    kind: Kind = "full",
    window: int | None = None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: int = 0,
    gated: bool = False,
    sinks: bool = False,
    values_are_keys: bool = False,
    shares_kv: bool = False,
) -> Mixer:
    """Multi-head, grouped-query and multi-query attention.

    qk_norm: total length of the query and key norms (0: none). gated: the query projection
    carries an output gate as wide as itself. values_are_keys: no value projection.
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    queries = heads * head_dim * (2 if gated else 1)
    weights = [Weight("attention", queries, hidden, quantised=True, fuse="qkv")]
    if qkv_bias:
        weights.append(Weight("attention", queries))
    if not shares_kv:
        weights += kv_linear("attention", kv_heads, head_dim, hidden, bias=qkv_bias)
        if not values_are_keys:
            weights += kv_linear("attention", kv_heads, v_dim, hidden, bias=qkv_bias)
    weights += [Weight("attention", hidden, heads * v_dim, quantised=True)]
    if o_bias:
        weights.append(vector("attention", hidden))
    if qk_norm:
        weights.append(vector("norm", qk_norm))
    if sinks:
        weights.append(Weight("attention", heads))
    return Mixer(
        kind, tuple(weights), heads, kv_heads, head_dim, v_dim, window, shares_kv=shares_kv
    )


def latent_attention(
    *,
    hidden: int,
    heads: int,
    q_rank: int,
    kv_rank: int,
    nope: int,
    rope: int,
    v_dim: int,
    index_heads: int = 0,
    index_dim: int = 0,
) -> Mixer:
    """Multi-head latent attention, with the sparse-attention indexer when index_dim > 0."""
    qk = nope + rope
    weights: list[Weight] = []
    if q_rank:
        weights.append(Weight("attention", q_rank, hidden, 1, "replicated", quantised=True))
        weights.append(vector("norm", q_rank))
        weights += linear("attention", heads * qk, q_rank)
    else:
        weights += linear("attention", heads * qk, hidden)
    weights.append(Weight("attention", kv_rank + rope, hidden, 1, "replicated", quantised=True))
    weights.append(vector("norm", kv_rank))
    weights += linear("attention", heads * (nope + v_dim), kv_rank)
    weights += linear("attention", hidden, heads * v_dim)
    if index_dim:
        wide = index_heads * index_dim
        weights.append(Weight("indexer", wide, q_rank, 1, "replicated", quantised=True))
        weights.append(Weight("indexer", index_dim, hidden, 1, "replicated", quantised=True))
        weights.append(vector("indexer", 2 * index_dim))
        weights.append(Weight("indexer", index_heads, hidden, 1, "replicated"))
    return Mixer(
        "mla", tuple(weights), heads, 1, kv_rank + rope, 0, latent=kv_rank, rope=rope,
        index_dim=index_dim,
    )  # fmt: skip


def gated_delta(
    *, hidden: int, k_heads: int, v_heads: int, k_dim: int, v_dim: int, kernel: int
) -> Mixer:
    """Gated DeltaNet. State per request: conv (channels x (kernel-1)) and v_heads x k x v."""
    keys, values = k_heads * k_dim, v_heads * v_dim
    channels = 2 * keys + values
    weights = [
        *linear("linear_attention", 2 * keys + 2 * values, hidden),
        Weight("linear_attention", 2 * v_heads, hidden),
        Weight("linear_attention", channels, kernel),
        Weight("linear_attention", 2 * v_heads),
        vector("norm", v_dim),
        *linear("linear_attention", hidden, values),
    ]
    return Mixer(
        "linear", tuple(weights), v_heads, k_heads, k_dim, v_dim,
        conv=channels * (kernel - 1), ssm=v_heads * k_dim * v_dim, conv_per_draft=channels,
    )  # fmt: skip


def mamba2(
    *,
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    conv_bias: bool,
    proj_bias: bool,
) -> Mixer:
    """Mamba-2. State per request: conv (channels x (kernel-1)) and heads x head_dim x state."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    weights = [
        *linear("mamba", 2 * inner + 2 * groups * state + heads, hidden, bias=proj_bias),
        Weight("mamba", channels, kernel + int(conv_bias)),
        Weight("mamba", 3 * heads),
        Weight("norm", inner),
        *linear("mamba", hidden, inner, bias=proj_bias),
    ]
    return Mixer(
        "linear", tuple(weights), heads, groups, head_dim, state,
        conv=channels * (kernel - 1), ssm=heads * head_dim * state,
    )  # fmt: skip


def mamba1(*, hidden: int, inner: int, state: int, kernel: int, rank: int) -> Mixer:
    """Mamba-1 with the three inner norms of Jamba."""
    weights = [
        *linear("mamba", 2 * inner, hidden),
        Weight("mamba", inner, kernel + 1),
        *linear("mamba", rank + 2 * state, inner),
        *linear("mamba", inner, rank, bias=True),
        Weight("mamba", inner, state),
        Weight("mamba", inner),
        *linear("mamba", hidden, inner),
        vector("norm", rank + 2 * state),
    ]
    return Mixer("linear", tuple(weights), conv=inner * (kernel - 1), ssm=inner * state)


def mlp(
    hidden: int, inner: int, *, gated: bool = True, bias: bool = False, shard: Shard = "split"
) -> list[Weight]:
    """Feed-forward: up (and gate) and down, their biases. shard: `shared` for a shared expert."""
    weights = linear("mlp", inner, hidden, bias=bias, copies=2 if gated else 1, shard=shard)
    weights.append(Weight("mlp", hidden, inner, 1, shard, quantised=True))
    if bias:
        weights.append(vector("mlp", hidden))
    return weights


def experts(
    hidden: int,
    inner: int,
    count: int,
    *,
    gated: bool = True,
    bias: bool = False,
) -> list[Weight]:
    """Routed experts: `count` feed-forwards."""
    ups = 2 if gated else 1
    weights = [
        Weight("experts", inner, hidden, ups * count, "expert", experts=count, quantised=True),
        Weight("experts", hidden, inner, count, "expert", experts=count, quantised=True),
    ]
    if bias:
        wide = ups * inner + hidden
        weights.append(Weight("experts", wide, 1, count, "expert", experts=count))
    return weights


def router(
    hidden: int, count: int, *, bias: bool = False, bits32: bool = False, correction: str = "none"
) -> list[Weight]:
    """The gate. correction: none, buffer (bytes only) or parameter (bytes and count), float32."""
    weights = [Weight("router", count, hidden, 1, "replicated", bits32=bits32)]
    if bias:
        weights.append(vector("router", count))
    if correction != "none":
        weights.append(
            Weight("router", count, 1, 1, "replicated", bits32=True, counted=correction != "buffer")
        )
    return weights
