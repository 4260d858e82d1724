"""First judge of a mutant: the file's own worked examples and samples, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kvbudget.errors import KvbudgetError
from kvbudget.formula.check import example_problems
from kvbudget.formula.program import read_program
from kvbudget.knowledge.patterns import Pattern
from kvbudget.knowledge.schema import PatternFile
from kvbudget.knowledge.yamlfile import load_yaml
from kvbudget.logs.selftest import entry_problems
from tests.perturb.mutants import FORMULA, LINES, ROOT

if TYPE_CHECKING:
    from tests.perturb.mutants import Mutant


def notices(mutant: Mutant) -> bool:
    """True when the self-test of the mutant's file finds fault with it."""
    schema = load_yaml(ROOT / mutant.file).get("schema")
    if schema == FORMULA:
        return _formula(mutant)
    return schema == LINES and _line(mutant)


def _formula(mutant: Mutant) -> bool:
    try:
        program = read_program(mutant.tree(), mutant.file)
        return next(example_problems(program), None) is not None
    except KvbudgetError:
        return True


def _line(mutant: Mutant) -> bool:
    parsed = msgspec.convert(mutant.tree(), PatternFile)
    kind, index = mutant.path[:2]
    entry = getattr(parsed, str(kind))[index]
    pattern = Pattern(entry, parsed.engine, mutant.file)
    return next(entry_problems(pattern, timed=False), None) is not None
