"""`kvbudget diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli.options import Format, FormatOption, OutputOption
from kvbudget.cli.page import Page, epilog

EPILOG = epilog(
    """
    kvbudget diff before.log after.log
    kvbudget derive ./Llama-3-8B --gpu h200 --format json -o a.json
    kvbudget derive ./Llama-3-8B --gpu h200 --enforce-eager --format json -o b.json
    kvbudget diff a.json b.json --format markdown
    """,
    {0: "compared", 2: "bad usage, or an input that cannot be read or compared"},
)


def diff(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A", help="A start-up log, or the JSON of explain-log, derive or profile."
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same, of the other run.")],
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Say which term moved between two runs, and because of what."""
    from kvbudget.diff.document import diff_document
    from kvbudget.diff.sides import read_side
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit

    payload = diff_document(read_side(a), read_side(b))
    if format is Format.json:
        emit(dumps(payload), output)
        return
    from kvbudget.render.diff import render_diff

    emit(render_diff(payload, markdown=format is Format.markdown), output)


def register(app: typer.Typer) -> None:
    app.command("diff", cls=Page, epilog=EPILOG)(diff)
