"""GitHub workflow commands: one annotation per finding, errors first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.gate.finding import LEVELS, rule_data
from kvbudget.render.text import plain

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def _data(text: str) -> str:
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_github(report: Report) -> str:
    """`::error file=F,line=N,title=T::message` lines (messages escaped)."""
    rows = [
        f"::error file={_property(p.file)},line={p.line},title=cannot be read::{_data(p.message)}"
        for p in report.problems
    ]
    for finding in sorted(
        report.findings, key=lambda f: (-LEVELS.index(f.level), f.file, f.line, f.rule)
    ):
        title = f"{finding.rule} {rule_data()[finding.rule]['title']}"
        rows.append(
            f"::{_COMMANDS[finding.level]} file={_property(finding.file)},line={finding.line},"
            f"title={_property(title)}::{_data(f'{finding.message}. Fix: {finding.fix}')}"
        )
    return "\n".join(rows)
