"""Commands built when they are asked for: a run pays for one command, not for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer

from kvbudget.cli.page import Pages

MODULES = {
    "explain-log": "explain_log",
    "oom-triage": "oom_triage",
    "derive": "derive",
    "diff": "diff",
    "plan": "plan",
    "profile": "profile",
    "watch": "watch",
    "residency": "residency",
    "gate": "gate",
    "knowledge": "knowledge",
}
"""Command -> its module in kvbudget.cli, in the order of the help text."""


class LazyGroup(Pages):
    """The root command."""

    def __init__(self, **attrs: Any) -> None:  # noqa: ANN401 - typer's own arguments
        super().__init__(**attrs)
        self.commands: Any = _Commands()


class _Commands(Mapping[str, Any]):
    """Every command by name; a module is imported at the first look at its command."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a command of typer's own click
        if name not in self._built:
            module = import_module(f"kvbudget.cli.{MODULES[name]}")
            holder = typer.Typer(callback=lambda: None, rich_markup_mode=None, add_completion=False)
            module.register(holder)
            self._built[name] = typer.main.get_group(holder).commands[name]
        return self._built[name]
