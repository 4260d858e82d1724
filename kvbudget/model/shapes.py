"""Widths of every layer on one rank: what a forward pass allocates, multiplication by multiplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.model.layers import stage_ranges
from kvbudget.model.parts import Ranks
from kvbudget.model.weights import stage_weights

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.model.parts import Layer, Mixer, Weight
    from kvbudget.model.quantisation import Quantisation

CHUNK = 64
"""Tokens of one chunk of a linear-attention prefill kernel."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One weight allocation: `numel` elements of the model's dtype, of float32, or plain bytes."""

    name: str
    numel: int
    kind: str


@dataclass(frozen=True, slots=True)
class Projection:
    """A matrix multiply: `out` columns from `width` inputs, by a weight buffer of its layer."""

    buffer: str
    width: int
    out: int
    matrix: bool


@dataclass(frozen=True, slots=True)
class MixerShape:
    """Token mixer of one layer on one rank. Widths in elements per token."""

    kind: str
    inputs: tuple[Projection, ...] = ()
    inner: tuple[Projection, ...] = ()
    output: Projection | None = None
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    key_width: int = 0
    conv_width: int = 0
    cache_width: int = 0
    state: int = 0


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One decoder layer on one rank; equal shapes mean equal buffers in an equal order.

    `up.out` holds gate and up together where there is a gate.
    """

    mixer: MixerShape
    up: Projection | None
    down: Projection | None
    gated: bool
    router: Projection | None
    experts: int
    top_k: int
    expert_inner: int
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One rank of a model. embedding, head: None on pipeline stages that hold none.

    alone: there are no other stages to exchange hidden states with.
    """

    hidden: int
    vocab: int
    vocab_rank: int
    layers: tuple[LayerShape, ...]
    rest: tuple[Buffer, ...]
    embedding: str | None
    head: str | None
    alone: bool
    last: bool


