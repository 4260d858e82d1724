"""Which formula files hold for an engine and a version. Only the files needed are parsed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError, KnowledgeError, near
from kvbudget.formula.program import Program, read_program
from kvbudget.formula.versions import holds, version_key
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import formula_roots

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Engine:
    """formulas/ENGINE/index.yaml: releases read, selectors, and the files of each part."""

    name: str
    folders: tuple[Path, ...]
    checked: tuple[str, ...]
    raw: Mapping[str, Any]

    @property
    def latest(self) -> str:
        return self.checked[-1]

    def files(self, name: str) -> tuple[Path, ...]:
        """Every file of that name, the shipped one first. Raises KnowledgeError without any."""
        found = tuple(folder / name for folder in self.folders if (folder / name).is_file())
        if not found:
            raise KnowledgeError("there is no such file", file=str(self.folders[-1] / name))
        return found

    def selectors(self, version: str, env: Mapping[str, str]) -> dict[str, str]:
        """Text facts that pick a code path (an engine core), from the environment or by version."""
        chosen: dict[str, str] = {}
        for name, rule in (self.raw.get("selectors") or {}).items():
            forced = _first(rule.get("only", ()), version)
            wanted = rule.get("values", {}).get(env.get(rule.get("env", ""), ""))
            value = forced or wanted or _first(rule["defaults"], version)
            if value is None:
                raise KnowledgeError(
                    f"no {name} for {self.name} {version}", file=str(self.folders[0])
                )
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
            found.append(load_program(self.files(fitting[0]["file"])[-1], examples=False))
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
        same = next((r / raw["same_as"] for r in (root, *formula_roots())
                     if (r / raw["same_as"]).is_file()), root / raw["same_as"])  # fmt: skip
        return read_program(read(same), file, str(raw["versions"]))
    return read_program(raw, file)


def _strictly(path: Path) -> Any:  # noqa: ANN401 - any YAML value
    from kvbudget.knowledge.yamlfile import load_yaml

    return load_yaml(path)


def _without_examples(path: Path) -> Any:  # noqa: ANN401 - any YAML value
    return load_shipped(path, b"examples:")


def engine_names() -> tuple[str, ...]:
    """Engines with an index of formula files, in the order their indexes state."""
    return _names(formula_roots())


@lru_cache(maxsize=8)
def _names(roots: tuple[Path, ...]) -> tuple[str, ...]:
    found = {path.parent.name for root in roots for path in root.glob("*/index.yaml")}
    return tuple(sorted(found, key=lambda n: (_engine(n, roots).raw.get("order", 99), n)))


def load_engine(name: str) -> Engine:
    """Raises InputError for an engine without formulas."""
    return _engine(name, formula_roots())


@lru_cache(maxsize=16)
def _engine(name: str, roots: tuple[Path, ...]) -> Engine:
    folders = tuple(root / name for root in roots)
    indexes = [folder / "index.yaml" for folder in folders if (folder / "index.yaml").is_file()]
    if not indexes:
        raise InputError(f"unknown engine {name!r}", near(name, _names(roots)))
    raw = load_shipped(indexes[0])
    for index in indexes[1:]:
        raw = _laid_over(raw, _strictly(index))
    checked = sorted({str(version) for version in raw["checked"]}, key=version_key)
    return Engine(name, folders, tuple(checked), raw)


def _laid_over(raw: Any, own: Any) -> Any:  # noqa: ANN401 - parsed YAML
    """An index with a user's rows before its own: the first that fits holds."""
    parts = {part: [*rows] for part, rows in raw["parts"].items()}
    for part, rows in (own.get("parts") or {}).items():
        parts[part] = [*rows, *parts.get(part, ())]
    checked = [*raw["checked"], *(own.get("checked") or ())]
    return {**raw, **own, "parts": parts, "checked": checked}
