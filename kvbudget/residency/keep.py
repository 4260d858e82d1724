"""Parsed traces kept on disk as Arrow columns, so that a second run reads no JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kvbudget.residency import jit
from kvbudget.residency.trace import Trace

VERSION = b"2"
SMALLEST = 1 << 26
"""Smaller files are parsed in less time than it takes to import what reads the columns."""

EDGE = 1 << 24
"""So many bytes at either end of a file go into its name, besides its size and time."""


def folder() -> Path:
    """KVBUDGET_CACHE_DIR, else kvbudget/traces in the user's cache directory."""
    given = os.environ.get("KVBUDGET_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvbudget" / "traces"


def key(path: Path, options: str) -> str | None:
    """What names the columns of this file; None where there is nothing worth keeping."""
    if not jit.COMPILED:
        return None
    import hashlib

    try:
        if not path.is_file():
            return None
        about = path.stat()
        if about.st_size < SMALLEST:
            return None
        digest = hashlib.blake2b(VERSION, digest_size=16)
        digest.update(f"{about.st_size} {about.st_mtime_ns} {options}".encode())
        with path.open("rb") as stream:
            digest.update(stream.read(EDGE))
            stream.seek(max(0, about.st_size - EDGE))
            digest.update(stream.read())
    except (OSError, RuntimeError):
        return None
    return digest.hexdigest()


def get(name: str, path: str, block_tokens: int) -> Trace | None:
    """The kept trace, or None when there is none that can be read."""
    target = _file(name)
    try:
        import pyarrow as pa
    except ImportError:
        return None
    try:
        with pa.memory_map(str(target)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
    except (OSError, pa.ArrowException, ValueError):
        return None
    about = batch.schema.metadata or {}
    chains = batch.column("ids")
    notes = tuple(part for part in about.get(b"notes", b"").decode().split("\n") if part)
    stated = int(about.get(b"block_tokens", b"0"))
    return Trace(
        ids=chains.values.to_numpy(zero_copy_only=False),
        offsets=chains.offsets.to_numpy(zero_copy_only=False),
        lengths=batch.column("lengths").to_numpy(),
        times_us=batch.column("times_us").to_numpy(),
        blocks=int(about[b"blocks"]),
        block_tokens=stated or block_tokens,
        name="stdin" if path == "-" else path,
        notes=notes,
    )


def put(name: str, trace: Trace, stated_block_tokens: int = 0) -> None:
    """Keep `trace`; a directory that cannot be written is no error, only a slower next run."""
    import tempfile

    try:
        import pyarrow as pa
    except ImportError:
        return
    about: dict[bytes, Any] = {
        b"blocks": str(trace.blocks).encode(),
        b"block_tokens": str(stated_block_tokens).encode(),
        b"notes": "\n".join(trace.notes).encode(),
    }
    chains = pa.LargeListArray.from_arrays(pa.array(trace.offsets), pa.array(trace.ids))
    batch = pa.record_batch(
        [chains, pa.array(trace.lengths), pa.array(trace.times_us)],
        schema=pa.schema(
            [
                ("ids", chains.type),
                ("lengths", pa.int64()),
                ("times_us", pa.int64()),
            ],
            metadata=about,
        ),
    )
    target = _file(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent)
        os.close(handle)
        try:
            with pa.OSFile(draft, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError):
        return


def _file(name: str) -> Path:
    return folder() / f"{name}.arrow"
