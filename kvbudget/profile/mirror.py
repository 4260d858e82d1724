"""Our own runner: the engine's sequence of buffers for a decoder, in torch operations only.

It mirrors what is alive when, not what is computed: attention and expert kernels are stand-ins
that allocate what the engine's kernels return and nothing else; rotary embedding, norms and
gates work in place, as the engine's do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kvbudget.profile.shapes import CHUNK, LayerShape, MixerShape, ModelShape, Projection

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {2: torch.bfloat16, 4: torch.float32}


class MirrorModel:
    """One rank of a model. Sizes follow `shape`; `keep_workspace` keeps the expert buffers."""

    def __init__(
        self, shape: ModelShape, *, dtype: torch.dtype, device: str, keep_workspace: bool,
        workspace: bool = True, real_attention: bool = False,
    ) -> None:  # fmt: skip
        self.shape, self.dtype, self.device = shape, dtype, device
        self.keep_workspace, self.use_workspace = keep_workspace, workspace
        self.real_attention = real_attention
        self.weights: dict[str, Tensor] = {}
        self.workspace: tuple[Tensor, ...] = ()

    def load(self, *, fill: bool = True) -> None:
        """Allocate every weight and fill it in place with small random numbers."""
        groups = [self.shape.rest, *(layer.buffers for layer in self.shape.layers)]
        kinds = {"dtype": self.dtype, "float32": torch.float32, "bytes": torch.uint8}
        for group in groups:
            for buffer in group:
                data = torch.empty(buffer.numel, dtype=kinds[buffer.kind], device=self.device)
                if fill and buffer.kind == "bytes":
                    data.random_(0, 127)
                elif fill:
                    data.normal_(0.0, 0.02)
                self.weights[buffer.name] = data

    def unload(self) -> None:
        self.weights.clear()
        self.workspace = ()

    def forward(self, tokens: int) -> Tensor:
        """One profile forward of `tokens` tokens without a KV cache; returns hidden states."""
        ids = torch.zeros(tokens, dtype=torch.int64, device=self.device)
        return self._layers(ids, None)

    def decode(self, cache: DecodeCache) -> Tensor:
        """One step of one token per sequence against a static cache; returns hidden states."""
        hidden = self._layers(cache.ids, cache)
        cache.positions.add_(1)
        return hidden

    def _layers(self, ids: Tensor, cache: DecodeCache | None) -> Tensor:
        table = self.weights[self.shape.embedding].view(-1, self.shape.hidden)
        hidden = torch.index_select(table, 0, ids)
        held: list[Tensor] = [hidden]
        del hidden
        for layer in self.shape.layers:
            self._layer(layer, held, cache)
        hidden, residual = held
        return _norm(hidden.add_(residual))

    def _layer(self, layer: LayerShape, held: list[Tensor], cache: DecodeCache | None) -> None:
        """`held` is [hidden, residual], emptied and refilled so that no caller keeps a buffer."""
        hidden = held.pop(0)
        if held:
            residual = held.pop().add_(hidden)
            hidden.copy_(residual)
        else:
            residual, hidden = hidden, hidden.clone()
        mixed = [_norm(hidden)]
        del hidden
        hidden = self._mix(layer, mixed, cache)
        if layer.up is None and not layer.experts:
            held += [hidden, residual]
            return
        # The compiled piece's caller holds the residual that came in while the piece runs.
        after = residual + hidden
        hidden.copy_(after)
        held += [self._feed_forward(layer, _norm(hidden)), after]

    def _mix(self, layer: LayerShape, held: list[Tensor], cache: DecodeCache | None) -> Tensor:
        mixer, x = layer.mixer, held.pop()
        if mixer.kind == "none":
            return x
        if mixer.kind == "linear":
            return self._linear_attention(mixer, x, layer.number, cache)
        if mixer.kind == "mla":
            return self._latent_attention(mixer, x, layer.number, cache)
        parts = [self._multiply(p, x) for p in mixer.inputs]
        tokens = x.shape[0]
        del x
        out = self._attend(mixer, parts, tokens, layer.number, cache)
        del parts
        assert mixer.output is not None
        return self._multiply(mixer.output, out)

    def _attend(
        self, mixer: MixerShape, parts: list[Tensor], tokens: int, number: int,
        cache: DecodeCache | None,
    ) -> Tensor:  # fmt: skip
        """Attention's output and its float32 log-sum-exp; nothing else outlives a kernel."""
        assert mixer.output is not None
        width = mixer.output.width
        if cache is not None:
            cache.write(number, parts[0])
        if self.real_attention and cache is None and mixer.head_dim == mixer.v_head_dim:
            return _flash(mixer, parts[0], width)
        lse = torch.zeros(tokens, max(1, mixer.heads), dtype=torch.float32, device=self.device)
        out = torch.empty(tokens, width, dtype=self.dtype, device=self.device)
        out.fill_(0.01)
        del lse
        return out

    def _latent_attention(
        self, mixer: MixerShape, x: Tensor, number: int, cache: DecodeCache | None
    ) -> Tensor:
        """Prefill form: query, keys with their rotary part appended, values; then the output."""
        tokens = x.shape[0]
        low = [self._multiply(p, x) for p in mixer.inputs]
        high: list[Tensor] = []
        for projection in mixer.inner:
            source = next((t for t in low if t.shape[1] >= projection.width), None)
            if source is None or (len(low) == 1 and len(mixer.inner) > 1):
                source = low[0]
            high.append(self._multiply(projection, source[:, : projection.width]))
        if cache is not None:
            cache.write(number, low[-1])
        keys = torch.empty(tokens, mixer.key_width, dtype=self.dtype, device=self.device)
        keys.fill_(0.01)
        out = self._attend(mixer, [low[-1]], tokens, number, None)
        del keys, high, low
        assert mixer.output is not None
        return self._multiply(mixer.output, out)

    def _linear_attention(
        self, mixer: MixerShape, x: Tensor, number: int, cache: DecodeCache | None
    ) -> Tensor:
        """Projections, convolution, the chunked recurrence's float32 and 16-bit buffers, output."""
        tokens, assert_out = x.shape[0], mixer.output
        assert assert_out is not None
        parts = [self._multiply(p, x) for p in mixer.inputs]
        conv = torch.zeros(tokens, mixer.conv_width, dtype=self.dtype, device=self.device)
        if cache is not None:
            cache.write(number, conv)
            scratch: list[Tensor] = []
        else:
            scratch = self._chunks(mixer, tokens)
        out = torch.zeros(tokens, assert_out.width, dtype=self.dtype, device=self.device)
        del scratch, conv, parts
        return self._multiply(assert_out, out)

    def _chunks(self, mixer: MixerShape, tokens: int) -> list[Tensor]:
        """Decays, the chunk-local matrix, two corrected operands and one state per chunk."""
        heads, keys, values = mixer.heads, mixer.head_dim, mixer.v_head_dim
        if not heads:
            return []
        chunks = -(-tokens // CHUNK)
        new = self.device
        return [
            torch.zeros(tokens, heads, dtype=torch.float32, device=new),
            torch.zeros(tokens, heads, CHUNK, dtype=torch.float32, device=new),
            torch.zeros(tokens, heads, keys + values, dtype=self.dtype, device=new),
            torch.zeros(chunks, heads, keys, values, dtype=self.dtype, device=new),
        ]

    def _feed_forward(self, layer: LayerShape, x: Tensor) -> Tensor:
        if not layer.experts:
            return self._mlp(layer, x)
        shared = self._mlp(layer, x) if layer.up is not None else None
        out = self._experts(layer, x)
        if shared is not None:
            out.add_(shared)
        return out

    def _mlp(self, layer: LayerShape, x: Tensor) -> Tensor:
        assert layer.up is not None
        wide = self._multiply(layer.up, x)
        if layer.gated:
            gate, up = wide.chunk(2, dim=1)
            act = torch.mul(torch.nn.functional.silu(gate, inplace=True), up)
            del gate, up
        else:
            act = torch.nn.functional.relu(wide, inplace=True)
        del wide
        if layer.down is None:
            return act.new_zeros(x.shape)
        return self._multiply(layer.down, act)

    def _experts(self, layer: LayerShape, x: Tensor) -> Tensor:
        """Router, top-k, the two workspaces of a fused expert kernel, and its output."""
        tokens, hidden, rows = x.shape[0], x.shape[1], x.shape[0] * layer.top_k
        assert layer.router is not None
        logits = self._multiply(layer.router, x)
        chosen = torch.topk(logits, layer.top_k, dim=-1)
        if self.use_workspace:
            wide = rows * max(2 * layer.expert_inner, hidden)
            narrow = rows * max(layer.expert_inner, hidden)
            if not self.workspace or self.workspace[0].numel() < wide:
                self.workspace = ()
                self.workspace = tuple(
                    torch.zeros(n, dtype=self.dtype, device=self.device) for n in (wide, narrow)
                )
        out = torch.zeros(tokens, hidden, dtype=self.dtype, device=self.device)
        if not self.keep_workspace:
            self.workspace = ()
        del chosen, logits
        return out

    def _multiply(self, projection: Projection, x: Tensor) -> Tensor:
        """x W^T; a packed or fused-elsewhere weight only has its output allocated."""
        weight = self.weights[projection.buffer]
        if projection.matrix and weight.dtype == x.dtype and x.shape[1] == projection.width:
            return torch.mm(x, weight.view(projection.out, projection.width).t())
        out = torch.empty(x.shape[0], projection.out, dtype=x.dtype, device=x.device)
        return out.fill_(0.01)

    def sample(self, tokens: int, requests: int, extra: SamplerBuffers) -> None:
        """Logits of `requests` rows in the model's precision and in float32, then the kernel's own.

        The hidden states of the whole batch stay alive, as in the engine.
        """
        hidden = torch.zeros(tokens, self.shape.hidden, dtype=self.dtype, device=self.device)
        rows = torch.zeros(requests, dtype=torch.int64, device=self.device)
        picked = torch.index_select(hidden, 0, rows)
        states = picked.clone()
        head = self.weights[self.shape.head]
        vocab, width = self.shape.vocab, self.shape.hidden
        part = self.shape.vocab_rank
        if head.numel() == part * width and head.dtype == states.dtype:
            shard = torch.mm(states, head.view(part, width).t())
        else:
            shard = torch.zeros(requests, part, dtype=self.dtype, device=self.device)
        logits = shard
        if part != vocab:
            logits = torch.zeros(requests, vocab, dtype=self.dtype, device=self.device)
            logits[:, :part].copy_(shard)
        del shard
        scores = logits.to(torch.float32)
        extra.use(scores)


class SamplerBuffers:
    """What one sampler variant keeps: bytes per logit, and per column and multiprocessor."""

    def __init__(self, per_logit: int, per_row: int, rows: int, *, real_sort: bool = False) -> None:
        self.per_logit, self.per_row, self.rows, self.real_sort = (
            per_logit,
            per_row,
            rows,
            real_sort,
        )

    def use(self, scores: Any) -> None:  # noqa: ANN401 - a tensor
        """Hold them beside `scores` (float32 [requests, vocab]) for a moment."""
        if self.real_sort:
            ordered, order = scores.sort(dim=-1, descending=False)
            del ordered, order
            return
        held = []
        if self.per_logit:
            held.append(
                torch.zeros(
                    scores.numel() * self.per_logit, dtype=torch.uint8, device=scores.device
                )
            )
        if self.per_row and self.rows:
            size = self.rows * self.per_row * scores.shape[1]
            held.append(torch.zeros(size, dtype=torch.uint8, device=scores.device))
        held.clear()


class DecodeCache:
    """Static keys, values and states for `batch` sequences of `context` tokens."""

    def __init__(self, model: MirrorModel, batch: int, context: int) -> None:
        shape, device = model.shape, model.device
        self.ids = torch.zeros(batch, dtype=torch.int64, device=device)
        self.positions = torch.zeros(batch, 1, 1, dtype=torch.int64, device=device)
        self.slots: dict[int, Tensor] = {}
        for layer in shape.layers:
            width = layer.mixer.cache_width or layer.mixer.conv_width
            if width:
                self.slots[layer.number] = torch.zeros(
                    batch, context, width, dtype=model.dtype, device=device
                )

    def first(self, batch: int) -> DecodeCache:
        """The first `batch` sequences of this cache, sharing its memory."""
        part = object.__new__(DecodeCache)
        part.ids, part.positions = self.ids[:batch], self.positions[:batch]
        part.slots = {number: slot[:batch] for number, slot in self.slots.items()}
        return part

    def write(self, number: int, rows: Tensor) -> None:
        """Put this step's row of every sequence at its position, in place."""
        slot = self.slots.get(number)
        if slot is None:
            return
        width = min(slot.shape[2], rows.shape[1])
        index = self.positions.expand(-1, 1, width)
        slot.scatter_(1, index, rows[:, :width].unsqueeze(1))


def _norm(x: Tensor) -> Tensor:
    """Scale rows in place; the only buffer is one number per row."""
    return x.div_(torch.linalg.vector_norm(x, dim=-1, keepdim=True).add_(1e-5))


def _flash(mixer: MixerShape, qkv: Tensor, width: int) -> Tensor:
    """The real fused kernel where there is one (CUDA)."""
    tokens, dim = qkv.shape[0], mixer.head_dim
    heads = width // dim
    q = qkv[:, :width].unflatten(1, (heads, dim)).transpose(0, 1)  # type: ignore[no-untyped-call]
    kv = qkv[:, -2 * mixer.kv_heads * dim :].unflatten(1, (2 * mixer.kv_heads, dim)).transpose(0, 1)  # type: ignore[no-untyped-call]
    k, v = kv[: mixer.kv_heads], kv[mixer.kv_heads :]
    out = torch.nn.functional.scaled_dot_product_attention(
        q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), is_causal=True, enable_gqa=True
    )
    return out.squeeze(0).transpose(0, 1).reshape(tokens, width)
