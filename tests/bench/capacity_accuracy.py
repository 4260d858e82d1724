"""Predicted pools beside those that real servers printed: the capacity section of accuracy.md.

    python tests/bench/capacity_accuracy.py ROWS.jsonl CONFIGS [--peers FILE] [-o PAGE.md]

ROWS: one observed start-up per line (engine, version, model_config, gpu, gpu_total_gib, tp, pp,
flags, quantization, kv_dtype, block_size, observed, grade). Only rows of grade A or B with a known
config and a pool above 1 GiB are used. Quantised rows take the printed weights, SGLang rows their
two printed free-memory figures. `--peers` names a JSON file {row id: {tool: bytes or null}}.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

GIB = 2**30
ROUNDING = 0.005 * GIB
FITTED = {
    "vllm": "non-torch of H100 rows 0.11 - 0.19, FlashInfer rows of 0.10.1, forward residue of 0.19",
    "sglang": "spread on a busy or unified memory",
}


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


def usable(row: dict[str, Any]) -> bool:
    seen = row["observed"]
    if row["grade"] not in "AB" or not row["model_config"]:
        return False
    if row["engine"] == "vllm":
        return (seen.get("available_kv_gib") or 0) > 1 and seen.get("weights_gib") is not None
    needed = ("avail_before_gb", "avail_after_weights_gb", "kv_tokens")
    return all(seen.get(name) for name in needed)


def command(row: dict[str, Any], configs: Path) -> list[str]:
    """The derive command that states what the row states, and nothing of what it observed."""
    flags, seen = row["flags"], row["observed"]
    version, _, core = str(row["version"]).partition(" ")
    line = [sys.executable, "-m", "kvbudget", "derive", str(configs / row["model_config"])]
    line += ["--engine", row["engine"], "--format", "json"]
    line += ["--engine-version", version.split("-")[0].split("+")[0]]
    if core in ("V0", "V1"):
        line += ["--env", f"VLLM_USE_V1={core[1]}"]
    if row.get("gpu_total_gib"):
        line += ["--gpu-memory", f"{row['gpu_total_gib']}GiB"]
    card = str(row["gpu"]).replace(" ", "-")
    if known_card(card):
        line += ["--gpu", card]
    if row.get("kv_dtype") not in (None, "auto"):
        line += ["--kv-cache-dtype", row["kv_dtype"]]
    parallel = {"vllm": "{}-parallel-size", "sglang": "{}-size"}[row["engine"]]
    words = ("tensor", "pipeline") if row["engine"] == "vllm" else ("tp", "pp")
    for word, ways in zip(words, (row["tp"], row["pp"]), strict=True):
        line += ["--" + parallel.format(word), str(ways or 1)]
    names = {
        "vllm": ("gpu_memory_utilization", "max_model_len", "max_num_batched_tokens",
                 "max_num_seqs"),
        "sglang": ("mem_fraction_static", "chunked_prefill_size", "max_running_requests",
                   "context_length", "max_total_tokens", "swa_full_tokens_ratio"),
    }[row["engine"]]  # fmt: skip
    for name in names:
        value = flags.get(name, seen.get(name) if row["engine"] == "vllm" else None)
        if value is not None:
            line += ["--" + name.replace("_", "-"), str(value)]
    if row["engine"] == "sglang":
        line += ["--set", f"avail_memory_before_weights={seen['avail_before_gb']}GiB"]
        line += ["--set", f"avail_memory_after_weights={seen['avail_after_weights_gb']}GiB"]
        return line
    line += ["--enforce-eager"] if flags.get("enforce_eager") else []
    line += ["--block-size", str(row["block_size"])] if row.get("block_size") else []
    line += ["--set", f"sampler={flags['sampler']}"] if flags.get("sampler") else []
    if flags.get("dtype") not in (None, "auto"):
        line += ["--dtype", flags["dtype"]]
    if row["quantization"]:
        line += ["--set", f"weights_memory={seen['weights_gib']}GiB"]
    return line


def known_card(name: str) -> bool:
    from kvbudget.derive.catalogue import find_gpu
    from kvbudget.errors import InputError

    try:
        find_gpu(name)
    except InputError:
        return False
    return True


def predict(row: dict[str, Any], configs: Path) -> Result | None:
    """The row's result; None (and a line on stderr) where derive gave none."""
    done = run(command(row, configs), capture_output=True, text=True, timeout=120, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        print(f"no result: {done.stderr.strip()[-200:]}", file=sys.stderr)
        return None
    name = "kv_cache_memory" if row["engine"] == "vllm" else "kv_cache_tokens"
    places = [*answer["terms"], *answer["steps"]]
    found = next((item for item in places if item["name"] == name), None)
    if found is None:
        return None
    seen = row["observed"]
    observed = seen["available_kv_gib"] * GIB if name == "kv_cache_memory" else seen["kv_tokens"]
    return Result(row, observed, found["low"], found["value"], found["high"])


def summary(results: list[Result]) -> str:
    errors = [result.error for result in results]
    widths = [(r.high - r.low) / r.observed * 100 for r in results]
    inside = sum(r.inside for r in results) / len(results)
    return (
        f"{len(results)} rows: median \\|error\\| {statistics.median(map(abs, errors)):.2f} %, "
        f"mean {statistics.mean(map(abs, errors)):.2f} %, bias {statistics.mean(errors):+.2f} %, "
        f"inside the interval {inside:.0%}, median width {statistics.median(widths):.1f} %"
    )


def page(results: list[Result], peers: dict[str, dict[str, float | None]]) -> str:
    """Markdown: a summary per engine, then every row."""
    tools = sorted({tool for row in peers.values() for tool in row})
    lines = []
    for engine in sorted({r.row["engine"] for r in results}):
        mine = [r for r in results if r.row["engine"] == engine]
        unit = "GiB" if engine == "vllm" else "tokens"
        lines += [f"### {engine}", "", summary(mine), "", f"Fitted: {FITTED[engine]}.", ""]
        head = ["version", "model", "card", "TP", f"low ({unit})", "best", "high", "observed",
                "error", "inside", *(tools if engine == "vllm" else [])]  # fmt: skip
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for r in mine:
            shown = [f"{x / GIB:.2f}" if engine == "vllm" else f"{int(x):,}"
                     for x in (r.low, r.best, r.high, r.observed)]  # fmt: skip
            cells = [str(r.row["version"]), r.row["model_config"], str(r.row["gpu"]),
                     str(r.row["tp"]), *shown, f"{r.error:+.2f} %", "yes" if r.inside else "no"]  # fmt: skip
            if engine == "vllm":
                theirs = peers.get(r.row["id"], {})
                cells += [peer_cell(theirs.get(tool), r.observed) for tool in tools]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def peer_cell(value: float | None, observed: float) -> str:
    return "-" if value is None else f"{(value - observed) / observed * 100:+.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.rows.read_text().splitlines() if line.strip()]
    rows = [r for r in rows if usable(r) and (options.configs / r["model_config"]).is_dir()]
    with ThreadPoolExecutor(2) as workers:
        found = list(workers.map(lambda row: predict(row, options.configs), rows))
    results = [result for result in found if result is not None]
    peers = json.loads(options.peers.read_text()) if options.peers else {}
    text = page(results, peers)
    if options.output:
        options.output.write_text(text + "\n")
    else:
        print(text)
    return 0 if len(results) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
