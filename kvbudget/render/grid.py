"""A table of figures as plain lines: no figure is ever cut, only words of the last column wrap."""

from __future__ import annotations

from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
LEAST_WORDS = 14


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of the table, the heading first (it may take several); figures stand to the right.

    width: characters of a line. Figures that need more are let run on rather than cut.
    """
    last = len(head) - 1
    columns = list(zip(*rows, strict=True)) or [() for _ in head]
    words = [k == 0 or not _figures(columns[k]) for k in range(len(head))]
    needed = [max([1, *map(len, cells)]) for cells in columns]
    sizes = [max(size, len(name)) for size, name in zip(needed, head, strict=True)]
    if sum(sizes) + len(GAP) * last > width:  # headings wrap before anything else gives way
        words_of = [name.split() for name in head]
        sizes = [max([size, *map(len, w)]) for size, w in zip(needed, words_of, strict=True)]
    if words[last] and last:
        left = width - sum(sizes[:last]) - len(GAP) * last
        sizes[last] = min(sizes[last], max(left, LEAST_WORDS))
    titles = [wrap(name, size) for name, size in zip(head, sizes, strict=True)]
    tall = max(len(title) for title in titles)
    lines = [[""] * (tall - len(title)) + title for title in titles]
    out = [_line(cells, sizes, words) for cells in zip(*lines, strict=True)]
    for row in rows:
        parts = [
            wrap(row[k], sizes[k]) if k == last and words[k] else [row[k]] for k in range(len(row))
        ]
        out += [_line(cells, sizes, words) for cells in zip_longest(*parts, fillvalue="")]
    return out


def _figures(cells: Sequence[str]) -> bool:
    return all(
        cell in ("", "-", "yes", "no", "unknown") or cell.lstrip("+-")[:1].isdigit()
        for cell in cells
    )


def _line(cells: Sequence[str], sizes: Sequence[int], words: Sequence[bool]) -> str:
    padded = (
        f"{cell:<{size}}" if left else f"{cell:>{size}}"
        for cell, size, left in zip(cells, sizes, words, strict=True)
    )
    return GAP.join(padded).rstrip()
