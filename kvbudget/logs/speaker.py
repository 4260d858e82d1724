"""Whose traceback an untagged line stands in: one write, of which only the head bears the tag."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.logs.clean import strip_stamps

if TYPE_CHECKING:
    from kvbudget.logs.record import Record

_OPENS = ("Traceback (most recent call last)", "hit an exception")
_BODY = re.compile(r'\s*(?:File ["~/]|Traceback \(most recent|\.\.\. |\[Previous line repeated)|\s')
_CHAIN = re.compile(r"During handling of the above|The above exception was")
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Resources|Exit)\b")


class Speaker:
    """Follows the records of one text and says which rank goes on talking without its tag."""

    def __init__(self) -> None:
        self._rank: str | None = None
        self._ended = False

    def of(self, number: int, text: str, rank: str | None, before: Record | None) -> str | None:
        """The rank that an untagged record with this first line belongs to."""
        if rank is not None or self._rank is None:
            opens = rank is not None and any(word in text for word in _OPENS)
            self._rank, self._ended = (rank if opens else None), False
            return None
        text = strip_stamps(text + "\n\n")  # so that a stamp before nothing goes too
        if before is not None and any(_CHAIN.search(part) for part in before.parts[1:]):
            self._ended = False  # stamped blank lines do not part a message
        if before is None or number != before.numbers[-1] + 1:
            self._rank = None
        elif not text.strip():
            return None  # between the parts of a chained traceback
        elif _CHAIN.match(text):
            self._ended = False
        elif not self._ended and _BODY.match(text):
            pass
        elif not self._ended and _EXCEPTION.match(text):
            self._ended = True
        else:
            self._rank = None
        return self._rank
