"""`kvbudget oom-triage`: from what a failing process printed to its cause and the right knob."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli import complete
from kvbudget.cli.options import Format, FormatOption, KnowledgeOption, OutputOption
from kvbudget.cli.page import Page, epilog

_HELP = """Name a failure's cause, and which way to turn which knob.

Reads a log, a pasted traceback or a single line; the verdict is about the first failure in time.
"""

EPILOG = epilog(
    """
    kvbudget oom-triage crash.log
    journalctl -u vllm | kvbudget oom-triage - --format json
    kvbudget oom-triage crash.log --startup-log serve.log
    kvbudget oom-triage --explain vram.kv_budget_nonpositive
    """,
    {0: "a cause was named", 2: "bad usage or unreadable input", 3: "no failure recognised"},
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @app.command("oom-triage", cls=Page, help=_HELP, epilog=EPILOG)
    def oom_triage(
        file: Annotated[
            str,
            typer.Argument(
                metavar="FILE",
                help="Log, plain, .gz or .zst; - or nothing reads stdin.",
                show_default=False,
            ),
        ] = "-",
        startup_log: Annotated[
            Path | None,
            typer.Option(
                "--startup-log",
                metavar="FILE",
                help="A start-up log of the same server, for figures that the failure lacks.",
            ),
        ] = None,
        explain: Annotated[
            str | None,
            typer.Option(
                "--explain",
                metavar="CAUSE",
                help="Explain a cause (or `list` them) and end.",
                autocompletion=complete.causes,
            ),
        ] = None,
        output_format: FormatOption = Format.text,
        output: OutputOption = None,
        knowledge: KnowledgeOption = None,
    ) -> None:
        from kvbudget.render.output import emit
        from kvbudget.render.text import plain

        if explain is not None:
            from kvbudget.render.oom_triage import explanation

            emit(explanation(explain, output_format.value), output)
            return
        from kvbudget.knowledge.patterns import load_patterns
        from kvbudget.knowledge.where import overlaid
        from kvbudget.logs.collect import read_log
        from kvbudget.triage.report import document, exit_code, unfit_startup
        from kvbudget.triage.verdict import judge

        with overlaid(knowledge):
            patterns = load_patterns()
        reading = read_log(file, patterns)
        startup = read_log(startup_log, patterns) if startup_log is not None else None
        unfit = startup and unfit_startup(startup, reading.engine)
        if unfit:
            typer.echo(f"kvbudget: {plain(str(startup_log))} is not used: {unfit}", err=True)
            startup = None
        verdict = judge(reading)
        result = document(reading, verdict, startup)
        if output_format is Format.json:
            from kvbudget.render.json_v1 import dumps

            emit(dumps(result), output)
        else:
            from kvbudget.render.oom_triage import markdown, text

            emit(text(result, output) if output_format is Format.text else markdown(result), output)
        raise typer.Exit(exit_code(verdict))
