"""Runs the console blocks of a page: what a page shows is what the program prints.

A block fenced as `console` holds commands (lines that begin with `$ `) and their output. All blocks
of a page run in one shell, one after the other, in a copy of the checkout's samples.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGED = ("docs/samples", "examples", "formulas", "logparsers")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "\x1e"


def commands(block: str) -> list[str]:
    """The commands of a block; one goes on after a backslash, and from `<<'END'` to `END`."""
    joined: list[str] = []
    for line in block.split("\n"):
        here = joined and "<<'END'" in joined[-1] and not joined[-1].endswith("\nEND")
        if here or (joined and joined[-1].endswith("\\")):
            joined[-1] += "\n" + line
        elif line.startswith("$ "):
            joined.append(line[2:])
    return joined


def run(lines: list[str]) -> list[str]:
    """The output of each command, stdout and stderr as a terminal shows them."""
    script = 'kvbudget() { "$PYTHON" -m kvbudget "$@"; }\nexport -f kvbudget\n'
    for line in lines:
        script += f"printf '\\n{MARK}\\n'\n{line}\n"
    keep = {
        k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "VLLM_", "SGLANG_"))
    }
    env = {**keep, "PYTHON": sys.executable, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1",
           "LC_ALL": "C.UTF-8", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for part in STAGED:
            shutil.copytree(ROOT / part, Path(folder, part))
        done = subprocess.run(
            ["bash"], input=script, cwd=folder, env=env, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    if "internal error" in done.stdout:
        raise SystemExit(done.stdout[done.stdout.index("kvbudget: internal error") :])
    return [part.strip("\n") for part in done.stdout.split(f"\n{MARK}\n")[1:]]


def refreshed(text: str) -> str:
    """The page with the output of every console block as it is now."""
    blocks = [commands(block) for block in BLOCK.findall(text)]
    outputs = iter(run([line for lines in blocks for line in lines])) if any(blocks) else iter(())
    todo = iter(blocks)

    def block(_: re.Match[str]) -> str:
        shown = []
        for line in next(todo):
            output = next(outputs)
            shown.append(f"$ {line}\n{output}\n" if output else f"$ {line}\n")
        return "```console\n" + "".join(shown) + "```"

    return BLOCK.sub(block, text)


def pages() -> list[Path]:
    """Every page that has a console block."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if BLOCK.search(path.read_text(encoding="utf-8")))
