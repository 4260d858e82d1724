"""Commands built when they are asked for: a run pays for one command, not for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperGroup

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


class LazyGroup(TyperGroup):
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
            command = typer.main.get_group(holder).commands[name]
            _spare_pydantic(command)
            self._built[name] = command
        return self._built[name]


def _spare_pydantic(command: Any) -> None:  # noqa: ANN401
    """Newer typers convert every word with pydantic, whose import costs more than a derivation.

    Plain words are converted here; typer itself still judges whatever is not plain.
    """
    for param in command.params:
        if hasattr(param, "_runtime_param") and hasattr(param, "type_descriptor"):
            param._runtime_param = _Plain()
    for child in getattr(command, "commands", {}).values():
        _spare_pydantic(child)


class _Plain:
    """Stands where typer keeps its converter of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        bounded = param.type_descriptor.parameter_info
        converted = _converted(value, param.type_descriptor.annotation, bounded.min, bounded.max)
        if converted is not None:
            return converted
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _converted(value: Any, wanted: Any, least: Any, most: Any) -> Any:  # noqa: ANN401
    """`value` as `wanted`; None where that takes more than a plain conversion."""
    if get_origin(wanted) is list and isinstance(value, list | tuple):
        items = [_converted(item, get_args(wanted)[0], least, most) for item in value]
        return None if any(item is None for item in items) else items
    if wanted in (str, float) and type(value) is wanted:
        return value
    if wanted is Path and isinstance(value, str):
        return Path(value)
    if wanted is int and str(value).isascii() and str(value).isdigit() and len(str(value)) < 19:
        number = int(value)
        inside = (least is None or number >= least) and (most is None or number <= most)
        return number if inside else None
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next((member for member in wanted if value in (member, member.value)), None)
    return None
