"""Rules that decide a capacity before any arithmetic: default batches, flags a release lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kvbudget.derive.build import Inputs, build
from tests.unit import model_configs as c

if TYPE_CHECKING:
    from pathlib import Path


def derived(tmp_path: Path, config: dict[str, Any], engine: str, version: str, *flags: str) -> Any:
    (tmp_path / "config.json").write_text(json.dumps(config))
    env = ("VLLM_USE_V1=0",) if version.startswith("0.8") else ()
    tokens = (str(tmp_path), *flags)
    return build(Inputs(tokens, engine, (version,), gpu="a100-80gb", env=env))[0]


@pytest.mark.parametrize(
    ("config", "version", "length", "tokens"),
    [
        (c.LLAMA_8B, "0.7.3", 8192, 8192),
        (c.LLAMA_8B, "0.7.3", 1024, 2048),
        (c.LLAMA_8B, "0.7.3", 40000, 2048),
        (c.GEMMA3_27B, "0.8.5", 4096, 5120),
        (c.GEMMA3_27B, "0.8.5", 40000, 40000),
        (c.DEEPSEEK_V3, "0.8.5", 65536, 65536),
        (c.LLAMA_8B, "0.9.2", 8192, 2048),
    ],
)
def test_the_default_batch_of_v0_holds_the_longest_request(
    tmp_path: Path, config: dict[str, Any], version: str, length: int, tokens: int
) -> None:
    flags = ("--max-model-len", str(length), "-tp", "8")
    found = derived(tmp_path, config, "vllm", version, *flags)
    assert found.amount("max_num_batched_tokens").value == tokens


def test_a_stated_batch_stays(tmp_path: Path) -> None:
    flags = ("--max-model-len", "8192", "--max-num-batched-tokens", "4096")
    found = derived(tmp_path, c.LLAMA_8B, "vllm", "0.7.3", *flags)
    assert found.amount("max_num_batched_tokens").value == 4096


def test_stages_that_a_release_does_not_have_divide_nothing(tmp_path: Path) -> None:
    found = derived(tmp_path, c.LLAMA_8B, "sglang", "0.4.3", "--pp-size", "2")
    whole = derived(tmp_path, c.LLAMA_8B, "sglang", "0.4.3")
    assert found.amount("kv_cache_tokens") == whole.amount("kv_cache_tokens")
    assert any("--pp-size" in note for note in found.notes)


def test_the_environment_picks_the_model_runner(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(c.LLAMA_8B))
    peaks = [
        build(Inputs((str(tmp_path),), "vllm", ("0.31.0",), gpu="h200", env=env))[0]
        .amount("peak_activation_memory").value
        for env in ((), ("VLLM_USE_V2_MODEL_RUNNER=1",), ("VLLM_USE_V2_MODEL_RUNNER=0",))
    ]  # fmt: skip
    assert peaks[0] == peaks[1] < peaks[2]


def test_stages_print_pools_of_their_own(tmp_path: Path) -> None:
    found = derived(tmp_path, c.LLAMA_8B, "vllm", "0.19.0", "--pipeline-parallel-size", "4")
    note = next(note for note in found.notes if "pipeline stage" in note)
    assert note.count("GiB") == 4
    assert "stage 3 decides" in note
    pool = found.amount("kv_cache_memory")
    printed = [float(word.split()[0]) for word in note.split("(")[1].split(", ")[:4]]
    assert printed[3] * 2**30 == pytest.approx(pool.value, rel=1e-3)
    assert pool.value < printed[0] * 2**30 <= pool.high * 1.001


@pytest.mark.parametrize(
    ("card", "low", "high"), [("gb10", 124610, 124610), ("gb300", 283948, 284418)]
)
def test_cards_without_a_figure_of_nvidia_smi(
    tmp_path: Path, card: str, low: int, high: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(c.LLAMA_8B))
    found = build(Inputs((str(tmp_path),), "sglang", ("0.5.12",), gpu=card))[0]
    smi = found.amount("smi_memory_mib")
    assert (smi.low, smi.high) == (low, high)
    assert found.amount("kv_cache_tokens").value > 0
