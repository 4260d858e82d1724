"""SARIF 2.1.0 of a gate report, within what GitHub's code scanning takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kvbudget.gate.finding import Finding, rule_data
from kvbudget.gate.knowledge import engine_names
from kvbudget.gate.suppress import fingerprint
from kvbudget.render.gate import explain
from kvbudget.render.json_v1 import dumps

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report

MAX_RESULTS = 5000
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HELP = "https://github.com/kvbudget/kvbudget/blob/main/docs/rules/{}.md"


def as_sarif(report: Report) -> str:
    """One run; suppressed results carry their justification."""
    from kvbudget import __version__

    ids = list(rule_data())
    results = [_result(finding, ids) for finding in report.findings]
    for item in report.suppressed:
        result = _result(item.finding, ids)
        result["suppressions"] = [
            {"kind": item.kind, "justification": item.reason or "no reason given"}
        ]
        results.append(result)
    cut = len(results) - MAX_RESULTS
    results = results[:MAX_RESULTS]
    notices: list[dict[str, Any]] = [
        {
            "level": "error",
            "message": {"text": f"{p.file}:{p.line}: {p.message}"},
            "locations": [{"physicalLocation": _location(p.file, p.line)}],
        }
        for p in report.problems
    ]
    if cut > 0:
        notices.append(
            {"level": "warning", "message": {"text": f"{cut} more results were left out"}}
        )
    run = {
        "tool": {
            "driver": {
                "name": "kvbudget",
                "version": __version__,
                "informationUri": "https://github.com/kvbudget/kvbudget",
                "rules": [_rule(rule) for rule in ids],
            }
        },
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "root of the checkout"}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": not report.problems, "toolExecutionNotifications": notices}
        ],
        "results": results,
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: str) -> dict[str, Any]:
    entry = rule_data()[rule]
    return {
        "id": rule,
        "name": "".join(
            word.capitalize() for word in entry["title"].replace("/", " ").replace("-", " ").split()
        ),
        "shortDescription": {"text": entry["title"]},
        "fullDescription": {"text": entry["doc"].strip()[:1000]},
        "help": {"text": f"{entry['doc'].strip()} Fix: {entry['fix']}.", "markdown": explain(rule)},
        "helpUri": _HELP.format(rule),
        "defaultConfiguration": {"level": entry["level"]},
        "properties": {"tags": ["memory", *(entry.get("engines") or engine_names())]},
    }


def _location(file: str, line: int) -> dict[str, Any]:
    return {
        "artifactLocation": {
            "uri": quote(file.removeprefix("./"), safe="/", errors="surrogateescape"),
            "uriBaseId": "SRCROOT",
        },
        "region": {"startLine": max(1, line)},
    }


def _result(finding: Finding, ids: list[str]) -> dict[str, Any]:
    return {
        "ruleId": finding.rule,
        "ruleIndex": ids.index(finding.rule),
        "level": finding.level,
        "message": {"text": f"{finding.message}. Fix: {finding.fix}"},
        "locations": [{"physicalLocation": _location(finding.file, finding.line)}],
        "partialFingerprints": {"kvbudget/v1": fingerprint(finding)},
    }
