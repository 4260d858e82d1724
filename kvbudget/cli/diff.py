"""`kvbudget diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli.options import Format, FormatOption, OutputOption

EPILOG = """\b
Examples:
  kvbudget diff before.log after.log
  kvbudget derive M --gpu h200 --format json -o a.json
  kvbudget derive M --gpu h200 --enforce-eager --format json -o b.json
  kvbudget diff a.json b.json --format markdown
Exit codes: 0 compared, 2 an input cannot be read or compared.
"""


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="Log, profile, derive or explain JSON.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same, of the other run.")],
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Which term moved between two runs, by how much, and because of which flag or version."""
    from kvbudget.diff import diff_document, read_side
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit

    payload = diff_document(read_side(a), read_side(b))
    if format is Format.json:
        emit(dumps(payload), output)
        return
    from kvbudget.render.diff import render_diff

    emit(render_diff(payload, markdown=format is Format.markdown), output)


def register(app: typer.Typer) -> None:
    app.command("diff", epilog=EPILOG)(diff)
