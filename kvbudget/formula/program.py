"""A formula file in memory: inputs, steps, examples; parsed and checked against the language."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.derivation import Source
from kvbudget.errors import KnowledgeError
from kvbudget.formula.dimension import Dimension, dimension_text, parse_dimension
from kvbudget.formula.interval import FormulaError
from kvbudget.formula.language import Expr, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = "kvbudget.formula/1"


@dataclass(frozen=True, slots=True)
class Input:
    """A fact the file reads. dimension None: text. `unset`: the engine's value when not given.

    `columns`: the fact is a table with these columns (None: a text column).
    """

    name: str
    symbol: str
    dimension: Dimension | None
    unit: str | None
    doc: str
    unset: int | float | str | None = None
    columns: Mapping[str, Dimension | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to compute a step; applies when each text fact has one of the listed values."""

    when: Mapping[str, tuple[str, ...]]
    expr: Expr


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step: `cases` of an expression, or `call` of a primitive.

    over: the table whose rows the expression is evaluated for. columns: of the table a call makes.
    """

    name: str
    symbol: str
    unit: str
    dimension: Dimension
    doc: str
    source: Source
    cases: tuple[Case, ...] = ()
    call: str | None = None
    args: Mapping[str, str | int | float] = field(default_factory=dict)
    over: str | None = None
    columns: Mapping[str, Dimension | None] = field(default_factory=dict)

    @property
    def makes_table(self) -> bool:
        return bool(self.columns)


@dataclass(frozen=True, slots=True)
class Example:
    """Worked figures: facts in, step values out."""

    origin: str
    inputs: Mapping[str, Any]
    expect: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """One formula file. `file` is its path below formulas/."""

    file: str
    engine: str
    part: str
    versions: str
    inputs: Mapping[str, Input]
    steps: tuple[StepSpec, ...]
    examples: tuple[Example, ...]
    doc: str = ""


def read_program(raw: Mapping[str, Any], file: str, versions: str | None = None) -> Program:
    """A checked Program from parsed YAML. Raises FormulaError naming the step at fault."""
    if raw.get("schema") != SCHEMA:
        raise FormulaError(f"schema must be {SCHEMA}", file=file)
    for key in ("engine", "part", "versions", "source", "steps"):
        if key not in raw:
            raise FormulaError(f"missing key {key!r}", file=file)
    inputs = {row["name"]: _input(row, file) for row in raw.get("inputs", [])}
    for name, row in (raw.get("constants") or {}).items():
        _known(row, {"value", "unit", "doc"}, file, f"constant {name!r}")
        unset = row["value"]
        unit = str(row["unit"])
        doc = str(row["doc"])
        inputs[name] = Input(name, name, parse_dimension(unit), unit, doc, unset)
    source = raw["source"]
    span = versions or str(raw["versions"])
    steps = tuple(_step(row, source, span, file) for row in raw["steps"])
    program = Program(
        file, str(raw["engine"]), str(raw["part"]), span, inputs, steps,
        tuple(_example(n, row, file) for n, row in enumerate(raw.get("examples", []), 1)),
        str(raw.get("doc", "")),
    )  # fmt: skip
    check_units(program)
    return program


def _input(row: Mapping[str, Any], file: str) -> Input:
    _known(row, {"name", "symbol", "unit", "doc", "unset", "columns"}, file, "input")
    unit = row.get("unit")
    return Input(
        row["name"], str(row.get("symbol", row["name"])),
        None if unit is None else parse_dimension(unit), unit, str(row.get("doc", "")),
        row.get("unset"), _columns(row.get("columns", {})),
    )  # fmt: skip


def _columns(raw: Mapping[str, str | None]) -> dict[str, Dimension | None]:
    return {name: None if unit is None else parse_dimension(unit) for name, unit in raw.items()}


def _step(row: Mapping[str, Any], source: Mapping[str, str], versions: str, file: str) -> StepSpec:
    name = str(row.get("name", "?"))
    where = f"step {name!r}"
    keys = {"name", "symbol", "unit", "doc", "expr", "cases", "call", "args", "over", "columns",
            "source"}  # fmt: skip
    _known(row, keys, file, where)
    if sum(key in row for key in ("expr", "cases", "call")) != 1:
        raise FormulaError(f"{where}: one of expr, cases, call", file=file)
    if "doc" not in row or "source" not in row:
        raise FormulaError(f"{where}: doc and source are needed", file=file)
    raw_cases = [{"expr": row["expr"]}] if "expr" in row else row.get("cases", [])
    try:
        cases = tuple(
            Case({k: _words(v) for k, v in c.get("when", {}).items()}, parse(str(c["expr"])))
            for c in raw_cases
        )
        dimension = parse_dimension(str(row.get("unit", "n")))
    except KnowledgeError as exc:
        raise FormulaError(f"{where}: {exc}", file=file) from exc
    line = row["source"]
    return StepSpec(
        name, str(row.get("symbol", name)), str(row.get("unit", "n")), dimension,
        " ".join(str(row["doc"]).split()),
        Source(
            str(line.get("repo", source["repo"])), str(line["path"]), _text(line.get("lines")),
            _text(line.get("commit", source.get("commit"))), versions, _text(line.get("anchor")),
        ),
        cases, row.get("call"), dict(row.get("args", {})), row.get("over"),
        _columns(row.get("columns", {})),
    )  # fmt: skip


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _example(number: int, row: Mapping[str, Any], file: str) -> Example:
    _known(row, {"origin", "inputs", "expect"}, file, f"example {number}")
    if not row.get("origin") or not row.get("expect"):
        raise FormulaError(f"example {number} states its origin and what it expects", file=file)
    return Example(str(row["origin"]), row.get("inputs", {}), row["expect"])


def _known(row: Mapping[str, Any], keys: set[str], file: str, where: str) -> None:
    extra = set(row) - keys
    if extra:
        raise FormulaError(f"{where}: unknown key {sorted(extra)[0]!r}", file=file)


def check_units(program: Program) -> None:
    """Every name is an input or an earlier step, and every step has the unit it declares."""
    from kvbudget.formula.primitives import PRIMITIVES

    scalars: dict[str, Dimension] = {}
    texts: set[str] = set()
    tables: dict[str, dict[str, Dimension | None]] = {}
    for given in program.inputs.values():
        if given.columns:
            tables[given.name] = dict(given.columns)
        elif given.dimension is None:
            texts.add(given.name)
        else:
            scalars[given.name] = given.dimension
    for step in program.steps:
        where = f"{program.file}: step {step.name!r}"
        if step.name in scalars or step.name in tables:
            raise FormulaError(f"{where}: the name is taken")
        if step.over is not None and step.over not in tables:
            raise FormulaError(f"{where}: no table {step.over!r} before it")
        row = tables.get(step.over or "", {})
        if step.call is not None and step.call not in PRIMITIVES:
            raise FormulaError(f"{where}: no primitive {step.call!r}")
        env = scalars | {k: v for k, v in row.items() if v is not None}
        if step.over is None:
            env = scalars | _all_columns(tables)
        for case in step.cases:
            unknown = [n for n in case.when if n not in texts and row.get(n, 0) is not None]
            if unknown:
                raise FormulaError(f"{where}: when: {unknown[0]!r} is not a text fact before it")
            try:
                found = case.expr.unit(env)
            except FormulaError as exc:
                raise FormulaError(f"{where}: {exc}") from exc
            if found != step.dimension and case.expr.text != "0":
                raise FormulaError(
                    f"{where}: says {step.unit!r}, its expression gives {dimension_text(found)!r}"
                )
        if step.makes_table:
            tables[step.name] = dict(step.columns)
        elif step.over is not None:
            tables[step.over][step.name] = step.dimension
        else:
            scalars[step.name] = step.dimension


def _all_columns(tables: Mapping[str, Mapping[str, Dimension | None]]) -> dict[str, Dimension]:
    return {k: v for columns in tables.values() for k, v in columns.items() if v is not None}


def joined(programs: Sequence[Program]) -> tuple[dict[str, Input], tuple[StepSpec, ...]]:
    """The parts of an engine's arithmetic one after the other; a step satisfies a later input."""
    inputs: dict[str, Input] = {}
    steps: list[StepSpec] = []
    made: set[str] = set()
    for program in programs:
        inputs |= {k: v for k, v in program.inputs.items() if k not in made}
        steps += program.steps
        made |= {step.name for step in program.steps}
    return inputs, tuple(steps)
