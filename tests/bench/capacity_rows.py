"""Observed start-ups as requests of derive: what the capacity benches share.

A row is one JSON line (engine, version, model_config, gpu, gpu_total_gib, tp, pp, flags,
quantization, kv_dtype, block_size, observed, grade, group). Only rows of grade A or B with a known
config and a pool above 1 GiB are used. Quantised rows take the printed weights, SGLang rows their
two printed free-memory figures: nothing else of what was observed reaches a prediction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.derive.build import Inputs, build
from kvbudget.derive.catalogue import find_gpu
from kvbudget.errors import InputError, KvbudgetError

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.derive.assemble import Derived

GIB = 2**30
ROUNDING = 0.005 * GIB
POOL = {"vllm": "kv_cache_memory", "sglang": "kv_cache_tokens"}
NAMES = {
    "vllm": ("gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs"),
    "sglang": ("mem_fraction_static", "chunked_prefill_size", "max_running_requests",
               "context_length", "max_total_tokens", "swa_full_tokens_ratio"),
}  # fmt: skip


@dataclass
class Result:
    """One row: bytes (vLLM) or tokens (SGLang)."""

    row: dict[str, Any]
    observed: float
    low: float
    best: float
    high: float

    @property
    def error(self) -> float:
        return (self.best - self.observed) / self.observed * 100

    @property
    def inside(self) -> bool:
        half = ROUNDING if self.row["engine"] == "vllm" else 0
        return self.low - half <= self.observed <= self.high + half


def read_rows(file: Path, configs: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    return [row for row in rows if _usable(row) and (configs / row["model_config"]).is_dir()]


def _usable(row: dict[str, Any]) -> bool:
    seen = row["observed"]
    if row["grade"] not in "AB" or not row["model_config"]:
        return False
    if row["engine"] == "vllm":
        return (seen.get("available_kv_gib") or 0) > 1 and seen.get("weights_gib") is not None
    needed = ("avail_before_gb", "avail_after_weights_gb", "kv_tokens")
    return all(seen.get(name) for name in needed)


def release(row: dict[str, Any]) -> str:
    return str(row["version"]).partition(" ")[0].split("-")[0].split("+")[0]


def core(row: dict[str, Any]) -> str:
    found = str(row["version"]).partition(" ")[2]
    return found if found in ("V0", "V1") else ""


def card(row: dict[str, Any]) -> str | None:
    name = str(row["gpu"]).replace(" ", "-")
    try:
        return find_gpu(name).name
    except InputError:
        return None


def inputs(row: dict[str, Any], configs: Path) -> Inputs:
    """The request that states what the row states, and nothing of what it observed."""
    flags, seen, engine = row["flags"], row["observed"], row["engine"]
    line = [str(configs / row["model_config"])]
    if row.get("kv_dtype") not in (None, "auto"):
        line += ["--kv-cache-dtype", row["kv_dtype"]]
    parallel = {"vllm": "{}-parallel-size", "sglang": "{}-size"}[engine]
    words = ("tensor", "pipeline") if engine == "vllm" else ("tp", "pp")
    for word, ways in zip(words, (row["tp"], row["pp"]), strict=True):
        line += ["--" + parallel.format(word), str(ways or 1)]
    for name in NAMES[engine]:
        value = flags.get(name, seen.get(name) if engine == "vllm" else None)
        if value is not None:
            line += ["--" + name.replace("_", "-"), str(value)]
    stated = []
    if engine == "sglang":
        stated = [
            f"avail_memory_before_weights={seen['avail_before_gb']}GiB",
            f"avail_memory_after_weights={seen['avail_after_weights_gb']}GiB",
        ]
    else:
        line += ["--enforce-eager"] if flags.get("enforce_eager") else []
        line += ["--block-size", str(row["block_size"])] if row.get("block_size") else []
        line += ["--dtype", flags["dtype"]] if flags.get("dtype") not in (None, "auto") else []
        stated += [f"sampler={flags['sampler']}"] if flags.get("sampler") else []
        stated += [f"weights_memory={seen['weights_gib']}GiB"] if row["quantization"] else []
    memory = row.get("gpu_total_gib")
    return Inputs(
        tuple(line), engine, (release(row),), card(row), f"{memory}GiB" if memory else None,
        (f"VLLM_USE_V1={core(row)[1]}",) if core(row) else (), tuple(stated),
    )  # fmt: skip


def derived(row: dict[str, Any], configs: Path) -> Derived | None:
    try:
        return build(inputs(row, configs))[0]
    except KvbudgetError:
        return None


def predict(row: dict[str, Any], configs: Path) -> Result | None:
    """The row's result; None where derive gives no figure."""
    found = derived(row, configs)
    amount = found.amount(POOL[row["engine"]]) if found else None
    if amount is None:
        return None
    seen = row["observed"]
    pool = seen["available_kv_gib"] * GIB if row["engine"] == "vllm" else seen["kv_tokens"]
    return Result(row, pool, amount.low, amount.value, amount.high)
