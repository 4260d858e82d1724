"""The sampler's share of a profile: logits of some rows, and what one variant keeps beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class SamplerBuffers:
    """What one sampler variant keeps: bytes per logit, and per column and multiprocessor.

    float_copy: it works on a float32 copy of the logits. real_sort: torch's own sort is run.
    """

    def __init__(
        self, per_logit: int, per_row: int, rows: int, *, float_copy: bool = True,
        real_sort: bool = False,
    ) -> None:  # fmt: skip
        self.per_logit, self.per_row, self.rows = per_logit, per_row, rows
        self.float_copy, self.real_sort = float_copy, real_sort

    def use(self, logits: Tensor) -> None:
        """Hold them beside `logits` ([requests, vocab]) for a moment."""
        scores = logits.to(torch.float32) if self.float_copy else logits
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
    """Logits of `requests` rows of `hidden`, gathered from all ranks, then the variant's own.

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
        gathered = states.new_zeros(requests, vocab)
        gathered[:, : min(part, vocab)].copy_(shard[:, :vocab])
        logits = gathered.clone()  # the ranks' parts are put in order, each row in one piece
        del gathered
    del shard
    extra.use(logits)
