"""`kvbudget explain-log` through the public command: budgets that close, and input that is none."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "docs" / "samples"
GIB = 2**30


def run(*args, data=b"", env=None):
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", *args],
        input=data,
        capture_output=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "100", **(env or {})},
        check=False,
    )


def explain(data, *args):
    result = run("explain-log", "-", "--format", "json", *args, data=data)
    return result.returncode, json.loads(result.stdout)


def test_a_vllm_start_closes_its_budget():
    code, report = explain((SAMPLES / "vllm-llama3-8b.log").read_bytes())
    assert code == 0
    assert (report["engine"], report["engine_version"]) == ("vllm", "0.25.1")
    (budget,) = report["budgets"]
    assert budget["complete"]
    assert budget["closes"]
    terms = {term["name"]: term["value"] / GIB for term in budget["terms"]}
    assert terms["weights_memory"] == pytest.approx(14.99, abs=0.005)
    assert terms["kv_cache_memory"] == pytest.approx(54.92, abs=0.005)


def test_an_sglang_start_closes_per_rank():
    code, report = explain((SAMPLES / "sglang-tp2.log").read_bytes())
    assert code == 0
    assert report["engine"] == "sglang"
    assert [budget["rank"] for budget in report["budgets"]] == ["TP0", "TP1"]
    assert all(budget["closes"] for budget in report["budgets"])


def test_gigabytes_left_become_an_interval_of_blocks():
    code, report = explain(b"Available KV cache memory: 54.4 GiB\n", "--bytes-per-block", "2097152")
    assert code == 0
    (derivation,) = report["derivations"]
    steps = {step["name"]: step for step in derivation["steps"]}
    blocks, tokens = steps["num_gpu_blocks"], steps["kv_cache_tokens"]
    assert (blocks["value"], blocks["low"], blocks["high"]) == (27_852, 27_850, 27_855)
    assert tokens["value"] == 445_632


def test_a_wrapped_sentence_is_put_together_and_keeps_its_first_line():
    text = (
        "ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB\n"
        "KV cache is needed, which is larger than the available KV cache memory (5.\n"
        "10 GiB). Based on the available memory, the estimated maximum model length is 41776.\n"
    )
    _, report = explain(text.encode())
    facts = {fact["name"]: fact for fact in report["facts"]}
    assert facts["max_model_len"]["value"] == 65536
    assert facts["kv_memory_needed"]["line"] == 1
    assert facts["estimated_max_model_len"]["value"] == 41776


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x00\x01\x02\xff\xfe" * 999,
        b"hello world\n",
        b"\xff" * 50_000,
        b"GiB" * 400_000,
    ],
    ids=["empty", "blank", "binary", "other program", "not utf-8", "one long line"],
)
def test_nothing_recognised_is_exit_3_with_the_object(data):
    code, report = explain(data)
    assert code == 3
    assert report["facts"] == []


def test_nul_bytes_and_bad_utf8_do_not_hide_a_line():
    code, report = explain(b"\x00\xff\n\xc3\x28 Available KV cache memory: 3.25 GiB\x00\n")
    assert code == 0
    assert report["facts"][0]["printed"] == "3.25"


def test_unreadable_input_is_exit_2_and_says_what_to_do(tmp_path):
    broken = tmp_path / "x.log.gz"
    broken.write_bytes(gzip.compress(b"Available KV cache memory: 3.25 GiB\n" * 9999)[:-40])
    for path in (tmp_path, tmp_path / "missing.log", broken):
        result = run("explain-log", str(path))
        assert result.returncode == 2, path
        assert result.stdout == b""
        assert result.stderr.count(b"\n") >= 2
        assert b"Traceback" not in result.stderr


def test_a_compressed_log_reads_like_a_plain_one(tmp_path):
    plain = (SAMPLES / "sglang-tp2.log").read_bytes()
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(plain))
    first = json.loads(run("explain-log", str(packed), "--format", "json").stdout)
    assert first["facts"] == explain(plain)[1]["facts"]


def test_several_files_are_one_object_a_line_and_the_worst_code(tmp_path):
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    good = SAMPLES / "sglang-tp2.log"
    result = run("explain-log", str(good), str(empty), "--format", "json")
    files = [json.loads(line)["file"] for line in result.stdout.splitlines()]
    assert files == [str(good), str(empty)]
    assert result.returncode == 3
    result = run("explain-log", str(good), str(tmp_path / "gone"), "--format", "json")
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) == 1


def test_escape_sequences_and_markup_of_a_log_never_reach_the_terminal():
    data = b"\x1b]0;owned\x07\x1b[31m[bold]INFO[/bold] Using max model len 4096\x1b[0m \x9b31m\n"
    for form in ("text", "markdown"):
        result = run("explain-log", "-", "--format", form, data=data)
        assert result.returncode == 0
        assert b"\x1b" not in result.stdout
        assert b"\x9b" not in result.stdout.replace("›".encode(), b"")


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m kvbudget explain-log {SAMPLES / 'sglang-tp2.log'} | head -1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 0
    assert result.stderr == b""


def test_output_goes_to_a_file_whole(tmp_path):
    out = tmp_path / "ticket.md"
    log = str(SAMPLES / "vllm-llama3-8b.log")
    assert run("explain-log", log, "--format", "markdown", "-o", str(out)).returncode == 0
    assert "| KV cache |" in out.read_text()
    assert run("explain-log", log, "-o", str(tmp_path / "no" / "dir")).returncode == 2


@pytest.mark.parametrize("name", ["vllm-llama3-8b.log", "sglang-tp2.log"])
def test_the_json_follows_its_schema(name):
    from importlib.resources import files

    import jsonschema

    schema = json.loads(files("kvbudget").joinpath("schemas/explain-log.json").read_text())
    jsonschema.validate(
        explain((SAMPLES / name).read_bytes(), "--bytes-per-block", "2MiB")[1], schema
    )


def test_two_starts_in_one_text_are_noted_and_one_is_not():
    log = (SAMPLES / "vllm-llama3-8b.log").read_bytes()
    once, twice = (
        {note["id"]: note for note in explain(data)[1]["notes"]} for data in (log, log + log)
    )
    assert "several_runs" not in once
    assert twice["several_runs"]["lines"] == [len(log.splitlines()) + 3]


def test_the_source_of_the_block_count_is_that_of_the_release():
    line = b"Available KV cache memory: 54.4 GiB\n"
    for version, file in ((b"0.25.1", b"kv_cache_utils.py"), (b"0.33.0", b"kv_cache_planning.py")):
        banner = b"INFO Initializing a V1 LLM engine (v" + version + b") with config: model='a/b'\n"
        out = run("explain-log", "-", "--bytes-per-block", "2MiB", data=banner + line).stdout
        assert file in out


def test_an_overlay_of_plain_files_is_read(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "schema: kvbudget.logparsers/1\nengine: mine\nlines:\n"
        "  - {id: mine.pool, doc: d, literals: ['mypool'], pattern: 'mypool {int:n} tokens',\n"
        "     yields: {kv_cache_tokens: {group: n, unit: tok}}, source: s,\n"
        "     samples: [{text: 'mypool 7 tokens', expect: {kv_cache_tokens: '7'}}], rejects: ['mypool']}\n"
    )
    code, report = explain(b"mypool 4096 tokens\n", "--knowledge", str(tmp_path))
    assert code == 0
    assert report["facts"][0]["value"] == 4096


RANK_START = """\
[2026-01-05 10:00:00 TP{rank}] Init torch distributed ends. mem usage=0.50 GB
[2026-01-05 10:00:01 TP{rank}] Load weight begin. avail mem=39.00 GB
[2026-01-05 10:00:09 TP{rank}] KV Cache is allocated. #tokens: 9000, K size: 2.00 GB, V size: 2.00 GB
"""


def test_ranks_one_after_the_other_are_one_run() -> None:
    """A log sorted by rank, or the files of ranks put together, holds one start of each."""
    ranks = "".join(RANK_START.format(rank=rank) for rank in range(3))
    again = ranks + RANK_START.format(rank=1)
    once, twice = (
        {note["id"]: note for note in explain(text.encode())[1]["notes"]} for text in (ranks, again)
    )
    assert "several_runs" not in once
    assert twice["several_runs"]["lines"] == [10]


def test_a_text_without_a_budget_says_why_and_what_supplies_it() -> None:
    """An INFO log of a release that prints its terms at DEBUG only."""
    text = (
        "INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 20.5 GiB memory and 9.1 seconds\n"
        "INFO 01-02 03:04:06 [gpu_worker.py:1] Available KV cache memory: 11.5 GiB\n"
    )
    notes = {note["id"]: note for note in explain(text.encode())[1]["notes"]}
    said = notes["not_printed_by_version"]["message"]
    assert "VLLM_LOGGING_LEVEL=DEBUG" in said
    assert "--from-log" in said
    whole = (SAMPLES / "vllm-llama3-8b.log").read_bytes()
    assert "not_printed_by_version" not in {n["id"] for n in explain(whole)[1]["notes"]}
