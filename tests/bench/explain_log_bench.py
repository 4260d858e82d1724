"""explain-log against grep and its peers, on one generated log; prints a Markdown table of ratios.

`python tests/bench/explain_log_bench.py [--mb 50] [--big-mb 1024] [--no-peers] [--runs 3]`: the peers are
installed into a venv of their own under .bench/. All ratios of a table come from one run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / ".bench"
PEERS = ("vramscout==0.7.0", "vllm-wizard==0.2.0", "hf-mem==0.5.6")
START_UP = """\
INFO 01-02 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.10.2) with config: model='m'
INFO 01-02 10:00:20 [gpu_model_runner.py:2392] Model loading took 14.9889 GiB and 9.81 seconds
INFO 01-02 10:00:41 [gpu_worker.py:298] Available KV cache memory: 54.40 GiB
INFO 01-02 10:00:41 [kv_cache_utils.py:864] GPU KV cache size: 445,632 tokens
INFO 01-02 10:00:41 [kv_cache_utils.py:868] Maximum concurrency for 8,192 tokens per request: 54.40x
INFO 01-02 10:00:58 [gpu_model_runner.py:3118] Graph capturing finished in 17 secs, took 0.62 GiB
"""
REQUEST = (
    "INFO 01-02 10:{m:02}:{s:02} [logger.py:41] Received request cmpl-{i:08x}: prompt: '...',"
    " params: SamplingParams(n=1, temperature=0.7, max_tokens=256), lora_request: None.\n"
)


def write_log(path: Path, megabytes: int) -> None:
    with path.open("w") as file:
        size, i = file.write(START_UP), 0
        while size < megabytes * 2**20:
            size += file.write(REQUEST.format(m=i // 60 % 60, s=i % 60, i=i))
            i += 1


def measure(command: list[str], runs: int) -> tuple[float, float] | None:
    """(best wall seconds, peak resident MiB) of `runs` runs; None when the program is not there."""
    best, peak = float("inf"), 0.0
    # Not /dev/null: grep stops at the first match when its output goes there.
    sink = (BENCH / "out.txt").open("wb")
    for _ in range(runs):
        start = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdout=sink, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            return None
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        best = min(best, time.perf_counter() - start)
        peak = max(peak, usage.ru_maxrss / 1024)
    return best, peak


def peers() -> Path:
    home = BENCH / "peers"
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
        for name in PEERS:
            subprocess.run([*pip, name], check=False)
    return home / "bin"


def literals(path: Path) -> Path:
    from kvbudget.knowledge.patterns import load_patterns

    path.write_text("\n".join(load_patterns().literals) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=50)
    parser.add_argument("--big-mb", type=int, default=1024, help="also one of this size, once")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    BENCH.mkdir(exist_ok=True)
    log, small = BENCH / "serve.log", BENCH / "small.log"
    write_log(log, options.mb)
    small.write_text(START_UP)
    own = [sys.executable, "-m", "kvbudget"]
    rows: list[tuple[str, list[str], int]] = [
        ("kvbudget explain-log", [*own, "explain-log", str(log)], options.runs),
        ("grep -aF -f LITERALS -c",
         ["grep", "-aF", "-f", str(literals(BENCH / "literals.txt")), "-c", str(log)], options.runs),
        ("kvbudget --help", [*own, "--help"], options.runs),
        ("kvbudget explain-log, small log", [*own, "explain-log", str(small)], options.runs),
    ]  # fmt: skip
    if options.peers:
        where = peers()
        rows += [
            ("vramscout 0.7.0 --parse-log",
             [str(where / "vramscout"), "--parse-log", str(log)], options.runs),
            ("vllm-wizard 0.2.0 --help", [str(where / "vllm-wizard"), "--help"], options.runs),
            ("hf-mem 0.5.6 --help", [str(where / "hf-mem"), "--help"], options.runs),
        ]  # fmt: skip
    if options.big_mb:
        big = BENCH / "big.log"
        write_log(big, options.big_mb)
        rows.append((f"kvbudget, {options.big_mb} MB", [*own, "explain-log", str(big)], 1))
    measured = [(name, measure(command, runs)) for name, command, runs in rows]
    base = measured[0][1]
    assert base is not None
    print(f"| command ({options.mb} MB log) | time / kvbudget's | peak RSS, MiB |\n|---|---|---|")
    for name, result in measured:
        if result is None:
            print(f"| {name} | not installed | |")
        else:
            print(f"| {name} | {result[0] / base[0]:.2f} ({result[0]:.2f} s) | {result[1]:.0f} |")
    if options.big_mb:
        (BENCH / "big.log").unlink()


if __name__ == "__main__":
    main()
