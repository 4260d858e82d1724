"""Runs formula files on facts: which steps can be taken, and what each one gives.

A step whose name is already a given fact is not computed: `kv_cache_memory=54.4GiB` enters the
derivation at the residual, and what stands before it is simply not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.derivation import Step
from kvbudget.errors import MissingFact
from kvbudget.formula.interval import FormulaError, Interval
from kvbudget.formula.primitives import PRIMITIVES, Call, Unavailable
from kvbudget.formula.program import Case, Input, Program, StepSpec, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.formula.language import Value


Row = dict[str, "Interval | str"]
Table = list[Row]


@dataclass(frozen=True)
class Facts:
    """Numbers, texts and tables by fact name. Whatever is absent is unknown, never 0."""

    numbers: Mapping[str, Interval] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass
class Run:
    """The outcome: values by step name, the steps taken, and what each untaken step lacked."""

    numbers: dict[str, Interval] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)

    def amount(self, name: str) -> Amount | None:
        """The value of an input or step with its unit; None where it is unknown."""
        value = self.numbers.get(name)
        if value is None:
            return None
        return Amount(value.best, value.low, value.high, self.units.get(name, "n"))

    def need(self, name: str) -> Amount:
        """The value of a step. Raises MissingFact naming the inputs nobody supplied."""
        found = self.amount(name)
        if found is None:
            roots = self.roots(name)
            raise MissingFact(
                f"{name} needs {', '.join(roots) or 'a step this version does not have'}",
                roots,
                "state it with --set NAME=VALUE, or give a log or a profile that has it",
            )
        return found

    def roots(self, name: str) -> tuple[str, ...]:
        """The facts whose absence keeps `name` unknown, traced back to inputs."""
        seen: dict[str, None] = {}

        def trace(item: str) -> None:
            for lack in self.missing.get(item, ()):
                if lack in self.missing:
                    trace(lack)
                else:
                    seen[lack] = None

        trace(name)
        return tuple(seen)


def evaluate(programs: Sequence[Program], facts: Facts) -> Run:
    """Take every step that the facts allow, in order.

    Raises FormulaError when a variant does not apply exactly once, or a formula divides by zero.
    """
    inputs, steps = joined(programs)
    run = Run()
    for name, given in inputs.items():
        _take_input(run, name, given, facts)
    for step in steps:
        run.units[step.name] = step.unit
        if step.name in facts.numbers and not step.makes_table and step.over is None:
            run.numbers[step.name] = facts.numbers[step.name]
        else:
            _take(run, step, steps)
    return run


def _take(run: Run, step: StepSpec, steps: Sequence[StepSpec], *, quiet: bool = False) -> None:
    if step.call is not None:
        _take_call(run, step, steps, quiet=quiet)
    elif step.over is not None:
        _take_column(run, step, quiet=quiet)
    else:
        _take_scalar(run, step, quiet=quiet)


def _names_of(step: StepSpec) -> set[str]:
    """Facts, steps, columns and tables a step reads."""
    names = {name for case in step.cases for name in (*case.expr.names, *case.when)}
    names |= {str(arg).removeprefix("=") for arg in step.args.values()}
    return names | ({step.over} if step.over else set())


def _between(steps: Sequence[StepSpec], start: str, goal: str) -> list[StepSpec]:
    """The steps that depend on `start` and that `goal` depends on, in order."""
    touched, down = {start}, []
    for step in steps:
        reads = _names_of(step)
        if reads & touched:
            touched |= {step.name, *step.columns}
            down.append(step)
    return leading_to(down, {goal})


def leading_to(steps: Sequence[StepSpec], goals: set[str]) -> list[StepSpec]:
    """The steps among `steps` that the goals are computed from, the goals included, in order."""
    wanted, up = set(goals), []
    for step in reversed(steps):
        if wanted & {step.name, *step.columns}:
            wanted |= _names_of(step)
            up.append(step)
    return up[::-1]


def _retry(
    run: Run, chain: Sequence[StepSpec], name: str, value: int, goal: str
) -> Interval | None:
    """`goal` with another value of the fact `name`; the rest of the run stays as it is."""
    tables = {key: [dict(row) for row in rows] for key, rows in run.tables.items()}
    again = Run({**run.numbers, name: Interval.exact(value)}, run.texts, tables)
    for step in chain:
        _take(again, step, (), quiet=True)
    return again.numbers.get(goal)


def _take_input(run: Run, name: str, given: Input, facts: Facts) -> None:
    if given.columns:
        if name in facts.tables:
            run.tables[name] = [_row(row) for row in facts.tables[name]]
        return
    if given.dimension is None:
        text = facts.texts.get(name, given.unset)
        if text is not None:
            run.texts[name] = str(text)
            run.unset += [] if name in facts.texts else [name]
        return
    run.units[name] = given.unit or "n"
    if name in facts.numbers:
        run.numbers[name] = facts.numbers[name]
    elif isinstance(given.unset, int | float):
        run.numbers[name] = Interval.exact(given.unset)
        run.unset.append(name)


def _row(row: Mapping[str, Any]) -> Row:
    return {
        key: value if isinstance(value, str | Interval) else Interval.exact(value)
        for key, value in row.items()
        if value is not None
    }


def _column_env(run: Run) -> dict[str, Value]:
    env: dict[str, Value] = {}
    for table in run.tables.values():
        for key in table[0] if table else ():
            column = [v for row in table if isinstance(v := row.get(key), Interval)]
            if len(column) == len(table):
                env[key] = column
    return env


def _choose(cases: Sequence[Case], texts: Mapping[str, str], name: str) -> Case | tuple[str, ...]:
    """The one case that applies, or the text facts whose absence leaves it open."""
    lacking = tuple(dict.fromkeys(k for c in cases for k in c.when if k not in texts))
    if lacking:
        return lacking
    fitting = [c for c in cases if all(texts[k] in words for k, words in c.when.items())]
    if len(fitting) != 1:
        state = {k: texts[k] for c in cases for k in c.when}
        raise FormulaError(f"step {name!r}: {len(fitting)} variants apply to {state}")
    return fitting[0]


def _take_scalar(run: Run, step: StepSpec, *, quiet: bool) -> None:
    chosen = _choose(step.cases, run.texts, step.name)
    if not isinstance(chosen, Case):
        run.missing[step.name] = chosen
        return
    env = {**_column_env(run), **run.numbers}
    lacking = tuple(name for name in chosen.expr.names if name not in env)
    if lacking:
        run.missing[step.name] = lacking
        return
    run.numbers[step.name] = chosen.expr.value(env)
    if not quiet:
        run.steps.append(_record(step, chosen.expr.text, chosen.expr.substituted(_shown(env)),
                                 run.numbers[step.name]))  # fmt: skip


def _take_column(run: Run, step: StepSpec, *, quiet: bool) -> None:
    assert step.over is not None
    if step.over not in run.tables:
        run.missing[step.name] = (step.over,)
        return
    for row in run.tables[step.over]:
        texts = run.texts | {k: v for k, v in row.items() if isinstance(v, str)}
        chosen = _choose(step.cases, texts, step.name)
        env: dict[str, Value] = {
            **run.numbers, **{k: v for k, v in row.items() if isinstance(v, Interval)},
        }  # fmt: skip
        lacking = chosen if not isinstance(chosen, Case) else tuple(
            name for name in chosen.expr.names if name not in env
        )  # fmt: skip
        if lacking or not isinstance(chosen, Case):
            run.missing[step.name] = lacking
            for other in run.tables[step.over]:
                other.pop(step.name, None)
            return
        row[step.name] = value = chosen.expr.value(env)
        if not quiet:
            label = str(row.get("kind") or row.get("group_kind") or "")
            text = chosen.expr.substituted(_shown(env))
            run.steps.append(_record(step, chosen.expr.text, text, value, label))


def _take_call(run: Run, step: StepSpec, steps: Sequence[StepSpec], *, quiet: bool) -> None:
    assert step.call is not None
    lacking = tuple(
        arg
        for arg in step.args.values()
        if isinstance(arg, str) and not arg.startswith("=")
        and arg not in run.numbers and arg not in run.tables and arg not in run.texts
    )  # fmt: skip
    if lacking:
        run.missing[step.name] = lacking
        return

    chains: dict[tuple[str, str], list[StepSpec]] = {}

    def again(name: str, value: int, goal: str) -> Interval | None:
        if (name, goal) not in chains:
            chains[name, goal] = _between(steps, name, goal)
        return _retry(run, chains[name, goal], name, value, goal)

    try:
        outcome = PRIMITIVES[step.call](Call(step.args, run.numbers, run.texts, run.tables, again))
    except Unavailable:
        run.missing[step.name] = (str(step.args.get("need", step.call)).removeprefix("="),)
        return
    shown = ", ".join(f"{key}={arg}" for key, arg in step.args.items())
    if isinstance(outcome, list):
        run.tables[step.name] = outcome
        count, text = Interval.exact(len(outcome)), f"{len(outcome)} rows"
    else:
        run.numbers[step.name] = count = outcome
        text = ", ".join(_one(run.numbers[str(a)]) for a in step.args.values() if a in run.numbers)
    if not quiet:
        run.steps.append(_record(step, f"{step.call}({shown})", f"{step.call}({text})", count))


def _record(step: StepSpec, expr: str, text: str, value: Interval, label: str = "") -> Step:
    return Step(
        f"{step.name}[{label}]" if label else step.name,
        f"{step.symbol}[{label}]" if label else step.symbol,
        step.doc, expr, text, Amount(value.best, value.low, value.high, step.unit), step.source,
    )  # fmt: skip


def _shown(env: Mapping[str, Value]) -> dict[str, str]:
    return {
        name: ", ".join(_one(v) for v in value) if isinstance(value, list) else _one(value)
        for name, value in env.items()
    }


def _one(value: Interval) -> str:
    best = value.best
    text = f"{best:,}" if isinstance(best, int) else f"{best:,.10g}"
    return f"({text})" if best < 0 else text
