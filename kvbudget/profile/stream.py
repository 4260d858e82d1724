"""Real weights onto the device, a few MiB at a time: the host never holds a file or a tensor."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from kvbudget.profile.shards import Piece, Shard

STEP = 32 * 2**20
"""Bytes read at once (one row of a tensor's first dimension at least)."""

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "U8": torch.uint8,
}  # fmt: skip


def stream(
    folder: Path, shard: Shard, *, dtype: torch.dtype, cast: str | None, device: str, read: bool
) -> dict[str, Tensor]:
    """Allocate every buffer of `shard` on `device` and, with `read`, fill it from the files.

    cast: the file format whose tensors become `dtype`, as an engine's --dtype does (None: none).
    Raises InputError for a file that ends too early or cannot be read.
    """
    found: dict[str, Tensor] = {}
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for (name, kind), pieces in shard.buffers.items():
            kept = dtype if kind == cast else DTYPES[kind]
            sizes = [piece.numel for piece in pieces]
            data = torch.empty(sum(sizes), dtype=kept, device=device)
            found[f"file.{name}.{kind}"] = data
            for piece, part in zip(pieces, torch.split(data, sizes), strict=True) if read else ():
                file = piece.tensor.file
                if file not in files:
                    files[file] = stack.enter_context(_open(folder / file))
                with _disable_current_modes():
                    _copy(files[file], piece, part)
    return found


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as exc:
        raise InputError(f"cannot read {path.name}: {exc.strerror}") from exc


def _copy(file: BinaryIO, piece: Piece, target: Tensor) -> None:
    """Rows of the first dimension, a step at a time; the other dimensions are cut on the host."""
    shape, dim = piece.tensor.shape, piece.dim
    row = piece.tensor.bytes // max(1, shape[0])
    first, end = (piece.start, piece.stop) if dim == 0 else (0, shape[0])
    step = max(1, STEP // max(1, row))
    done = 0
    for at in range(first, end, step):
        rows = min(step, end - at)
        raw = bytearray(rows * row)
        file.seek(piece.tensor.offset + at * row)
        if _fill(file, raw) < len(raw):
            raise InputError(
                f"{piece.tensor.file} ends in the middle of {piece.tensor.name}",
                "the file is damaged: download it again",
            )
        part = torch.frombuffer(raw, dtype=DTYPES[piece.tensor.dtype]).view(rows, *shape[1:])
        if dim:
            part = part.narrow(dim, piece.start, piece.stop - piece.start)
        flat = part.to(target.dtype).reshape(-1)
        target[done : done + len(flat)].copy_(flat)
        done += len(flat)


def _fill(file: BinaryIO, raw: bytearray) -> int:
    """Bytes read; one call may return fewer than asked for."""
    view, got = memoryview(raw), 0
    while got < len(raw):
        read = file.readinto(view[got:])  # type: ignore[attr-defined]
        if not read:
            break
        got += read
    return got
