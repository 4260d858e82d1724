"""Units of formula steps as exponents of base units: `B/tok`, `tok/blk`, `n`.

`n`, `x` and `ratio` are plain numbers. Two quantities may be added or compared only in the same
unit; the literal 0 fits any unit, every other literal is a plain number.
"""

from __future__ import annotations

from kvbudget.errors import KnowledgeError

Dimension = tuple[tuple[str, int], ...]
BASE = frozenset({"B", "tok", "blk", "req", "s", "slot", "flop"})
PLAIN = frozenset({"n", "x", "ratio", "1"})
NONE: Dimension = ()


def parse_dimension(text: str) -> Dimension:
    """`B/tok` -> (("B", 1), ("tok", -1)). Raises KnowledgeError for an unknown unit."""
    powers: dict[str, int] = {}
    sign = 1
    word = ""
    for char in f"{text.strip()}*":
        if char not in "*/":
            word += char
            continue
        unit = word.strip()
        if unit not in PLAIN:
            if unit not in BASE:
                known = ", ".join(sorted(BASE | PLAIN))
                raise KnowledgeError(f"unknown unit {unit!r} in {text!r}", hint=f"known: {known}")
            powers[unit] = powers.get(unit, 0) + sign
        sign, word = (1 if char == "*" else -1), ""
    return _normal(powers)


def times(left: Dimension, right: Dimension, sign: int = 1) -> Dimension:
    """The unit of a product, or with sign -1 of a quotient."""
    powers = dict(left)
    for unit, power in right:
        powers[unit] = powers.get(unit, 0) + sign * power
    return _normal(powers)


def _normal(powers: dict[str, int]) -> Dimension:
    return tuple(sorted((unit, power) for unit, power in powers.items() if power))


def dimension_text(dimension: Dimension) -> str:
    """The inverse of parse_dimension, for messages."""
    above = "*".join(unit for unit, power in dimension for _ in range(power))
    below = "".join(f"/{unit}" for unit, power in dimension for _ in range(-power))
    return (above or "1") + below if below else (above or "n")
