"""Pieces as people paste them: cut above the exception, or with figures that mislead."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log
from kvbudget.triage.verdict import judge

if TYPE_CHECKING:
    from kvbudget.triage.result import Verdict

PATTERNS = load_patterns()
UNKNOWN = "unknown.insufficient_evidence"
CARD = "GPU 0 has a total capacity of 44.40 GiB of which 900.00 MiB is free. Including non-PyTorch memory, this process has {own} memory in use. Of the allocated memory 39.00 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated."


def verdict(text: str) -> Verdict:
    return judge(read_log(io.BytesIO(text.encode()), PATTERNS, name="t"))


@pytest.mark.parametrize(
    "frame",
    [
        '(EngineCore_DP0 pid=41)   File "/x/vllm/v1/engine/core.py", line 70, in __init__',
        '[rank0]:   File "/x/vllm/model_executor/models/qwen2_5_vl.py", line 901, in forward',
        "INFO 02-03 04:05:06 model_runner_base.py:120] Writing input of failed execution to /tmp/err_x.pkl...",
    ],
)
def test_a_frame_behind_a_prefix_is_a_failure_whose_line_is_missing(frame: str) -> None:
    assert verdict(f"{frame}\n    f(").cause == UNKNOWN


def test_the_executor_frame_does_not_tell_the_pool_from_the_warm_up() -> None:
    outer = '(EngineCore_DP0 pid=41)   File "/x/vllm/v1/executor/abstract.py", line 74, in initialize_from_config\n'
    inner = '(EngineCore_DP0 pid=41)   File "/x/vllm/v1/worker/gpu_worker.py", line 300, in initialize_from_config\n'
    cut = verdict(outer + "(EngineCore_DP0 pid=41)     result = get_r")
    assert cut.cause == UNKNOWN
    assert ("vram.kv_pool_alloc", "possible") in cut.alternatives
    assert verdict(outer + inner).cause == "vram.kv_pool_alloc"


def test_a_failed_initialize_cache_may_be_the_check_and_raises_no_knob() -> None:
    found = verdict(
        "(LLMRayActor pid=41) INFO 02-03 04:05:06 distributed_gpu_executor.py:45] # GPU blocks: 512, # CPU blocks: 1024\n"
        "(LLMRayActor pid=41) ERROR 02-03 04:05:06 worker_base.py:145] Error executing method initialize_cache. This might cause deadlock in distributed execution."
    )
    assert found.cause == UNKNOWN
    assert ("kv.max_len_exceeds_pool", "possible") in found.alternatives


def test_no_block_and_then_a_traceback_is_an_empty_budget() -> None:
    text = "INFO 02-03 04:05:06 llm_engine.py:275] # GPU blocks: {n}, # CPU blocks: 512\nTraceback (most recent call last):"
    empty = verdict(text.format(n=0))
    assert (empty.cause, empty.confidence, empty.phase) == (
        "vram.kv_budget_nonpositive",
        "likely",
        "kv_sizing",
    )
    assert verdict(text.format(n=700)).cause == UNKNOWN


def test_no_block_beside_a_full_card_is_the_neighbours_memory() -> None:
    found = verdict(
        "Memory profiling results: total_gpu_memory=44.40GiB initial_memory_usage=40.10GiB peak_torch_memory=3.20GiB memory_usage_post_profile=40.20GiB non_torch_memory=37.00GiB kv_cache_size=0.00GiB gpu_memory_utilization=0.90\n"
        "# GPU blocks: 0, # CPU blocks: 512\nTraceback (most recent call last):"
    )
    assert found.cause == "vram.neighbour_counted"


def test_a_process_that_holds_less_than_torch_is_not_this_one() -> None:
    """In a container the driver does not find the pid and says 0 bytes."""
    sentence = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. " + CARD
    assert verdict(sentence.format(own="0 bytes")).cause == "vram.capacity_exceeded"
    assert verdict(sentence.format(own="42.00 GiB")).cause == "vram.capacity_exceeded"
    small = sentence.replace("39.00 GiB", "2.00 GiB").format(own="3.00 GiB")
    assert verdict(small).cause == "vram.other_process"


def test_of_several_ranks_with_a_negative_budget_the_first_is_named() -> None:
    line = "[2025-03-04 05:06:07 DP{r} TP{r}] max_total_tokens=65536 is larger than the profiled value -4321. Use the profiled value instead."
    found = verdict("\n".join(line.format(r=r) for r in (2, 0, 1)))
    assert (found.cause, found.rank) == ("vram.kv_budget_nonpositive", "DP2 TP2")


def test_the_bar_that_the_exception_tore_down_shows_the_load() -> None:
    sentence = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.10 GiB. "
        + CARD.format(own="43.00 GiB")
    )
    bar = "Loading safetensors checkpoint shards: {n}% Completed | 3/9 [00:02<00:09,  1.60s/it]"
    found = verdict(f"{sentence}\n\n{bar.format(n=33)}\n")
    assert (found.cause, found.confidence, found.phase) == ("vram.weights", "possible", "weights")
    assert verdict(f"{sentence}\n\n{bar.format(n=100)}\n").cause == "vram.capacity_exceeded"
    assert (
        verdict(f"{sentence}\n{'x' * 9}\n\n\n\n\n{bar.format(n=33)}").cause
        == "vram.capacity_exceeded"
    )


PREEMPTED = "WARNING 02-03 04:05:06 scheduler.py:1141] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=1"


def test_a_traceback_after_a_preemption_is_the_failure_though_its_line_is_cut() -> None:
    trace = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/vllm/engine/llm_engine.py", line 9, in st'
    assert verdict(f"{PREEMPTED}\n{trace}").cause == UNKNOWN
    assert verdict(PREEMPTED).cause == "kv.pool_pressure"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("not_oom.slot_limit", "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. self.req_to_token_pool.available_size()=2, num_reqs=3,"),
        ("host.pinned_alloc_rejected", "RuntimeError: cudaHostRegister failed (rc=1, ptr=0x7f00) at offset=0 size=17179869184"),
        ("host.pinned_alloc_failed", "RuntimeError: cudaHostRegister failed (rc=2, ptr=0x7f00) at offset=0 size=17179869184"),
        ("vram.other_process", "free memory on device cuda:0 (30.11/44.40 GiB) on startup is less than desired GPU memory utilization (0.9, 39.96 GiB)"),
        ("host.killed_unproven", "task finished: killed=1 EXIT 137"),
        ("vram.wake_up_no_room", '  File "/x/vllm/device_allocator/cumem.py", line 80, in create_and_map\n    python_create_and_map(*allocation_handle)\nRuntimeError: CUDA Err'),
    ],
)  # fmt: skip
def test_wording(cause: str, text: str) -> None:
    assert verdict(text).cause == cause
