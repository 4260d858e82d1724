"""The smallest logs that fill a budget of logparsers/layouts.yaml: one term less fills none."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app

V0 = [
    "INFO worker.py:267] the current vLLM instance can use total_gpu_memory (44.40GiB)"
    " x gpu_memory_utilization (0.85) = 37.74GiB",
    "model weights take 13.20GiB;",
    "the rest of the memory reserved for KV Cache is 20.00GiB.",
]
CHAIN = [
    "[2026-01-05 10:00:00] Load weight begin. avail mem=46.81 GB",
    "[2026-01-05 10:00:09] Load weight end. type=A, dtype=torch.bfloat16, avail mem=31.90 GB,"
    " mem usage=14.91 GB.",
    "[2026-01-05 10:00:10] Memory pool end. avail mem=6.10 GB",
]


def budgets(lines: list[str]) -> list[tuple[str, int]]:
    text = "\n".join(lines) + "\n"
    run = CliRunner().invoke(app, ["explain-log", "-", "--format", "json"], input=text)
    return [(b["layout"], len(b["terms"])) for b in json.loads(run.stdout)["budgets"]]


@pytest.mark.parametrize(
    ("lines", "wanted"), [(V0, ("requested-less-terms", 2)), (CHAIN, ("avail-chain", 3))]
)
def test_the_fewest_terms_that_make_a_budget(lines: list[str], wanted: tuple[str, int]):
    assert budgets(lines) == [wanted]
    assert wanted not in budgets(lines[:-1])
