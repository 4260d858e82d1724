"""Options that every command shares, spelled once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    text = "text"
    json = "json"
    markdown = "markdown"


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="text for people, json for scripts, markdown for a ticket."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Write the result to FILE instead of stdout."
    ),
]
KnowledgeOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--knowledge",
        metavar="DIR",
        help="Also read formulas/ and logparsers/ under DIR (repeatable; later wins).",
    ),
]
