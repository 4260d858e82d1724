"""Words of a command line -> typed values, as the engines' own parsers read them."""

from __future__ import annotations

import json
import re
from typing import Any

from kvbudget.gate.source import HOLE
from kvbudget.gate.units import LARGEST

_HINT = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgGtT])?\Z")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}


class BadValue(ValueError):
    """The engine would refuse this value."""


def human_int(text: str) -> int:
    """`64k` = 64000, `64K` = 65536; decimals only with lower-case units. Raises BadValue."""
    match = _HINT.match(text.strip())
    number, unit = match.groups() if match else (text, None)
    if len(number) > 24:
        raise BadValue(f"beyond any count: {text[:20]}...")
    if unit in _BINARY:
        if "." in number:
            raise BadValue(f"decimals are not allowed with {unit}: {text}")
        return int(number) * _BINARY[unit]
    if unit:
        return int(float(number) * _DECIMAL[unit])
    return _int(text)


def parse(kind: str, text: str) -> Any:  # noqa: ANN401 - typed by kind
    """One word -> value of `kind` (formulas/gate/options.yaml). Raises BadValue."""
    text = text.strip()
    if kind == "str":
        return text
    if kind == "float":
        return _float(text)
    if kind == "int":
        return _int(text)
    if kind == "hint":
        return human_int(text)
    if kind == "auto_hint":
        return -1 if text in ("auto", "-1") else human_int(text)
    if kind == "bool":
        low = text.lower()
        if low in _TRUE or low in _FALSE:
            return low in _TRUE
        raise BadValue(f"not true or false: {text}")
    if kind == "json":
        return _json(text)
    if kind == "str_json":
        if text[:1] in ("{", "["):
            return _json(text)
        return _pairs(text) if "=" in text else (_int(text) if text.isdigit() else text)
    raise BadValue(f"unknown kind {kind}")


def _pairs(text: str) -> Any:  # noqa: ANN401 - `image=4,video=0` of older releases
    out: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if not value.isdigit():
            return text
        out[key.strip()] = int(value)
    return out


def _int(text: str) -> int:
    try:
        number = int(text)
    except ValueError:  # also what Python says of thousands of digits
        raise BadValue(f"not a whole number: {text[:60]}") from None
    if abs(number) >= LARGEST:
        raise BadValue(f"beyond any count: {text[:20]}...")
    return number


def _float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise BadValue(f"not a number: {text}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise BadValue(f"not a finite number: {text[:60]}")
    if abs(number) >= LARGEST:
        raise BadValue(f"beyond any size: {text[:20]}")
    return number


def _json(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError as exc:
        raise BadValue(f"not JSON: {exc}") from None
    except RecursionError:
        raise BadValue("JSON nested too deeply") from None


def typed(kind: str, value: object) -> Any:  # noqa: ANN401 - typed by kind
    """A value that already has a type (YAML, Python, JSON); strings are parsed. Raises BadValue."""
    if isinstance(value, str):
        if kind in ("int_list", "str_list"):
            words = value.replace(",", " ").split()
            return [parse("int", word) for word in words] if kind == "int_list" else words
        return parse(kind, value)
    if kind in ("float", "int", "hint", "auto_hint") and isinstance(value, bool):
        raise BadValue(f"not a number: {value}")
    if isinstance(value, int | float) and not abs(value) < LARGEST:  # also nan
        raise BadValue("beyond any size")
    if kind in ("int", "hint", "auto_hint") and isinstance(value, float):
        if not value.is_integer():
            raise BadValue(f"not a whole number: {value}")
        return int(value)
    if kind in ("int_list",) and isinstance(value, int):
        return [value]
    if kind == "bool" and isinstance(value, int):
        return bool(value)
    if kind == "str" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def dotted_value(text: str) -> Any:  # noqa: ANN401 - JSON
    """A value behind a dotted flag: JSON, a human integer, or the word itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_int(text)
    except BadValue:
        return text


def has_hole(value: object) -> bool:
    """True when a part of the value is not known statically."""
    if isinstance(value, str):
        return HOLE in value
    if isinstance(value, dict):
        return any(has_hole(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_hole(item) for item in value)
    return False
