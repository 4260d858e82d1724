"""Sizes as manifests write them -> bytes; None where the text is not a size."""

from __future__ import annotations

import re
from decimal import Decimal

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\+?\s*\Z")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
LARGEST = 2**63
"""No engine and no manifest counts beyond it; what does is a slip, and floats would overflow."""


def is_count(text: str) -> bool:
    """True for plain decimal digits that are a count of something (not `²`, not 5,000 digits)."""
    return text.isascii() and text.isdigit() and len(text) < 19


def binary_size(text: object) -> int | None:
    """docker, compose, systemd, Slurm: `64g`, `160G`, `512m`, `1gb` are binary; no unit is bytes."""
    return _size(text, binary=True)


def quantity(text: object) -> int | None:
    """Kubernetes: `Gi` = 2^30, `G` = 1e9, no unit is bytes."""
    return _size(text, binary=False)


def _size(text: object, *, binary: bool) -> int | None:
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int):
        return text if abs(text) < LARGEST else None
    match = _SIZE.match(str(text))
    if match is None:
        return None
    number, unit = Decimal(match.group(1)), match.group(2)
    if number >= LARGEST:
        return None
    if not unit or unit.lower() == "b":
        return int(number)
    low = unit.lower()
    if low[0] not in _BINARY:
        return None
    if binary or low[1:2] == "i":
        return int(number * _BINARY[low[0]])
    if unit == "m":
        return int(number / 1000)
    return int(number * _DECIMAL[low[0]])
