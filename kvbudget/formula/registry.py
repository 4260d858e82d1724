"""Which formula files hold for an engine and a version. Only the files needed are parsed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError, KnowledgeError
from kvbudget.formula.program import Program, read_program
from kvbudget.formula.versions import holds, version_key
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Engine:
    """formulas/ENGINE/index.yaml: releases read, selectors, and the files of each part."""

    name: str
    root: Path
    checked: tuple[str, ...]
    raw: Mapping[str, Any]

    @property
    def latest(self) -> str:
        return self.checked[-1]

    def selectors(self, version: str, env: Mapping[str, str]) -> dict[str, str]:
        """Text facts that pick a code path (an engine core), from the environment or by version."""
        chosen: dict[str, str] = {}
        for name, rule in (self.raw.get("selectors") or {}).items():
            forced = _first(rule.get("only", ()), version)
            wanted = rule.get("values", {}).get(env.get(rule.get("env", ""), ""))
            value = forced or wanted or _first(rule["defaults"], version)
            if value is None:
                raise KnowledgeError(f"no {name} for {self.name} {version}", file=str(self.root))
            chosen[name] = value
        return chosen

    def programs(self, version: str, texts: Mapping[str, str]) -> list[Program]:
        """The files that hold for `version`, in the order of the parts.

        Raises InputError when a version has no arithmetic on record.
        """
        found = []
        for part, rows in self.raw["parts"].items():
            fitting = [
                row
                for row in rows
                if holds(version, row["versions"])
                and all(texts.get(k) == v for k, v in (row.get("when") or {}).items())
            ]
            if not fitting and part in (self.raw.get("optional_parts") or ()):
                continue
            if not fitting:
                raise InputError(
                    f"no {part} arithmetic on record for {self.name} {version}",
                    f"releases read: {', '.join(self.checked)}",
                )
            found.append(load_program(self.root / fitting[0]["file"], examples=False))
        return found

    def version_notes(self, version: str) -> list[str]:
        """What the reader should know about the distance to the releases that were read."""
        if version in self.checked:
            return []
        key = version_key(version)
        if key > version_key(self.latest):
            return [
                f"{self.name} {version} is newer than the newest release read "
                f"({self.latest}): its arithmetic is taken to be unchanged"
            ]
        below = [v for v in self.checked if version_key(v) < key]
        above = [v for v in self.checked if version_key(v) > key]
        if not below:
            return [
                f"{self.name} {version} is older than the oldest release read "
                f"({self.checked[0]}): taken to compute as that one"
            ]
        return [
            f"{self.name} {version} lies between the releases read ({below[-1]} and {above[0]})"
        ]


def _first(rows: Any, version: str) -> str | None:  # noqa: ANN401 - parsed YAML
    return next((str(row["value"]) for row in rows if holds(version, row["versions"])), None)


@lru_cache(maxsize=64)
def load_program(path: Path, *, examples: bool = True) -> Program:
    """A formula file; `same_as` files carry only their versions. Raises FormulaError.

    examples=False: quicker, strict reading and worked figures left out.
    """
    read = _strictly if examples else _without_examples
    raw = read(path)
    root = path.parent.parent
    file = f"{path.parent.name}/{path.name}"
    if not isinstance(raw, dict):
        raise KnowledgeError("a formula file is a mapping", file=file)
    if "same_as" in raw:
        if "checked" not in raw:
            raise KnowledgeError("same_as needs checked: {commit, on, how}", file=file)
        return read_program(read(root / raw["same_as"]), file, str(raw["versions"]))
    return read_program(raw, file)


def _strictly(path: Path) -> Any:  # noqa: ANN401 - any YAML value
    from kvbudget.knowledge.yamlfile import load_yaml

    return load_yaml(path)


def _without_examples(path: Path) -> Any:  # noqa: ANN401 - any YAML value
    return load_shipped(path, b"examples:")


@lru_cache(maxsize=1)
def engine_names() -> tuple[str, ...]:
    """Engines with an index of formula files, in the order their indexes state."""
    found = [path.parent.name for path in knowledge_dir("formulas").glob("*/index.yaml")]
    return tuple(sorted(found, key=lambda name: (load_engine(name).raw.get("order", 99), name)))


@lru_cache(maxsize=8)
def load_engine(name: str) -> Engine:
    """Raises InputError for an engine without formulas."""
    root = knowledge_dir("formulas") / name
    if not (root / "index.yaml").is_file():
        known = sorted(path.parent.name for path in root.parent.glob("*/index.yaml"))
        raise InputError(f"unknown engine {name!r}", f"one of: {', '.join(known)}")
    raw = load_shipped(root / "index.yaml")
    return Engine(name, root, tuple(str(v) for v in raw["checked"]), raw)
