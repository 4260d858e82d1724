"""Text output as people see it: tests/golden/NAME.out.txt holds a command and what it prints.

The first line is the command, the last the exit code; stderr stands after stdout. After a wanted
change: `pytest tests/test_golden.py --update-golden`, then read the difference.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"
SCENARIOS = sorted(GOLDEN.glob("*.out.txt"))


def printed(command: str) -> str:
    """The command, its output at 100 columns without colour, and its exit code."""
    _, *words = shlex.split(command)
    keep = {
        k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "VLLM_", "SGLANG_"))
    }
    env = {**keep, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", *words],
        cwd=GOLDEN, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return f"$ {command}\n{done.stdout}{done.stderr}[exit {done.returncode}]\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.removesuffix(".out.txt"))
def test_text_is_as_it_was_read_and_approved(path, pytestconfig):
    text = path.read_text(encoding="utf-8")
    now = printed(text.split("\n", 1)[0].removeprefix("$ "))
    if pytestconfig.getoption("--update-golden"):
        path.write_text(now, encoding="utf-8")
    else:
        assert now == text


def test_every_command_that_prints_text_has_a_scenario():
    first = [path.read_text(encoding="utf-8").split("\n", 1)[0] for path in SCENARIOS]
    shown = {line.split()[2] for line in first if len(line.split()) > 2}
    from kvbudget.cli.lazy import MODULES

    measures = {"profile"}  # its figures are those of the machine; tests/unit has its layout
    plans = {"plan"}  # shown by the tutorial, which is compared too
    assert shown | measures | plans == set(MODULES)


def test_every_input_is_used():
    used = " ".join(path.read_text(encoding="utf-8").split("\n", 1)[0] for path in SCENARIOS)
    assert [p.name for p in GOLDEN.glob("*.in.*") if p.name not in used] == []


WORDS = [
    "explain-log explain-vllm-new.in.log --bytes-per-block 2MiB",
    "oom-triage triage-logprobs.in.log --startup-log incident-start.in.log",
    "residency window --l1 445632tok --l2 891264tok --rate 2000",
    "residency simulate trace.jsonl --l1 20blk --l2 40blk --policy write_through",
    "derive chat-8b --from-log incident-start.in.log",
    "diff explain-vllm-new.in.log explain-after.in.log",
    "watch --replay watch.in.jsonl",
]
RUN_ON = (
    "derive",
    "diff",
    "watch",
)  # formulas, and one row a reading or a term: the terminal wraps


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.split(" --")[0])
def test_text_is_plain_ascii_where_the_terminal_is_and_fits_eighty_columns(words):
    env = {**os.environ, "COLUMNS": "80", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", *shlex.split(words)],
        cwd=GOLDEN, env=env, capture_output=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    text = done.stdout.decode("ascii")
    assert text
    if not words.startswith(RUN_ON):
        assert max(map(len, text.split("\n"))) <= 80
