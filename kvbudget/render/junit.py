"""JUnit XML: a suite per file, a case per invocation and rule."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvbudget.gate.finding import LEVELS, Finding, rule_data

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report

_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def as_junit(report: Report) -> str:
    """Failures are findings at or above --fail-on; lower ones are system-out."""
    least = LEVELS.index(report.fail_on) if report.fail_on in LEVELS else len(LEVELS)
    by_file: dict[str, dict[tuple[str, str], list[Finding]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for inv in report.invocations:
        for rule in rule_data():
            by_file[inv.file][(inv.key, rule)] = by_file[inv.file][(inv.key, rule)]
    for finding in report.findings:
        by_file[finding.file][(finding.invocation or "file", finding.rule)].append(finding)
    skipped = {(item["invocation"], item["rule"]): item["needs"] for item in report.skipped}
    suites: list[str] = []
    totals = [0, 0, 0, 0]
    for file in sorted({*by_file, *(p.file for p in report.problems)}):
        cases: list[str] = []
        counts = [0, 0, 0, 0]
        for problem in (p for p in report.problems if p.file == file):
            counts[0] += 1
            counts[2] += 1
            message = _clean(problem.message)
            cases.append(
                f'<testcase classname={quoteattr(_clean(file))} name="read">'
                f"<error message={quoteattr(message)}>{escape(_clean(f'{file}:{problem.line}: {message}'))}</error></testcase>"
            )
        for (key, rule), found in by_file[file].items():
            counts[0] += 1
            name = quoteattr(_clean(f"{key} {rule}"))
            body = ""
            failing = [f for f in found if LEVELS.index(f.level) >= least]
            if failing:
                counts[1] += 1
                said = "\n".join(f"{f.file}:{f.line}: {f.message}. Fix: {f.fix}" for f in failing)
                body = f"<failure type={quoteattr(rule)} message={quoteattr(_clean(failing[0].message))}>{escape(_clean(said))}</failure>"
            elif found:
                said = "\n".join(f"{f.file}:{f.line}: {f.level}: {f.message}" for f in found)
                body = f"<system-out>{escape(_clean(said))}</system-out>"
            else:
                needs = next(
                    (
                        n
                        for (inv, r), n in skipped.items()
                        if r == rule and inv.endswith(key) and inv.startswith(file)
                    ),
                    None,
                )
                if needs:
                    counts[3] += 1
                    body = f"<skipped message={quoteattr('needs ' + needs)}/>"
            cases.append(
                f"<testcase classname={quoteattr(_clean(file))} name={name}>{body}</testcase>"
            )
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        suites.append(
            f"<testsuite name={quoteattr(_clean(file))} {_numbers(counts)}>"
            + "".join(cases)
            + "</testsuite>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="kvbudget gate" {_numbers(totals)}>'
        + "\n".join(suites)
        + "</testsuites>"
    )


def _numbers(counts: list[int]) -> str:
    tests, failures, errors, skipped = counts
    return f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
