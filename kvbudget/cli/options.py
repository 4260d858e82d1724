"""Options that several commands share, spelled once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvbudget.cli import complete


class Format(StrEnum):
    text = "text"
    json = "json"
    markdown = "markdown"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="text|json|markdown",
        help="text for people, json for scripts, markdown for a ticket.",
    ),
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
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="A card by name or unique prefix: h100-80gb, h200, rtx-4090.",
        autocompletion=complete.cards,
    ),
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-memory",
        metavar="SIZE",
        help="The card's total as the driver reports it: 79.6GiB, 81559MiB.",
    ),
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--engine-version",
        metavar="ENGINE@V",
        help="Follow the rules of this release.",
        autocompletion=complete.releases,
    ),
]
