"""The gate's report as text, JSON and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.gate.finding import LEVELS, rule_data
from kvbudget.gate.invocation import record
from kvbudget.render.text import console, plain

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def to_document(report: Report) -> dict[str, Any]:
    """`kvbudget.gate/1`."""
    from kvbudget import __version__

    return {
        "schema": "kvbudget.gate/1",
        "tool": {"name": "kvbudget", "version": __version__},
        "invocations": [record(inv) for inv in report.invocations],
        "findings": [finding.record() for finding in report.findings],
        "suppressed": [
            {**item.finding.record(), "kind": item.kind, "reason": item.reason}
            for item in report.suppressed
        ],
        "skipped_rules": report.skipped,
        "malformed": [
            {"file": p.file, "line": p.line, "message": p.message} for p in report.problems
        ],
        "summary": report.summary,
        "exit_code": report.exit_code,
    }


def as_text(
    report: Report, *, to_file: bool = False, show_suppressed: bool = False, colour: bool = True
) -> str:
    """One block per finding: place, why, the line itself, the fix; then a summary."""
    from rich.text import Text

    target = console(None, to_file=to_file or not colour)
    for finding in report.findings:
        row = Text(f"{plain(finding.file)}:{finding.line}: ", overflow="fold")
        row.append(finding.level.upper(), style=_STYLES[finding.level])
        row.append(f" {finding.rule} {plain(finding.message)}")
        target.print(row, soft_wrap=True)
        source = report.lines.get((finding.file, finding.line), "").strip()
        if source:
            target.print(Text(f"    | {plain(source)[:160]}", style="dim"), soft_wrap=True)
        target.print(Text(f"    fix: {plain(finding.fix)}"), soft_wrap=True)
    if show_suppressed:
        for item in report.suppressed:
            finding = item.finding
            why = item.reason or "no reason given"
            target.print(
                Text(
                    f"{plain(finding.file)}:{finding.line}: suppressed {finding.rule} {plain(finding.message)} ({plain(why)})"
                ),
                soft_wrap=True,
            )
    target.print(Text(summary_line(report)), soft_wrap=True)
    return str(target.file.getvalue())  # type: ignore[attr-defined]


def summary_line(report: Report) -> str:
    """`3 errors, 1 warning, 2 notes in 12 invocations (9 files); ...`."""
    counts = report.summary
    parts = [_count(counts[f"{level}s"], level) for level in reversed(LEVELS)]
    out = f"{', '.join(parts)} in {_count(counts['invocations'], 'invocation')} ({_count(counts['files'], 'file')})"
    if counts["suppressed"] or counts["baseline"]:
        out += f"; {counts['suppressed']} suppressed, {counts['baseline']} in baseline"
    if counts["skipped_rules"]:
        out += f"; {_count(counts['skipped_rules'], 'rule')} skipped for lack of a model config or card"
    if counts["malformed_files"]:
        out += f"; {_count(counts['malformed_files'], 'file')} could not be read"
    return out


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def as_markdown(report: Report) -> str:
    """A table for a ticket or a step summary."""
    rows = [f"**kvbudget gate**: {summary_line(report)}", ""]
    if report.findings:
        rows += ["| level | rule | place | finding |", "|---|---|---|---|"]
        rows += [
            f"| {f.level} | {f.rule} | `{_cell(f.file)}:{f.line}` | {_cell(f.message)} |"
            for f in report.findings
        ]
    return "\n".join(rows)


def _cell(text: str) -> str:
    return (
        plain(text)
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("`", "'")
        .replace("<", "&lt;")
        .replace("\n", " ")
    )


def explain(rule: str) -> str:
    """The page of one rule (`--explain`, docs/rules/ID.md)."""
    entry = rule_data()[rule]
    out = [
        f"# {rule}: {entry['title']}",
        "",
        f"Level: **{entry['level']}**",
        "",
        entry["doc"].strip(),
        "",
        f"Fix: {entry['fix']}.",
    ]
    parameters: dict[str, Any] = entry.get("parameters") or {}
    if parameters:
        out += ["", "Parameters (policy file, `gate.rules." + rule + "`):", ""]
        out += [f"- `{name}`: {value}" for name, value in parameters.items()]
    example = entry.get("example")
    if example:
        kind = "yaml" if example["file"].endswith((".yaml", ".yml")) else "sh"
        for word in ("bad", "good"):
            out += [
                "",
                f"{word.capitalize()} (`{example['file']}`):",
                "",
                f"```{kind}",
                example[word].rstrip(),
                "```",
            ]
        if example.get("policy"):
            out += ["", "Both with host facts in the policy file (`hosts`, `node_ram`)."]
    return "\n".join(out) + "\n"


def explain_document(rule: str) -> dict[str, Any]:
    """`kvbudget.gate-explain/1`: the rule as the data states it."""
    return {"schema": "kvbudget.gate-explain/1", **rule_data()[rule]}


def list_document() -> dict[str, Any]:
    """`kvbudget.gate-list/1`."""
    rows = [{key: rule[key] for key in ("id", "level", "title")} for rule in rule_data().values()]
    return {"schema": "kvbudget.gate-list/1", "rules": rows}


def rule_list() -> str:
    """One line per rule."""
    return "\n".join(
        f"{rule}  {entry['level']:<8} {entry['title']}" for rule, entry in rule_data().items()
    )
