"""`derive` of a 671 B latent-attention model from its config, beside two planners; a Markdown table.

`python tests/bench/derive_bench.py [--runs 9] [--no-peers]`: runs are interleaved, the best of each
counts. hf-mem reads tensor headers from a hub and cannot work without one: its row is its start alone
(`--help`). llm-d-planner asks a hub for parameter counts: here the weights are handed to it, so its
row is importing it and one call. Both live in venvs of their own under .bench/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / ".bench"
sys.path.insert(0, str(ROOT / "tests" / "unit"))
from model_configs import DEEPSEEK_V3  # noqa: E402

PLANNER = """
import json, sys
from types import SimpleNamespace
from planner import capacity_planner as planner
planner.model_memory_req = lambda *args, **kwargs: 641.3
config = json.load(open(sys.argv[1]), object_hook=lambda row: SimpleNamespace(**row))
print(planner.allocatable_kv_cache_memory("local", config, 139.8, 0.92, 8, 1))
"""
# Everything runs from bytecode, as installed programs do; a checkout's is kept out of the checkout.
COMPILED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
COMPILED["PYTHONPYCACHEPREFIX"] = str(BENCH / "pycache")
PEERS = {"peers": "hf-mem==0.5.6", "planner": "llm-d-planner==0.3.3"}


def peer(name: str) -> Path:
    """The Python of a peer's own venv, installed at the first call."""
    python = BENCH / name / "bin" / "python"
    if not python.exists():
        venv.create(BENCH / name, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", PEERS[name]], check=False)
    return python


def measure(command: list[str]) -> tuple[float, float, float, int]:
    """(wall seconds, CPU seconds, peak resident MiB, exit code) of one run."""
    start = time.perf_counter()
    with (BENCH / "out.txt").open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.DEVNULL, env=COMPILED)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, process.returncode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    model = BENCH / "tmp" / "latent-671b"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(DEEPSEEK_V3))
    own = [sys.executable, "-m", "kvbudget"]
    flags = ["--gpu", "h200", "-tp", "8"]
    rows = {
        "kvbudget derive, vLLM": [*own, "derive", str(model), "--engine", "vllm", *flags],
        "kvbudget derive, both engines": [*own, "derive", str(model), "--engine", "both", *flags],
    }
    if options.peers:
        config = str(model / "config.json")
        rows |= {
            "hf-mem 0.5.6, its start alone": [str(peer("peers").with_name("hf-mem")), "--help"],
            "llm-d-planner 0.3.3, weights given": [str(peer("planner")), "-c", PLANNER, config],
        }
    found: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in rows}
    for command in rows.values():
        measure(command)
    for _ in range(options.runs):
        for name, command in rows.items():
            found[name].append(measure(command))
    base = min(found["kvbudget derive, vLLM"])[0]
    print("| command | wall s | / derive | CPU s | peak RSS MiB |\n|---|---:|---:|---:|---:|")
    for name, runs in found.items():
        wall, cpu, rss = (min(run[i] for run in runs) for i in range(3))
        failed = f" (failed: exit {runs[0][3]})" if runs[0][3] > 1 else ""  # 1: does not fit
        print(f"| {name}{failed} | {wall:.2f} | {wall / base:.1f} | {cpu:.2f} | {rss:.0f} |")


if __name__ == "__main__":
    main()
