"""Text that remembers the physical line of every character, through quoting and nesting."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable

HOLE = "\ue000"
"""Stands in a text for a part that has no static value."""


class Line(int):
    """A line number of another file than the one that is read; arithmetic forgets the file."""

    file: str

    def __new__(cls, number: int, file: str) -> Line:
        """The line `number` of `file`."""
        made = super().__new__(cls, number)
        made.file = file
        return made


def file_of(line: int) -> str | None:
    """The other file a line stands in, None for the file that is read."""
    return line.file if isinstance(line, Line) else None


class Text:
    """A string whose characters know the line they stand on (1-based)."""

    __slots__ = ("lines", "s")

    def __init__(self, s: str, lines: list[int]) -> None:
        self.s = s
        self.lines = lines

    @classmethod
    def on(cls, s: str, line: int) -> Text:
        """All of `s` on one line."""
        return cls(s, [line] * len(s))

    @classmethod
    def file(cls, s: str, first: int = 1) -> Text:
        """A whole file (or a block of it) with its own line breaks."""
        lines: list[int] = []
        for number, part in enumerate(s.split("\n"), start=first):
            lines.extend([number] * (len(part) + 1))
        return cls(s, lines[: len(s)])

    @classmethod
    def join(cls, parts: Iterable[Text], sep: str = "") -> Text:
        """Concatenation; separators stand on the line before them."""
        s: list[str] = []
        lines: list[int] = []
        for index, part in enumerate(parts):
            if index and sep:
                s.append(sep)
                lines.extend([lines[-1] if lines else part.line] * len(sep))
            s.append(part.s)
            lines.extend(part.lines)
        return cls("".join(s), lines)

    @property
    def line(self) -> int:
        """Line of the first character (0 for an empty text)."""
        return self.lines[0] if self.lines else 0

    @property
    def known(self) -> bool:
        """False where a part has no static value."""
        return HOLE not in self.s

    def __len__(self) -> int:
        return len(self.s)

    def __bool__(self) -> bool:
        return bool(self.s)

    def __repr__(self) -> str:
        return f"Text({self.s!r}@{self.line})"

    def cut(self, start: int, end: int | None = None) -> Text:
        """The slice [start:end]."""
        return Text(self.s[start:end], self.lines[start:end])

    def strip(self) -> Text:
        """Without surrounding blanks."""
        left = len(self.s) - len(self.s.lstrip())
        return self.cut(left, len(self.s.rstrip()) if self.s.strip() else left)

    def moved(self, line: int) -> Text:
        """The same characters, all standing on `line` (a value used elsewhere)."""
        return Text.on(self.s, line)

    def sub(self, pattern: re.Pattern[str], value: Callable[[re.Match[str]], str | None]) -> Text:
        """Replace matches; None leaves the match as it is. A value stands where it is used."""
        parts: list[Text] = []
        last = 0
        for match in pattern.finditer(self.s):
            new = value(match)
            if new is None:
                continue
            parts += [self.cut(last, match.start()), Text.on(new, self.lines[match.start()])]
            last = match.end()
        if not parts:
            return self
        return Text.join([*parts, self.cut(last)])

    def standing_in(self, file: str) -> Text:
        """The same text with lines that know their file."""
        known = {line: Line(line, file) for line in set(self.lines)}
        return Text(self.s, [known[line] for line in self.lines])

    def split_lines(self) -> list[Text]:
        """One Text per line, without the line break."""
        out: list[Text] = []
        start = 0
        while True:
            end = self.s.find("\n", start)
            if end < 0:
                out.append(self.cut(start))
                return out
            out.append(self.cut(start, end))
            start = end + 1


def align(value: str, raw: str, raw_lines: list[int]) -> Text:
    """Give a decoded scalar the lines of its source text `raw` (quotes, escapes, folds skipped)."""
    if not raw_lines:
        return Text.on(value, 0)
    lines: list[int] = []
    at = 0
    size = len(raw)
    here = raw_lines[0]
    for char in value:
        if not char.isspace():
            found = raw.find(char, at)
            if found >= 0 and found - at < 4096:
                at = found
                here = raw_lines[at]
                at += 1
        elif at < size:
            here = raw_lines[min(at, size - 1)]
            if char == "\n":
                newline = raw.find("\n", at)
                rest = raw[at:newline] if newline >= 0 else "x"
                if newline >= 0 and not rest.strip():
                    here = raw_lines[newline]
                    at = newline + 1
        lines.append(here)
    return Text(value, lines)
