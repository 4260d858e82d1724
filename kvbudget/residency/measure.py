"""Measure this machine's memory-copy and file-read bandwidth, for real and briefly."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

from kvbudget.errors import InputError
from kvbudget.residency.links import Link

COPY_BYTES = 1 << 28
FILE_BYTES = 1 << 28
BLOCK_BYTES = 1 << 21


def memory_link() -> Link:
    """Best of five copies of 256 MiB in host memory by one thread, in bytes copied per second."""
    source, target = bytearray(COPY_BYTES), bytearray(COPY_BYTES)
    view_in, view_out = memoryview(source), memoryview(target)
    best = min(_timed(lambda: view_out.__setitem__(slice(None), view_in)) for _ in range(5))
    return Link("host-memcpy", COPY_BYTES / best, source="measured here: one thread, 256 MiB copy")


def file_links(folder: Path | None = None) -> list[Link]:
    """Sequential read of a fresh 256 MiB file: through the page cache, and past it (O_DIRECT)
    where the file system allows it. Latency is that of one 4 KiB read past the cache.

    Raises InputError when the file cannot be written.
    """
    where = folder or Path(tempfile.gettempdir())
    try:
        handle, name = tempfile.mkstemp(prefix="kvbudget-", dir=where)
    except OSError as exc:
        raise InputError(
            f"cannot write in {where}: {exc.strerror}", "give --measure-dir DIR"
        ) from exc
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            block = os.urandom(BLOCK_BYTES)
            for _ in range(FILE_BYTES // BLOCK_BYTES):
                stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
        cached = min(_timed(lambda: _read(path, os.O_RDONLY)) for _ in range(3))
        found = [
            Link("file-cached", FILE_BYTES / cached, source="measured here: page cache, one thread")
        ]
        direct = getattr(os, "O_DIRECT", 0)
        if direct:
            try:
                took = min(_timed(lambda: _read(path, os.O_RDONLY | direct)) for _ in range(2))
                small = min(
                    _timed(lambda: _read(path, os.O_RDONLY | direct, 4096)) for _ in range(9)
                )
            except OSError:
                return found
            found.append(
                Link("file-direct", FILE_BYTES / took, small, "measured here: O_DIRECT, one thread")
            )
        return found
    except OSError as exc:
        raise InputError(
            f"cannot measure in {where}: {exc.strerror}", "give --measure-dir DIR"
        ) from exc
    finally:
        path.unlink(missing_ok=True)


def _read(path: Path, flags: int, stop: int = FILE_BYTES) -> None:
    # an anonymous map is page-aligned, as O_DIRECT wants its buffer
    with mmap.mmap(-1, BLOCK_BYTES) as buffer:
        handle = os.open(path, flags)
        try:
            done = 0
            view = memoryview(buffer)
            try:
                while done < stop:
                    got = os.readv(handle, [view[: min(BLOCK_BYTES, stop - done)]])
                    if got == 0:
                        break
                    done += got
            finally:
                view.release()
        finally:
            os.close(handle)


def _timed(action: object) -> float:
    assert callable(action)
    start = time.perf_counter()
    action()
    return max(time.perf_counter() - start, 1e-9)
