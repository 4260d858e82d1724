"""Whole repositories of common shapes: nothing false is said of files that only talk about engines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvbudget.gate.evaluate import Report, Request, run
from kvbudget.gate.policy import Policy

TREES = Path(__file__).parent / "gate_trees"


def judge(root: Path, name: str) -> Report:
    """`=== PATH` opens a file of the tree."""
    for part in re.split(r"(?m)^=== ", (TREES / f"{name}.txt").read_text())[1:]:
        path, _, text = part.partition("\n")
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return run(Request(root=root), Policy(base=root))


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("monorepo", ["infra/main.tf:6", "src/app/engine.py:8"]),
        ("chart", ["llm/templates/deploy.yaml:14"]),
    ],
)
def test_no_false_word(tmp_path: Path, name: str, processes: list[str]) -> None:
    report = judge(tmp_path, name)
    assert [f"{inv.file}:{inv.line}" for inv in report.invocations] == processes
    assert report.problems == []
    assert [finding.rule for finding in report.findings] == []
