"""Where each reading of a watch goes: the live screen, plain lines, or JSON lines."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvbudget.render.json_v1 import dumps
from kvbudget.render.watch import to_json, to_line, to_screen

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator, Sequence

    from rich.live import Live

    from kvbudget.facts import Fact
    from kvbudget.watch.alarms import State
    from kvbudget.watch.session import Sink


class Lines:
    """One line per reading, flushed, so that `tail -f` and pipes see it at once."""

    def __init__(self, budget: Sequence[Fact], *, json_lines: bool) -> None:
        self._budget, self._json = budget, json_lines
        self._told: set[tuple[str, str]] = set()

    def show(self, state: State, history: dict[str, deque[int]]) -> None:
        if self._json:
            line = dumps(to_json(state, self._budget), indent=None)
        else:
            line = to_line(state, self._told)
            self._told = {(alarm.id, alarm.where) for alarm in state.alarms}
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Screen:
    """The live view on a terminal."""

    def __init__(self, live: Live, budget: Sequence[Fact]) -> None:
        self._live, self._budget = live, budget

    def show(self, state: State, history: dict[str, deque[int]]) -> None:
        width = self._live.console.width
        self._live.update(to_screen(state, dict(history), self._budget, width), refresh=True)


@contextmanager
def sink(budget: Sequence[Fact], *, json_lines: bool, live: bool) -> Iterator[Sink]:
    """The live screen on a terminal, lines elsewhere; the terminal is restored on every way out."""
    if json_lines or not live or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines(budget, json_lines=json_lines)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, screen=False, transient=False) as view:
        yield Screen(view, budget)
