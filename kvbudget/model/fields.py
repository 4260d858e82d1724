"""Typed access to a `config.json`: a missing field is an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbudget.errors import InputError, MissingFact


class Fields:
    """One level of a config. `where` names it in errors (`text_config.`)."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self.raw = raw
        self.where = where

    def get(self, *names: str) -> Any:  # noqa: ANN401 (JSON)
        """The first of `names` that is present and not null, else None."""
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                return value
        return None

    def int(self, *names: str, default: int | None = None) -> int:
        """Raises MissingFact naming the field, InputError if it is not a whole number >= 0."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            label = " or ".join(self.where + name for name in names)
            raise MissingFact(
                f"config.json has no {label}",
                tuple(self.where + name for name in names),
                f"add the field to config.json, or state it: --assume {names[0]}=N",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(
                f"config.json: {self.where}{names[0]} is {value!r}, not a whole number",
                "fix the field in config.json",
            )
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw.get(name)
        return default if value is None else bool(value)

    def float(self, name: str, default: float) -> float:
        value = self.raw.get(name)
        return default if value is None else float(value)

    def list(self, name: str) -> list[Any] | None:
        value = self.raw.get(name)
        return value if isinstance(value, list) else None

    def text(self, name: str, default: str) -> str:
        value = self.raw.get(name)
        return default if value is None else str(value)

    def sub(self, name: str) -> Fields | None:
        value = self.raw.get(name)
        return Fields(value, f"{self.where}{name}.") if isinstance(value, Mapping) else None
