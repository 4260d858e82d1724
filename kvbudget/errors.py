"""Errors that a user can act on, and the exit code each one ends the process with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_EVIDENCE = 4
EXIT_INTERNAL = 70


class KvbudgetError(Exception):
    """Something the user can mend: `what` happened (one sentence), `hint` says what to do."""

    exit_code = EXIT_USAGE

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class InputError(KvbudgetError):
    """An argument, file or stream cannot be used as given."""


class KnowledgeError(KvbudgetError):
    """A file of formulas/ or logparsers/ (or of a user's overlay) is wrong."""

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        col: int | None = None,
        hint: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line, col) if part is not None)
        super().__init__(f"{where}: {what}" if where else what, hint)
        self.file, self.line, self.col = file, line, col


class MissingFact(KvbudgetError):
    """A number was asked for and a fact it needs is not known; names who could supply it."""

    exit_code = EXIT_EVIDENCE

    def __init__(self, what: str, facts: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(what, hint)
        self.facts = facts


def near(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The hint for a name that is not known: the nearest one, or `otherwise` ("one of A, B, C")."""
    from difflib import get_close_matches

    names = list(known)
    folded = {name.lower(): name for name in reversed(names)}
    found = get_close_matches(word.lower(), folded, 1, 0.7)
    if found:
        return f"did you mean {folded[found[0]]}?"
    return f"one of {', '.join(names)}" if otherwise is None else otherwise
