"""Inline suppressions, annotations, policy paths and the baseline."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.gate.finding import Finding
from kvbudget.gate.policy import UNSUPPRESSABLE, Policy
from kvbudget.gate.tree import matches

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.gate.invocation import Invocation
    from kvbudget.gate.source import Text

_COMMENT = re.compile(
    r"(?:#|//|;|<!--|/\*|rem\s|REM\s).*?kvbudget:\s*(ignore(?:-next-line|-file)?)\[([^\]]*)\][ \t]*(.*?)[ \t]*(?:-->|\*/)?[ \t]*\Z"
)
FILE_LINES = 10
_PROTECTED = UNSUPPRESSABLE | {"GATE003", "GATE004"}


@dataclass
class Mark:
    """One suppression comment."""

    file: str
    line: int
    target: int | None
    rules: list[str]
    reason: str
    used: set[str] = field(default_factory=set)


@dataclass
class Suppressed:
    """A finding that does not count, and why."""

    finding: Finding
    kind: str
    reason: str


def marks(path: str, text: Text) -> list[Mark]:
    """Suppression comments of a file (JSON and notebooks have none)."""
    if path.endswith((".json", ".ipynb")) or "kvbudget" not in text.s:
        return []
    out = []
    for row, content in enumerate(text.s.split("\n"), start=1):
        if "kvbudget:" not in content:
            continue
        match = _COMMENT.search(content)
        if not match:
            continue
        kind, ids, reason = match.groups()
        rules = [part.strip() for part in ids.split(",") if part.strip()]
        if not rules or (kind == "ignore-file" and row > FILE_LINES):
            continue
        target = {"ignore": row, "ignore-next-line": row + 1, "ignore-file": None}[kind]
        out.append(Mark(path, row, target, rules, reason))
    return out


def apply(
    findings: list[Finding],
    texts: dict[str, Text],
    invocations: list[Invocation],
    policy: Policy,
    off: set[str],
) -> tuple[list[Finding], list[Suppressed]]:
    """Split findings; add GATE003 and GATE004 for the suppressions themselves."""
    found = {path: marks(path, text) for path, text in texts.items()}
    by_key = {(inv.file, inv.key): inv for inv in invocations}
    left: list[Finding] = []
    hidden: list[Suppressed] = []
    annotated: dict[tuple[str, int], tuple[set[str], str, set[str]]] = {}
    for inv in invocations:
        for rules, reason, line in _annotation(inv):
            annotated.setdefault((inv.file, line), (rules, reason, set()))
    for finding in findings:
        mark = _mark(finding, found.get(finding.file, []))
        if mark is not None:
            mark.used.add(finding.rule)
            hidden.append(Suppressed(finding, "inSource", mark.reason))
            continue
        note = _by_annotation(finding, by_key, annotated)
        if note is not None:
            hidden.append(Suppressed(finding, "inSource", note))
            continue
        rule = next(
            (
                p
                for p in policy.paths
                if finding.rule in p["ignore"] and matches(finding.file, p["match"])
            ),
            None,
        )
        if rule is not None:
            hidden.append(
                Suppressed(finding, "external", rule["reason"] or f"paths of {policy.file}")
            )
            continue
        left.append(finding)
    from kvbudget.gate.finding import rule_data

    def own(rule: str, file: str, line: int, message: str) -> None:
        if rule not in off:
            entry = rule_data()[rule]
            left.append(
                Finding(
                    rule, policy.levels.get(rule, entry["level"]), file, line, message, entry["fix"]
                )
            )

    for path, items in found.items():
        for mark in items:
            if not mark.reason:
                own("GATE003", path, mark.line, "suppression without a reason")
            for name in mark.rules:
                if name not in mark.used:
                    where = f"on line {mark.target}" if mark.target is not None else "in this file"
                    own(
                        "GATE004",
                        path,
                        mark.line,
                        f"unused suppression: {name} is not raised {where}",
                    )
    for (path, line), (rules, reason, used) in annotated.items():
        if not reason:
            own("GATE003", path, line, "suppression without a reason")
        for name in sorted(rules - used):
            own("GATE004", path, line, f"unused suppression: {name} is not raised in this object")
    return left, hidden


def _mark(finding: Finding, items: list[Mark]) -> Mark | None:
    if finding.rule in _PROTECTED:
        return None
    return next(
        (m for m in items if finding.rule in m.rules and m.target in (None, finding.line)), None
    )


def _annotation(inv: Invocation) -> list[tuple[set[str], str, int]]:
    item = inv.annotations.get("kvbudget.dev/ignore")
    if item is None:
        return []
    reason = inv.annotations.get("kvbudget.dev/ignore-reason", ("", 0))[0]
    return [({part.strip() for part in item[0].split(",") if part.strip()}, reason, item[1])]


def _by_annotation(
    finding: Finding,
    by_key: dict[tuple[str, str], Invocation],
    annotated: dict[tuple[str, int], tuple[set[str], str, set[str]]],
) -> str | None:
    inv = by_key.get((finding.file, finding.invocation or ""))
    if inv is None or finding.rule in _PROTECTED:
        return None
    for rules, reason, line in _annotation(inv):
        if finding.rule in rules:
            annotated[(inv.file, line)][2].add(finding.rule)
            return reason
    return None


# ---- baseline --------------------------------------------------------------------------------


def _entry(finding: Finding) -> tuple[str, str, str, str]:
    return finding.rule, finding.file, finding.invocation or "", finding.value


def write_baseline(path: Path, findings: list[Finding]) -> None:
    """All findings as entries without line numbers."""
    counts = Counter(_entry(finding) for finding in findings)
    entries = [
        {"rule": rule, "file": file, "invocation": inv, "value": value, "count": count}
        for (rule, file, inv, value), count in sorted(counts.items())
    ]
    try:
        path.write_text(
            json.dumps({"schema": "kvbudget.gate-baseline/1", "entries": entries}, indent=1) + "\n"
        )
    except OSError as exc:
        raise InputError(f"cannot write {path}: {exc.strerror}") from exc


def read_baseline(path: Path) -> list[dict[str, Any]]:
    """Entries of a baseline. Raises InputError naming file and line."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(f"error: {path}: cannot read the baseline: {exc.strerror}") from exc
    except ValueError as exc:
        line = getattr(exc, "lineno", 1)
        raise InputError(f"error: {path}:{line}: cannot read the baseline as JSON: {exc}") from exc
    entries = data.get("entries") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not all(
        isinstance(item, dict) and "rule" in item and "file" in item for item in entries
    ):
        raise InputError(
            f"error: {path}:1: not a baseline: entries with rule and file are expected"
        )
    return entries


