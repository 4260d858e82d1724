"""The only place that knows GiB from GB: units, size parsing, size formatting."""

from __future__ import annotations

import re
from decimal import Decimal

from kvbudget.errors import InputError

Number = int | float

LARGEST = 2**63
"""Bytes; sizes from here on are slips, and floats would lose or refuse them."""

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

BYTE_FACTORS: dict[str, int] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
"""Bytes per unit. An engine that prints "GB" and means 2^30 is written down as GiB."""

_SPELLINGS = {
    "": 1,
    "b": 1,
    "k": 10**3, "kb": 10**3, "ki": KIB, "kib": KIB,
    "m": 10**6, "mb": 10**6, "mi": MIB, "mib": MIB,
    "g": 10**9, "gb": 10**9, "gi": GIB, "gib": GIB,
    "t": 10**12, "tb": 10**12, "ti": TIB, "tib": TIB,
}  # fmt: skip

_SIZE = re.compile(r"\s*([+-]?[\d_,]*\.?\d+(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*\Z")
_COUNT = re.compile(r"\s*([\d_,]+)\s*([A-Za-z]*)\s*\Z")


def parse_size(text: str, option: str = "") -> int:
    """`79.6GiB`, `80GB`, `81559MiB`, `85899345920` -> integer bytes (rounded down).

    Raises InputError for anything else, which names the `option` that it was given to.
    """
    where = f"{option}: " if option else ""
    match = _SIZE.match(text)
    factor = _SPELLINGS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise InputError(
            f"{where}not a size: {text!r}", "write a number and a unit: 79.6GiB, 80GB, 81559MiB"
        )
    try:
        size = Decimal(match.group(1).replace("_", "").replace(",", "")) * factor
    except ArithmeticError as exc:
        hint = "write a number and a unit: 79.6GiB"
        raise InputError(f"{where}not a size: {text!r}", hint) from exc
    if not match.group(2) and size != int(size):
        raise InputError(
            f"{where}{text.strip()} without a unit is a fraction of a byte",
            f"write the unit: {text.strip()}GiB",
        )
    if abs(size) >= LARGEST:
        raise InputError(f"{where}more than any machine holds: {text[:40]!r}", "check the unit")
    return int(size)


def parse_count(text: str, unit: str) -> int:
    """`445632tok`, `27852blk`, `445,632` -> int; the suffix, if there is one, must be `unit`."""
    match = _COUNT.match(text)
    if match is None or match.group(2) not in ("", unit):
        raise InputError(f"not a count of {unit}: {text!r}", f"write a whole number: 445632{unit}")
    digits = match.group(1).replace("_", "").replace(",", "")
    if not digits or len(digits) > 18:
        raise InputError(f"not a count of {unit}: {text[:40]!r}", f"write 445632{unit}")
    return int(digits)


def format_gib(value: float, digits: int = 2) -> str:
    """Bytes -> `54.40 GiB`."""
    return f"{value / GIB:,.{digits}f} GiB"


def format_size(value: int) -> str:
    """Bytes -> the binary unit that keeps three or four leading digits (`1.50 MiB`, `80.0 GiB`)."""
    size = abs(value)
    for name, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{value / factor:,.2f} {name}"
    return f"{value:,} B"


PLAIN = ("n", "ratio", "code")
"""Units of numbers that stand alone."""


def format_amount(value: float, unit: str | None) -> str:
    """A number with its unit for people: bytes as GiB/MiB, counts with separators."""
    if unit == "B":
        return format_size(int(value))
    if unit is None:
        return str(value)
    if unit == "x":
        return f"{value:,.2f}x"
    whole = isinstance(value, int) or value.is_integer()
    number = f"{int(value):,}" if whole else f"{value:,.4g}"
    return number if unit in PLAIN else f"{number} {unit}"
