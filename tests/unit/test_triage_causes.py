"""Every cause has texts of its own figures that name it, and look-alikes that do not."""

from __future__ import annotations

import io

import pytest

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log
from kvbudget.triage.causes import catalogue
from kvbudget.triage.verdict import judge

PATTERNS = load_patterns()
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "


def sentence(asked: str, total: str, free: str, allocated: str, spare: str, more: str = "") -> str:
    return (
        f"{OOM}{asked}. GPU 0 has a total capacity of {total} of which {free} is free. {more}Of the "
        f"allocated memory {allocated} is allocated by PyTorch, and {spare} is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


FULL = sentence("320.00 MiB", "39.38 GiB", "101.00 MiB", "38.51 GiB", "12.40 MiB")


def frame(name: str, path: str = "vllm/v1/worker/gpu_worker.py") -> str:
    return f'  File "/opt/{path}", line 77, in {name}\n'


TB = "Traceback (most recent call last):\n"

CASES: list[tuple[str, str]] = [
    ("vram.other_process", "ValueError: Free memory on device cuda:0 (20.11/47.38 GiB) on startup is less than desired GPU memory utilization (0.9, 42.64 GiB). Decrease GPU memory utilization"),
    ("vram.other_process", sentence("64.00 MiB", "39.38 GiB", "12.00 MiB", "2.10 GiB", "90.00 MiB", "Process 71 has 36.90 GiB memory in use. Including non-PyTorch memory, this process has 2.45 GiB memory in use. ")),
    ("vram.neighbour_counted", "Memory profiling results: total_gpu_memory=47.38GiB initial_memory_usage=40.20GiB peak_torch_memory=8.10GiB memory_usage_post_profile=40.30GiB non_torch_memory=0.40GiB kv_cache_size=-20.10GiB gpu_memory_utilization=0.50\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ("vram.profiling_disturbed", "AssertionError: Error in memory profiling. Initial free memory 40.10 GiB, current free memory 44.00 GiB."),
    ("vram.weights", TB + frame("load_model") + FULL),
    ("vram.weights", "[2025-05-05 10:00:00 TP1] Load weight begin. avail mem=22.10 GB\n[2025-05-05 10:00:03 TP1] Scheduler hit an exception: " + TB + frame("load_weights", "sglang/srt/models/llama.py") + FULL),
    ("vram.weights", "ERROR Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization"),
    ("vram.weights_transient", TB + frame("load_model") + frame("process_weights_after_loading", "vllm/model_executor/layers/quantization/fp8.py") + FULL),
    ("vram.profile_peak", TB + frame("determine_available_memory") + frame("profile_run", "vllm/v1/worker/gpu_model_runner.py") + FULL),
    ("vram.mm_encoder_peak", TB + frame("determine_available_memory") + frame("profile_run") + frame("_process_image_input", "vllm/model_executor/models/qwen2_vl.py") + FULL),
    ("vram.kv_budget_nonpositive", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."),
    ("vram.kv_budget_nonpositive", "INFO 03-03 03:03:03 [gpu_worker.py:1] Available KV cache memory: -1.37 GiB"),
    ("vram.kv_budget_nonpositive", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.71"),
    ("vram.kv_pool_alloc", TB + frame("initialize_kv_cache_tensors", "vllm/v1/worker/gpu_model_runner.py") + FULL),
    ("vram.kv_pool_alloc", TB + frame("__init__", "sglang/srt/mem_cache/memory_pool.py") + FULL),
    ("vram.graph_capture", "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 96.00 MiB.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"),
    ("vram.graph_capture", TB + frame("capture_model", "vllm/v1/worker/gpu_model_runner.py") + FULL),
    ("vram.sampler_warmup", "RuntimeError: CUDA out of memory occurred when warming up sampler with 768 dummy requests. Please try lowering `max_num_seqs`"),
    ("vram.activation_runtime", TB + frame("run_busy_loop", "vllm/v1/engine/core.py") + FULL),
    ("vram.activation_runtime", "INFO:     Application startup complete.\n" + FULL),
    ("vram.logprobs_spike", TB + frame("run_busy_loop", "vllm/v1/engine/core.py") + frame("compute_logprobs", "vllm/v1/sample/sampler.py") + FULL),
    ("vram.fragmentation", sentence("1.25 GiB", "79.25 GiB", "640.00 MiB", "75.02 GiB", "2.11 GiB")),
    ("vram.collective_buffers", "host-1:50:70 [2] include/alloc.h:200 NCCL WARN Cuda failure 2 'out of memory'"),
    ("vram.collective_buffers", "/src/host/mem/mem_heap.cpp:900: non-zero status: 2 cuMemCreate failed"),
    ("vram.library_handle", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ("vram.library_handle", "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ("vram.wake_up_no_room", "[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/core.cpp func=cu_mem_create line=80"),
    ("vram.wake_up_no_room", "Call to wake_up method failed: CUDA Error: out of memory at /b/cumem_allocator.cpp:120"),
    ("vram.rank_imbalance", "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."),
    ("vram.runtime_buffers", "allocating 301.00 MiB on device 1: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 315621376\nllama_init_from_model: failed to allocate compute pp buffers"),
    ("vram.runtime_buffers", "RESOURCE_EXHAUSTED: Error loading program 'jit_run': Attempting to reserve 2.25G at the bottom of memory. That was not possible."),
    ("vram.single_huge_tensor", sentence("96.00 GiB", "79.25 GiB", "30.00 GiB", "40.00 GiB", "1.00 GiB")),
    ("vram.single_huge_tensor", "RuntimeError: [metal::malloc] Attempting to allocate 40000000000 bytes which is greater than the maximum allowed buffer size of 20000000000 bytes."),
    ("vram.driver_refused", sentence("512.00 MiB", "23.99 GiB", "14.10 GiB", "8.00 GiB", "60.00 MiB")),
    ("vram.unified_memory", "NvMapMemAllocInternalTagged: 1075072515 error 12"),
    ("vram.capacity_exceeded", FULL),
    ("vram.capacity_exceeded", "CUDA error: out of memory"),
    ("vram.capacity_exceeded", "RuntimeError: XPU out of memory. Tried to allocate 128.00 MiB (GPU 0; 15.91 GiB total capacity; 15.20 GiB already allocated; 15.22 GiB reserved in total by PyTorch)"),
    ("kv.max_len_exceeds_pool", "ValueError: The model's max seq len (50000) is larger than the maximum number of tokens that can be stored in KV cache (20000)."),
    ("kv.pool_smaller_than_context", "[2025-05-05 10:00:00 TP0] Input length (99000 tokens) exceeds the maximum allowed length (41000 tokens). Use a shorter input or enable --allow-auto-truncate."),
    ("kv.single_request_exceeds_pool", "ValueError: Failed to retract any request. No space left for only one request."),
    ("kv.pool_exhausted", "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 9000 tokens.\nAvailable tokens: 5000 (available_size=4000 + evictable_size=1000)"),
    ("kv.pool_exhausted", "RuntimeError: Decode out of memory. Try to lower your batch size."),
    ("kv.pool_pressure", "[2025-05-05 10:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.4100 -> 0.6600"),
    ("kv.pool_pressure", "[2025-05-05 10:00:00] Decode batch, #running-req: 9, #token: 90000, token usage: 1.00, cuda graph: True, gen throughput (token/s): 11.00, #queue-req: 6"),
    ("kv.accounting_check_failed", "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=900, protected_size=0, self.max_total_num_tokens=1000"),
    ("kv.connector_pool_full", "WARNING LMCache: Failed to allocate memory for tensor(torch.Size([2, 8]), torch.bfloat16) because no memory is available"),
    ("host.oom_killer", "Mar 10 10:10:10 node7 kernel: Out of memory: Killed process 991 (python3) total-vm:62914560kB, anon-rss:41943040kB, file-rss:0kB, shmem-rss:0kB"),
    ("host.cgroup_oom", "Memory cgroup out of memory: Killed process 991 (python3) total-vm:62914560kB, anon-rss:41943040kB"),
    ("host.cgroup_oom", "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137"),
    ("host.killed_unproven", "Killed"),
    ("host.killed_unproven", "ERROR 01-02 03:04:05 [multiproc_executor.py:140] Worker proc VllmWorker-2 died unexpectedly (exit code: -9), shutting down executor."),
    ("host.ray_memory_monitor", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("host.ram_exhausted", "RuntimeError: [enforce fail at alloc_cpu.cpp:90] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 7000000000 bytes. Error code 12 (Cannot allocate memory)"),
    ("host.offload_precheck", "ValueError: Not enough host memory available. Requesting 90.00 GB but only have 61.00 GB free. Please reduce the size of the hierarchical cache."),
    ("host.pinned_alloc_failed", "RuntimeError: cudaHostAlloc failed: out of memory"),
    ("host.pinned_alloc_rejected", TB + frame("__init__", "lmcache/v1/memory_management.py") + "RuntimeError: CUDA error: invalid argument"),
    ("host.shm_full", "host-1:50:70 [0] include/shm.h:30 NCCL WARN Call to posix_fallocate failed: No space left on device"),
    ("host.rdma_registration", "E0303 rdma_context.cpp:250] Failed to register memory 0x7f1000000000: Cannot allocate memory [12]"),
    ("not_oom.kernel_shared_memory", "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376."),
    ("not_oom.workspace_too_small", "RuntimeError: Failed to allocate memory for batch_prefill_tmp_s with size 300000000 and alignment 16 in AlignedAllocator"),
    ("not_oom.kernel_failure", "Exception: Capture cuda graph failed: ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"),
    ("not_oom.secondary_symptom", "RuntimeError: [../gloo/transport/tcp/pair.cc:500] Connection closed by peer [10.1.1.1]:4000"),
    ("not_oom.secondary_symptom", "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"),
    ("not_oom.illegal_access", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("not_oom.gpudirect_registration", "E0303 rdma_context.cpp:200] Failed to register memory 0x7f1000000000: Invalid argument [22]"),
    ("not_oom.slot_limit", "error status: 2 (NVSHMEMX_ERROR_OUT_OF_MEMORY) No more teams available (max = 9), try setting NVSHMEM_MAX_TEAMS"),
    ("not_oom.thread_limit", "RuntimeError: can't start new thread"),
    ("unknown.insufficient_evidence", TB + frame("determine_available_memory") + frame("_dummy_run")),
    ("none.no_failure", "INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: 20.10 GiB\nINFO:     Application startup complete."),
    ("none.no_failure", ""),
    ("none.recovered_retry", "allocating 900.00 MiB on device 1: cudaMalloc failed: out of memory\nsched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\nsrv    load_model: initializing, n_slots = 4"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_the_text_names_its_cause(cause: str, text: str) -> None:
    assert judge(read_log(io.BytesIO(text.encode()), PATTERNS, name="t")).cause == cause


def test_every_cause_has_a_text() -> None:
    missing = set(catalogue().causes) - {cause for cause, _ in CASES}
    assert missing == {"kv.allocator_page_rounding"}


def test_page_rounding_needs_the_figures() -> None:
    text = (
        "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 99 tokens.\n"
        "Available tokens: 4096\nself.token_to_kv_pool_allocator.available_size()=4096\n"
        "self.tree_cache.evictable_size()=0"
    )
    assert judge(read_log(io.BytesIO(text.encode()), PATTERNS, name="t")).cause == (
        "kv.allocator_page_rounding"
    )


def test_bare_sentences_are_never_more_than_possible() -> None:
    for text in (FULL, "CUDA error: out of memory", "cudaMalloc failed: out of memory"):
        verdict = judge(read_log(io.BytesIO(text.encode()), PATTERNS, name="t"))
        assert verdict.confidence == "possible"


def test_the_knob_goes_one_way() -> None:
    for name, row in catalogue().causes.items():
        ways = {s.direction for s in row.do if s.knob == "utilization"}
        assert ways <= ({row.knob} if row.knob != "none" else set()), name
