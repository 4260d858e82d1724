"""One case through every command: the same figures, whichever door they come in by."""

from __future__ import annotations

import importlib.util
import json

import pytest
from model_configs import (
    DEEPSEEK_V3,
    GEMMA3_27B,
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_235B,
    QWEN3_NEXT,
)  # fmt: skip
from typer.testing import CliRunner

from kvbudget.cli.app import app

GIB = 2**30
SMALL = {**LLAMA_8B, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}
WEIGHTS = {"deepseek": 640 * GIB, "gpt-oss": 13 * GIB}
"""Bytes of a replica where the width of a quantised weight is not in the config."""

CASES = {
    "dense": (LLAMA_8B, "vllm", "0.25.1", "h100-80gb", ["--max-model-len", "8192"]),
    "dense at 0.98": (
        LLAMA_8B, "vllm", "0.33.0", "h200", ["--gpu-memory-utilization", "0.98"]),
    "dense, old release": (LLAMA_8B, "vllm", "0.10.2", "a100-80gb", ["--max-num-seqs", "128"]),
    "two ranks": (LLAMA_70B, "vllm", "0.20.2", "h200", ["-tp", "2"]),
    "eager": (LLAMA_8B, "vllm", "0.19.0", "l40s", ["--enforce-eager"]),
    "fp8 cache": (LLAMA_8B, "vllm", "0.25.1", "h100-80gb", ["--kv-cache-dtype", "fp8"]),
    "sliding windows": (GEMMA3_27B, "vllm", "0.25.1", "h200", ["--max-model-len", "32768"]),
    "gpt-oss": (GPT_OSS_20B, "vllm", "0.25.1", "h100-80gb", []),
    "hybrid": (QWEN3_NEXT, "vllm", "0.25.1", "h200", ["-tp", "4"]),
    "latent": (DEEPSEEK_V3, "vllm", "0.25.1", "h200", ["-tp", "8"]),
    "experts": (QWEN3_235B, "vllm", "0.25.1", "h200", ["-tp", "8"]),
}  # fmt: skip


