"""A byte scanner for Mooncake JSONL: numbers straight from the bytes into columns."""

from __future__ import annotations

from typing import Any

from kvbudget.residency.jit import kernel

Array = Any

QUOTE, COMMA, COLON, OPEN, CLOSE, MINUS, NEWLINE = 34, 44, 58, 91, 93, 45, 10
LBRACE, RBRACE, BACKSLASH, BLANK = 123, 125, 92, 32


@kernel
def is_key(data: Array, start: int, stop: int, word: Array) -> bool:
    """Whether data[start:stop] is `word`."""
    if stop - start != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110 - compiled: no generators
        if data[start + k] != word[k]:
            return False
    return True


@kernel
def skip_blank(data: Array, i: int) -> int:
    """The first position at or after `i` that is neither blank, tab nor carriage return."""
    while i < len(data) and (data[i] == 32 or data[i] == 9 or data[i] == 13):
        i += 1
    return i


@kernel
def scan_lines(
    data: Array, ids: Array, offsets: Array, lengths: Array, times: Array, lines: Array,
    have: Array, key_time: Array, key_length: Array, key_output: Array, key_ids: Array,
) -> int:  # fmt: skip
    """Parse whole lines of flat objects with whole-number members and one array of them.

    have = [requests, ids, line number]; it is advanced. -> 0, or 1 when a line is of any other
    shape (a fraction, a string, a missing or repeated key): the caller then parses line by line.
    """
    n = len(data)
    i = 0
    r = have[0]
    k = have[1]
    line = have[2]
    while i < n:
        line += 1
        i = skip_blank(data, i)
        if i < n and data[i] == NEWLINE:
            i += 1
            continue
        if i >= n:
            break
        if data[i] != LBRACE:
            return 1
        i += 1
        found = 0
        while True:
            i = skip_blank(data, i)
            if i >= n or data[i] != QUOTE:
                return 1
            i += 1
            a = i
            while i < n and data[i] != QUOTE and data[i] != BACKSLASH and data[i] >= BLANK:
                i += 1
            if i >= n or data[i] != QUOTE:
                return 1
            z = i
            i = skip_blank(data, i + 1)
            if i >= n or data[i] != COLON:
                return 1
            i = skip_blank(data, i + 1)
            if i >= n:
                return 1
            if data[i] == OPEN:
                if not is_key(data, a, z, key_ids) or found & 4:
                    return 1
                found |= 4
                i = skip_blank(data, i + 1)
                if i < n and data[i] == CLOSE:
                    i += 1
                else:
                    while True:
                        v = 0
                        d = i
                        while i < n and 48 <= data[i] <= 57:
                            v = v * 10 + (data[i] - 48)
                            i += 1
                        if i == d or i - d > 18 or (data[d] == 48 and i - d > 1):
                            return 1
                        if i < n and (data[i] == 32 or data[i] == 9):
                            i = skip_blank(data, i)
                        if i >= n:
                            return 1
                        ids[k] = v
                        k += 1
                        if data[i] == COMMA:
                            i += 1
                            if i < n and data[i] == 32:
                                i += 1
                            if i < n and (data[i] == 32 or data[i] == 9):
                                i = skip_blank(data, i)
                            continue
                        if data[i] == CLOSE:
                            i += 1
                            break
                        return 1
            else:
                sign = 1
                if data[i] == MINUS:
                    sign = -1
                    i += 1
                v = 0
                d = i
                while i < n and 48 <= data[i] <= 57:
                    v = v * 10 + (data[i] - 48)
                    i += 1
                if i == d or i - d > 15 or (data[d] == 48 and i - d > 1):
                    return 1
                if is_key(data, a, z, key_time):
                    if found & 1:
                        return 1
                    found |= 1
                    times[r] = sign * v * 1000
                elif is_key(data, a, z, key_length):
                    if found & 2:
                        return 1
                    found |= 2
                    lengths[r] = sign * v
                elif is_key(data, a, z, key_ids) or (
                    sign < 0 and v > 0 and is_key(data, a, z, key_output)
                ):
                    return 1
            i = skip_blank(data, i)
            if i >= n:
                return 1
            if data[i] == COMMA:
                i += 1
                continue
            if data[i] == RBRACE:
                i += 1
                break
            return 1
        if found != 7:
            return 1
        i = skip_blank(data, i)
        if i < n:
            if data[i] != NEWLINE:
                return 1
            i += 1
        lines[r] = line
        r += 1
        offsets[r] = k
    have[0] = r
    have[1] = k
    have[2] = line
    return 0


def scan(data: Any, progress: Any = None) -> tuple[Array, Array, Array, Array, Array] | None:  # noqa: ANN401
    """Bytes -> (ids, offsets, lengths, times_us, lines), or None when a line is of another shape.

    `data` is anything with the buffer protocol; `progress(done_bytes)` is called per piece.
    """
    import numpy as np

    view = np.frombuffer(data, dtype=np.uint8)
    rows = int(np.count_nonzero(view == NEWLINE)) + 1
    commas = int(np.count_nonzero(view == COMMA)) + rows
    ids, offsets = np.empty(commas, np.int64), np.zeros(rows + 1, np.int64)
    lengths, times = np.empty(rows, np.int64), np.empty(rows, np.int64)
    lines = np.empty(rows, np.int32)
    have = np.zeros(3, np.int64)
    names = (b"timestamp", b"input_length", b"output_length", b"hash_ids")
    keys = [np.frombuffer(name, np.uint8) for name in names]
    at, piece = 0, 1 << 26
    while at < len(view):
        stop = min(len(view), at + piece)
        while stop < len(view) and view[stop - 1] != NEWLINE:
            more = np.flatnonzero(view[stop : stop + (1 << 16)] == NEWLINE)
            stop = stop + int(more[0]) + 1 if len(more) else min(len(view), stop + (1 << 16))
        if scan_lines(view[at:stop], ids, offsets, lengths, times, lines, have, *keys):
            return None
        at = stop
        if progress is not None:
            progress(at)
    r, k = int(have[0]), int(have[1])
    return ids[:k].copy(), offsets[: r + 1], lengths[:r], times[:r], lines[:r]
