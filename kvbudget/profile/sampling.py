"""The sampler's share of a profile: logits of some rows, and what one variant keeps beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class SamplerBuffers:
    """What one sampler variant keeps: bytes per logit, and per column and multiprocessor."""

    def __init__(self, per_logit: int, per_row: int, rows: int, *, real_sort: bool = False) -> None:
        self.per_logit, self.per_row, self.rows = per_logit, per_row, rows
        self.real_sort = real_sort

    def use(self, scores: Tensor) -> None:
        """Hold them beside `scores` (float32 [requests, vocab]) for a moment."""
        if self.real_sort:
            ordered, order = scores.sort(dim=-1, descending=False)
            del ordered, order
            return
        sizes = (scores.numel() * self.per_logit, self.rows * self.per_row * scores.shape[1])
        held = [torch.zeros(n, dtype=torch.uint8, device=scores.device) for n in sizes if n]
        held.clear()


def sample(
    hidden: Tensor, head: Tensor | None, *, requests: int, vocab: int, part: int,
    extra: SamplerBuffers,
) -> None:  # fmt: skip
    """Logits of `requests` rows of `hidden` in its precision and in float32, then the variant's own.

    `hidden` ([tokens, width]) stays alive, as in the engine. `part`: columns of this rank's head
    ([part, width], None where it cannot be multiplied); `vocab`: columns once gathered.
    """
    rows = torch.zeros(requests, dtype=torch.int64, device=hidden.device)
    picked = torch.index_select(hidden, 0, rows)
    states = picked.clone()
    if head is not None and head.dtype == states.dtype:
        shard = torch.mm(states, head.t())
    else:
        shard = states.new_zeros(requests, part)
    logits = shard
    if part != vocab:
        logits = states.new_zeros(requests, vocab)
        logits[:, : min(part, vocab)].copy_(shard[:, :vocab])
    del shard
    extra.use(logits.to(torch.float32))
