"""A progress bar on stderr, on a terminal only, for anything that takes more than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str, int, int], None]

WIDTH = 30


@contextmanager
def bar() -> Iterator[Tell | None]:
    """Yield a function (what, done, total) that draws the bar, or None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    start = drawn = time.monotonic()
    shown = False

    def tell(what: str, done: int, total: int) -> None:
        nonlocal drawn, shown
        now = time.monotonic()
        if now - start < 1 or now - drawn < 0.1 or not total:
            return
        drawn, shown = now, True
        full = WIDTH * done // total
        sys.stderr.write(f"\r{what} [{'#' * full}{'.' * (WIDTH - full)}] {100 * done // total:3d}%")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
