"""Parsed knowledge kept between runs: reading YAML costs more than most commands compute.

Every entry is named by what it was made from, so a changed file is another entry. Where no folder
can be written, everything works as before, only slower.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from kvbudget import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def kept(
    kind: str, made_from: Iterable[bytes], decode: Callable[[bytes], T], make: Callable[[], T],
    *, entries: int,
) -> T:  # fmt: skip
    """`make()`, or what it gave when it last ran on the same bytes. `entries` of a kind are kept."""
    key = hashlib.blake2b(__version__.encode(), digest_size=16)
    for part in made_from:
        key.update(len(part).to_bytes(8, "little") + part)
    file = cache_dir() / f"{kind}-{key.hexdigest()}.msgpack"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return decode(file.read_bytes())
    made = make()
    with contextlib.suppress(OSError, TypeError, OverflowError, msgspec.EncodeError):
        _write(file, msgspec.msgpack.encode(made), kind, entries)
    return made


def _write(file: Path, data: bytes, kind: str, entries: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    found = sorted(file.parent.glob(f"{kind}-*.msgpack"), key=lambda p: p.stat().st_mtime)
    for stale in found[: max(0, len(found) - entries + 1)]:
        stale.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(name).replace(file)


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/kvbudget, or ~/.cache/kvbudget."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "kvbudget"
