"""A folder of small files through the gate, for its tests."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

from kvbudget.gate.evaluate import Report, Request, run
from kvbudget.gate.invocation import record
from kvbudget.gate.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path

Files = dict[str, str]


def judge(root: Path, files: Files) -> Report:
    """Write the files, by path and indented as their test, and read them with no policy."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return run(Request(root=root), Policy(base=root))


def told(report: Report, expected: dict[str, Any]) -> list[dict[str, Any]]:
    """What the report says of each process, of the keys that are expected."""
    found = [record(inv) for inv in report.invocations]
    return [{key: inv[key] for key in expected} for inv in found]


def sound(root: Path, files: Files) -> Report:
    """As judge, for files in which nothing is malformed."""
    report = judge(root, files)
    assert [problem.message for problem in report.problems] == []
    return report
