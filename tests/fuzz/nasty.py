"""What the fuzz targets share: values nobody expects, put into documents that are otherwise whole."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

import atheris

if TYPE_CHECKING:
    from collections.abc import Callable

NASTY: tuple[Any, ...] = (
    10**400, 2**63, 10**18, -1, 0, 1, 1.5, -1e308, float("nan"), float("inf"), "", "x", "\ud800",
    "\x1b[31m[bold]", "9" * 5000, "\u00b2", None, True, [], {}, [1], {"a": 1}, [[[]]],
)  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON document."""
    pairs = (
        document.items() if isinstance(document, dict)
        else enumerate(document) if isinstance(document, list) else ()
    )  # fmt: skip
    found = []
    for key, value in pairs:
        found += [(*path, key), *places(value, (*path, key))]
    return found


def spoil(provider: Any, document: Any) -> Any:
    """A copy in which up to four values are deleted or replaced."""
    spoilt = copy.deepcopy(document)
    for _ in range(provider.ConsumeIntInRange(0, 4)):
        found = places(spoilt)
        if not found:
            break
        path = provider.PickValueInList(found)
        holder = spoilt
        for key in path[:-1]:
            holder = holder[key]
        choice = provider.ConsumeIntInRange(0, len(NASTY) + 2)
        if choice < len(NASTY):
            holder[path[-1]] = copy.deepcopy(NASTY[choice])
        elif choice == len(NASTY):
            del holder[path[-1]]
        elif choice == len(NASTY) + 1:
            holder[path[-1]] = provider.ConsumeInt(9)
        else:
            holder[path[-1]] = provider.ConsumeUnicode(40)
    return spoilt


def damage(provider: Any, data: bytes) -> bytes:
    """`data` with up to four pieces cut out, doubled or replaced by random bytes."""
    for _ in range(provider.ConsumeIntInRange(0, 4)):
        start = provider.ConsumeIntInRange(0, len(data))
        stop = min(len(data), start + provider.ConsumeIntInRange(0, 60))
        choice = provider.ConsumeIntInRange(0, 2)
        middle = b"" if choice == 0 else data[start:stop] * 2
        if choice == 2:
            middle = provider.ConsumeBytes(20)
        data = data[:start] + middle + data[stop:]
    return data


def run(one_input: Callable[[bytes], None]) -> None:
    """Fuzz; every libFuzzer option is taken from the command line."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
