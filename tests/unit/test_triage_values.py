"""Values beside a remedy's knob: worked out of the text's own figures, by hand here."""

from __future__ import annotations

import io
from typing import Any

import pytest

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log
from kvbudget.triage.report import document
from kvbudget.triage.verdict import judge

PATTERNS = load_patterns()
FRAME = (
    '  File "/opt/v/site-packages/vllm/v1/worker/gpu_model_runner.py", line 10, in execute_model\n'
)
REFUSED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total "
    "capacity of 40.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
    "has 39.00 GiB memory in use. Of the allocated memory 38.00 GiB is allocated by PyTorch, and "
    "100.00 MiB is reserved by PyTorch but unallocated.\n"
)
SGLANG_START = """\
[2026-01-05 10:00:00] server_args=ServerArgs(model_path='a/b', mem_fraction_static=0.9, port=1)
[2026-01-05 10:00:01] Load weight begin. avail mem=39.00 GB
[2026-01-05 10:00:09] Load weight end. type=X, dtype=torch.bfloat16, avail mem=29.00 GB, mem usage=10.00 GB.
"""


def read(text: str) -> dict[str, Any]:
    reading = read_log(io.BytesIO(text.encode()), PATTERNS, name="t")
    return document(reading, judge(reading))


def turns(text: str) -> dict[str, tuple[str | None, str | None]]:
    """Flag -> direction and value."""
    steps = read(text)["verdict"]["remedies"]
    return {s["flag"]: (s["direction"], s["value"]) for s in steps if s["flag"]}


def test_room_for_a_refused_request() -> None:
    """3.00 asked, 1.00 free: 2.00 short of 40.00, 0.05 of the card; 0.93 - 0.05 = 0.88."""
    assert turns(FRAME + REFUSED)["--gpu-memory-utilization"] == ("lower", "by 0.05 or more")
    known = "vllm serve a/b --gpu-memory-utilization 0.93\n" + FRAME + REFUSED
    assert turns(known)["--gpu-memory-utilization"] == ("lower", "0.88 or less")


def test_a_share_of_what_was_free_before_the_weights() -> None:
    """2.00 short of 39.00: 0.9 - 0.0513 = 0.8487."""
    text = SGLANG_START + (
        "[2026-01-05 10:00:10] KV Cache is allocated. #tokens: 100000, K size: 12.50 GB, V size: 12.50 GB\n"
        "[2026-01-05 10:00:10] Memory pool end. avail mem=4.00 GB\n"
        "[2026-01-05 10:00:12] Scheduler hit an exception: Traceback (most recent call last):\n"
        "Exception: Capture cuda graph failed: " + REFUSED.partition(": ")[2]
    )
    assert turns(text)["--mem-fraction-static"] == ("lower", "0.84 or less")
    (cost,) = read(text)["costs"]
    assert cost["to"] == 0.84
    # 0.06 x 39.00 GiB of a pool of 25.00 GiB with 100,000 tokens
    assert cost["kv_bytes"] == pytest.approx(-0.06 * 39 * 2**30, rel=1e-3)
    assert cost["tokens"] == pytest.approx(-0.06 * 39 / 25 * 100_000, rel=1e-3)


def test_the_floor_of_a_share_of_what_was_free() -> None:
    """1 - 29 / 39 = 0.2564; an activation peak is not profiled there, so the chunk is no cure."""
    text = SGLANG_START + (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
        "Current value: mem_fraction_static=0.2\n"
    )
    found = turns(text)
    assert found["--mem-fraction-static"] == ("raise", "above 0.26")
    assert "--chunked-prefill-size" not in found


def test_the_floor_that_the_engine_names_comes_first() -> None:
    text = SGLANG_START + (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under "
        "--mem-fraction-static=0.2. Raise --mem-fraction-static above 0.28 (minimum viable = 0.256).\n"
    )
    assert turns(text)["--mem-fraction-static"] == ("raise", "above 0.28")


def test_a_negative_budget_says_by_how_much() -> None:
    """0.80 + 1.00 / 40.00 = 0.825; without the card's total only the bytes are known."""
    last = (
        "INFO [gpu_worker.py:1] Available KV cache memory: -1.0 GiB\n"
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n"
    )
    card = (
        "INFO 01-02 03:04:05 [worker.py:1] the current vLLM instance can use total_gpu_memory "
        "(40.00GiB) x gpu_memory_utilization (0.80) = 32.00GiB\n"
    )
    assert turns(card + last)["--gpu-memory-utilization"] == ("raise", "above 0.83")
    bare = turns(last)["--gpu-memory-utilization"]
    assert bare == ("raise", "by more than 1.00 GiB of the card")
    assert "-1.00 GiB" in read(last)["verdict"]["explanation"]


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.8, "0.88 or more"), (0.95, "more than the card: no share is enough")],
)
def test_a_pool_for_one_whole_request(share: float, said: str) -> None:
    """3.00 GiB more of 40.00 are 0.075."""
    text = (
        "INFO 01-02 03:04:05 [worker.py:1] the current vLLM instance can use total_gpu_memory "
        f"(40.00GiB) x gpu_memory_utilization ({share:.2f}) = {40 * share:.2f}GiB\n"
        "ValueError: To serve at least one request with the model's max seq len (60000), (7.00 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (4.00 GiB).\n"
    )
    assert turns(text)["--gpu-memory-utilization"] == ("raise", said)


def test_a_segment_that_shared_memory_cannot_hold() -> None:
    text = "RuntimeError: Insufficient space in /dev/shm for a.mmap: 512.0 MiB required, 64.0 MiB free."
    assert turns(text)["--shm-size"] == ("raise", "more than 512.00 MiB")


def test_the_sentence_behind_a_more_exact_message() -> None:
    text = REFUSED + (
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 900 dummy requests.\n"
    )
    rows = {row["name"]: row["value"] for row in read(text)["arithmetic"]}
    assert rows["request"] == 3 * 2**30
    assert "other_processes" not in rows  # 40.00 - 1.00 - 39.00
    assert turns(text)["--max-num-seqs"] == ("lower", "256")  # 900 x 1.00 / 3.00
