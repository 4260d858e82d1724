"""Counts live tensor storages as an allocator would, on real and on fake tensors alike."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kvbudget.profile.protocols import OutOfMemory

BLOCK = 512
"""Bytes an allocator rounds every request up to (c10: kMinBlockSize)."""


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`allocated`: bytes of storages alive; `reserved`: the same, each rounded up to 512 B.

    `peak` and `peak_reserved` since the last `reset_peak`. Views and in-place operations add
    nothing. Scratch inside a kernel is invisible. `limit` (bytes, reserved): beyond it an
    operation raises OutOfMemory.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.limit = limit
        self.allocated = self.reserved = self.peak = self.peak_reserved = 0
        self._alive: set[int] = set()

    def reset_peak(self) -> None:
        self.peak, self.peak_reserved = self.allocated, self.reserved

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler at the first operation to keep it out of here."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's own signature
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if hasattr(leaf, "untyped_storage"):
                self._see(leaf.untyped_storage())
        return result

    def _see(self, storage: Any) -> None:  # noqa: ANN401
        key = storage._cdata
        if key in self._alive:
            return
        size = storage.nbytes()
        rounded = -(-size // BLOCK) * BLOCK
        if self.limit is not None and self.reserved + rounded > self.limit:
            raise OutOfMemory(size, self.limit - self.reserved)
        self._alive.add(key)
        self.allocated += size
        self.reserved += rounded
        self.peak = max(self.peak, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        weakref.finalize(storage, self._drop, key, size, rounded).atexit = False

    def _drop(self, key: int, size: int, rounded: int) -> None:
        self._alive.discard(key)
        self.allocated -= size
        self.reserved -= rounded
