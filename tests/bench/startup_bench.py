"""Start-up beside three peers: `--help` and a small run of every command, in one interleaved run.

`python tests/bench/startup_bench.py [--runs 9] [--no-peers]` prints a Markdown table. CPU seconds
(user and system) are what the table ranks by: other work on the machine moves them least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from explain_log_bench import START_UP, peers

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
CRASH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    " capacity of 79.11 GiB of which 1.20 GiB is free.\n"
)
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: c\n"
    "    image: vllm/vllm-openai:v0.9.2\n    args: [--model, own/a, --max-model-len, '8192']\n"
)
READING = {
    "elapsed": 1.0, "time": "2026-01-01T00:00:00+00:00", "schema": "kvbudget.watch-record/1",
    "gpus": [{"index": 0, "total_memory": 2**36, "used_memory": 2**30, "free_memory": 2**35}],
}  # fmt: skip
Cost = tuple[float, float]


def once(command: list[str], folder: Path) -> Cost:
    """(wall seconds, CPU seconds) of one run; both streams are thrown away."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def commands(own: str, where: Path | None) -> dict[str, list[str]]:
    """What is run, in the folder with the small inputs, by the name it has in the table."""
    rows = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "kvbudget --help": [own, "--help"],
        "kvbudget explain-log": [own, "explain-log", "serve.log"],
        "kvbudget oom-triage": [own, "oom-triage", "crash.log"],
        "kvbudget derive": [own, "derive", "config.json", "--engine", "vllm", "--gpu", "h200"],
        "kvbudget plan": [own, "plan", "config.json", "--engine", "vllm", "--gpu", "h200",
                          "--context", "8192"],
        "kvbudget diff": [own, "diff", "serve.log", "other.log"],
        "kvbudget gate": [own, "gate", "pod.yaml"],
        "kvbudget watch --replay": [own, "watch", "--replay", "watch.jsonl"],
        "kvbudget residency window": [own, "residency", "window", "--l1", "445632tok",
                                      "--rate", "2000"],
        "kvbudget residency curve": [own, "residency", "curve", "trace.jsonl", "--no-cache"],
        "kvbudget knowledge list": [own, "knowledge", "list"],
        "kvbudget profile --help": [own, "profile", "--help"],
    }  # fmt: skip
    if where is not None:
        hf, wizard, scout = (str(where / name) for name in ("hf-mem", "vllm-wizard", "vramscout"))
        rows |= {
            "hf-mem 0.5.6 --help": [hf, "--help"],
            "vllm-wizard 0.2.0 --help": [wizard, "--help"],
            "vllm-wizard 0.2.0 plan": [wizard, "plan", "--model", ".", "--gpu", "H100"],
            "vramscout 0.7.0 --help": [scout, "--help"],
            "vramscout 0.7.0, a config": [scout, "config.json", "--vram-gib", "80"],
            "vramscout 0.7.0 --parse-log": [scout, "--parse-log", "serve.log"],
        }
    return rows


def prepare(folder: Path) -> None:
    """The small inputs."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "serve.log").write_text(START_UP)
    (folder / "other.log").write_text(START_UP.replace("54.40 GiB", "50.10 GiB"))
    (folder / "crash.log").write_text(START_UP + CRASH)
    (folder / "pod.yaml").write_text(POD)
    (folder / "watch.jsonl").write_text(json.dumps(READING) + "\n")
    (folder / "trace.jsonl").write_text(
        "".join(
            json.dumps({"timestamp": i, "input_length": 900, "hash_ids": [0, i % 7]}) + "\n"
            for i in range(50)
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    rows = commands(
        str(Path(sys.executable).with_name("kvbudget")), peers() if options.peers else None
    )
    costs: dict[str, list[Cost]] = {name: [] for name in rows}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for turn in range(options.runs + 1):  # the first fills the caches and does not count
            for label, command in rows.items():
                cost = once(command, Path(name))
                if turn:
                    costs[label].append(cost)
    base = min(cpu for _, cpu in costs.get("hf-mem 0.5.6 --help") or costs["kvbudget --help"])
    print(f"{options.runs} interleaved runs; CPU and wall in ms\n")
    print("| command | CPU min | CPU median | wall min | wall median | CPU min / hf-mem --help |")
    print("|---|---:|---:|---:|---:|---:|")
    for label, found in costs.items():
        wall, cpu = zip(*found, strict=True)
        figures = (min(cpu), statistics.median(cpu), min(wall), statistics.median(wall))
        shown = " | ".join(f"{1000 * value:.0f}" for value in figures)
        print(f"| {label} | {shown} | {min(cpu) / base:.2f} |")


if __name__ == "__main__":
    main()
