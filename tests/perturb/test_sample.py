"""Every thirtieth change to formulas and lines: the file's own examples or samples notice it.

`make perturb` makes all of them, and asks the unit tests about the rest.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import yaml

from kvbudget.knowledge.yamlfile import StrictLoader, load_yaml
from tests.perturb import selftest
from tests.perturb.__main__ import accepted, listed
from tests.perturb.expressions import variants
from tests.perturb.mutants import FORMULA, LINES, Mutant, data_files, mutants


@lru_cache(maxsize=1)
def sample() -> list[Mutant]:
    """The mutants whose id falls into one of thirty drawers: the same ones in every run."""
    proven = [f for f in data_files() if load_yaml(f).get("schema") in (FORMULA, LINES)]
    found = [mutant for file in proven for mutant in mutants(file)]
    assert len(found) > 4000
    return [m for m in found if zlib.crc32(m.id.encode()) % 30 == 0]


def test_a_sample_of_changes_is_noticed():
    patterns = accepted()
    drawn = [m for m in sample() if m.path[-1] != "rank"]  # a rank is noticed by a test of its own
    assert len(drawn) > 120
    missed = [m.id for m in drawn if listed(m, patterns) is None and not selftest.notices(m)]
    assert missed == []


def test_each_kind_of_change_is_made_once():
    assert [text for _, text in variants("max(a // 2, 0) if b <= 1.5 else -a")] == [
        "-a if b <= 1.5 else max(a // 2, 0)",
        "max(a // 2, 0) if b < 1.5 else -a",
        "max(a // 2, 0) if b >= 1.5 else -a",
        "min(a // 2, 0) if b <= 1.5 else -a",
        "max(a // 2, 0) if b <= 1.5 else --a",
        "max(a // 2, 0) if b <= 1.515 else -a",
        "max(a // 2, 0) if b <= 3.0 else -a",
        "max(a / 2, 0) if b <= 1.5 else -a",
        "max(a * 2, 0) if b <= 1.5 else -a",
        "max(a // 2, 1) if b <= 1.5 else -a",
        "max(a // 3, 0) if b <= 1.5 else -a",
        "max(a // 4, 0) if b <= 1.5 else -a",
    ]


def test_a_changed_text_is_the_changed_tree():
    for mutant in sample()[::40]:
        assert yaml.load(mutant.text(), Loader=StrictLoader) == mutant.tree()
