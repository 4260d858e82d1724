"""Finds formulas/ and logparsers/: inside an installed package, or in the checkout beside it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kvbudget.errors import InputError, KnowledgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind = Literal["formulas", "logparsers"]


@cache
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


_OVERLAYS: ContextVar[tuple[Path, ...]] = ContextVar("overlays", default=())


@contextmanager
def overlaid(folders: Iterable[Path] | None) -> Iterator[None]:
    """Within it, formulas/ and logparsers/ below each folder stand before the shipped ones; a later
    folder wins. Raises InputError for a folder that is none.
    """
    found = tuple(Path(folder).resolve() for folder in folders or ())
    for folder in found:
        if not folder.is_dir():
            raise InputError(
                f"not a folder: {folder}", "give a folder that holds formulas/ or logparsers/"
            )
    token = _OVERLAYS.set(found)
    try:
        yield
    finally:
        _OVERLAYS.reset(token)


def overlays() -> tuple[Path, ...]:
    """The folders in force, the last one first in rank."""
    return _OVERLAYS.get()


def formula_roots() -> tuple[Path, ...]:
    """The folders of formulas, the shipped one first."""
    own = (folder / "formulas" for folder in overlays())
    return (knowledge_dir("formulas"), *(root for root in own if root.is_dir()))
