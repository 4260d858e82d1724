"""Our own runner: the engine's sequence of buffers for a decoder, in torch operations only.

It mirrors what is alive when, not what is computed: attention and expert kernels are stand-ins
that allocate what the engine's kernels return and nothing else; rotary embedding, norms and
gates work in place, as the engine's do. Operations that create are plain allocations and copies:
others would make torch import its compiler for shapes alone (two seconds).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvbudget.model.shapes import CHUNK, LayerShape, MixerShape, ModelShape, Projection
from kvbudget.profile.cache import DecodeCache
from kvbudget.profile.sampling import SamplerBuffers, sample

if TYPE_CHECKING:
    from torch import Tensor

    from kvbudget.model.forward import Pass


class MirrorModel:
    """One rank of a model. Sizes follow `shape`; `how` says what of a layer runs.

    once: run only the first of layers that are alike; right where nothing is computed.
    tables: bytes of rotary tables.
    """

    def __init__(
        self, shape: ModelShape, *, dtype: torch.dtype, device: str, how: Pass,
        real_attention: bool = False, once: bool = False, tables: int = 0,
    ) -> None:  # fmt: skip
        self.shape, self.dtype, self.device, self.how = shape, dtype, device, how
        self.real_attention, self.once, self.tables = real_attention, once, tables
        self.weights: dict[str, Tensor] = {}
        self.workspace: tuple[Tensor, ...] = ()

    def load(self, *, fill: bool = True) -> None:
        """Allocate every weight and fill it in place with small random numbers."""
        kinds = {"dtype": self.dtype, "float32": torch.float32, "bytes": torch.uint8}
        groups = [("rest", self.shape.rest)]
        groups += [(str(n), layer.buffers) for n, layer in enumerate(self.shape.layers)]
        for group, buffers in groups:
            for buffer in buffers:
                data = torch.empty(buffer.numel, dtype=kinds[buffer.kind], device=self.device)
                if fill and buffer.kind == "bytes":
                    data.random_(0, 127)
                elif fill:
                    data.normal_(0.0, 0.02)
                self.weights[f"{group}.{buffer.name}"] = data

    def hold_tables(self) -> None:
        """Allocate the rotary tables, which engines count as weights."""
        if self.tables:
            self.weights["tables"] = torch.zeros(self.tables, dtype=torch.uint8, device=self.device)

    def unload(self) -> None:
        self.weights.clear()
        self.workspace = ()

    def forward(self, tokens: int) -> None:
        """One profile forward of `tokens` tokens without a KV cache."""
        ids = torch.zeros(tokens, dtype=torch.int64, device=self.device)
        self._layers(ids, None)

    def cache(self, batch: int, context: int) -> DecodeCache:
        """Room for decode steps of `batch` sequences of `context` tokens."""
        return DecodeCache(self.shape.layers, batch, context, dtype=self.dtype, device=self.device)

    def decode(self, cache: DecodeCache) -> None:
        """One step of one token per sequence against a static cache."""
        self._layers(cache.ids, cache)
        cache.positions.add_(1)

    def sample(self, tokens: int, requests: int, extra: SamplerBuffers) -> None:
        """The sampler on `requests` of `tokens` rows; nothing where another stage has the head."""
        if not self.shape.last:
            return
        shape = self.shape
        hidden = torch.zeros(tokens, shape.hidden, dtype=self.dtype, device=self.device)
        head = self.weights.get(f"rest.{shape.head}")
        if head is not None and head.numel() == shape.vocab_rank * shape.hidden:
            head = head.view(shape.vocab_rank, shape.hidden)
        else:
            head = None
        sample(hidden, head, requests=requests, vocab=shape.vocab, part=shape.vocab_rank,
               extra=extra)  # fmt: skip

    def _layers(self, ids: Tensor, cache: DecodeCache | None) -> None:
        passed = self._passed(ids)
        first = self.shape.embedding is not None
        held = [self._embed(ids)] if first else [tensor.clone() for tensor in passed]
        seen: set[object] = set()
        for number, layer in enumerate(self.shape.layers):
            # What is alive before a layer is alike from the second on, up to the workspaces.
            state = (layer, tuple(buffer.numel() for buffer in self.workspace))
            if self.once and state in seen:
                continue
            self._layer(number, layer, held, cache)
            if number:
                seen.add(state)
        hidden = held.pop(0).add_(held.pop()) if len(held) == 2 else held.pop()
        _norm(hidden)

    def _embed(self, ids: Tensor) -> Tensor:
        table = self.weights.get(f"rest.{self.shape.embedding}")
        if table is None or table.dtype != self.dtype:
            return torch.zeros(len(ids), self.shape.hidden, dtype=self.dtype, device=self.device)
        return torch.index_select(table.view(-1, self.shape.hidden), 0, ids)

    def _passed(self, ids: Tensor) -> list[Tensor]:
        """Hidden states and residual that pipeline stages pass on, kept for the whole step."""
        if self.shape.alone:
            return []
        size = (len(ids), self.shape.hidden)
        return [torch.zeros(size, dtype=self.dtype, device=self.device) for _ in range(2)]

    def _layer(
        self, number: int, layer: LayerShape, held: list[Tensor], cache: DecodeCache | None
    ) -> None:
        """`held` is [hidden, residual], emptied and refilled so that no caller keeps a buffer."""
        hidden = held.pop(0)
        if held:
            residual = held.pop().add_(hidden)
            hidden.copy_(residual)
        else:
            residual, hidden = hidden, hidden.clone()
        mixed = [_norm(hidden)]
        del hidden
        hidden = self._mix(number, layer, mixed, cache)
        if layer.up is None and not layer.experts:
            held += [hidden, residual]
            return
        # The compiled piece's caller holds the residual that came in while the piece runs.
        after = residual.clone().add_(hidden)
        hidden.copy_(after)
        held += [self._feed_forward(number, layer, _norm(hidden)), after]

    def _mix(
        self, number: int, layer: LayerShape, held: list[Tensor], cache: DecodeCache | None
    ) -> Tensor:
        mixer, x = layer.mixer, held.pop()
        if mixer.kind == "none":
            return x
        if mixer.kind == "linear":
            return self._linear_attention(mixer, x, number, cache)
        if mixer.kind == "mla":
            return self._latent_attention(mixer, x, number, cache)
        parts = [self._multiply(number, p, x) for p in mixer.inputs]
        tokens = x.shape[0]
        del x
        out = self._attend(mixer, parts, tokens, number, cache)
        del parts
        assert mixer.output is not None
        return self._multiply(number, mixer.output, out)

    def _attend(
        self, mixer: MixerShape, parts: list[Tensor], tokens: int, number: int,
        cache: DecodeCache | None,
    ) -> Tensor:  # fmt: skip
        """Attention's output and its float32 log-sum-exp; nothing else outlives a kernel."""
        assert mixer.output is not None
        width = mixer.output.width
        if cache is not None:
            cache.write(number, parts[0])
        elif not self.how.kernels:
            return torch.zeros(tokens, width, dtype=self.dtype, device=self.device)
        if self.real_attention and cache is None and mixer.head_dim == mixer.v_head_dim:
            out = _flash(mixer, parts[0], width)
            if out is not None:
                return out
        lse = torch.zeros(tokens, max(1, mixer.heads), dtype=torch.float32, device=self.device)
        out = torch.empty(tokens, width, dtype=self.dtype, device=self.device)
        out.fill_(0.01)
        del lse
        return out

    def _latent_attention(
        self, mixer: MixerShape, x: Tensor, number: int, cache: DecodeCache | None
    ) -> Tensor:
        """Prefill form: query, keys with their rotary part appended, values; then the output.

        Without kernels the keys and values of the tokens are never made; of a long context's,
        where the engine sets them aside, one buffer stands for them.
        """
        tokens, kernels = x.shape[0], self.how.kernels or cache is not None
        low = [self._multiply(number, p, x) for p in mixer.inputs]
        high: list[Tensor] = []
        for projection in mixer.inner if kernels else mixer.inner[:-1]:
            source = next((t for t in low if t.shape[1] >= projection.width), None)
            if source is None or (len(low) == 1 and len(mixer.inner) > 1):
                source = low[0]
            high.append(self._multiply(number, projection, source[:, : projection.width]))
        if cache is not None:
            cache.write(number, low[-1])
        if kernels:
            high.append(torch.zeros(tokens, mixer.key_width, dtype=self.dtype, device=self.device))
        context = 0 if cache is not None else self.how.context_rows
        rows = torch.empty(context, mixer.inner[-1].out, dtype=self.dtype, device=self.device)
        out = self._attend(mixer, [low[-1]], tokens, number, None)
        del rows, high, low
        assert mixer.output is not None
        return self._multiply(number, mixer.output, out)

    def _linear_attention(
        self, mixer: MixerShape, x: Tensor, number: int, cache: DecodeCache | None
    ) -> Tensor:
        """Projections, convolution, the chunked recurrence's float32 and 16-bit buffers, output."""
        tokens, assert_out = x.shape[0], mixer.output
        assert assert_out is not None
        parts = [self._multiply(number, p, x) for p in mixer.inputs]
        conv = torch.zeros(tokens, mixer.conv_width, dtype=self.dtype, device=self.device)
        if cache is not None:
            cache.write(number, conv)
        scratch = self._chunks(mixer, tokens) if cache is None and self.how.kernels else []
        out = torch.zeros(tokens, assert_out.width, dtype=self.dtype, device=self.device)
        del scratch, conv, parts
        return self._multiply(number, assert_out, out)

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

    def _feed_forward(self, number: int, layer: LayerShape, x: Tensor) -> Tensor:
        if not layer.experts:
            return self._mlp(number, layer, x)
        shared = self._mlp(number, layer, x) if layer.up is not None else None
        out = self._experts(number, layer, x)
        if shared is not None:
            out.add_(shared)
        return out

    def _mlp(self, number: int, layer: LayerShape, x: Tensor) -> Tensor:
        assert layer.up is not None
        wide = self._multiply(number, layer.up, x)
        if layer.gated:
            gate, up = wide.chunk(2, dim=1)
            act = torch.nn.functional.silu(gate, inplace=True).clone().mul_(up)
            del gate, up
        else:
            act = torch.nn.functional.relu(wide.clone(), inplace=True)
        del wide
        if layer.down is None:
            return act.new_zeros(x.shape)
        return self._multiply(number, layer.down, act)

    def _experts(self, number: int, layer: LayerShape, x: Tensor) -> Tensor:
        """Router, top-k, the workspaces of a fused expert kernel, and its output."""
        tokens, hidden = x.shape
        assert layer.router is not None
        logits = self._multiply(number, layer.router, x)
        chosen = torch.topk(logits, layer.top_k, dim=-1)
        rows = self.how.workspace_rows(tokens)
        sizes = [rows * width for width in self.how.workspace_widths(layer, hidden)]
        if sum(sizes) > sum(buffer.numel() for buffer in self.workspace):
            self.workspace = ()
            self.workspace = tuple(
                torch.zeros(n, dtype=self.dtype, device=self.device) for n in sizes
            )
        out = torch.zeros(tokens, hidden, dtype=self.dtype, device=self.device)
        if not self.how.persistent:
            self.workspace = ()
        del chosen, logits
        return out

    def _multiply(self, number: int, projection: Projection, x: Tensor) -> Tensor:
        """x W^T; a packed or fused-elsewhere weight only has its output allocated."""
        weight = self.weights.get(f"{number}.{projection.buffer}")
        fits = projection.matrix and x.shape[1] == projection.width
        if fits and weight is not None and weight.dtype == x.dtype:
            return torch.mm(x, weight.view(projection.out, projection.width).t())
        out = torch.empty(x.shape[0], projection.out, dtype=x.dtype, device=x.device)
        return out.fill_(0.01)


def _norm(x: Tensor) -> Tensor:
    """Scale rows in place; the only buffer is one number per row, as a norm kernel's."""
    return x.div_(x.new_empty(x.shape[0], 1).fill_(1.0))


def _flash(mixer: MixerShape, qkv: Tensor, width: int) -> Tensor | None:
    """The real fused kernel's output; None where this torch and card have none for the shape.

    Any other kernel of torch's would hold a matrix of tokens x tokens, which no engine does.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tokens, dim, kv_width = qkv.shape[0], mixer.head_dim, mixer.kv_heads * mixer.head_dim
    if qkv.shape[1] < width + 2 * kv_width:
        return None
    parts = (qkv[:, :width], qkv[:, -2 * kv_width : -kv_width], qkv[:, -kv_width:])
    q, k, v = (part.view(1, tokens, -1, dim).transpose(1, 2) for part in parts)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None
    return out.transpose(1, 2).reshape(tokens, width)
