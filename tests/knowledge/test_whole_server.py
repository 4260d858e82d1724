"""Settings speak for the whole server: whatever rank printed them, their facts have none."""

from __future__ import annotations

import pytest

from kvbudget.knowledge.patterns import PatternSet, load_patterns
from kvbudget.knowledge.schema import Line
from kvbudget.logs.figures import facts_of
from kvbudget.logs.match import Matcher, records
from kvbudget.logs.scan import RawLine

OF_A_RANK = {"vllm.config.engine_len"}
"""Settings that each engine process prints of itself: a data-parallel one keeps its tag."""
PATTERNS = load_patterns().patterns
SETTINGS = [p for p in PATTERNS if isinstance(p.entry, Line) and p.entry.kind != "log"]


def ranks(pattern, text: str) -> set[str | None]:
    matcher = Matcher(PatternSet([pattern]))
    lines = (RawLine(n, line, hit=True) for n, line in enumerate(text.split("\n"), 1))
    hits = [hit for record in records(lines) for hit in matcher.hits(record)]
    return {fact.rank for hit in hits for fact in facts_of(hit)}


@pytest.mark.parametrize("pattern", SETTINGS, ids=lambda p: p.id)
def test_a_setting_has_no_rank_even_behind_a_tag(pattern):
    for sample in pattern.entry.samples:
        found = ranks(pattern, f"(Worker_TP1 pid=7) {sample.text}")
        assert found == ({"TP1"} if pattern.id in OF_A_RANK else {None})


def test_a_progress_bar_is_of_nobody_but_the_line_before_it_is():
    found = {p.id: p for p in PATTERNS}
    bar = "[2026-01-05 10:00:00 TP1] Capturing batches (bs=24 avail_mem=2.95 GB):   0%|  | 0/16"
    assert ranks(found["sglang.graph.bar"], bar) == {None}
    end = "[2026-01-05 10:00:00 TP1] Load weight end. type=A, dtype=x, avail mem=61.25 GB"
    assert ranks(found["sglang.weights.end"], end) == {"TP1"}
