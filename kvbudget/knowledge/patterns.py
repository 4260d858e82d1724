"""All log-line patterns of logparsers/ and of user overlays, parsed once and kept in a cache file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from kvbudget.errors import KnowledgeError
from kvbudget.knowledge.cache import kept
from kvbudget.knowledge.schema import SCHEMA, Failure, Line, PatternFile
from kvbudget.knowledge.where import knowledge_dir, overlays

if TYPE_CHECKING:
    from pathlib import Path

_INT = r"(?<!\d)[-+]?(?>\d{1,3}(?:,\d{3})++(?!\d)|\d++)"
PLACEHOLDERS = {
    "num": _INT + r"(?:\.\d++)?(?:[eE][-+]?\d++)?",
    "int": _INT,
    "hex": r"0x[0-9a-fA-F]++",
    "size": _INT + r"(?:\.\d++)? ?(?:[KMGT]i?)?B",
}
"""No backtracking into digits, and no start inside them: a long run of digits costs one pass."""
_PLACEHOLDER = re.compile(r"\{(num|int|hex|size)(?::([A-Za-z_]\w*))?\}")


def expand(pattern: str) -> str:
    """`{num:free}` -> `(?P<free>number)`, `{int}` -> `(?:integer)`."""

    def put(match: re.Match[str]) -> str:
        body = PLACEHOLDERS[match[1]]
        return f"(?P<{match[2]}>{body})" if match[2] else f"(?:{body})"

    return _PLACEHOLDER.sub(put, pattern)


@dataclass
class Pattern:
    """One line or failure of a file; its regular expression is compiled at the first hit."""

    entry: Line | Failure
    engine: str
    file: str

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def is_failure(self) -> bool:
        return isinstance(self.entry, Failure)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        try:
            return re.compile(expand(self.entry.pattern))
        except (re.error, OverflowError) as exc:
            raise KnowledgeError(
                f"{self.id}: pattern: {getattr(exc, 'msg', exc)}", file=self.file
            ) from exc


@dataclass
class PatternSet:
    """Every pattern, and for each literal the patterns worth trying on a line that holds it."""

    patterns: list[Pattern]
    by_literal: dict[str, list[Pattern]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            for literal in pattern.entry.literals:
                self.by_literal.setdefault(literal, []).append(pattern)

    @cached_property
    def literals(self) -> list[str]:
        return sorted(self.by_literal)

    def get(self, pattern_id: str) -> Pattern | None:
        return next((p for p in self.patterns if p.id == pattern_id), None)


def pattern_files() -> list[Path]:
    """Every pattern file: the shipped ones, then those of each folder laid over them.

    Such a folder holds logparsers/, or the files themselves; one with formulas/ alone has none.
    """
    ours = knowledge_dir("logparsers")
    found = _files_below(ours)
    tables = {path.name for path in ours.glob("*.yaml")}  # causes, layouts: no patterns in them
    for overlay in overlays():
        below = overlay / "logparsers"
        if not below.is_dir() and (overlay / "formulas").is_dir():
            continue
        folder = below if below.is_dir() else overlay
        own = sorted(folder.rglob("*.yaml"))
        found += [p for p in own if p.parent != folder or p.name not in tables]
    return found


def _files_below(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.yaml") if p.parent != folder)


def load_patterns() -> PatternSet:
    """All patterns. A later file's pattern replaces an earlier one of the same id.

    Raises KnowledgeError with file, line and column.
    """
    files = pattern_files()
    entries: dict[str, Pattern] = {}
    for path, parsed in zip(files, _parsed(files), strict=True):
        found: tuple[Line | Failure, ...] = (*parsed.lines, *parsed.failures)
        for entry in found:
            entries[entry.id] = Pattern(entry, parsed.engine, str(path))
    return PatternSet(list(entries.values()))


def parse_file(path: Path) -> PatternFile:
    """One file, checked against the schema. Raises KnowledgeError naming file and line."""
    from kvbudget.knowledge.yamlfile import load_yaml, locate

    raw = load_yaml(path)
    try:
        parsed = msgspec.convert(raw, PatternFile)
    except msgspec.ValidationError as exc:
        line, col = locate(path, str(exc))
        raise KnowledgeError(str(exc), file=str(path), line=line, col=col) from exc
    if parsed.schema != SCHEMA:
        raise KnowledgeError(f"schema is {parsed.schema!r}, not {SCHEMA!r}", file=str(path), line=1)
    return parsed


ENTRIES = 4
"""Pattern sets kept: several installations and overlays may share the folder."""
_decoder = msgspec.msgpack.Decoder(list[PatternFile])


def _parsed(files: list[Path]) -> list[PatternFile]:
    """The parsed files, kept by their paths, sizes and times: reading 40 files would cost more."""
    return kept(
        "patterns", map(_stamp, files), _decoder.decode, lambda: [parse_file(f) for f in files],
        entries=ENTRIES,
    )  # fmt: skip


def _stamp(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError as exc:
        raise KnowledgeError(f"cannot read: {exc.strerror}", file=str(path)) from exc
    return f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}".encode(errors="surrogateescape")
