"""GitLab Code Quality report."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kvbudget.gate.suppress import fingerprint
from kvbudget.render.json_v1 import dumps

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report

_SEVERITY = {"error": "critical", "warning": "major", "note": "info"}


def as_gitlab(report: Report) -> str:
    """An array of issues, `[]` when clean; equal findings get numbered fingerprints."""
    seen: dict[str, int] = {}
    out = []
    for finding in report.findings:
        base = fingerprint(finding)
        count = seen.get(base, 0)
        seen[base] = count + 1
        mark = base if not count else hashlib.sha256(f"{base}|{count}".encode()).hexdigest()
        out.append(
            {
                "description": f"{finding.rule}: {finding.message}. Fix: {finding.fix}",
                "check_name": finding.rule,
                "fingerprint": mark,
                "severity": _SEVERITY[finding.level],
                "location": {"path": finding.file, "lines": {"begin": max(1, finding.line)}},
            }
        )
    for problem in report.problems:
        out.append(  # noqa: PERF401 - reads better as a loop
            {
                "description": f"cannot be read: {problem.message}",
                "check_name": "malformed",
                "fingerprint": hashlib.sha256(f"malformed|{problem.file}".encode()).hexdigest(),
                "severity": "blocker",
                "location": {"path": problem.file, "lines": {"begin": max(1, problem.line)}},
            }
        )
    return dumps(out)