def model_shape(model: Model, tp: int | Ranks, *, pp: int = 1, stage: int = 0) -> ModelShape:
    """Widths and weight buffers of every layer of one rank of `tp` in stage `stage` of `pp`.

    The buffers' bytes add up to `model.weights_bytes` of the config to the byte. Raises
    InputError for more stages than layers.
    """
    ranks = tp if isinstance(tp, Ranks) else Ranks(tp)
    anatomy, last = model.anatomy, stage == pp - 1
    made: dict[int, LayerShape] = {}
    layers = []
    for index in stage_ranges(len(anatomy.layers), pp)[stage]:
        layer = anatomy.layers[index]
        if id(layer) not in made:
            made[id(layer)] = _layer(model, layer, ranks)
        layers.append(made[id(layer)])
    rest = stage_weights(anatomy, pp=pp, stage=stage)[-1]
    names = [f"{n}.{w.part}" for n, w in enumerate(rest)]
    buffers = [
        _buffer(name, [w], ranks, model.quantisation)
        for name, w in zip(names, rest, strict=True)
    ]  # fmt: skip
    parts = {w.part: name for name, w in reversed(list(zip(names, rest, strict=True)))}
    embedding = parts.get("embedding") if stage == 0 else None
    return ModelShape(
        model.hidden_size, model.vocab_size, -(-model.vocab_size // ranks.tp), tuple(layers),
        tuple(buffers), embedding, parts.get("head", parts.get("embedding")) if last else None,
        alone=pp == 1, last=last,
    )  # fmt: skip


def _share(weight: Weight, ranks: Ranks, quantisation: Quantisation | None) -> tuple[int, str]:
    """(elements or bytes, kind) of a weight on one rank."""
    share = weight.rank_numel(ranks)
    if quantisation is not None and quantisation.reaches(weight):
        whole = quantisation.bytes_of(weight)
        return (whole if share == weight.numel else -(-whole * share // weight.numel)), "bytes"
    return share, "float32" if weight.bits32 else "dtype"


def _buffer(
    name: str, weights: list[Weight], ranks: Ranks, quantisation: Quantisation | None
) -> Buffer:
    shares = [_share(w, ranks, quantisation) for w in weights]
    return Buffer(name, sum(size for size, _ in shares), shares[0][1])


def _buffers(model: Model, layer: Layer, ranks: Ranks) -> tuple[list[Buffer], dict[int, str]]:
    """Weight allocations of a layer; fused tensors of one kind share one. Names by weight id."""
    groups: dict[str, list[Weight]] = {}
    names: dict[int, str] = {}
    for index, weight in enumerate(layer.weights):
        kind = _share(weight, ranks, model.quantisation)[1]
        name = f"{weight.fuse or f'{index}.{weight.part}'}.{kind}"
        groups.setdefault(name, []).append(weight)
        names[id(weight)] = name
    quantisation = model.quantisation
    return [_buffer(name, ws, ranks, quantisation) for name, ws in groups.items()], names


def _rows(weight: Weight, ranks: Ranks) -> int:
    """Output width on this rank of a weight whose inputs are whole."""
    return weight.rank_numel(ranks) // weight.cols


def _matrices(weights: tuple[Weight, ...]) -> list[Weight]:
    return [w for w in weights if w.rows > 1 and w.cols > 1]


def _layer(model: Model, layer: Layer, ranks: Ranks) -> LayerShape:
    buffers, names = _buffers(model, layer, ranks)
    by_name = {b.name: b for b in buffers}

    def project(weights: list[Weight], width: int, out: int) -> Projection:
        name = names[id(weights[0])]
        buffer = by_name[name]
        return Projection(name, width, out, buffer.kind == "dtype" and buffer.numel == width * out)

    hidden = model.hidden_size
    mlp = [w for w in _matrices(layer.feed_forward) if w.part == "mlp"]
    down = [w for w in mlp if w.rows == hidden and w.copies == 1]
    down = down[-1:] if down else []
    ups = [w for w in mlp if w.cols == hidden and not (down and w is down[0])]
    up_out = sum(_rows(w, ranks) for w in ups)
    gated = sum(w.copies for w in ups) > 1
    routers = [w for w in layer.feed_forward if w.part == "router" and w.cols > 1]
    experts = [w for w in _matrices(layer.feed_forward) if w.part == "experts"]
    return LayerShape(
        mixer=_mixer(model, layer.mixer, ranks, project),
        up=project(ups, hidden, up_out) if ups else None,
        down=project(down, down[0].rank_numel(ranks) // hidden, hidden) if down and ups else None,
        gated=gated,
        router=project(routers[:1], hidden, routers[0].rows) if routers else None,
        experts=model.num_experts if experts else 0,
        top_k=max(1, model.num_experts_per_tok) if experts else 0,
        expert_inner=model.moe_intermediate_size // ranks.expert_cuts if experts else 0,
        buffers=tuple(buffers),
    )


def _mixer(model: Model, mixer: Mixer, ranks: Ranks, project: object) -> MixerShape:
    assert callable(project)
    tp = ranks.tp
    hidden = model.hidden_size
    matrices = [w for w in _matrices(mixer.weights) if w.part != "indexer"]
    if mixer.kind == "none" or not matrices:
        return MixerShape("none")
    last = next(w for w in reversed(matrices) if w.rows == hidden)
    out_width = last.rank_numel(ranks) // hidden
    ins = [w for w in matrices if w.cols == hidden and w is not last]
    heads = max(1, mixer.heads // tp) if mixer.heads else 0
    if mixer.kind == "linear":
        conv = mixer.conv // tp
        kernel = next((w.cols for w in matrices if w.cols <= 8), 4)
        return MixerShape(
            "linear", tuple(project([w], hidden, _rows(w, ranks)) for w in ins), (),
            project([last], out_width, hidden), heads, 0, mixer.head_dim, mixer.v_head_dim,
            conv_width=conv // max(1, kernel - 1), state=(mixer.conv + mixer.ssm) // tp,
        )  # fmt: skip
    if mixer.kind == "mla":
        nope = model.text.int("qk_nope_head_dim", default=128)
        value = model.text.int("v_head_dim", default=128)
        inner = [w for w in matrices if w.cols not in (hidden,) and w is not last]
        return MixerShape(
            "mla", tuple(project([w], hidden, _rows(w, ranks)) for w in ins),
            tuple(project([w], w.cols, _rows(w, ranks)) for w in inner),
            project([last], out_width, hidden), heads, 1, nope + mixer.rope, value,
            key_width=heads * (nope + mixer.rope), cache_width=mixer.latent + mixer.rope,
        )  # fmt: skip
    kv_heads = max(1, mixer.kv_heads // tp)
    fused = [w for w in ins if w.fuse]
    single = [w for w in ins if not w.fuse]
    inputs = [project(fused, hidden, sum(_rows(w, ranks) for w in fused))] if fused else []
    inputs += [project([w], hidden, _rows(w, ranks)) for w in single]
    return MixerShape(
        mixer.kind, tuple(inputs), (), project([last], out_width, hidden), heads, kv_heads,
        mixer.head_dim, mixer.v_head_dim, cache_width=kv_heads * mixer.head_dim,
    )  # fmt: skip
