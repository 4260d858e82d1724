"""The self-test of formulas/: every file parses, its units fit, its examples come out, every step
(but the columns of tables) is expected somewhere, and the index names what is there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.errors import KvbudgetError
from kvbudget.formula.evaluate import Facts, Run, evaluate
from kvbudget.formula.interval import Interval
from kvbudget.formula.registry import load_program
from kvbudget.formula.versions import holds
from kvbudget.knowledge.where import knowledge_dir
from kvbudget.knowledge.yamlfile import load_yaml, locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvbudget.formula.program import Example, Program

MAX_CALLS = 0.25
"""Share of steps that may be primitives before the language is the wrong tool."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file of formulas/."""

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


def check_dir(path: Path) -> list[Problem]:
    """Problems of every formula file below `path` (formulas/ or one engine's folder)."""
    problems: list[Problem] = []
    for file in sorted(path.rglob("*.yaml")):
        try:
            raw = load_yaml(file)
        except KvbudgetError as error:
            where, what = str(error).removeprefix(f"{file.parent.parent}/").split(": ", 1)
            problems.append(Problem(where, what))
            continue
        if isinstance(raw, dict) and str(raw.get("schema")).startswith("kvbudget.formula/"):
            problems += check_file(file)
    for index in sorted(path.rglob("index.yaml")):
        label = f"{index.parent.name}/{index.name}"
        try:
            problems += list(_check_index(index, label))
        except KvbudgetError:
            continue  # a file that cannot be read was named above
        except (KeyError, TypeError, AttributeError) as error:
            problems.append(Problem(label, f"malformed: {type(error).__name__}: {error}"))
    return problems


def formula_files(path: Path) -> list[Path]:
    """The files of steps below `path`: those whose head names the schema."""
    files = sorted(path.rglob("*.yaml"))
    return [file for file in files if b"kvbudget.formula/1" in file.read_bytes()[:500]]


def check_file(file: Path) -> list[Problem]:
    """Problems of one formula file."""
    label = f"{file.parent.name}/{file.name}"
    try:
        program = load_program(file)
    except KvbudgetError as error:
        return [_problem(file, label, str(error))]
    except (KeyError, TypeError, AttributeError) as error:
        return [Problem(label, f"malformed: {type(error).__name__}: {error}")]
    problems = [_problem(file, label, text) for text in example_problems(program)]
    calls = sum(step.call is not None for step in program.steps)
    if calls > MAX_CALLS * len(program.steps):
        problems.append(Problem(label, f"{calls} of {len(program.steps)} steps are primitives"))
    return problems


_NAMED = re.compile(r"step '([^']+)'|example (\d+)")


def _problem(file: Path, label: str, text: str) -> Problem:
    """The problem with line and column of the step or example that its text names."""
    text = text.removeprefix(f"{label}: ").removeprefix(f"{file}:")
    named = _NAMED.search(text)
    raw = load_yaml(file) if named else None
    key = None
    if named and named[2]:
        key = f"examples[{int(named[2]) - 1}]"
    elif named and isinstance(raw, dict) and isinstance(raw.get("steps"), list):
        names = [row.get("name") if isinstance(row, dict) else None for row in raw["steps"]]
        key = f"steps[{names.index(named[1])}]" if named[1] in names else None
    if key is None:
        return Problem(label, text)
    line, col = locate(file, f"at `$.{key}`")
    return Problem(f"{label}:{line}:{col}", text)


def example_problems(program: Program) -> Iterator[str]:
    """What is wrong with the worked examples of a file, and which steps none of them expects."""
    if not program.examples:
        yield "no worked example"
        return
    expected = {name for example in program.examples for name in example.expect}
    for step in program.steps:
        if step.over is None and step.name not in expected:
            yield f"step {step.name!r} is expected in no example"
    names = {step.name for step in program.steps}
    for number, example in enumerate(program.examples, 1):
        yield from (f"example {number} expects {n!r}, no step" for n in set(example.expect) - names)
        try:
            run = evaluate([program], example_facts(example))
        except KvbudgetError as error:
            yield f"example {number} ({example.origin}): {error}"
            continue
        for name, wanted in example.expect.items():
            if name not in names:
                continue
            found = _found(run, program, name)
            if not _equal(found, wanted):
                yield f"example {number}: {name} is {found}, expected {wanted}"


def example_facts(example: Example) -> Facts:
    """The inputs of an example as facts."""
    numbers: dict[str, Interval] = {}
    texts: dict[str, str] = {}
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, value in example.inputs.items():
        if isinstance(value, list):
            tables[name] = value
        elif isinstance(value, str):
            texts[name] = value
        else:
            numbers[name] = Interval.exact(value)
    return Facts(numbers, texts, tables)


def _found(run: Run, program: Program, name: str) -> Any:  # noqa: ANN401 - number or column
    step = next((s for s in program.steps if s.name == name), None)
    if step is None:
        return None
    if step.makes_table:
        return len(run.tables[name]) if name in run.tables else None
    if step.over is not None:
        cells = [row.get(name) for row in run.tables.get(step.over, ())]
        return [cell.best for cell in cells if isinstance(cell, Interval)]
    value = run.numbers.get(name)
    return None if value is None else value.best


def _equal(found: Any, wanted: Any) -> bool:  # noqa: ANN401 - number or column
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_equal, found, wanted))
    if isinstance(wanted, float) and isinstance(found, int | float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)
    return bool(found == wanted)


def _check_index(index: Path, label: str) -> Iterator[Problem]:
    raw = load_yaml(index)
    listed = set()
    for part, rows in raw.get("parts", {}).items():
        for row in rows:
            file = index.parent / row["file"]
            listed.add(file.name)
            shipped = knowledge_dir("formulas") / index.parent.name / file.name
            if not file.is_file() and not shipped.is_file():
                yield Problem(label, f"{part}: {row['file']} does not exist")
        optional = part in (raw.get("optional_parts") or ())
        for version in () if optional else raw.get("checked", ()):
            if not any(holds(str(version), row["versions"]) for row in rows):
                yield Problem(label, f"{part}: no file for {version}")
    for file in sorted(index.parent.glob("*.yaml")):
        head = load_yaml(file)
        is_formula = isinstance(head, dict) and head.get("schema") == "kvbudget.formula/1"
        if is_formula and file.name not in listed:
            yield Problem(label, f"{file.name} is in no part")
