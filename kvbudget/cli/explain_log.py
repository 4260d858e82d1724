"""`kvbudget explain-log`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli.options import Format, FormatOption, KnowledgeOption, OutputOption
from kvbudget.cli.page import Page, epilog
from kvbudget.errors import EXIT_NOTHING, EXIT_OK, EXIT_USAGE, InputError

EPILOG = epilog(
    """
    kvbudget explain-log serve.log
    kubectl logs deploy/llm | kvbudget explain-log -
    kvbudget explain-log old.log new.log               # one report each, and a table
    kvbudget explain-log serve.log.gz --format markdown -o ticket.md
    kvbudget explain-log serve.log --bytes-per-block 2MiB --block-size 16
    """,
    {0: "facts found", 2: "bad usage or unreadable input", 3: "nothing recognised"},
)


def explain_log(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Logs, plain, .gz or .zst; - or nothing reads stdin."),
    ] = None,
    format: FormatOption = Format.text,
    output: OutputOption = None,
    bytes_per_block: Annotated[
        str | None,
        typer.Option(
            "--bytes-per-block",
            metavar="SIZE",
            help="KV bytes of one block over all layers of a rank, to derive block counts.",
        ),
    ] = None,
    block_size: Annotated[
        int, typer.Option("--block-size", metavar="N", min=1, help="Tokens of one block.")
    ] = 16,
    knowledge: KnowledgeOption = None,
) -> None:
    """Turn a start-up log into a budget that adds up.

    Terms with the lines that printed them, the unexplained rest, and bytes -> blocks -> tokens.
    """
    from kvbudget.knowledge.patterns import load_patterns
    from kvbudget.knowledge.where import overlaid
    from kvbudget.logs.collect import read_log
    from kvbudget.logs.explain import explain
    from kvbudget.render.explain_log import render_all
    from kvbudget.render.output import emit
    from kvbudget.units import parse_size

    with overlaid(knowledge):
        patterns = load_patterns()
    block = parse_size(bytes_per_block, "--bytes-per-block") if bytes_per_block else None
    paths = files or [Path("-")]
    reports = []
    unreadable: list[InputError] = []
    for path in paths:
        try:
            reading = read_log(path, patterns)
        except InputError as error:
            if len(paths) == 1:
                raise
            unreadable.append(error)
            continue
        reports.append(explain(reading, bytes_per_block=block, block_size=block_size))
    emit(render_all(reports, format.value, several=len(paths) > 1, output=output), output)
    for problem in unreadable:
        hint = f"\n  {problem.hint}" if problem.hint else ""
        typer.echo(f"kvbudget: {problem}{hint}", err=True)
    if unreadable:
        raise typer.Exit(EXIT_USAGE)
    raise typer.Exit(EXIT_OK if all(report.facts for report in reports) else EXIT_NOTHING)


def register(app: typer.Typer) -> None:
    app.command("explain-log", cls=Page, epilog=EPILOG)(explain_log)
