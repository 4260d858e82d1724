"""One reading of everything watched, and its JSON form (what --record writes, --replay reads)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kvbudget.errors import InputError

RECORD_SCHEMA = "kvbudget.watch-record/1"


Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class ProcessReading(msgspec.Struct, frozen=True):
    """One process on a card; `used_memory` (bytes) is null where the platform does not tell."""

    pid: int
    used_memory: Bytes | None


class GpuReading(msgspec.Struct, frozen=True):
    """One card, in bytes. `error` says why the figures are null (lost, not permitted)."""

    index: int
    uuid: str | None = None
    name: str | None = None
    total_memory: Bytes | None = None
    used_memory: Bytes | None = None
    free_memory: Bytes | None = None
    reserved_memory: Bytes | None = None
    processes: tuple[ProcessReading, ...] | None = None
    error: str | None = None


class EngineReading(msgspec.Struct, frozen=True):
    """One metrics endpoint. Figures it does not expose are absent from `figures`, never 0.

    figures: live gauges and counters; budget: what it says of its start-up (fact -> value).
    """

    url: str
    up: bool
    engine: str | None = None
    figures: dict[str, float] = {}
    budget: dict[str, float] = {}
    error: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """`elapsed` seconds on a clock that never jumps; `time` is the wall clock, for people."""

    elapsed: float
    time: str
    gpus: tuple[GpuReading, ...] = ()
    engines: tuple[EngineReading, ...] = ()
    schema: str = RECORD_SCHEMA

    @property
    def empty(self) -> bool:
        """Nothing at all could be read."""
        return not any(gpu.error is None for gpu in self.gpus) and not any(
            engine.up for engine in self.engines
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Sample)


def encode(sample: Sample) -> bytes:
    return _encoder.encode(sample)


def decode(line: bytes, number: int, path: str) -> Sample:
    """One line of a record file -> Sample. Raises InputError naming the line."""
    try:
        sample = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InputError(
            f"{path}:{number}: not a watch record: {exc}", "give a file written with --record"
        ) from exc
    if sample.schema != RECORD_SCHEMA:
        raise InputError(
            f"{path}:{number}: schema {sample.schema!r} is not {RECORD_SCHEMA!r}",
            "this file was written by another version; record it again",
        )
    return sample


def to_builtins(value: object) -> Any:  # noqa: ANN401 - plain JSON values
    return msgspec.to_builtins(value)
