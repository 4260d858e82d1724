"""The changes that a test should notice: every number, operator, unit, resolution and group."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kvbudget.knowledge.patterns import expand
from kvbudget.knowledge.yamlfile import StrictLoader, load_yaml
from tests.perturb.expressions import other_numbers, variants

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FORMULA, LINES = "kvbudget.formula/1", "kvbudget.logparsers/1"

UNITS = {
    "GiB": ("GB", "MiB"), "GB": ("GiB", "MB"), "MiB": ("MB", "KiB"), "MB": ("MiB",),
    "KiB": ("kB", "MiB"), "kB": ("KiB",), "B": ("KiB",), "binary": ("B",),
}  # fmt: skip
"""What each unit of bytes is taken for; any other unit is taken for a count of another thing."""
PROSE = frozenset({"doc", "reason", "source", "sources", "basis", "origin", "examples", "samples"})
"""Keys below which nothing is arithmetic: words for people, citations, and the tests themselves."""

CAPABILITIES = frozenset({"compute_capability", "capability_below", "below"})
"""Keys whose numbers are quoted: a compute capability, not a release."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One file with one scalar changed. `path` leads to the scalar; (line, column) to its text."""

    file: str
    key: str
    change: str
    path: tuple[str | int, ...]
    new: Any
    span: tuple[tuple[int, int], tuple[int, int]]

    @property
    def id(self) -> str:
        return f"{self.file}:{self.key}: {self.change}"

    def tree(self) -> Any:
        """The parsed file with the change in it; what is not on the way to it is shared."""
        return _put(load_yaml(ROOT / self.file), self.path, self.new)

    def text(self) -> str:
        """The text of the file with the change in it."""
        lines = (ROOT / self.file).read_text(encoding="utf-8").splitlines(keepends=True)
        (first, left), (last, right) = self.span
        tail = lines[last][right:]
        lines[first : last + 1] = [lines[first][:left] + json.dumps(self.new) + tail]
        return "".join(lines)


def _put(tree: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    other = tree.copy()
    other[path[0]] = _put(tree[path[0]], path[1:], new)
    return other


def data_files() -> list[Path]:
    """Every YAML file of the two folders of data."""
    return sorted(f for kind in ("formulas", "logparsers") for f in (ROOT / kind).rglob("*.yaml"))


def mutants(file: Path) -> Iterator[Mutant]:
    """Every mutant of one file, in the order of its text."""
    label = file.relative_to(ROOT).as_posix()
    schema = load_yaml(file).get("schema")
    root = yaml.compose(file.read_text(encoding="utf-8"), Loader=StrictLoader)
    changes = {FORMULA: _of_formula, LINES: _of_line}.get(schema, _of_table)
    for path, names, node, context in _scalars(root, (), (), ()):
        for change, new in changes(path, node, context):
            start, end = node.start_mark, node.end_mark
            span = ((start.line, start.column), (end.line, end.column))
            yield Mutant(label, ".".join(names), change, path, new, span)


Scalar = tuple[tuple[str | int, ...], tuple[str, ...], Any, tuple[Any, ...]]


def _scalars(
    node: Any, path: tuple[str | int, ...], names: tuple[str, ...], context: tuple[Any, ...]
) -> Iterator[Scalar]:
    """(path, readable path, node, mappings around it) of every scalar that is no prose."""
    if isinstance(node, yaml.ScalarNode):
        yield path, names, node, context
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _scalars(child, (*path, index), (*names, _label(child, index)), context)
    else:
        plain = {k.value: v for k, v in node.value}
        for key, child in node.value:
            if key.value not in PROSE:
                name = _key(key)
                yield from _scalars(child, (*path, name), (*names, str(name)), (*context, plain))


def _key(node: Any) -> str | int:
    return int(node.value) if node.tag.endswith(":int") else node.value


def _label(node: Any, index: int) -> str:
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value in ("name", "id") and isinstance(child, yaml.ScalarNode):
                return str(child.value)
    return str(index)


def _number(node: Any) -> float | None:
    if node.tag.endswith(":int"):
        return int(node.value)
    return float(node.value) if node.tag.endswith(":float") else None


def _of_formula(path: tuple[Any, ...], node: Any, context: Any) -> Iterator[tuple[str, Any]]:
    if path[-1] == "expr":
        yield from variants(str(node.value))
    elif (number := _number(node)) is not None:
        yield from ((f"{node.value} -> {n}", n) for n in other_numbers(number))


def _of_table(path: tuple[Any, ...], node: Any, context: Any) -> Iterator[tuple[str, Any]]:
    number = _number(node)
    if number is not None:
        other = other_numbers(number)[0]
        yield f"{node.value} -> {other}", other
    elif path[-1] in CAPABILITIES and re.fullmatch(r"\d+\.\d", node.value):
        other = f"{float(node.value) + 0.1:.1f}"
        yield f"{node.value} -> {other}", other


def _of_line(path: tuple[Any, ...], node: Any, context: Any) -> Iterator[tuple[str, Any]]:
    if "yields" not in path and path[-1] != "engine_version":
        return
    entry = context[1]
    groups = list(re.compile(expand(entry["pattern"].value)).groupindex)
    old = node.value
    match path[-1]:
        case "unit":
            yield from ((f"{old} -> {unit}", unit) for unit in UNITS.get(old, ("other",)))
        case "resolution" | "scale":
            yield f"{old} -> x10", float(old) * 10
            yield f"{old} -> /10", float(old) / 10
        case "group" | "unit_group" | "engine_version":
            others = [name for name in groups if name != old]
            yield from ((f"{old} -> {name}", name) for name in others)
        case "rank":
            yield f"{old} -> any", "any"
        case "value":
            number = _number(node)
            new = f"not {old}" if number is None else other_numbers(number)[0]
            yield f"{old} -> {new}", new
