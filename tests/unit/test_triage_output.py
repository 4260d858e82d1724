"""The JSON object, its schema, the sums of the message, values, costs, and the generated pages."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvbudget.cli.app import app
from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import LogReading, read_log
from kvbudget.render.oom_triage import cause_page, markdown
from kvbudget.triage.causes import catalogue
from kvbudget.triage.report import document
from kvbudget.triage.verdict import judge

ROOT = Path(__file__).parents[2]
PATTERNS = load_patterns()
CHAPTER = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of "
    "79.65 GiB of which 808.96 MiB is free. Including non-PyTorch memory, this process has 78.86 GiB memory "
    "in use. Of the allocated memory 76.12 GiB is allocated by PyTorch, and 1.94 GiB is reserved by PyTorch "
    "but unallocated."
)
START = """\
INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 59.20 GiB
INFO 01-02 03:04:05 [kv_cache_utils.py:1] GPU KV cache size: 484,960 tokens
"""


def read(text: str) -> LogReading:
    return read_log(io.BytesIO(text.encode()), PATTERNS, name="t")


def result(text: str, start: str | None = None) -> dict[str, object]:
    reading = read(text)
    return document(reading, judge(reading), read(start) if start else None)


def test_the_sum_of_the_message() -> None:
    rows = {row["name"]: row["value"] / 2**30 for row in result(CHAPTER)["arithmetic"]}  # type: ignore[attr-defined]
    assert rows["capacity"] == pytest.approx(79.65, abs=0.005)
    assert rows["free"] == pytest.approx(0.79, abs=0.005)
    assert rows["outside_torch"] == pytest.approx(0.80, abs=0.005)
    assert rows["request"] == pytest.approx(1.16, abs=0.005)


@pytest.mark.parametrize("text", [CHAPTER, "Killed", "", "Traceback (most recent call last):"])
def test_the_object_fits_its_schema(text: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "kvbudget/schemas/oom-triage.json").read_text())
    jsonschema.validate(result(text), schema)


def test_the_share_that_passes_the_start_up_check() -> None:
    text = (
        "ValueError: Free memory on device cuda:0 (41.00/47.38 GiB) on startup is less than desired GPU "
        "memory utilization (0.95, 45.01 GiB)."
    )
    steps = result(text)["verdict"]["remedies"]  # type: ignore[index]
    assert "0.86" in [step["value"] for step in steps]


def test_the_length_that_fits_is_the_engines_own() -> None:
    text = (
        "ValueError: To serve at least one request with the model's max seq len (90000), (5.10 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.00 GiB). Based on the available memory, "
        "the estimated maximum model length is 70560. Try increasing `gpu_memory_utilization`"
    )
    assert "70560" in [s["value"] for s in result(text)["verdict"]["remedies"]]  # type: ignore[index]


def test_the_price_of_a_smaller_share() -> None:
    start = START + (
        "INFO 01-02 03:04:05 [worker.py:1] the current vLLM instance can use total_gpu_memory (79.60GiB) x "
        "gpu_memory_utilization (0.98) = 78.01GiB\n"
    )
    (row,) = result(CHAPTER, start)["costs"]  # type: ignore[misc]
    assert row["to"] == 0.92
    assert row["kv_bytes"] / 2**30 == pytest.approx(-4.78, abs=0.02)
    assert row["of_pool"] == pytest.approx(-0.08, abs=0.005)
    assert row["requests_8k"] == pytest.approx(-4.8, abs=0.2)


def test_exit_codes() -> None:
    run = CliRunner()
    assert run.invoke(app, ["oom-triage", "-", "--format", "json"], input="Killed\n").exit_code == 0
    nothing = run.invoke(app, ["oom-triage", "--format", "json"], input="all is well\n")
    assert nothing.exit_code == 3
    assert json.loads(nothing.stdout)["verdict"]["cause"] == "none.no_failure"


def test_the_pages_are_those_of_the_catalogue() -> None:
    for name, row in catalogue().causes.items():
        page = ROOT / "docs" / "causes" / f"{name}.md"
        assert page.read_text(encoding="utf-8") == cause_page(name, row), f"run: make docs ({name})"


def test_markdown_keeps_foreign_text_in_code_spans() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. <b>`x`</b>"
    assert "<b>" not in markdown(result(text)).replace("`" + text.replace("`", "'") + "`", "")


def test_an_exception_that_is_not_about_memory_is_said_to_be_none() -> None:
    """The line that decides is there; no line of the text is missing."""
    other = result("ValueError: max_model_len (90000) is greater than the derived one (70000).")
    cut = result('Traceback (most recent call last):\n  File "a.py", line 1, in b\n')
    assert other["verdict"]["cause"] == cut["verdict"]["cause"] == "unknown.insufficient_evidence"  # type: ignore[index]
    assert "not about memory" in other["verdict"]["missing"][0]  # type: ignore[index]
    assert "below the last frame" in cut["verdict"]["missing"][0]  # type: ignore[index]


def test_the_message_is_the_evidence_not_the_source_line_above_it() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/v/vllm/v1/core/kv_cache_utils.py", line 1, in check\n'
        '    raise ValueError("No available memory for the cache blocks. "\n'
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"
    )
    assert [e["line"] for e in result(text)["verdict"]["evidence"]] == [4]  # type: ignore[index]
    cut = "".join(text.splitlines(keepends=True)[:3])
    assert [e["line"] for e in result(cut)["verdict"]["evidence"]] == [3]  # type: ignore[index]


TAGGED = """\
[2026-01-05 10:00:00 DP1 TP2] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/sglang/srt/managers/scheduler.py", line 2000, in run_scheduler_process
    scheduler = Scheduler(
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/sglang/srt/model_executor/model_runner.py", line 900, in load_model
RuntimeError: CUDA error: out of memory
"""


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (TAGGED, "DP1 TP2"),
        ("".join(f"sgl-1  | {line}\n" for line in TAGGED.splitlines()), "DP1 TP2"),
        ("[2026-01-05 10:00:00 TP2] all is well\nRuntimeError: CUDA error: out of memory\n", None),
        (
            TAGGED.replace(
                "During handling of the above exception, another exception occurred:\n\n",
                "Process P:\n",
            ),
            None,
        ),
    ],
)
def test_an_exception_below_a_tagged_line_is_of_that_rank(text: str, rank: str | None) -> None:
    reading = read(text)
    verdict = judge(reading)
    assert verdict.cause == "vram.weights" or rank is None
    assert verdict.rank == rank
    assert all(fact.rank is None for fact in reading.facts)


POOL = "[2026-01-05 10:00:00] max_total_num_tokens={pool}, max_prefill_tokens=16384, context_len=8192\n"
REFUSED = "[2026-01-05 10:00:09] Input length (9000 tokens) exceeds the maximum allowed length ({limit} tokens).\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (POOL.format(pool=90000) + REFUSED.format(limit=8186), "none.no_failure"),
        (POOL.format(pool=7000) + REFUSED.format(limit=6994), "kv.pool_smaller_than_context"),
        (REFUSED.format(limit=6994), "kv.pool_smaller_than_context"),
        (
            'Traceback (most recent call last):\n  File "/x/vllm/a.py", line 1, in f\n'
            "ValueError: The decoder prompt (length 9000) is longer than the maximum model length of 8192.\n",
            "none.no_failure",
        ),
        (
            "ValueError: The decoder prompt (length 9000) is longer than the maximum model length of 8192.\n"
            "ValueError: something else\n",
            "unknown.insufficient_evidence",
        ),
    ],
)
def test_a_request_longer_than_the_context_is_no_matter_of_memory(text: str, cause: str) -> None:
    verdict = judge(read(text))
    assert verdict.cause == cause
    if cause == "none.no_failure":
        assert "length (9000 >" in verdict.explanation


PRESSED = "INFO 01-05 10:00:00 [loggers.py:1] Engine 000: Running: 30 reqs, Waiting: 12 reqs, Preemptions: 4, GPU KV cache usage: 99.1%\n"
RAISED = (
    "(EngineCore pid=1) ERROR 01-05 10:00:01 [core.py:1] Traceback (most recent call last):\n"
    "(EngineCore pid=1) ERROR 01-05 10:00:01 [core.py:1] KeyError: 'x'\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (PRESSED, "kv.pool_pressure"),
        (PRESSED + RAISED, "unknown.insufficient_evidence"),
        (
            PRESSED + "BrokenPipeError: [Errno 32] Broken pipe\n" + PRESSED.replace("30", "31"),
            "kv.pool_pressure",
        ),
        (
            PRESSED + RAISED.replace("KeyError: 'x'", "CUDA out of memory."),
            "vram.activation_runtime",
        ),
        ("WARNING Request 7: cannot store chunks\n" + RAISED, "unknown.insufficient_evidence"),
    ],
)
def test_a_warning_is_not_what_the_engine_died_of(text: str, cause: str) -> None:
    assert judge(read(text)).cause == cause


def frame(file: str, function: str) -> str:
    return f'  File "/x/sglang/srt/{file}", line 1, in {function}\n'


@pytest.mark.parametrize(
    ("inner", "cause"),
    [
        (frame("mem_cache/memory_pool.py", "set_kv_buffer"), "vram.activation_runtime"),
        (frame("model_executor/cuda_graph_runner.py", "replay_prepare"), "vram.activation_runtime"),
        (frame("model_executor/runner/decode_cuda_graph_runner.py", "load_batch"), "vram.activation_runtime"),
        (frame("model_executor/runner/decode_cuda_graph_runner.py", "_capture"), "vram.graph_capture"),
        (frame("mem_cache/kv_cache_configurator.py", "_build_mha_kv_pool"), "vram.kv_pool_alloc"),
        (frame("mem_cache/unified_memory_pool.py", "__init__"), "vram.kv_pool_alloc"),
    ],
)  # fmt: skip
def test_a_pool_in_use_is_not_a_pool_being_made(inner: str, cause: str) -> None:
    serving = frame("managers/scheduler.py", "event_loop_overlap") if "activation" in cause else ""
    text = f"Traceback (most recent call last):\n{serving}{inner}torch.OutOfMemoryError: CUDA out of memory.\n"
    assert judge(read(text)).cause == cause


@pytest.mark.parametrize(
    ("line", "cause", "fatal"),
    [
        ("retract_decode: aborted last request 17 due to OOM", "kv.single_request_exceeds_pool", False),
        ("AssertionError: No space left for only one request", "kv.single_request_exceeds_pool", True),
        ("Request 17: cannot store 12 blocks", "kv.connector_pool_full", False),
        ("retract_decode: aborted request 17, retraction host pool exhausted", "kv.connector_pool_full", False),
        ("RuntimeError: HiSparse host mem pool alloc failed for 9 pages", "kv.connector_pool_full", True),
    ],
)  # fmt: skip
def test_a_dropped_request_is_not_a_dead_server(line: str, cause: str, fatal: bool) -> None:
    verdict = judge(read(f"[2026-01-05 10:00:00 TP0] {line}\n"))
    assert (verdict.cause, verdict.fatal, verdict.rank) == (cause, fatal, "TP0")
