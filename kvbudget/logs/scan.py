"""Bytes -> the lines worth looking at, in constant memory: one multi-literal pass over the input."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import sys
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

CHUNK = 1 << 20
MAX_LINE = 1 << 16
"""Bytes of one line that are looked at; the rest of a longer line is skipped."""
FOLLOW = 14
"""Lines after a hit that may continue it (a wrapped sentence, a dump)."""
_ROUTINE = re.compile(rb"(?:[\w.-]{1,40} *\| )?(?:\([^)\n]{1,60}\) ?)?(?:INFO|DEBUG)\b[ :]")
"""A line of this shape opens a record of its own in which nothing failed: it continues nothing."""


@dataclass(slots=True)
class RawLine:
    """A physical line: number from 1, text with undecodable bytes replaced, and why it is here."""

    number: int
    text: str
    hit: bool
    complete: bool = True
    """False when the input ended without a newline here"""


def open_input(path: str | Path) -> BinaryIO:
    """The byte stream of a file, `-` for stdin; .gz and .zst are unpacked.

    Raises InputError for a missing, unreadable or foreign file.
    """
    if str(path) == "-":
        return sys.stdin.buffer
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory", "give a log file, or - for stdin")
        stream: BinaryIO = path.open("rb")
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}", "check the path") from exc
    return unpacked(stream, str(path))


def unpacked(stream: BinaryIO, name: str) -> BinaryIO:
    """The stream, through gzip, zstd or UTF-16 when its first bytes say so."""
    head = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
    if head[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=stream))
    if head == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard
        except ImportError as exc:
            raise InputError(
                f"{name} is zstd-compressed, and the zstandard package is missing",
                "pip install zstandard, or pipe it through `zstd -dc`",
            ) from exc
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(stream))
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return io.BufferedReader(_Recoded(stream))
    return stream


class _Recoded(io.RawIOBase):
    """UTF-16 with its byte order mark, which PowerShell's `>` writes, as UTF-8."""

    def __init__(self, stream: BinaryIO) -> None:
        self._text = io.TextIOWrapper(stream, "utf-16", "replace", newline="")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = self._text.read(len(view) // 4).encode("utf-8", "replace")
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._text.close()
        super().close()


@contextlib.contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Turns what a damaged file makes its reader raise into an InputError."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as exc:
        raise InputError(f"cannot read {name}: {exc}", "the file is damaged or incomplete") from exc
    except Exception as exc:
        if type(exc).__module__.startswith("zstd"):
            raise InputError(f"cannot unpack {name}: {exc}", "the file is damaged") from exc
        raise


def chunks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks that end at a line end (the last one may not). Raises InputError on a broken file."""
    rest: list[bytes] = []
    while True:
        with unpacking(name):
            block = stream.read1(CHUNK) if hasattr(stream, "read1") else stream.read(CHUNK)
        if not block:
            break
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((*rest, block[:cut]))
            rest = [block[cut:]] if cut < len(block) else []
        elif sum(map(len, rest)) < 2 * MAX_LINE:
            rest.append(block)
    if rest:
        yield b"".join(rest)


class Literals:
    """The literals of all patterns as one automaton over bytes."""

    def __init__(self, literals: list[str]) -> None:
        self.literals = literals

    @cached_property
    def _automaton(self) -> object:
        import ahocorasick_rs as ac

        return ac.BytesAhoCorasick([text.encode() for text in self.literals])

    def positions(self, block: bytes) -> list[int]:
        """Start of every occurrence, in order."""
        found = self._automaton.find_matches_as_indexes(block)  # type: ignore[attr-defined]
        return [start for _, start, _ in found]


def lines(stream: BinaryIO, name: str, literals: Literals, *, everything: int) -> Iterator[RawLine]:
    """The lines that hold a literal, each with the FOLLOW lines after it.

    Of an input of at most `everything` bytes every line is given, so that words broken by hard
    wraps can be put together.
    """
    first = True
    number = 1
    follow = 0
    for block in chunks(stream, name):
        hits = literals.positions(block)
        small = first and len(block) <= everything
        first = False
        if not hits and not follow and not small:
            number += block.count(b"\n")
            continue
        if small:
            yield from _all(block, number, hits)
            number += block.count(b"\n")
            follow = 0
            continue
        position, upto = 0, number
        for hit in hits:
            if hit < position:
                continue
            end = block.rfind(b"\n", position, hit) + 1
            if follow and end > position:
                # lines between the last hit and this one that may continue it
                start = position
                while follow and start < end:
                    if _ROUTINE.match(block, start):
                        follow = 0
                        break
                    stop = block.find(b"\n", start, end) + 1
                    yield _line(block, start, stop, upto, hit=False)
                    upto += 1
                    start = stop
                    follow -= 1
                upto += block.count(b"\n", start, end)
            else:
                upto += block.count(b"\n", position, max(end, position))
            start = max(end, position)
            stop = block.find(b"\n", hit) + 1 or len(block)
            yield _line(block, start, stop, upto, hit=True)
            upto += 1
            follow = FOLLOW
            position = stop
        while follow and position < len(block):
            if _ROUTINE.match(block, position):
                follow = 0
                break
            stop = block.find(b"\n", position) + 1 or len(block)
            yield _line(block, position, stop, upto, hit=False)
            upto += 1
            position = stop
            follow -= 1
        number += block.count(b"\n")


def _line(block: bytes, start: int, stop: int, number: int, *, hit: bool) -> RawLine:
    raw = block[start : min(stop, start + MAX_LINE)]
    complete = block[stop - 1 : stop] == b"\n"
    return RawLine(number, raw.decode("utf-8", "replace").rstrip("\n"), hit, complete)


def _all(block: bytes, number: int, hits: list[int]) -> Iterator[RawLine]:
    position = 0
    index = 0
    while position < len(block):
        stop = block.find(b"\n", position) + 1 or len(block)
        hit = False
        while index < len(hits) and hits[index] < stop:
            hit = hit or hits[index] >= position
            index += 1
        yield _line(block, position, stop, number, hit=hit)
        number += 1
        position = stop
