"""The fullest moment of a decoder's forward pass, from the widths of its layers.

Every moment is a list of buffers that are alive together, in the order of an engine's operations:
norms, rotary embedding and gates work in place, so what counts are the outputs of multiplications
and of kernels. `kvbudget profile` runs the same sequence on tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvbudget.model.eras import Setting, choose
from kvbudget.model.shapes import CHUNK, model_shape

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.model.shapes import LayerShape, MixerShape, ModelShape

FLOAT = 4
"""Bytes of a float32 number."""
INDEX = 8
"""Bytes of the number of a chosen expert."""


@dataclass(frozen=True, slots=True)
class Pass:
    """How an engine runs its profile forward.

    kernels: attention and recurrence kernels run; without, only their outputs are allocated.
    context_rows: rows of latent context whose keys and values are set aside in every layer.
    buffers: of an expert kernel, each as wide per token and expert as the widest of its entries:
    I and 2I (one expert's inner width, twice), h (hidden). persistent: kept for the process.
    chunk: tokens the kernel takes at a time (None: all of them).
    """

    kernels: bool = True
    context_rows: int = 0
    buffers: tuple[tuple[str, ...], ...] = (("2I", "h"), ("I", "h"))
    persistent: bool = True
    chunk: int | None = None

    def workspace_rows(self, tokens: int) -> int:
        """Tokens a buffer has room for."""
        return tokens if self.chunk is None else min(tokens, self.chunk)

    def workspace_widths(self, layer: LayerShape, hidden: int) -> list[int]:
        """Elements per token of each buffer of an expert layer."""
        widths = {"I": layer.expert_inner, "2I": 2 * layer.expert_inner, "h": hidden}
        return [layer.top_k * max(widths[name] for name in names) for names in self.buffers]


def profile_pass(model: Model, setting: Setting) -> Pass:
    """The pass of a release for `model` (formulas/activation.yaml)."""
    kernels = choose(setting, "profile_kernels") or {"run": True}
    row = choose(setting, "expert_workspace")
    method = (model.quantization_config or {}).get("quant_method")
    run, rows = bool(kernels["run"]), int(kernels.get("context_rows", 0))
    if row is None:
        return Pass(run, rows, persistent=False)
    buffers = () if method in row["except"] else tuple(tuple(names) for names in row["buffers"])
    return Pass(run, rows, buffers, bool(row["persistent"]), row.get("chunk"))


def forward_memory(
    model: Model, setting: Setting, tokens: int, *, stage: int = 0
) -> tuple[int, int]:
    """(peak beside the kept expert buffers, those buffers) of one rank of `stage`, in bytes."""
    # Where shared experts are whole, a rank runs its part of the tokens: as wide as cut ones.
    ranks = replace(setting.ranks, shared_whole=False)
    shape = model_shape(model, ranks, pp=setting.pp, stage=stage)
    how = profile_pass(model, setting)
    peak, kept = forward_peak(shape, how, tokens, model.dtype_bytes, gathered=setting.gathered)
    return max(0, peak - kept), kept


def forward_peak(
    shape: ModelShape, how: Pass, tokens: int, dtype_bytes: int, *, gathered: int = 1
) -> tuple[int, int]:
    """(peak, expert buffers kept when it ends) of `tokens` tokens, in bytes.

    Layers before the first with experts run without the buffers, all later ones beside them.
    gathered: replicas whose tokens the experts work on together, in a copy of their own.
    """
    together = gathered * tokens
    room = how.workspace_rows(together)
    copies = 0 if gathered == 1 else 1 if room == together else 2  # in parts: an output beside
    copied = copies * together * shape.hidden * dtype_bytes
    stream = 0 if shape.alone else 2 * shape.hidden
    kept = peak = 0
    seen: set[tuple[int, int]] = set()
    for layer in shape.layers:
        if (id(layer), kept) in seen:
            continue
        seen.add((id(layer), kept))
        narrow = _mixing(layer.mixer, how, tokens, shape.hidden, dtype_bytes)
        peak = max(peak, kept + narrow)
        space = sum(how.workspace_widths(layer, shape.hidden)) * room * dtype_bytes
        if layer.up is not None:
            peak = max(peak, kept + tokens * _mlp(layer, shape.hidden) * dtype_bytes)
        if layer.experts:
            if how.persistent:
                kept = space = max(kept, space)
            beside = tokens * _experts(layer, shape.hidden, dtype_bytes) + copied
            peak = max(peak, space + beside)
    return peak + tokens * stream * dtype_bytes, kept


def _mixing(mixer: MixerShape, how: Pass, tokens: int, hidden: int, dtype_bytes: int) -> int:
    """Bytes while one layer's mixer runs: the residual, its normed copy, and what it makes."""
    ins, output = sum(p.out for p in mixer.inputs), mixer.output
    if output is None:
        return tokens * 2 * hidden * dtype_bytes
    out = output.width
    scores = FLOAT * max(1, mixer.heads) if how.kernels else 0
    if mixer.kind == "mla":
        inner = mixer.inner if how.kernels else mixer.inner[:-1]
        wide = 2 * hidden + ins + sum(p.out for p in inner) + out
        if how.kernels:
            wide += mixer.key_width
        context = how.context_rows * mixer.inner[-1].out * dtype_bytes
        return tokens * (wide * dtype_bytes + scores) + context
    if mixer.kind == "linear":
        wide = 2 * hidden + ins + mixer.conv_width + out
        scratch = chunk_bytes(mixer, tokens, dtype_bytes) if how.kernels else 0
        return tokens * wide * dtype_bytes + scratch
    return tokens * max(
        (2 * hidden + ins) * dtype_bytes,
        (hidden + ins + out) * dtype_bytes + scores,
        (2 * hidden + out) * dtype_bytes,
    )


def chunk_bytes(mixer: MixerShape, tokens: int, dtype_bytes: int) -> int:
    """Bytes of a chunked recurrence over `tokens` tokens, beside its inputs and outputs.

    Per token and head a decay and a row of the chunk's matrix in float32, two corrected operands;
    per chunk one state. Nothing where the recurrence is a scan (no heads).
    """
    heads, keys, values = mixer.heads, mixer.head_dim, mixer.v_head_dim
    each = FLOAT * (1 + CHUNK) + dtype_bytes * (keys + values)
    return heads * (tokens * each + -(-tokens // CHUNK) * keys * values * dtype_bytes)


def recurrence_scratch(model: Model, setting: Setting, tokens: int) -> int:
    """Bytes of `chunk_bytes` of the widest recurrence on one rank; 0 for models without one."""
    mixers = {layer.mixer for layer in model_shape(model, setting.tp).layers}
    linear = (mixer for mixer in mixers if mixer.kind == "linear")
    return max((chunk_bytes(mixer, tokens, model.dtype_bytes) for mixer in linear), default=0)


def _mlp(layer: LayerShape, hidden: int) -> int:
    """Elements per token: three streams, the wide product and its activation; then the output."""
    assert layer.up is not None
    act = layer.up.out // 2 if layer.gated else layer.up.out
    return max(3 * hidden + layer.up.out + act, 4 * hidden + act)


def _experts(layer: LayerShape, hidden: int, dtype_bytes: int) -> int:
    """Bytes per token beside the buffers: streams, shared expert's and own output, the choice."""
    streams = (5 if layer.up is not None else 4) * hidden
    router = layer.router.out if layer.router is not None else 0
    return (streams + router + layer.top_k) * dtype_bytes + layer.top_k * INDEX
