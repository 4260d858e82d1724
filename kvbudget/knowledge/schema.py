"""The shape of the log-line files in logparsers/ (logparsers/README.md says what each field means)."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "kvbudget.logparsers/1"


class Yield(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One fact out of one named group. `unit` is what the engine means by the printed unit."""

    group: str
    unit: str | None = None
    unit_group: str | None = None
    resolution: float | None = None
    value: str | int | float | None = None
    """given: the fact's value for this wording, where the group only proves that it stands there"""
    scale: float = 1
    rank: str | None = None
    """`none`: this line speaks for the whole server, whatever tag precedes it"""


class Sample(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    text: str
    expect: dict[str, Any] = {}
    origin: str = "written"


class Line(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A line that an engine prints."""

    id: str
    doc: str
    literals: tuple[str, ...]
    pattern: str
    samples: tuple[Sample, ...]
    rejects: tuple[str, ...]
    yields: dict[str, Yield | tuple[Yield, ...]] = {}
    versions: str = "*"
    source: str | dict[str, Any] = ""
    milestone: str | None = None
    evidence_of: str | bool | None = None
    engine_version: str | None = None
    """name of the group that holds the engine's version"""
    kind: str = "log"
    """source of its facts: log, flag or config"""
    note: str | None = None
    """`id: sentence` for the reader of a report in which this line stands"""


class Failure(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A line that says, shows or only looks as if something failed."""

    id: str
    doc: str
    literals: tuple[str, ...]
    pattern: str
    samples: tuple[Sample, ...]
    rejects: tuple[str, ...]
    cause: str | None = None
    phase: str | None = None
    confidence: str = "likely"
    fatal: bool | None = None
    kind: str = "cause"
    decoy: bool = False
    why: str | None = None
    yields: dict[str, Yield | tuple[Yield, ...]] = {}
    versions: str = "*"
    source: str | dict[str, Any] = ""
    evidence_of: str | bool | None = None
    milestone: str | None = None


class PatternFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    schema: str
    engine: str
    doc: str = ""
    lines: tuple[Line, ...] = ()
    failures: tuple[Failure, ...] = ()
