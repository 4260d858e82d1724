"""Line-by-line readers: every trace format, every oddity, and the line number of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from kvbudget.errors import InputError

_LATEST_US = 2**61
"""Microseconds; differences of two such times still fit 64 bits."""

Record = dict[str, Any]
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Rows:
    """Raw columns of a trace; `lines` is the line of each request, block_tokens if it is stated."""

    ids: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    lengths: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    block_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def add(self, chain: list[int], length: int, time_us: int, line: int) -> None:
        self.ids += chain
        self.offsets.append(len(self.ids))
        self.lengths.append(length)
        self.times_us.append(time_us)
        self.lines.append(line)


def quick(data: bytes) -> Rows | None:
    """Mooncake requests in whole numbers, one on every line, at the parser's own speed.

    None for any other text: `read` then says what it is, or what is wrong with which line.
    """
    import itertools

    import msgspec

    def whole_from(least: int, most: int) -> Any:  # noqa: ANN401 - a type
        return Annotated[int, msgspec.Meta(ge=least, le=most)]

    latest_ms = _LATEST_US // 1000 - 1
    request = msgspec.defstruct(
        "Request",
        [
            ("timestamp", whole_from(-latest_ms, latest_ms)),
            ("input_length", whole_from(0, 2**62 - 1)),
            ("hash_ids", list[whole_from(-(2**63), 2**63 - 1)]),  # type: ignore[misc]
            ("output_length", whole_from(0, 2**63 - 1), 0),
        ],
        gc=False,
    )
    try:
        found: Any = msgspec.json.Decoder(request).decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    lines = data.removesuffix(b"\n").split(b"\n")
    if len(lines) != len(found) or not all(map(bytes.strip, lines)):
        return None  # blank lines, or several requests on one
    chains = [row.hash_ids for row in found]
    return Rows(
        list(itertools.chain.from_iterable(chains)),
        list(itertools.accumulate(map(len, chains), initial=0)),
        [row.input_length for row in found],
        [row.timestamp * 1000 for row in found],
        list(range(1, len(lines) + 1)),
    )


def read(data: bytes, name: str, *, local_ids: bool, progress: Progress | None = None) -> Rows:
    """Parse a text of one JSON object (or batch) per line. Raises InputError with the line."""
    source = _objects(data, name, progress)
    first = next(source, None)
    if first is None:
        raise InputError(f"{name}: no request in it", "give a trace with one JSON object per line")
    line, record = first
    for matches, reader in _FORMATS:
        if matches(record):
            return reader(_chain_first(first, source), name, local_ids)
    raise InputError(
        f"{name}:{line}: not a known trace record",
        "known: Mooncake requests (timestamp, input_length, hash_ids), KV-cache event batches "
        "(ts, events), lookup logs (timestamp, seq_len, chunk_hashes)",
    )


def _chain_first(
    first: tuple[int, Any], rest: Iterator[tuple[int, Any]]
) -> Iterator[tuple[int, Any]]:
    yield first
    yield from rest


def _objects(data: bytes, name: str, progress: Progress | None) -> Iterator[tuple[int, Any]]:
    done = 0
    for number, text in enumerate(data.split(b"\n"), 1):
        done += len(text) + 1
        if progress is not None and number % 4096 == 0:
            progress("reading", done, len(data))
        if not text.strip():
            continue
        try:
            yield number, json.loads(text)
        except (ValueError, RecursionError) as exc:
            reason = exc.msg if isinstance(exc, json.JSONDecodeError) else "not UTF-8 JSON"
            raise InputError(
                f"{name}:{number}: not JSON: {reason}", "one JSON object per line"
            ) from exc


def whole(value: Any, what: str, where: str) -> int:  # noqa: ANN401
    """A whole number, not a bool; raises InputError naming `what` and `where`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}: {what} is not a whole number", "correct the trace")
    if not -(2**63) <= value < 2**63:
        raise InputError(f"{where}: {what} needs more than 64 bits", "correct the trace")
    return value


def _tokens(value: Any, what: str, where: str) -> int:  # noqa: ANN401
    """Tokens of a block, 1 or more; raises InputError naming `what` and `where`."""
    if not 0 < whole(value, what, where) <= 2**24:
        raise InputError(f"{where}: {what} {value} is out of range", "correct the trace")
    return int(value)


