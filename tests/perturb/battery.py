"""Second judge of a mutant: the unit tests that read its file, in a copy of the repository."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from tests.perturb.mutants import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.perturb.mutants import Mutant

TABLES = "tests/knowledge/test_tables.py"
TESTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("logparsers/layouts.yaml", ("tests/knowledge/test_layouts.py",)),
    ("logparsers/*", ("tests/knowledge/test_whole_server.py",)),
    ("formulas/gpus.yaml", (TABLES,)),
    ("formulas/*/flags.yaml", (TABLES,)),
    ("formulas/gate/hardware.yaml", (TABLES,)),
    ("formulas/gate/*", ("tests/unit/test_gate_rules.py",)),
    ("formulas/metrics.yaml", (TABLES,)),
    ("formulas/profile_policies.yaml", (TABLES,)),
    ("formulas/*/index.yaml", ("tests/knowledge/test_draft_lengths.py", TABLES)),
    ("formulas/transfer/*", (TABLES,)),
    ("formulas/*", ("tests/unit/test_formula_files.py", "tests/unit/test_sglang_formulas.py")),
)
"""The tests that read a file, quickest first; the first pattern that fits holds."""
COPIED = ("kvbudget", "formulas", "logparsers", "tests", "docs", "pyproject.toml", "README.md")


def tests_of(file: str) -> list[str]:
    """The tests that read this file of data."""
    return list(next(tests for glob, tests in TESTS if fnmatch.fnmatch(file, glob)))


class Workshop:
    """A copy of the repository in `folder` and a process that runs tests in it."""

    def __init__(self, folder: Path) -> None:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, folder / name)
        self._env = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "XDG_CACHE_HOME": str(folder / ".cache"),
        }
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.perturb.server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=self._env,
        )  # fmt: skip

    def fails(self, file: str, text: str) -> bool:
        """Whether a test fails with this text in place of the file's."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        job = {"file": file, "text": text, "tests": tests_of(file)}
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        return bool(json.loads(self._server.stdout.readline()))

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails with the mutant in place."""
        return self.fails(mutant.file, mutant.text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=30)
