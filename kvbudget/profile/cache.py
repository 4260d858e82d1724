"""The static KV cache that decode steps of a profile write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kvbudget.model.shapes import LayerShape


class DecodeCache:
    """Static keys, values and states for `batch` sequences of `context` tokens."""

    def __init__(
        self, layers: Sequence[LayerShape], batch: int, context: int, *,
        dtype: torch.dtype, device: str,
    ) -> None:  # fmt: skip
        self.ids = torch.zeros(batch, dtype=torch.int64, device=device)
        self.positions = torch.zeros(batch, 1, 1, dtype=torch.int64, device=device)
        self.slots: dict[int, Tensor] = {}
        for number, layer in enumerate(layers):
            width = layer.mixer.cache_width or layer.mixer.conv_width
            if width:
                self.slots[number] = torch.zeros(batch, context, width, dtype=dtype, device=device)

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