def instant_us(value: Any, factor: int, where: str) -> int:  # noqa: ANN401
    """A time in units of `factor` microseconds -> whole microseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: the timestamp is not a number", "correct the trace")
    if not abs(value) < _LATEST_US / factor:  # also nan
        raise InputError(f"{where}: the timestamp is out of range", "correct the trace")
    return round(value * factor)


def _is_mooncake(record: Any) -> bool:  # noqa: ANN401
    return isinstance(record, dict) and "hash_ids" in record


def _mooncake(source: Iterator[tuple[int, Any]], name: str, local_ids: bool) -> Rows:
    rows = Rows()
    numbers: dict[tuple[int, int], int] = {}
    for line, record in source:
        where = f"{name}:{line}"
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object", "one request per line")
        for key in ("timestamp", "input_length", "hash_ids"):
            if key not in record:
                raise InputError(f"{where}: no {key}", "a request needs it")
        chain = record["hash_ids"]
        if not isinstance(chain, list):
            raise InputError(f"{where}: hash_ids is not a list", "correct the trace")
        ids = [whole(v, "a hash id", where) for v in chain]
        if local_ids:
            ids = _namespaced(ids, numbers, where)
        length = whole(record["input_length"], "input_length", where)
        if length >= 2**62:
            raise InputError(f"{where}: input_length is out of range", "correct the trace")
        if length < 0 or _negative(record.get("output_length")):
            raise InputError(f"{where}: a negative length", "lengths count tokens: 0 or more")
        rows.add(ids, length, instant_us(record["timestamp"], 1000, where), line)
    return rows


def _negative(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int | float) and value < 0


def _namespaced(ids: list[int], numbers: dict[tuple[int, int], int], where: str) -> list[int]:
    """Ids that are unique below their parent only -> ids that name their whole prefix."""
    if len(set(ids)) != len(ids):
        raise InputError(f"{where}: a block id occurs twice in one chain", "correct the trace")
    out: list[int] = []
    above = -1
    for value in ids:
        above = numbers.setdefault((above, value), len(numbers))
        out.append(above)
    return out


def _is_events(record: Any) -> bool:  # noqa: ANN401
    if isinstance(record, dict):
        return isinstance(record.get("events"), list)
    return isinstance(record, list) and len(record) >= 2 and isinstance(record[1], list)


_STORED_FIELDS = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
)


def _event(event: Any) -> Record | None:  # noqa: ANN401
    """An event as an object; array-encoded ones get the names of their places."""
    if isinstance(event, dict):
        return event
    if isinstance(event, list) and event and isinstance(event[0], str):
        return {"type": event[0], **dict(zip(_STORED_FIELDS, event[1:], strict=False))}
    return None


def _events(source: Iterator[tuple[int, Any]], name: str, local_ids: bool) -> Rows:
    """KV-cache event batches: each stored run is a request for its whole prefix."""
    rows = Rows()
    number: dict[Any, int] = {}
    above: dict[int, int] = {}
    orphans = 0
    for line, batch in source:
        where = f"{name}:{line}"
        if not _is_events(batch):
            raise InputError(f"{where}: not an event batch", "one batch (ts, events) per line")
        ts, events = (
            (batch.get("ts"), batch["events"]) if isinstance(batch, dict) else (batch[0], batch[1])
        )
        time_us = instant_us(ts, 10**6, where)
        for raw in events:
            event = _event(raw)
            if event is None or "type" not in event:
                raise InputError(f"{where}: an event without a type", "correct the log")
            if event["type"] != "BlockStored" or str(event.get("medium") or "GPU").upper() != "GPU":
                continue
            size = _tokens(event.get("block_size"), "block_size", where)
            if rows.block_tokens not in (None, size):
                raise InputError(
                    f"{where}: block size {size} after {rows.block_tokens}", "one trace per size"
                )
            rows.block_tokens = size
            hashes = event.get("block_hashes")
            if not isinstance(hashes, list):
                raise InputError(f"{where}: block_hashes is not a list", "correct the log")
            over = event.get("parent_block_hash")
            tip = -1 if over is None else number.get(_hashable(over, where), -1)
            orphans += over is not None and tip < 0
            for value in hashes:
                block = number.setdefault(_hashable(value, where), len(number))
                above.setdefault(block, tip)
                tip = block
            chain = []
            while tip >= 0:
                chain.append(tip)
                tip = above[tip]
            chain.reverse()
            rows.add(chain, size * len(chain), time_us, line)
    rows.notes = (
        "KV-cache events tell what was stored, not what was hit: requests answered wholly from "
        "the cache are missing, so hits are a lower bound",
    )
    if orphans:
        rows.notes += (f"{orphans} stored runs hang under a block stored before the log began",)
    return rows


def _hashable(value: Any, where: str) -> Any:  # noqa: ANN401
    if isinstance(value, int | str):
        return value
    raise InputError(f"{where}: a block hash is neither number nor text", "correct the log")


def _is_lookup(record: Any) -> bool:  # noqa: ANN401
    return isinstance(record, dict) and "chunk_hashes" in record


def _lookups(source: Iterator[tuple[int, Any]], name: str, local_ids: bool) -> Rows:
    """Lookup logs: one object per lookup with the chunk hashes of the prompt."""
    rows = Rows()
    number: dict[Any, int] = {}
    for line, record in source:
        where = f"{name}:{line}"
        if not _is_lookup(record):
            raise InputError(f"{where}: no chunk_hashes", "one lookup per line")
        hashes = record["chunk_hashes"]
        if not isinstance(hashes, list):
            raise InputError(f"{where}: chunk_hashes is not a list", "correct the log")
        chain = [number.setdefault(_hashable(h, where), len(number)) for h in hashes]
        stated = record.get("chunk_size")
        if stated is not None:
            size = _tokens(stated, "chunk_size", where)
            if rows.block_tokens not in (None, size):
                raise InputError(f"{where}: a second chunk size, {size}", "one trace per size")
            rows.block_tokens = size
        length = record.get("seq_len", record.get("num_tokens"))
        tokens = whole(length, "seq_len", where)
        if not 0 <= tokens < 2**62:
            raise InputError(f"{where}: seq_len is out of range", "correct the log")
        rows.add(chain, tokens, instant_us(record.get("timestamp"), 10**6, where), line)
    rows.notes = ("lookup log: whole chunks only, a prompt's tail is not in it",)
    return rows


Reader = Callable[[Iterator[tuple[int, Any]], str, bool], Rows]

_FORMATS: tuple[tuple[Callable[[Any], bool], Reader], ...] = (
    (_is_mooncake, _mooncake),
    (_is_lookup, _lookups),
    (_is_events, _events),
)
