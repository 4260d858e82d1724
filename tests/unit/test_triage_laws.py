"""What may not change a verdict: prefixes, unrelated lines, ranks; and what may only weaken it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_triage_causes import CASES, PATTERNS

from kvbudget.logs.collect import read_log
from kvbudget.triage.report import document
from kvbudget.triage.verdict import judge

if TYPE_CHECKING:
    from kvbudget.triage.result import Verdict

QUIET = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
PREFIXES = (
    "vllm-1  | ",
    "2026-03-03T03:03:03.123456789Z ",
    "2026-03-03T03:03:03.123456789Z stderr F ",
    "[pod/llm-0/server] ",
    "Mar 03 03:03:03 node-1 docker[812]: ",
    "(EngineCore_DP0 pid=41) ERROR 03-03 03:03:03 [core.py:700] ",
    "(Worker_TP1 pid=42) ERROR 03-03 03:03:03 [multiproc_executor.py:500] ",
    "(RayWorkerWrapper pid=43, ip=10.0.0.4) ",
    "[rank3]: ",
    "\x1b[0;36m(Worker_TP2 pid=9)\x1b[0;0m ",
    "[2025-05-05 10:00:00 TP3] ",
)
FAILING = [case for case in CASES if case[0].split(".")[0] not in ("none", "unknown")]
NOISE = (
    "INFO 01-02 03:04:05 [api_server.py:10] Starting to serve the model",
    'INFO:     10.0.0.9:40000 - "GET /health HTTP/1.1" 200 OK',
    "WARNING 01-02 03:04:05 [config.py:9] some option is deprecated",
    "DEBUG a quite ordinary line of another program",
    "",
)


def judged(text: str) -> Verdict:
    return judge(read_log(io.BytesIO(text.encode("utf-8", "surrogatepass")), PATTERNS, name="t"))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_does_not_change_the_cause(prefix: str) -> None:
    for cause, text in FAILING:
        with_prefix = "\n".join(prefix + line for line in text.split("\n"))
        got = judged(with_prefix).cause
        assert got == cause or (cause == "host.killed_unproven" and text == "Killed"), text


@QUIET
@given(st.sampled_from(FAILING), st.lists(st.sampled_from(NOISE), max_size=30), st.booleans())
def test_unrelated_lines_do_not_change_the_cause(
    case: tuple[str, str], noise: list[str], after: bool
) -> None:
    cause, text = case
    lines = [text, *noise] if after else [*noise, text]
    assert judged("\n".join(lines)).cause == cause


@QUIET
@given(st.sampled_from(FAILING), st.integers(2, 8))
def test_more_ranks_do_not_change_the_cause(case: tuple[str, str], ranks: int) -> None:
    cause, text = case
    lines = [f"[rank{rank}]: {line}" for rank in range(ranks) for line in text.split("\n")]
    got = judged("\n".join(lines)).cause
    assert got == cause or text == "Killed"


@QUIET
@given(st.sampled_from(CASES), st.floats(0, 1))
def test_a_cut_text_is_never_certain_of_something_else(case: tuple[str, str], part: float) -> None:
    cause, text = case
    verdict = judged(text[: int(part * len(text))])
    assert verdict.confidence != "certain" or verdict.cause == cause


@QUIET
@given(st.binary(max_size=600))
def test_no_bytes_crash_it(data: bytes) -> None:
    reading = read_log(io.BytesIO(data), PATTERNS, name="t")
    document(reading, judge(reading))


@QUIET
@given(st.lists(st.sampled_from([line for _, t in CASES for line in t.split("\n")]), max_size=25))
def test_no_mixture_of_lines_crashes_it(lines: list[str]) -> None:
    reading = read_log(io.BytesIO("\n".join(lines).encode()), PATTERNS, name="t")
    result = document(reading, judge(reading))
    knobs = {
        r["direction"]
        for r in result["verdict"]["remedies"]
        if r["direction"] in ("raise", "lower") and "utilization" in (r["flag"] or "")
    }
    assert len(knobs) <= 1
