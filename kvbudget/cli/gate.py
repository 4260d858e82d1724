"""`kvbudget gate`: arguments only; the work is in kvbudget.gate."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbudget.cli import complete
from kvbudget.cli.page import Page, epilog
from kvbudget.errors import InputError, near

if TYPE_CHECKING:
    from kvbudget.gate.evaluate import Report
    from kvbudget.gate.policy import Policy

FORMATS = ("text", "json", "markdown", "sarif", "github", "junit", "gitlab")
LEVELS = ("error", "warning", "note", "never")

_HELP = """Check the memory settings kept in a repository, in CI.

Walks files and folders, extracts every vLLM and SGLang invocation, and evaluates the rules
(--list-rules). It never executes, renders or fetches anything.
"""

EPILOG = epilog(
    """
    kvbudget gate
    kvbudget gate deploy/ --fail-on warning
    kvbudget gate --output github --output sarif:kvbudget.sarif
    kvbudget gate --explain GATE013
    """,
    {
        0: "no finding at or above --fail-on, or no engine found",
        1: "findings at or above --fail-on",
        2: "bad usage, or a malformed file, policy or baseline",
        3: "no engine found, with --require-invocations",
    },
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gate", cls=Page, help=_HELP, epilog=EPILOG)(gate)


def gate(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files or folders; nothing is the working directory."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on", metavar="LEVEL", help="error, warning, note or never; inclusive."
        ),
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="The same as --fail-on never.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="One of " + ", ".join(FORMATS) + "."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="Write the --format result to FILE.")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", metavar="FORMAT[:FILE]", help="Repeatable: several formats at once."
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", metavar="FILE", help="Policy file (default: the nearest kvbudget.yaml)."
        ),
    ] = None,
    no_policy: Annotated[bool, typer.Option("--no-policy", help="Read no policy file.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="ID,...",
            help="Only these rules.",
            autocompletion=complete.rules,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="ID,...",
            help="All but these rules.",
            autocompletion=complete.rules,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Known findings that do not count."),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            "--write-baseline", metavar="FILE", help="Write all findings as the baseline."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="An unresolved value is an error.")
    ] = False,
    require_invocations: Annotated[
        bool, typer.Option("--require-invocations", help="Exit 3 when no engine is found.")
    ] = False,
    use_env: Annotated[
        bool,
        typer.Option("--use-env", help="Resolve variables from this process's environment too."),
    ] = False,
    show_suppressed: Annotated[
        bool, typer.Option("--show-suppressed", help="Text: list suppressed findings too.")
    ] = False,
    list_rules: Annotated[
        bool, typer.Option("--list-rules", help="List the rules and end.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="ID",
            help="Explain a rule and end.",
            autocompletion=complete.rules,
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Also read these files of the walk."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Leave these files out.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Card where a file does not tell.",
            autocompletion=complete.cards,
        ),
    ] = None,
    node_ram: Annotated[
        str | None,
        typer.Option("--node-ram", metavar="SIZE", help="Memory of the node, such as 512GB."),
    ] = None,
    model_config: Annotated[
        list[str] | None,
        typer.Option("--model-config", metavar="ID=PATH", help="config.json of a model."),
    ] = None,
    engine_version: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-version",
            metavar="ENGINE@V",
            help="Release where a file does not tell (repeatable).",
            autocompletion=complete.releases,
        ),
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No notes on stderr.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say which files were skipped.")
    ] = False,
) -> None:
    """See _HELP."""
    from kvbudget.gate import hardware
    from kvbudget.gate import policy as policies
    from kvbudget.gate.evaluate import Request, run
    from kvbudget.gate.finding import rule_data
    from kvbudget.render import gate as rendering
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit

    as_json = format == "json"
    if list_rules:
        emit(dumps(rendering.list_document()) if as_json else rendering.rule_list(), file)
        return
    if explain is not None:
        rule = explain.upper()
        if rule not in rule_data():
            hint = near(explain, rule_data(), "see kvbudget gate --list-rules")
            raise InputError(f"no such rule: {explain}", hint)
        text = dumps(rendering.explain_document(rule)) if as_json else rendering.explain(rule)
        emit(text, file)
        return
    root = Path.cwd()
    if policy is not None:
        chosen = policies.load(policy if policy.is_absolute() else root / policy, root)
    else:
        chosen = policies.Policy(base=root) if no_policy else policies.find(root)
    request = Request(
        paths=paths or ["."],
        root=root,
        fail_on="never"
        if exit_zero
        else _choice(fail_on or chosen.fail_on or "error", LEVELS, "--fail-on"),
        select=_rules(select),
        ignore=_rules(ignore),
        baseline=baseline,
        strict=strict,
        require_invocations=require_invocations,
        use_env=use_env,
        include=include or [],
        exclude=exclude or [],
        gpu=None if gpu is None else hardware.named(gpu),
        node_ram=_size(node_ram),
        model_configs=_pairs(model_config, "=", "--model-config"),
        versions=_pairs(engine_version, "@", "--engine-version"),
    )
    targets = _targets(format, file, output)
    report = run(request, chosen)
    if write_baseline is not None:
        _write_baseline(write_baseline, report)
    for name, path in targets:
        emit(_render(name, report, path, show_suppressed, not no_color), path)
    _summary_file(report, targets)
    _say(report, chosen, quiet, verbose)
    raise typer.Exit(report.exit_code)


def _choice(value: str, valid: tuple[str, ...], option: str) -> str:
    if value not in valid:
        raise InputError(
            f"{option}: {value!r} is not one of {', '.join(valid)}", f"write {option} {valid[0]}"
        )
    return value


def _rules(given: list[str] | None) -> set[str]:
    from kvbudget.gate.finding import rule_data

    out = {part.strip().upper() for item in given or [] for part in item.split(",") if part.strip()}
    unknown = sorted(out - set(rule_data()))
    if unknown:
        hint = near(unknown[0], rule_data(), "see kvbudget gate --list-rules")
        raise InputError(f"no such rule: {', '.join(unknown)}", hint)
    return out


def _size(text: str | None) -> int | None:
    from kvbudget.units import parse_size

    return None if text is None else parse_size(text)


def _pairs(given: list[str] | None, sign: str, option: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for item in given or []:
        name, found, value = item.rpartition(sign) if sign == "@" else item.partition(sign)
        if not found or not name or not value:
            raise InputError(
                f"{option}: {item!r} is not NAME{sign}VALUE", f"write {option} NAME{sign}VALUE"
            )
        out[name] = value
    return out


def _targets(
    name: str | None, file: Path | None, output: list[str] | None
) -> list[tuple[str, Path | None]]:
    out: list[tuple[str, Path | None]] = []
    for item in output or []:
        kind, _, path = item.partition(":")
        if kind not in FORMATS and name is None and file is None:
            out.append(("text", Path(item)))
            continue
        out.append((_choice(kind, FORMATS, "--output"), Path(path) if path else None))
    if name is not None or file is not None:
        out.append((_choice(name or "text", FORMATS, "--format"), file))
    if not any(path is None for _, path in out):
        out.append(("text", None))
        if os.environ.get("GITHUB_ACTIONS") == "true" and not output and name is None:
            out.append(("github", None))
    return out


def _render(
    name: str, report: Report, path: Path | None, show_suppressed: bool, colour: bool
) -> str:
    from kvbudget.render import gate as rendering
    from kvbudget.render.json_v1 import dumps

    if name == "text":
        return rendering.as_text(
            report, to_file=path is not None, show_suppressed=show_suppressed, colour=colour
        )
    if name == "json":
        return dumps(rendering.to_document(report))
    if name == "markdown":
        return rendering.as_markdown(report)
    if name == "sarif":
        from kvbudget.render.sarif import as_sarif

        return as_sarif(report)
    if name == "github":
        from kvbudget.render.github import as_github

        return as_github(report)
    if name == "junit":
        from kvbudget.render.junit import as_junit

        return as_junit(report)
    from kvbudget.render.gitlab import as_gitlab

    return as_gitlab(report)


def _summary_file(report: Report, targets: list[tuple[str, Path | None]]) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path and any(name == "github" for name, _ in targets):
        from kvbudget.render.gate import as_markdown

        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(as_markdown(report) + "\n")


def _write_baseline(path: Path, report: Report) -> None:
    from kvbudget.gate import suppress

    known = [item.finding for item in report.suppressed if item.reason == "baseline"]
    suppress.write_baseline(path, [*report.findings, *known])
    report.stale = []
    report.suppressed += [suppress.Suppressed(f, "external", "baseline") for f in report.findings]
    report.findings = []
    if report.exit_code == 1:
        report.exit_code = 0


def _say(report: Report, policy: Policy, quiet: bool, verbose: bool) -> None:
    from kvbudget.render.text import plain

    for problem in report.problems:
        print(
            f"error: {plain(problem.file)}:{problem.line}: {plain(problem.message)}",
            file=sys.stderr,
        )
    for entry in report.stale:
        print(
            f"note: stale baseline entry {plain(str(entry['rule']))} in {plain(str(entry['file']))}: "
            "no such finding any more (--write-baseline prunes)",
            file=sys.stderr,
        )
    if quiet:
        return
    for note in report.notes:
        if verbose or "1 MiB" in note or "link" in note:
            print(f"note: {plain(note)}", file=sys.stderr)
    if verbose and policy.file:
        print(f"note: policy {plain(policy.file)}", file=sys.stderr)
    if not report.invocations and not report.problems:
        print("kvbudget gate: no engine invocations found", file=sys.stderr)
