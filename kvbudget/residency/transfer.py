"""Runs the formulas of formulas/transfer on plain numbers."""

from __future__ import annotations

from kvbudget.formula.evaluate import Facts, evaluate
from kvbudget.formula.interval import Interval
from kvbudget.formula.registry import load_program
from kvbudget.knowledge.where import knowledge_file


def values(part: str, **given: float | None) -> dict[str, float]:
    """Every step of formulas/transfer/PART.yaml that `given` suffices for, by name.

    Numbers are in the units the file states; None is unknown. Raises FormulaError.
    """
    program = load_program(knowledge_file("formulas", "transfer", f"{part}.yaml"), examples=False)
    known = {name: Interval.exact(value) for name, value in given.items() if value is not None}
    run = evaluate([program], Facts(known))
    return {
        step.name: run.numbers[step.name].best for step in program.steps if step.name in run.numbers
    }
