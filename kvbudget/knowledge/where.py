"""Finds formulas/ and logparsers/: inside an installed package, or in the checkout beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kvbudget.errors import KnowledgeError

Kind = Literal["formulas", "logparsers"]


def knowledge_dir(kind: Kind) -> Path:
    """The folder of that kind. Raises KnowledgeError when the installation lacks it."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "_knowledge" / kind, package.parent / kind):
        if place.is_dir():
            return place
    raise KnowledgeError(f"{kind}/ is missing from this installation", hint="reinstall kvbudget")


def knowledge_file(kind: Kind, *parts: str) -> Path:
    """One file of that folder."""
    return knowledge_dir(kind).joinpath(*parts)