def apply_baseline(
    findings: list[Finding], entries: list[dict[str, Any]]
) -> tuple[list[Finding], list[Suppressed], list[dict[str, Any]]]:
    """Findings left, findings of the baseline, stale entries."""
    room: list[tuple[dict[str, Any], int]] = [(item, int(item.get("count", 1))) for item in entries]
    left: list[Finding] = []
    hidden: list[Suppressed] = []
    used = [0] * len(room)
    for finding in findings:
        for index, (item, count) in enumerate(room):
            if used[index] < count and finding.rule not in UNSUPPRESSABLE and _same(finding, item):
                used[index] += 1
                hidden.append(Suppressed(finding, "external", "baseline"))
                break
        else:
            left.append(finding)
    stale = [item for (item, _), count in zip(room, used, strict=True) if count == 0]
    return left, hidden, stale


def _same(finding: Finding, item: dict[str, Any]) -> bool:
    if item["rule"] != finding.rule or item["file"] != finding.file:
        return False
    if item.get("invocation") not in (None, "", finding.invocation):
        return False
    value = item.get("value")
    if value is None or value == "":
        return True
    if str(value) == finding.value:
        return True
    try:
        return abs(float(value) - float(finding.value)) < 1e-9
    except (TypeError, ValueError):
        return False


def fingerprint(finding: Finding) -> str:
    """Stable over line moves: rule, file, invocation and value."""
    key = "|".join((finding.rule, finding.file, finding.invocation or "", finding.value))
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
