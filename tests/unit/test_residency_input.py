"""Traces in every accepted form, what is refused and where, and columns kept on disk."""

from __future__ import annotations

import gzip
import json

import pytest

from kvbudget.errors import InputError
from kvbudget.residency import jit, keep, records
from kvbudget.residency.curve import curve
from kvbudget.residency.load import load

ROWS = [
    {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [7, 9, 11]},
    {"timestamp": 250, "input_length": 32, "output_length": 3, "hash_ids": [7, 12]},
    {"timestamp": 900, "input_length": 48, "output_length": 3, "hash_ids": [7, 9, 11]},
]


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "SMALLEST", 0)
    monkeypatch.setenv("KVBUDGET_CACHE_DIR", str(tmp_path / "kept"))


def written(tmp_path, text, name="t.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def facts(trace):
    return (
        [int(v) for v in trace.ids],
        [int(v) for v in trace.offsets],
        [int(v) for v in trace.lengths],
        [int(v) for v in trace.times_us],
        trace.blocks,
    )


PLAIN = ([0, 1, 2, 0, 3, 0, 1, 2], [0, 3, 5, 8], [40, 32, 48], [0, 250000, 900000], 4)


@pytest.mark.parametrize(
    "text",
    [
        lines(ROWS),
        lines(ROWS).replace("\n", "\r\n"),
        "\n" + lines(ROWS).replace("\n", "\n\n"),
        lines(ROWS).rstrip("\n"),
        lines(ROWS).replace(" ", ""),
        lines(ROWS).replace("250", "250.0"),
        lines([{"session": "a [1] \\ b", **row} for row in ROWS]),
        lines([{**row, "note": {"x": [1, {"y": None}]}} for row in ROWS]),
    ],
)
def test_the_same_columns_from_every_spelling(tmp_path, text):
    assert facts(load(written(tmp_path, text), block_tokens=16)) == PLAIN


def test_gzip_and_zstd(tmp_path):
    data = lines(ROWS).encode()
    assert facts(load(written(tmp_path, gzip.compress(data), "t.gz"))) == PLAIN
    pa = pytest.importorskip("pyarrow")
    packed = pa.compress(data, codec="zstd", asbytes=True)
    assert facts(load(written(tmp_path, packed, "t.zst"))) == PLAIN


def test_a_torn_gzip_is_refused(tmp_path):
    with pytest.raises(InputError, match="gzip"):
        load(written(tmp_path, gzip.compress(lines(ROWS).encode())[:-12], "t.gz"))


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ([ROWS[0], {**ROWS[1], "hash_ids": [7, 7]}], 2, "twice"),
        ([ROWS[0], {**ROWS[1], "hash_ids": [9]}], 2, "two different"),
        ([ROWS[1], ROWS[0]], 2, "earlier"),
        ([ROWS[0], {**ROWS[1], "input_length": -1}], 2, "negative"),
        ([ROWS[0], {**ROWS[1], "hash_ids": ["a"]}], 2, "whole number"),
        ([ROWS[0], {"timestamp": 1, "hash_ids": [1]}], 2, "input_length"),
        ([ROWS[0], 5], 2, "object"),
        ([{"a": 1}], 1, "known"),
    ],
)
def test_a_bad_line_is_refused_by_number(tmp_path, rows, line, words):
    with pytest.raises(InputError, match=f":{line}: .*{words}"):
        load(written(tmp_path, lines(rows)))


def test_blank_lines_count(tmp_path):
    text = "\n\n" + lines([ROWS[0]]) + "\n" + lines([{**ROWS[1], "hash_ids": [7, 7]}])
    with pytest.raises(InputError, match=":5:"):
        load(written(tmp_path, text))


@pytest.mark.parametrize("text", ["", "\n \n", "{", '{"timestamp": 0,', "\x00\xff", "[" * 5000])
def test_nonsense_is_refused(tmp_path, text):
    with pytest.raises(InputError):
        load(written(tmp_path, text))


def test_sorting_and_local_ids(tmp_path):
    swapped = written(tmp_path, lines([ROWS[1], ROWS[0], ROWS[2]]))
    assert list(load(swapped, sort=True).times_us) == [0, 250000, 900000]
    local = [{**ROWS[0], "hash_ids": [1, 2]}, {**ROWS[1], "hash_ids": [3, 2]}]
    path = written(tmp_path, lines(local), "local.jsonl")
    with pytest.raises(InputError, match="two different"):
        load(path)
    assert load(path, local_ids=True).blocks == 4


