"""The console: the only module besides cli/ that knows rich.

Foreign text (anything read from a log, a manifest, a device) goes through `foreign()`, so neither
rich markup nor terminal control sequences inside it ever reach the terminal as such.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_BULLET = re.compile(r"\s*(?:(?:[-!*]|\d+\.) +)?")


def plain(text: str) -> str:
    """Control characters (ESC, bidi overrides) become visible `\\x1b` escapes."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m.group()):02x}", text.replace("\t", "    "))


def foreign(text: str, style: str = "") -> Text:
    """Text of unknown origin as a literal rich Text."""
    from rich.text import Text

    return Text(plain(text), style=style)


def verbatim(lines: Iterable[str]) -> Text:
    """Lines that are laid out already: neither wrapped nor cut."""
    from rich.text import Text

    return Text("\n".join(lines), no_wrap=True)


def can_unicode() -> bool:
    """False where stdout cannot carry block characters: bars fall back to ASCII."""
    encoding = (sys.stdout.encoding or "ascii").lower()
    return encoding.startswith("utf")


def columns() -> int:
    """Characters of a line: the terminal's (or $COLUMNS), 100 into a pipe."""
    return shutil.get_terminal_size((100, 24)).columns


def console(width: int | None = None, *, to_file: bool = False) -> Console:
    """A console on a buffer, styled as stdout allows (NO_COLOR, a pipe and -o mean no colour)."""
    from rich.console import Console

    tty = sys.stdout.isatty() and not to_file
    colour = tty and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if width is None and not tty:
        width = columns()
    return Console(
        file=io.StringIO(),
        force_terminal=colour,
        no_color=not colour,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def render(*parts: RenderableType, output: Path | None = None, width: int | None = None) -> str:
    """Rich renderables -> the text to emit."""
    target = console(width, to_file=output is not None)
    for part in parts:
        whole = getattr(part, "no_wrap", False) is True
        target.print(_hanging(part, target.width), soft_wrap=whole)
    buffer = target.file
    assert isinstance(buffer, io.StringIO)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def _hanging(part: RenderableType, width: int) -> RenderableType:
    """A long line continued under its own text, not at the margin."""
    from rich.text import Text

    line = Text(part) if isinstance(part, str) else part
    if not isinstance(line, Text) or line.spans or len(line.plain) <= width or "\n" in line.plain:
        return part
    bullet = _BULLET.match(line.plain)
    indent = bullet.end() if bullet else 0
    rows = textwrap.wrap(
        line.plain, width, subsequent_indent=" " * (indent or 2), break_on_hyphens=False
    )
    return Text("\n".join(rows), style=line.style)