def call(*args, stdin=None):
    result = CliRunner().invoke(app, [str(a) for a in args], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def gib(value):
    return f"{value / GIB:.2f}"


def start_up_log(derived):
    """The lines a start-up of that release prints, with the figures of a derivation."""
    terms = {t["name"]: t["value"] for t in derived["terms"]}
    result = derived["result"]
    length = result["max_model_len"]
    version = derived["engine_version"]
    head = "(EngineCore pid=77) INFO 11-30 10:00:0"
    lines = [
        f"{head}0 [core.py:77] Initializing a V1 LLM engine (v{version}) with config: "
        f"model='case', dtype=torch.bfloat16, max_seq_len={length}, kv_cache_dtype=auto",
        f"{head}1 [gpu_model_runner.py:1] Model loading took "
        f"{terms['weights_memory'] / GIB:.4f} GiB and 3.5 seconds",
        f"{head}2 [gpu_worker.py:1] Available KV cache memory: {gib(result['kv_cache_memory'])} GiB",
        f"{head}3 [kv_cache_utils.py:1] GPU KV cache size: {result['kv_cache_tokens']:,} tokens",
        f"{head}4 [kv_cache_utils.py:2] Maximum concurrency for {length:,} tokens per request: "
        f"{result['max_concurrency']:.2f}x",
    ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    config, engine, version, gpu, flags = CASES[request.param]
    folder = tmp_path_factory.mktemp("case")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    ranks = int(flags[flags.index("-tp") + 1]) if "-tp" in flags else 1
    given = []
    for name, size in WEIGHTS.items():
        if name in str(config["model_type"]).replace("_", "-"):
            given = ["--set", f"weights_memory={size // ranks}"]
    base = [folder / "model", "--engine", engine, "--engine-version", version, *flags]
    code, text = call("derive", *base, "--gpu", gpu, *given, "--format", "json")
    assert code in (0, 1)
    derived = json.loads(text)
    (folder / "derived.json").write_text(text)
    (folder / "serve.log").write_text(start_up_log(derived))
    return folder, derived, base, gpu


def test_a_log_with_the_derived_figures_is_read_back_to_them(case):
    folder, derived, *_ = case
    result = derived["result"]
    code, text = call("explain-log", folder / "serve.log", "--format", "json")
    assert code == 0
    facts = {fact["name"]: fact for fact in json.loads(text)["facts"]}
    for name in ("kv_cache_memory", "weights_memory"):
        value = next(t["value"] for t in derived["terms"] if t["name"] == name)
        assert facts[name]["low"] <= value <= facts[name]["high"], name
    assert facts["kv_cache_tokens"]["value"] == result["kv_cache_tokens"]
    low, high = facts["max_concurrency"]["low"], facts["max_concurrency"]["high"]
    assert low <= result["max_concurrency"] <= high


def test_derive_from_that_log_meets_its_own_figures(case):
    folder, derived, base, gpu = case
    code, text = call(
        "derive", *base, "--gpu", gpu, "--from-log", folder / "serve.log", "--format", "json"
    )
    assert code in (0, 1)
    again = json.loads(text)
    for name in ("bytes_per_token", "bytes_per_block", "kv_cache_tokens", "max_model_len"):
        assert again["result"][name] == derived["result"][name], name
    blocks = next(s for s in again["steps"] if s["name"] == "num_gpu_blocks")
    assert blocks["low"] <= derived["result"]["num_gpu_blocks"] <= blocks["high"]


def test_diff_finds_nothing_between_the_two(case):
    folder, *_ = case
    code, text = call("diff", folder / "derived.json", folder / "serve.log", "--format", "json")
    assert code == 0
    moved = {row["name"] for row in json.loads(text)["terms"] if row["delta"] is not None}
    assert moved <= {"max_concurrency"}  # printed with two digits
    code, text = call("diff", folder / "serve.log", folder / "serve.log", "--format", "json")
    assert json.loads(text)["terms"] == []


def test_the_residual_of_derive_is_the_pool_set_by_hand(case):
    """`--set kv_cache_memory` enters at the residual: blocks and tokens are the same."""
    _, derived, base, gpu = case
    pool = derived["result"]["kv_cache_memory"]
    _, text = call(
        "derive", *base, "--gpu", gpu, "--set", f"kv_cache_memory={pool}", "--format", "json"
    )
    for name in ("num_gpu_blocks", "kv_cache_tokens", "max_concurrency"):
        assert json.loads(text)["result"][name] == derived["result"][name], name


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra profile")
@pytest.mark.parametrize("version", ["0.10.2", "0.20.2", "0.33.0"])
def test_a_profile_its_replay_and_a_derivation_from_it_give_one_pool(tmp_path, version):
    record, profile, replayed, derived = (
        tmp_path / f"{name}.json" for name in ("record", "profile", "replayed", "derived")
    )
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    share = ["--gpu", "l4", "--gpu-memory-utilization", "0.9"]
    code, text = call(
        "profile", "--model", tmp_path, "--device", "fake", "--policy", f"vllm@{version}", *share,
        "--record", record, "--format", "json",
    )  # fmt: skip
    assert code == 0
    profile.write_text(text)
    measured = json.loads(text)["result"]
    code, text = call("profile", "--replay", record, "--format", "json")
    assert (code, json.loads(text)["result"]) == (0, measured)
    replayed.write_text(text)
    code, text = call("diff", profile, replayed, "--format", "json")
    assert (code, json.loads(text)["terms"]) == (0, [])
    base = [tmp_path, "--engine", "vllm", "--engine-version", version, *share]
    code, text = call("derive", *base, "--from-profile", profile, "--format", "json")
    assert code == 0
    derived.write_text(text)
    for name in ("kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens"):
        assert json.loads(text)["result"][name] == measured[name], name
    code, text = call("diff", profile, derived, "--format", "json")
    rows = {row["name"]: row for row in json.loads(text)["terms"]}
    moved = {name for name, row in rows.items() if row["delta"] is not None}
    assert not moved & {"weights_memory", "peak_activation_memory", "kv_cache_memory"}
    assert not rows.keys() & {"margin_memory", "num_gpu_blocks", "kv_cache_tokens"}  # both say them
    derived.write_text(call("derive", *base, "--max-num-seqs", "64", "--format", "json")[1])
    code, text = call("diff", profile, derived, "--format", "json")
    rows = {row["name"]: row for row in json.loads(text)["terms"]}
    assert rows["kv_cache_memory"]["cause"] == "flag max_num_seqs"


def test_the_gate_judges_by_the_pool_that_derive_prints(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA_70B, "max_position_embeddings": 131072})
    )
    flags = ["--tensor-parallel-size", "2", "--max-model-len", "131072"]
    words = [*flags, "--gpu-memory-utilization", "0.9"]
    (tmp_path / "serve.sh").write_text(f"vllm serve org/big {' '.join(words)}\n")
    code, text = call(
        "gate", tmp_path / "serve.sh", "--gpu", "H100-80GB", "--engine-version", "vllm@0.25.1",
        "--model-config", f"org/big={tmp_path / 'config.json'}", "--format", "json",
    )  # fmt: skip
    assert code == 1
    data = next(f["data"] for f in json.loads(text)["findings"] if f["rule"] == "GATE017")
    code, text = call(
        "derive", tmp_path, "--engine", "vllm", "--engine-version", "0.25.1", *words,
        "--gpu", "h100-80gb", "--format", "json",
    )  # fmt: skip
    assert code == 1
    derived = json.loads(text)
    assert data["pool_bytes"] == derived["result"]["kv_cache_memory"]
    steps = {step["name"]: step["value"] for step in derived["steps"]}
    assert abs(data["need_bytes"] - steps["kv_memory_needed"]) < steps["bytes_per_block"]


def test_the_bytes_of_a_token_are_the_same_to_residency_and_derive(case):
    folder, derived, base, _ = case
    ranks = base[base.index("-tp") + 1] if "-tp" in base else "1"
    kind = base[base.index("--kv-cache-dtype") + 1] if "--kv-cache-dtype" in base else "auto"
    code, text = call(
        "residency", "links", "--model", folder / "model", "-tp", ranks, "--kv-cache-dtype", kind,
        "--prefill-rate", "20000", "--link", "x=64GB/s", "--format", "json",
    )  # fmt: skip
    assert code == 0
    link = json.loads(text)["links"][0]
    assert link["read_threshold_tok_s"] == 64e9 / derived["result"]["bytes_per_token"]
