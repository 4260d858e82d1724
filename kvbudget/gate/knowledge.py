"""The gate's data: options of each engine, rules, hardware names, the card catalogue."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file


@lru_cache(maxsize=32)
def load(name: str) -> Any:  # noqa: ANN401 - YAML data
    """One file of formulas/; `{}` where an optional file is absent."""
    path = knowledge_file("formulas", name)
    return load_shipped(path) if path.is_file() else {}


class Option:
    """One option of an engine: its field name, kind of value, spellings, life time."""

    __slots__ = ("kind", "memory", "name", "removed", "removed_in_python")

    def __init__(self, name: str, kind: str, memory: bool) -> None:
        self.name, self.kind, self.memory = name, kind, memory
        self.removed: str | None = None
        self.removed_in_python: str | None = None

    def gone(self, python_call: bool) -> str | None:
        """First release that refuses the option, None while it is there."""
        return (self.removed_in_python if python_call else None) or self.removed


class Engine:
    """The command line of one engine."""

    def __init__(self, name: str) -> None:
        data = load("gate/options.yaml")["engines"][name]
        self.name = name
        self.newest: str = str(data["newest"])
        self.negatable: bool = data["negatable"]
        self.underscores: bool = data["underscores"]
        self.roles: dict[str, str] = data["roles"]
        self.of_total: bool = data["fraction_of"] == "total"
        self.positional_model: bool = data["positional_model"]
        self.options: dict[str, Option] = {}
        self.spelled: dict[str, Option] = {}
        self.flags: dict[str, dict[str, Any]] = {
            flag["name"]: flag for flag in load(f"{name}/flags.yaml").get("flags", [])
        }
        for group in ("memory", "other"):
            for field, kind in data[group].items():
                option = Option(field, kind, group == "memory")
                self.options[field] = option
                self.spelled["--" + field.replace("_", "-")] = option
        for spelling, field in data["aliases"].items():
            self.spelled[spelling] = self.options[field]
        for field, flag in self.flags.items():
            known = self.options.get(field)
            if known is None:
                kind = {"int": "int", "float": "float", "bool": "bool", "json": "json"}
                known = Option(field, kind.get(str(flag.get("type")), "str"), memory=False)
                self.options[field] = known
            known.removed = _text(flag.get("removed"))
            known.removed_in_python = _text(flag.get("removed_in_python"))
            for spelling in flag.get("cli", []):
                self.spelled.setdefault(spelling, known)
        self.long = sorted(key for key in self.spelled if key.startswith("--"))

    def default(self, field: str, version: str | None) -> Any:  # noqa: ANN401 - YAML data
        """Default of a flag in a release (unknown: the newest); None where it is resolved later."""
        from kvbudget.formula.versions import holds

        for entry in self.flags.get(field, {}).get("defaults", []):
            if holds(version or self.newest, str(entry["versions"])):
                return entry["value"]
        return None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


@lru_cache(maxsize=4)
def engine(name: str) -> Engine:
    """The engine called `name` (a key of formulas/gate/options.yaml)."""
    return Engine(name)


def engine_names() -> list[str]:
    """Engines the gate knows."""
    return list(load("gate/options.yaml")["engines"])


@lru_cache(maxsize=1)
def _env() -> tuple[frozenset[str], tuple[str, ...]]:
    data = load("gate/options.yaml")["env"]
    return frozenset(data["exact"]), tuple(data["prefixes"])


def memory_env(name: str) -> bool:
    """True for an environment variable of the invocation record."""
    exact, prefixes = _env()
    return name in exact or name.startswith(prefixes)


def secret(field: str) -> bool:
    """True for a flag whose value no report repeats."""
    return field in load("gate/options.yaml")["secrets"]


def variable_lives(name: str) -> dict[str, dict[str, Any]]:
    """Variables of an engine that only some of its releases read."""
    found: dict[str, dict[str, Any]] = load("gate/options.yaml")["env"]["lives"].get(name, {})
    return found


def strong_fields(name: str) -> list[str]:
    """Flags by which an engine is known without its name."""
    return list(load("gate/options.yaml")["strong"][name])
