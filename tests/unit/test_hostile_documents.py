"""Documents that are whole but for one value: every command that reads them ends in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hostile import LOG, NASTY, orderly, run, spoilt, write
from model_configs import DEEPSEEK_V3, GEMMA3_27B, LLAMA_8B

from kvbudget.errors import KvbudgetError
from kvbudget.model.config import load_model
from kvbudget.model.estimate import rope_cache_bytes

if TYPE_CHECKING:
    from pathlib import Path

TRACE = [
    {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [7, 9]},
    {"timestamp": 250, "input_length": 32, "output_length": 3, "hash_ids": [7]},
]
EVENTS = [
    {"ts": 1.0, "events": [{"type": "BlockStored", "block_hashes": [1, 2], "block_size": 16,
     "parent_block_hash": None, "medium": "GPU"}]},
]  # fmt: skip
LOOKUPS = [{"timestamp": 1.0, "seq_len": 512, "chunk_hashes": [1, 2], "chunk_size": 256}]
READING = {
    "elapsed": 1.0, "time": "2026-01-01T00:00:00+00:00", "schema": "kvbudget.watch-record/1",
    "gpus": [{"index": 0, "uuid": "GPU-1", "name": "card", "total_memory": 2**36,
              "used_memory": 2**30, "free_memory": 2**35,
              "processes": [{"pid": 1, "used_memory": 2**30}]}],
    "engines": [{"url": "http://own/metrics", "up": True, "engine": "vllm",
                 "figures": {"kv_cache_usage": 0.5}, "budget": {"num_gpu_blocks": 100}}],
}  # fmt: skip
PROFILE = {
    "schema": "kvbudget.profile/1", "policy": "vllm@0.33.0", "device": {"total_memory": 2**36},
    "ranks": [{"rank": "TP0", "terms": [
        {"name": "weights_memory", "value": 2**34, "low": 2**34, "high": 2**34},
    ]}],
}  # fmt: skip
DERIVED = {
    "schema": "kvbudget.derive/1", "engine": "vllm", "engine_version": "0.25.1",
    "model": {"name": "own"}, "flags": {"max_model_len": {"value": 8192}},
    "terms": [{"name": "weights_memory", "value": 2**34, "low": 2**34, "high": 2**34, "unit": "B"}],
    "steps": [{"name": "num_gpu_blocks", "value": 9, "low": 9, "high": 9, "unit": "blk"}],
    "result": {"kv_cache_memory": 2**33},
}  # fmt: skip


@pytest.mark.parametrize(
    "config", [LLAMA_8B, DEEPSEEK_V3, GEMMA3_27B], ids=lambda c: c["model_type"]
)
def test_config(config: dict, tmp_path: Path) -> None:
    refused = 0
    for label, changed in spoilt(config):
        write(tmp_path / "config.json", changed)
        try:
            model = load_model(tmp_path)
            model.layer_groups(2)
            model.weights_bytes(2)
            rope_cache_bytes(model)
        except KvbudgetError as error:
            refused += 1
            shown = str(error).encode()
        else:
            continue
        assert shown, label
    assert refused > 50


@pytest.mark.parametrize("value", ["0", "-1", "1" + "0" * 400, "1e309", "NaN", '"x"', "[]"])
def test_config_through_the_command(value: str, tmp_path: Path) -> None:
    text = json.dumps(LLAMA_8B).replace(
        '"num_attention_heads": 32', f'"num_attention_heads": {value}'
    )
    (tmp_path / "config.json").write_text(text)
    done = orderly(run("derive", tmp_path, "--engine", "vllm", "--gpu", "h200"))
    assert done.code == 2
    assert "config.json" in done.err


@pytest.mark.parametrize("document", [DERIVED, PROFILE], ids=["derive", "profile"])
def test_diff(document: dict, tmp_path: Path) -> None:
    whole, path = write(tmp_path / "a.json", DERIVED), tmp_path / "b.json"
    assert run("diff", whole, write(path, document)).code == 0
    for label, changed in spoilt(document):
        done = orderly(run("diff", whole, write(path, changed), "--format", "json"))
        assert done.code in {0, 2}, label
        if done.code == 0:
            json.loads(done.out)


def test_diff_of_explained_logs(tmp_path: Path) -> None:
    explained = json.loads(run("explain-log", "-", "--format", "json", data=LOG.encode()).out)
    del explained["budgets"]
    whole, path = write(tmp_path / "a.json", explained), tmp_path / "b.json"
    assert run("diff", whole, whole).code == 0
    for _, changed in spoilt(explained, NASTY[:9]):
        orderly(run("diff", whole, write(path, changed)))


def test_profile_as_evidence(tmp_path: Path) -> None:
    model = write(tmp_path / "config.json", LLAMA_8B).parent
    path = tmp_path / "p.json"
    for _, changed in spoilt(PROFILE["ranks"], NASTY[:6]):
        write(path, {**PROFILE, "ranks": changed})
        orderly(run("derive", model, "--engine", "vllm", "--gpu", "h200", "--from-profile", path))


@pytest.mark.parametrize("rows", [TRACE, EVENTS, LOOKUPS], ids=["requests", "events", "lookups"])
def test_traces(rows: list, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for _, changed in spoilt(rows):
        path.write_text("\n".join(map(json.dumps, changed)), encoding="utf-8")
        orderly(run("residency", "curve", path, "--no-cache"))


@pytest.mark.parametrize("last", [10**17, 10**300, 1e300, -(10**17), 2**63])
def test_report_of_a_trace_that_spans_ages(last: float, tmp_path: Path) -> None:
    model = write(tmp_path / "config.json", LLAMA_8B).parent
    path = tmp_path / "t.jsonl"
    rows = [TRACE[0], {**TRACE[1], "timestamp": last}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run("residency", "report", path, "--model", model, "--gpu", "h200", "--no-cache")
    assert orderly(done).code == 2
    assert "time" in done.err


def test_recorded_readings(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    first = json.dumps(READING)
    for _, changed in spoilt(READING):
        path.write_text(f"{first}\n{json.dumps(changed)}\n", encoding="utf-8")
        orderly(run("watch", "--replay", path))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpu-memory", "1e400GiB"],
        ["--gpu-memory", "9" * 5000],
        ["--gpu-memory", "-1GiB"],
        ["--gpu-memory", "nan"],
        ["--set", "weights_memory=" + "9" * 400],
        ["--set", "num_gpu_blocks=" + "9" * 30],
        ["--max-model-len", "9" * 5000],
        ["--max-model-len", "-5"],
        ["-tp", "0"],
        ["--block-size", "0"],
        ["--gpu-memory-utilization", "1e309"],
        ["--gpu-memory-utilization", "nan"],
        ["--gpu-memory-utilization", "-1"],
        ["--max-num-seqs", "0"],
        ["--max-num-batched-tokens", "0"],
        ["--assume", "hidden_size=" + "9" * 30],
        ["--engine-version", "9" * 5000],
        ["--engine-version", "not a version"],
        ["--gpu", "\x1b[31mcard"],
        ["--no-such-flag", "\udcff"],
    ],
    ids=lambda a: " ".join(a)[:30].encode("ascii", "backslashreplace").decode(),
)
def test_flags_of_derive(arguments: list[str], tmp_path: Path) -> None:
    model = write(tmp_path / "config.json", LLAMA_8B).parent
    card = [] if arguments[0] in {"--gpu", "--gpu-memory"} else ["--gpu", "h200"]
    done = orderly(run("derive", model, "--engine", "vllm", *card, *arguments))
    assert done.code in {1, 2, 4} or arguments[0] in {"--set", "--no-such-flag"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["window", "--l1", "9" * 5000 + "tok", "--rate", "1"],
        ["window", "--l1", "5tok", "--rate", "nan"],
        ["window", "--l1", "5tok", "--rate", "1e-320"],
        ["window", "--l1", "5tok", "--rate", "-1"],
        ["window", "--l1", "_tok", "--rate", "1"],
        ["window", "--l1", "1e300GiB", "--rate", "1", "--bytes-per-token", "1"],
        ["links", "--bytes-per-token", "9" * 400, "--prefill-rate", "1"],
        ["links", "--bytes-per-token", "0", "--prefill-rate", "1"],
        ["links", "--bytes-per-token", "1", "--prefill-rate", "inf"],
        ["links", "--bytes-per-token", "1", "--link", "a=1e400GB/s"],
        ["links", "--bytes-per-token", "1", "--link", "a=0GB/s@-1us"],
    ],
    ids=lambda a: " ".join(a)[:40],
)
def test_figures_of_residency(arguments: list[str]) -> None:
    done = orderly(run("residency", *arguments, "--format", "json"))
    assert done.code in {0, 2}
    if done.code == 0:
        json.loads(done.out)
