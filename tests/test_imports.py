"""What a command may load: start-up is mostly imports, so each command has a budget of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = (
    "torch", "numba", "numpy", "pyarrow", "transformers", "huggingface_hub", "safetensors", "ray",
    "pydantic", "httpx", "prometheus_client", "zstandard", "unittest", "asyncio", "pygments",
    "markdown_it", "kvbudget.profile.backends.cuda",
)  # fmt: skip
"""No command below loads one of these."""
DRIVER, TABLES, YAML, CONFIG = "pynvml", "rich", "yaml", "msgspec"
COMMANDS: dict[str, tuple[list[str], set[str]]] = {
    "--help": (["--help"], {DRIVER, TABLES, YAML, CONFIG}),
    "--version": (["--version"], {DRIVER, TABLES, YAML, CONFIG}),
    "help of a command": (["derive", "--help"], {DRIVER, TABLES, YAML, CONFIG}),
    "explain-log": (["explain-log", "serve.log"], {DRIVER, YAML}),
    "oom-triage": (["oom-triage", "serve.log"], {DRIVER, YAML}),
    "derive": (["derive", ".", "--engine", "vllm", "--gpu", "h200"], {DRIVER, TABLES, YAML}),
    "plan": (
        ["plan", ".", "--engine", "vllm", "--gpu", "h200", "--context", "8192"],
        {DRIVER, TABLES, YAML},
    ),
    "diff": (["diff", "serve.log", "other.log"], {DRIVER, TABLES, YAML}),
    "gate": (["gate", "serve.sh"], {DRIVER}),
    "watch --replay": (["watch", "--replay", "watch.jsonl"], {DRIVER, TABLES, YAML}),
    "watch --once": (["watch", "--once"], {TABLES, YAML}),
    "residency window": (
        ["residency", "window", "--l1", "445632tok", "--rate", "2000"], {DRIVER, YAML},
    ),
    "residency links": (
        ["residency", "links", "--bytes-per-token", "131072", "--prefill-rate", "22000"],
        {DRIVER, YAML},
    ),
    "residency curve": (["residency", "curve", "trace.jsonl", "--no-cache"], {DRIVER, YAML}),
}  # fmt: skip
"""Arguments, and what this command does without beside HEAVY. Caches are warm, as at the second run."""
PROBE = """
import runpy, sys
sys.argv = ["kvbudget", *{arguments!r}]
try:
    runpy.run_module("kvbudget", run_name="__main__")
except SystemExit as end:
    print("CODE", end.code)
print("LOADED", *[name for name in {names!r} if name in sys.modules])
"""
LOG = (
    "INFO 01-02 10:00:00 [gpu_worker.py:1] Available KV cache memory: 10.25 GiB\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)
CONFIG_JSON = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
READING = {
    "elapsed": 1.0, "time": "2026-01-01T00:00:00+00:00", "schema": "kvbudget.watch-record/1",
    "gpus": [{"index": 0, "total_memory": 2**36, "used_memory": 2**30, "free_memory": 2**35}],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small input of each kind."""
    here = tmp_path_factory.mktemp("inputs")
    (here / "serve.log").write_text(LOG)
    (here / "other.log").write_text(LOG.replace("10.25", "9.75"))
    (here / "serve.sh").write_text("vllm serve own/a --gpu-memory-utilization 0.9\n")
    (here / "config.json").write_text(json.dumps(CONFIG_JSON))
    (here / "watch.jsonl").write_text(json.dumps(READING) + "\n")
    (here / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 9, "hash_ids": [1]}\n')
    return here


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_loads_what_it_does_not_need(name: str, folder: Path) -> None:
    arguments, without = COMMANDS[name]
    names = (*HEAVY, *sorted(without))
    for _ in range(2):  # the first fills the cache of parsed YAML
        done = subprocess.run(
            [sys.executable, "-c", PROBE.format(arguments=arguments, names=names)],
            capture_output=True, text=True, timeout=120, check=False, cwd=folder,
        )  # fmt: skip
    code, loaded = done.stdout.splitlines()[-2:]
    assert code in {"CODE 0", "CODE 1", "CODE 4"}, done.stderr[-400:]
    assert loaded == "LOADED", done.stderr[-400:]
