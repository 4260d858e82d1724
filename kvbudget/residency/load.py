"""From a file, a pipe or a compressed file to a Trace: formats told apart by their first record."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvbudget.errors import InputError
from kvbudget.residency import jit, keep, mode, records
from kvbudget.residency.mode import GZIP, ZSTD
from kvbudget.residency.trace import Trace, build, column

Progress = Callable[[str, int, int], None]


def load(
    path: str,
    *,
    block_tokens: int = 512,
    sort: bool = False,
    local_ids: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
) -> Trace:
    """Read `path` (`-` is stdin) as a checked Trace.

    A large regular file is parsed once: its columns are kept on disk, keyed by size, time of
    change and content. Raises InputError, with the line where there is one.
    """
    options = f"{int(sort)}{int(local_ids)}"
    key = keep.key(Path(path), options) if cache and path != "-" else None
    if key is not None:
        kept = keep.get(key, path, block_tokens)
        if kept is not None:
            return kept
    data = _bytes(path)
    trace, stated = _parse(data, path, block_tokens, sort, local_ids, progress)
    if key is not None:
        keep.put(key, trace, stated)
    return trace


def _parse(
    data: Any,  # noqa: ANN401 - bytes or a mapped file
    path: str,
    block_tokens: int,
    sort: bool,
    local_ids: bool,
    progress: Progress | None,
) -> tuple[Trace, int]:
    name = "stdin" if path == "-" else path
    if jit.COMPILED and not local_ids:
        from kvbudget.residency import scan

        size = len(data)
        tell = (lambda done: progress("reading", done, size)) if progress else None
        found = scan.scan(data, tell) if size else None
        if found is not None and len(found[2]):
            ids, offsets, lengths, times, lines = found
            trace = build(
                ids, offsets, lengths, times,
                block_tokens=block_tokens, name=name, lines=lines, sort=sort,
            )  # fmt: skip
            return trace, 0
    text = bytes(data)
    rows = None if jit.COMPILED or local_ids else records.quick(text)
    if rows is None:
        rows = records.read(text, name, local_ids=local_ids, progress=progress)
    notes = list(rows.notes)
    if not mode.small() and not jit.available():
        notes.append(
            "plain Python: the same integers, tens of times slower; "
            'pip install "kvbudget[sim]" for the compiled kernels'
        )
    trace = build(
        column(rows.ids, "i8"), column(rows.offsets, "i8"),
        column(rows.lengths, "i8"), column(rows.times_us, "i8"),
        block_tokens=rows.block_tokens or block_tokens, name=name, lines=rows.lines, sort=sort,
        notes=tuple(notes),
    )  # fmt: skip
    return trace, rows.block_tokens or 0


def _bytes(path: str) -> Any:  # noqa: ANN401
    """The decompressed content: mapped where it lies plain in a file."""
    try:
        if path == "-":
            raw: Any = sys.stdin.buffer.read()
        else:
            with Path(path).open("rb") as stream:
                try:
                    raw = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                except (ValueError, OSError):  # empty, or a pipe
                    raw = stream.read()
    except OSError as exc:
        raise InputError(
            f"cannot read {path}: {exc.strerror}", "give a trace file, or - for stdin"
        ) from exc
    head = raw[:4]
    if head.startswith(GZIP):
        import gzip
        import zlib

        try:
            return gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as exc:
            raise InputError(
                f"{path}: not a whole gzip file ({exc})", "fetch the file again"
            ) from exc
    if head == ZSTD:
        return _unzstd(bytes(raw), path)
    return raw


def _unzstd(raw: bytes, path: str) -> bytes:
    try:
        import pyarrow as pa
    except ImportError as exc:
        raise InputError(
            f"{path} is zstd-compressed and pyarrow is not installed",
            'pip install "kvbudget[sim]", or decompress it first: zstd -dc FILE | kvbudget ... -',
        ) from exc
    try:
        with pa.input_stream(pa.BufferReader(raw), compression="zstd") as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException) as exc:
        raise InputError(f"{path}: not a whole zstd file ({exc})", "fetch the file again") from exc