@pytest.mark.skipif(not jit.COMPILED, reason="columns are kept for compiled kernels")
def test_kept_columns_are_the_parsed_ones(tmp_path):
    path = written(tmp_path, lines(ROWS))
    first = load(path, block_tokens=16)
    assert list(keep.folder().glob("*.arrow"))
    again = load(path, block_tokens=16)
    assert facts(again) == facts(first)
    assert curve(again).ceiling == curve(first).ceiling == 4
    changed = written(tmp_path, lines(ROWS[:2]))
    assert load(changed).requests == 2


def test_a_small_trace_is_parsed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "SMALLEST", 1000)
    load(written(tmp_path, lines(ROWS)))
    assert not list(keep.folder().glob("*.arrow"))


def test_a_cache_that_cannot_be_used_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KVBUDGET_CACHE_DIR", written(tmp_path, "a file", "not-a-folder"))
    assert load(written(tmp_path, lines(ROWS))).requests == 3


def test_cache_events(tmp_path):
    stored = {"type": "BlockStored", "block_size": 16, "token_ids": [], "lora_id": None}
    batches = [
        {"ts": 10.0, "events": [{**stored, "block_hashes": [5, 6], "parent_block_hash": None}]},
        {"ts": 11.5, "events": [{"type": "BlockRemoved", "block_hashes": [6]}]},
        [12.0, [["BlockStored", [8], 5, [], 16, None]]],
    ]
    trace = load(written(tmp_path, lines(batches)))
    assert facts(trace)[:3] == ([0, 1, 0, 2], [0, 2, 4], [32, 32])
    assert trace.block_tokens == 16
    assert "lower bound" in trace.notes[0]


def test_lookup_logs(tmp_path):
    rows = [
        {"timestamp": 1.0, "seq_len": 600, "chunk_hashes": ["a", "b"], "chunk_size": 256},
        {"timestamp": 2.0, "seq_len": 300, "chunk_hashes": ["a"], "chunk_size": 256},
    ]
    trace = load(written(tmp_path, lines(rows)))
    assert facts(trace)[:2] == ([0, 1, 0], [0, 2, 3])
    assert trace.block_tokens == 256


@pytest.mark.parametrize(
    "text",
    [
        lines(ROWS),
        lines(ROWS).rstrip("\n"),
        lines([{"session": "a [1] \\ b", **row} for row in ROWS]),
    ],
)
def test_the_quick_reader_gives_what_the_careful_one_gives(text):
    assert records.quick(text.encode()) == records.read(text.encode(), "t", local_ids=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" + lines(ROWS),
        lines(ROWS).replace("250", "250.0"),
        lines([{**ROWS[0], "output_length": -1}]),
        lines([{**ROWS[0], "input_length": -1}]),
        lines([{**ROWS[0], "hash_ids": [2**63]}]),
        lines([{**ROWS[0], "timestamp": 2**60}]),
        lines([{"timestamp": 1.0, "seq_len": 600, "chunk_hashes": ["a"]}]),
        lines(ROWS)[:-20],
        lines(ROWS).replace("}\n{", "}{", 1) + "\n",
        lines(ROWS).replace("}\n{", "}{", 1).replace("}\n{", "}\n \n{", 1),
    ],
)
def test_the_quick_reader_leaves_the_rest_to_the_careful_one(text):
    assert records.quick(text.encode()) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("output_length", "output\x00length", "control character"),
        ("}\n{", "}{", "Extra data"),
        ("[7, 12]", "[7, 012]", "not JSON"),
        ("[7, 12]", "[7 12]", "not JSON"),
        ("[7, 12]", "[7, 12,]", "not JSON"),
    ],
)
def test_what_is_not_json_is_refused_by_every_reader(tmp_path, old, new, words):
    with pytest.raises(InputError, match=f":[12]: not JSON.*{words}|:[12]: {words}"):
        load(written(tmp_path, lines(ROWS).replace(old, new, 1)))


def test_a_negative_output_is_refused_by_every_reader(tmp_path):
    with pytest.raises(InputError, match=":2: a negative length"):
        load(written(tmp_path, lines([ROWS[0], {**ROWS[1], "output_length": -1}])))
