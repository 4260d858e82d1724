"""What a document of ours must look like before its figures are believed."""

from __future__ import annotations

from typing import Any

import msgspec

from kvbudget.errors import InputError

Number = int | float


class _Row(msgspec.Struct):
    name: str
    value: Number
    low: Number
    high: Number
    unit: str


class _Flag(msgspec.Struct):
    value: bool | int | float | str | list[Any] | dict[str, Any] | None = None


class _Model(msgspec.Struct):
    name: str | None = None


class DeriveShape(msgspec.Struct):
    """A kvbudget.derive/1 object of one engine."""

    engine: str
    terms: list[_Row]
    steps: list[_Row]
    engine_version: str | None = None
    result: dict[str, Number | None] | None = None
    flags: dict[str, _Flag] | None = None
    model: _Model | None = None


class _Fact(msgspec.Struct):
    name: str
    value: Number | str
    unit: str | None
    printed: str
    low: Number | None
    high: Number | None
    rank: str | None
    line: int
    pattern: str
    source: str = "log"


class ExplainShape(msgspec.Struct):
    """A kvbudget.explain-log/1 object."""

    facts: list[_Fact]
    engine: str | None = None
    engine_version: str | None = None


class _Term(msgspec.Struct):
    name: str
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None


class _Rank(msgspec.Struct):
    terms: list[_Term] | None = None


class _Device(msgspec.Struct):
    total_memory: int | None = None


class ProfileShape(msgspec.Struct):
    """A kvbudget.profile/1 object."""

    device: _Device | None = None
    ranks: list[_Rank] | None = None
    policy: str | None = None


def require(raw: dict[str, Any], shape: type[msgspec.Struct], label: str) -> None:
    """Raises InputError naming the first key of `raw` that is absent or of another kind."""
    try:
        msgspec.convert(raw, shape)
    except msgspec.ValidationError as exc:
        kind = str(raw.get("schema", "document"))
        raise InputError(
            f"{label} is not a whole {kind}: {exc}", "write it again with --format json -o FILE"
        ) from exc
