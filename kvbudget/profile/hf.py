"""Runner `hf` (extra `hf`): the forward of transformers, as a cross-check of our own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.model.hub import fetch_config
from kvbudget.profile.sampling import SamplerBuffers, sample

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PAGED = "kvbudget_paged"
"""Our attention's name; one with `flash` in it would make transformers look for a kernel."""


class HfRunner:
    """One whole model built by transformers from `config.json` alone, random weights."""

    def __init__(self, source: str, *, dtype: torch.dtype, device: str) -> None:
        self.source, self.dtype, self.device = source, dtype, device
        self.model: Any = None

    def load(self, *, fill: bool = True) -> None:
        """Build the model in place; transformers fills it with its own initial values.

        Raises InputError without transformers, or for a config it does not know.
        """
        del fill  # transformers' initialisation runs in place, on nothing where nothing is real
        os.environ["HF_HUB_OFFLINE"] = "1"
        try:
            from transformers import AutoConfig, AutoModelForCausalLM
        except ImportError as exc:
            raise InputError(
                "--runner hf needs transformers (5 or newer)", 'pip install "kvbudget[hf]"'
            ) from exc
        import torch

        _register()
        path = Path(self.source)
        if not path.exists():
            path = fetch_config(self.source)
        try:
            config = AutoConfig.from_pretrained(path if path.is_dir() else path.parent)
            config = config.get_text_config()
            if hasattr(config, "quantization_config"):
                del config.quantization_config
            with torch.device(self.device):
                build: Any = AutoModelForCausalLM.from_config
                self.model = build(config, dtype=self.dtype, attn_implementation=PAGED)
        except (ValueError, KeyError, OSError, AttributeError) as exc:
            said = str(exc).strip().splitlines()
            raise InputError(
                f"transformers cannot build this model: {said[0] if said else type(exc).__name__}",
                "our own runner reads config.json by itself: --runner own",
            ) from exc
        self.model.eval()

    def unload(self) -> None:
        self.model = None

    def forward(self, tokens: int) -> None:
        """Hidden states of one sequence of `tokens` tokens, no KV cache, no logits."""
        self._hidden(tokens)

    def _hidden(self, tokens: int) -> Tensor:
        import torch

        ids = torch.zeros(1, tokens, dtype=torch.int64, device=self.device)
        out: Tensor = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return out

    def sample(self, tokens: int, requests: int, extra: SamplerBuffers) -> None:
        """The same sampler as our own runner's, on transformers' head."""
        import torch

        head = self.model.get_output_embeddings().weight
        hidden = torch.zeros(tokens, head.shape[1], dtype=self.dtype, device=self.device)
        vocab = head.shape[0]
        sample(hidden, head, requests=requests, vocab=vocab, part=vocab, extra=extra)


def _register() -> None:
    """An attention that allocates what a fused kernel returns, and no mask of tokens x tokens."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(PAGED, _attention)
    AttentionMaskInterface.register(PAGED, lambda *_args, **_kwargs: None)


def _attention(
    module: Any,  # noqa: ANN401 - a layer of transformers
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_kwargs: object,
) -> tuple[Tensor, None]:  # fmt: skip
    """[batch, heads, tokens, dim] in; [batch, tokens, heads, value dim] out, float32 sums beside."""
    del module, key, attention_mask
    import torch

    batch, heads, tokens, _ = query.shape
    sums = query.new_zeros(batch, heads, tokens, dtype=torch.float32)
    out = query.new_zeros(batch, tokens, heads, value.shape[-1])
    del sums
    return out, None
