"""The pieces a model is made of: weight tensors, token mixers and decoder layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["full", "sliding", "chunked", "mla", "linear", "indexer", "cross", "none"]
Shard = Literal["split", "kv", "expert", "shared", "replicated"]
ATTENTION_PARTS = frozenset({"attention", "indexer", "linear_attention", "mamba", "embedding"})
"""Parts that data-parallel attention divides over the ranks of one attention replica only."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the ranks of one stage share its tensors.

    tp: ranks that cut what is split. attention_tp: ranks of one attention replica under
    data-parallel attention (None: tp). ep: ranks the routed experts are spread over, whole.
    expert_tp: ranks each expert is cut across (None: tp where experts are not spread, else 1).
    shared_whole: every rank holds the shared experts whole.
    """

    tp: int = 1
    attention_tp: int | None = None
    ep: int = 1
    expert_tp: int | None = None
    shared_whole: bool = False

    @property
    def expert_cuts(self) -> int:
        """Ranks each routed expert is cut across."""
        if self.expert_tp is not None:
            return self.expert_tp
        return 1 if self.ep > 1 else self.tp


@dataclass(frozen=True, slots=True)
class Weight:
    """`copies` tensors of rows x cols.

    shard: split (divided by the tensor-parallel size), kv (divided, but never below one of
    `heads` KV heads), expert (`experts` of them, spread whole or cut), shared (split, unless
    every rank holds the shared experts whole), replicated.
    quantised: a quantised checkpoint stores it in the low-bit format. `bits32`: kept in float32.
    counted: False for buffers that are bytes of the checkpoint but not parameters.
    fuse: tensors of a layer with the same name here are one allocation in an engine (qkv).
    """

    part: str
    rows: int
    cols: int = 1
    copies: int = 1
    shard: Shard = "split"
    heads: int = 0
    experts: int = 1
    quantised: bool = False
    bits32: bool = False
    counted: bool = True
    fuse: str = ""

    @property
    def numel(self) -> int:
        return self.rows * self.cols * self.copies

    def rank_numel(self, ranks: Ranks) -> int:
        """Elements of this tensor on the rank that holds most of it.

        Where the experts cannot be spread evenly the first ranks hold one more than the others.
        """
        tp = ranks.tp
        if ranks.attention_tp is not None and self.part in ATTENTION_PARTS:
            tp = ranks.attention_tp
        if self.shard == "replicated" or (self.shard == "shared" and ranks.shared_whole):
            return self.numel
        if self.shard == "kv":
            return self.numel * max(1, self.heads // tp) // self.heads
        if self.shard == "expert" and self.experts:
            mine = -(-self.experts // ranks.ep)
            return -(-self.numel // self.experts * mine // ranks.expert_cuts)
        return -(-self.numel // tp)


@dataclass(frozen=True, slots=True)
class Mixer:
    """What one layer does with tokens, and what it has to remember of them.

    full/sliding/chunked/cross: kv_heads x (head_dim + v_head_dim) per token; mla: `latent` +
    `rope` numbers per token, the same on every rank; linear: a state per request of `conv`
    and `ssm` numbers that tensor parallelism divides, and of `conv_per_draft` more for every token
    drafted. `index_dim`: width of a sparse-attention
    indexer's key (0: none).
    """

    kind: Kind
    weights: tuple[Weight, ...] = ()
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None
    latent: int = 0
    rope: int = 0
    index_dim: int = 0
    conv: int = 0
    conv_per_draft: int = 0
    ssm: int = 0
    shares_kv: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer: mixer, feed-forward weights, norms."""

    mixer: Mixer
    feed_forward: tuple[Weight, ...] = ()
    norms: tuple[Weight, ...] = ()
    is_moe: bool = False

    @property
    def weights(self) -> tuple[Weight, ...]:
        return self.mixer.weights + self.feed_forward + self.norms


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A whole model. `first`/`last`: weights of the first and last pipeline stage besides layers.

    A tied head is in `first` only and flagged, because the last stage needs a copy of its own.
    `tower`: vision or audio encoders and their projector (every tensor-parallel rank may hold
    a full copy). `mtp`: layers that only speculative decoding loads.
    """

    layers: tuple[Layer, ...]
    first: tuple[Weight, ...]
    last: tuple[Weight, ...]
    tied: bool
    tower: tuple[Weight, ...] = ()
    projector: tuple[Weight, ...] = ()
    mtp: tuple[Weight, ...] = ()
    rotary_dim: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)
