"""JSON that a user hands in: read whole, or refused in one sentence with the line."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 64 * 2**20
"""No config, index, profile or report is near this; what is larger is another file."""
_DIGITS = 19
"""Digits of a 64-bit integer: longer ones are no count of bytes, tokens or layers."""


def read_object(path: Path, hint: str | None = None) -> dict[str, Any]:
    """The JSON object in `path` (`-`: stdin). Raises InputError naming the file, `hint` what to do."""
    if str(path) == "-":
        return parse_object(sys.stdin.buffer.read(MAX_BYTES + 1), "-", hint)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}", hint or "check the path") from exc
    return parse_object(data, path.name, hint)


def parse_object(data: bytes, name: str, hint: str | None = None) -> dict[str, Any]:
    """The JSON object in `data` (UTF-8, with or without a byte order mark).

    Refused, as InputError: more than MAX_BYTES, anything that is no object, NaN and infinities, numbers beyond 64
    bits, characters that no text file can hold (lone surrogates), nesting beyond Python's stack.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES >> 20} MiB", hint)
    try:
        text = data.decode("utf-8-sig")
        raw = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refused)
        if "\\ud" in text.lower():
            json.dumps(raw, ensure_ascii=False).encode()
    except json.JSONDecodeError as exc:
        raise InputError(f"{name} is not JSON: {exc.msg} on line {exc.lineno}", hint) from exc
    except UnicodeDecodeError as exc:
        raise InputError(f"{name} is not JSON: not UTF-8 at byte {exc.start}", hint) from exc
    except UnicodeEncodeError as exc:
        raise InputError(f"{name} holds half a surrogate pair", hint) from exc
    except RecursionError as exc:
        raise InputError(f"{name} is nested too deeply", hint) from exc
    except OverflowError as exc:
        raise InputError(f"{name}: {exc} is not a number to calculate with", hint) from exc
    if not isinstance(raw, dict):
        raise InputError(f"{name} is not a JSON object", hint)
    return raw


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _DIGITS or not -(2**63) <= int(text) < 2**63:
        _refused(text)
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refused(text)
    return value


def _refused(text: str) -> NoReturn:
    raise OverflowError(text if len(text) <= 24 else f"{text[:20]}...")
