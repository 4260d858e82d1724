"""Commands that need no accelerator leave the heavy packages alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numba", "pyarrow", "pynvml", "transformers", "huggingface_hub")
COMMANDS = [
    ["--help"],
    ["explain-log", "--help"],
    ["explain-log", "-"],
    ["oom-triage", "-"],
    ["derive", "--help"],
    ["gate", "--help"],
]
PROBE = """
import runpy, sys
sys.argv = ["kvbudget", *{arguments!r}]
try:
    runpy.run_module("kvbudget", run_name="__main__")
except SystemExit:
    pass
print("LOADED", *[name for name in {heavy!r} if name in sys.modules])
"""
LOG = "INFO 01-02 10:00:00 [gpu_worker.py:1] Available KV cache memory: 10.25 GiB\n"


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_heavy_package_is_loaded(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments=arguments, heavy=HEAVY)],
        input=LOG, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "LOADED", done.stdout[-400:] + done.stderr[-400:]
