"""More wordings, healthy look-alikes and orders of lines: name, cause, text."""

from __future__ import annotations

import io

import pytest

from kvbudget.knowledge.patterns import load_patterns
from kvbudget.logs.collect import read_log
from kvbudget.triage.verdict import judge

PATTERNS = load_patterns()
WORDINGS: list[tuple[str, str, str]] = [
    ('client disconnect healthy', 'none.no_failure', 'INFO: 1.2.3.4 - "POST /v1/chat HTTP/1.1" 200 OK\nconnection reset by peer\nBrokenPipeError: [Errno 32] Broken pipe\nINFO 01-01 00:00:00 [loggers.py:1] Engine 000: Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.0%'),
    ('v1 preempt', 'none.no_failure', 'INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 98.0%'),
    ('v1 usage', 'kv.pool_pressure', 'INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Running: 12 reqs, Waiting: 5 reqs, GPU KV cache usage: 99.9%, Prefix cache hit rate: 0%'),
    ('wrong flag', 'unknown.insufficient_evidence', 'Traceback (most recent call last):\n  File "/x/vllm/config.py", line 3, in f\nValueError: User-specified max_model_len (40000) is greater than the derived max_model_len (max_position_embeddings=32768)'),
    ('k8s event', 'host.cgroup_oom', 'Warning  OOMKilling  2m  kernel-monitor  Memory cgroup out of memory: Killed process 3000 (python3) total-vm:1kB'),
    ('k8s status json', 'host.cgroup_oom', '"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":"x"}}'),
    ('docker inspect false', 'host.killed_unproven', '"Status": "exited",\n"OOMKilled": false,\n"ExitCode": 137,'),
    ('docker exit', 'host.killed_unproven', 'vllm-1 exited with code 137'),
    ('compose', 'host.killed_unproven', 'container exited (137)'),
    ('process exit', 'host.killed_unproven', 'torch.distributed.elastic.multiprocessing.errors: exitcode  : -9 (pid: 31)\ntraceback : Signal 9 (SIGKILL) received by PID 31'),
    ('mp exit', 'host.killed_unproven', 'RuntimeError: Engine process failed to start. See stack trace for the root cause.\nERROR Worker VllmWorkerProcess pid 71 died, exit code: -9'),
    ('ray oom', 'host.ray_memory_monitor', 'ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: x) where the task (actor ID: x) was running was 240.11GB / 251.62GB (0.954), which exceeds the memory usage threshold of 0.95. Ray killed this worker'),
    ('sgl capture illegal', 'not_oom.illegal_access', 'Exception: Capture cuda graph failed: CUDA error: an illegal memory access was encountered\nPossible solutions:\n1. set --mem-fraction-static to a smaller value'),
    ('sgl capture smem', 'not_oom.kernel_shared_memory', 'Exception: Capture CUDA graph failed: out of resource: shared memory, Required: 160000, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\nPossible solutions:'),
    ('sgl capture cut', 'unknown.insufficient_evidence', '[2025-01-01 00:00:00 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=4.00 GB\n[2025-01-01 00:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File "/s/sglang/srt/model_executor/cuda_graph_runner.py", line 3, in capture'),
    ('sgl alloc after capture begin', 'vram.graph_capture', '[2025-01-01 00:00:00 TP0] Capture cuda graph begin. avail mem=1.20 GB\n[2025-01-01 00:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 23.6 GiB of which 20.00 MiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but unallocated.'),
    ('sgl prefill', 'vram.activation_runtime', '[2025-01-01 00:00:00 TP0] Prefill batch. #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.10, #running-req: 0, #queue-req: 0\n[2025-01-01 00:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File "/s/sglang/srt/managers/scheduler.py", line 9, in event_loop_overlap\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 564.00 MiB. GPU 0 has a total capacity of 79.1 GiB of which 220.00 MiB is free. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.'),
    ('sgl logits input', 'vram.logprobs_spike', 'Traceback (most recent call last):\n  File "/s/sglang/srt/layers/logits_processor.py", line 9, in compute_temp_top_p_normalized_logprobs\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.20 GiB is free. Of the allocated memory 75.00 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.'),
    ('decode old', 'kv.pool_pressure', '[2025-01-01 00:00:00 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1 -> 0.5'),
    ('vllm v0 block mgr', 'kv.pool_smaller_than_context', 'WARNING 01-01 00:00:00 scheduler.py:1] Input prompt (9000 tokens) + lookahead slots (0) is too long and exceeds the capacity of block_manager'),
    ('swap', 'host.offload_precheck', 'ValueError: Too large swap space. 128.00 GiB out of the 125.00 GiB total CPU memory is allocated for the swap space.'),
    ('swap warn', 'none.no_failure', 'WARNING 01-01 00:00:00 config.py:1] Possibly too large swap space. 16.00 GiB out of the 31.00 GiB total CPU memory is allocated for the swap space.'),
    ('numpy', 'host.ram_exhausted', 'numpy.core._exceptions.MemoryError: Unable to allocate 12.0 GiB for an array with shape (3,4)'),
    ('safetensors mmap', 'host.ram_exhausted', 'OSError: unable to mmap 4991370968 bytes from file <model.safetensors>: Cannot allocate memory (12)'),
    ('rust alloc', 'host.ram_exhausted', 'memory allocation of 8589934592 bytes failed'),
    ('glibc', 'host.ram_exhausted', 'python3: malloc.c:2617: sysmalloc: out of memory'),
    ('nccl shm', 'host.shm_full', 'torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on device (28)'),
    ('shm vllm', 'host.shm_full', "OSError: [Errno 28] No space left on device: '/psm_ab12'"),
    ('nccl wrapped', 'vram.collective_buffers', "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"),
    ('nccl wrapped old', 'vram.collective_buffers', 'Last error:\nFailed to CUDA calloc async 608 bytes'),
    ('nccl generic', 'not_oom.secondary_symptom', 'RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)'),
    ('custom ar', 'vram.capacity_exceeded', 'RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call'),
    ('hip', 'vram.weights', 'Loading safetensors checkpoint shards:  20% Completed | 1/5\ntorch.OutOfMemoryError: HIP out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 23.98 GiB of which 136.00 MiB is free.'),
    ('notebook', 'vram.weights', 'OutOfMemoryError                          Traceback (most recent call last)\nFile ~/x/vllm/worker/worker.py:170, in Worker.load_model(self)\nOutOfMemoryError: CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 20.00 MiB is free. Of the allocated memory 14.5 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.'),
    ('xla', 'vram.capacity_exceeded', 'jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 3.91G. That was not possible. There are 3.17G free.; (0x0x0_HBM0)'),
    ('trt', 'vram.capacity_exceeded', '[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mMemPool->getPool(), mCudaStream->get()): out of memory (/x/tllmBuffers.h:123)'),
    ('flashinfer overflow', 'not_oom.workspace_too_small', 'RuntimeError: Buffer overflow when allocating memory for batch_prefill_tmp_v with size 1073741824 and alignment 16, but only 134217728 bytes available in AlignedAllocator. Increase the workspace buffer size.'),
    ('jit', 'not_oom.kernel_failure', 'RuntimeError: Ninja build failed\nninja: build stopped: subcommand failed.'),
    ('watchdog', 'not_oom.secondary_symptom', '[rank1]:[E101 00:00:00.000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)'),
    ('sgl sigquit only', 'not_oom.secondary_symptom', '[2025-01-01 00:00:00] Received sigquit from a child process. It usually means the child failed.'),
    ('warn shards RAM', 'none.no_failure', 'WARNING 01-01 00:00:00 [weight_utils.py:1] checkpoint total size (400.00 GiB) exceeds 90% of available RAM (300.00 GiB). This may cause out-of-memory errors.'),
    ('gdn', 'none.no_failure', 'WARNING 01-01 00:00:00 [x.py:1] GDN prefill kernel warmup (T=64) failed for layer 3. First inference may OOM due to autotuner.'),
    ('gpu mem oom-score', 'none.no_failure', 'INFO oom_score_adj set to -500 for pid 4\nINFO kubelet: pods ready'),
    ('newest first', 'vram.weights', '2025-01-01 00:00:09 ERROR RuntimeError: Engine core initialization failed. See root cause above.\n2025-01-01 00:00:08 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 20.00 MiB is free. Of the allocated memory 14.5 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n2025-01-01 00:00:07 ERROR   File "/x/worker.py", line 1, in load_model\n2025-01-01 00:00:06 ERROR Traceback (most recent call last):\n2025-01-01 00:00:05 INFO Starting to load model x'),
    ('memory saver pre', 'vram.wake_up_no_room', '[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create line=104\nFile "/x/sglang/srt/managers/scheduler_update_weights_mixin.py", line 9, in resume_memory_occupation'),
    ('mooncake full', 'kv.connector_pool_full', 'E0101 client.cpp:33] Failed to allocate all replicas. error=NO_AVAILABLE_HANDLE'),
    ('offload cannot store', 'kv.connector_pool_full', 'WARNING 01-01 00:00:00 [offloading_connector.py:1] Request x: cannot store blocks'),
    ('hicache pinned', 'host.pinned_alloc_failed', 'Traceback (most recent call last):\n  File "/s/sglang/srt/mem_cache/memory_pool_host.py", line 77, in init_kv_buffer\nRuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously'),
    ('hicache cpu', 'host.ram_exhausted', "[2025-01-01 00:00:00 TP0] Allocating 80.00 GB host memory for hierarchical KV cache.\nRuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes. Error code 12 (Cannot allocate memory)"),
    ('hicache killed', 'host.killed_unproven', '[2025-01-01 00:00:00 TP0] Allocating 80.00 GB host memory for hierarchical KV cache.\n[2025-01-01 00:00:30] Rank 0 scheduler is dead. Please check if there are relevant logs.\n[2025-01-01 00:00:30] Exit code: -9'),
    ('bus', 'host.shm_full', 'Bus error (core dumped)'),
    ('launch fail', 'not_oom.kernel_failure', 'RuntimeError: CUDA error: no kernel image is available for execution on the device'),
    ('wsl dxg', 'vram.capacity_exceeded', 'torch.AcceleratorError: CUDA error: out of memory'),
    ('xpu ur', 'vram.capacity_exceeded', 'RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)'),
    ('vulkan', 'vram.capacity_exceeded', 'ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory'),
    ('cusolver', 'vram.library_handle', 'RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`'),
    ('asc', 'vram.capacity_exceeded', 'RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity; 57.00 GiB already allocated; 57.00 GiB current active; 1.20 GiB free; 57.90 GiB reserved in total by PyTorch)'),
    ('aclrt', 'vram.capacity_exceeded', 'EL0004: Failed to allocate memory. Possible Cause: Available memory is insufficient. aclrtMalloc failed, error code 207001'),
    ('nixl', 'host.rdma_registration', "UCX  ERROR   ibv_reg_mr(address=0x7f, length=1, access=0xf) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)"),
    ('mm runtime', 'vram.activation_runtime', 'ERROR 01-01 00:00:00 [core.py:700] EngineCore encountered a fatal error.\n  File "/x/vllm/v1/worker/gpu_model_runner.py", line 1, in _execute_mm_encoder\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.20 GiB is free. Of the allocated memory 75.00 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.'),
    ('ext dedicated', 'vram.kv_budget_nonpositive', '[2025-01-01 00:00:00 TP0] max_total_tokens=20000 is larger than the profiled value -1234. Use the profiled value instead.\n'),
    ('fp load then teardown nccl', 'vram.weights', 'Traceback (most recent call last):\n  File "/x/vllm/worker.py", line 1, in load_model\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 20.00 MiB is free. Of the allocated memory 14.5 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n  File "/x/distributed_c10d.py", line 2, in destroy_process_group\nNCCL WARN Cuda failure \'out of memory\''),
    ('teardown only', 'not_oom.secondary_symptom', '  File "/x/distributed_c10d.py", line 2, in destroy_process_group\ntorch.distributed.DistBackendError: NCCL error in x\nLast error:\nCuda failure \'out of memory\''),
    ('healthy w/ retry import', 'none.no_failure', 'WARNING 01-01 00:00:00 [x.py:1] ImportError: cannot import name y\nINFO 01-01 00:00:05 [gpu_worker.py:1] Available KV cache memory: 5.10 GiB'),
    ('healthy exception before ready', 'none.no_failure', 'Traceback (most recent call last):\n  File "/x/usage.py", line 1, in send\nrequests.exceptions.ConnectionError: no net\nINFO:     Application startup complete.'),
    ('graph hint', 'none.no_failure', 'INFO 01-01 00:00:00 [model_runner.py:1] CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing `gpu_memory_utilization` or enforcing eager mode.'),
    ('sgl hint', 'none.no_failure', '[2025-01-01 00:00:00] WARNING: If you see out of memory errors, try lowering --mem-fraction-static'),
    ('server args', 'none.no_failure', "[2025-01-01 00:00:00] server_args=ServerArgs(model_path='x', mem_fraction_static=0.8, watchdog_timeout=300, kill_on_oom=False, disable_cuda_graph=False)"),
    ('vllm sampler cut', 'vram.sampler_warmup', 'ERROR 01-01 00:00:00 [core.py:1] Traceback (most recent call last):\n  File "/x/vllm/v1/worker/gpu_worker.py", line 3, in compile_or_warm_up_model\n  File "/x/gpu_model_runner.py", line 3, in _dummy_sampler_run'),
    ('sampler chain', 'vram.sampler_warmup', 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.6 GiB of which 900.00 MiB is free. Of the allocated memory 20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs`'),
    ('worker kill then peers', 'host.oom_killer', 'dmesg: [12345.678] Out of memory: Killed process 77 (VLLM::Worker) total-vm:100kB, anon-rss:90kB\nRuntimeError: [x/gloo/transport/tcp/pair.cc:1] Connection closed by peer'),
    ('old kernel', 'host.oom_killer', '[12345.678901] python3 invoked oom-killer: gfp_mask=0x0\n[12345.7] Out of memory: Kill process 7 (python3) score 900 or sacrifice child\n[12345.8] Killed process 7 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n[12346.0] oom_reaper: reaped process 7 (python3)'),
    ('memcg full', 'host.cgroup_oom', '[1.1] python invoked oom-killer: gfp_mask=0x1\n[1.2] memory: usage 33554432kB, limit 33554432kB, failcnt 99\n[1.3] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/kubepods\n[1.4] Memory cgroup out of memory: Killed process 7 (python)'),
    ('reaper only', 'host.oom_killer', '[1.1] oom_reaper: reaped process 7 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB'),
    ('crash text v0', 'vram.kv_pool_alloc', 'INFO 01-01 00:00:00 gpu_executor.py:122] # GPU blocks: 5000, # CPU blocks: 2048\n[rank0]:   File "/x/vllm/worker/cache_engine.py", line 69, in _allocate_kv_cache\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 644.00 MiB. GPU 0 has a total capacity of 14.74 GiB of which 220.00 MiB is free. Of the allocated memory 14.0 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.'),
    ('cpu swap pinned', 'host.pinned_alloc_failed', '  File "/x/vllm/worker/cache_engine.py", line 64, in _allocate_kv_cache\nRuntimeError: cudaHostAlloc failed: out of memory'),
    ('lora', 'vram.activation_runtime', 'ERROR 01-01 00:00:00 [async_llm_engine.py:1] Engine background task failed\nERROR   File "/x/vllm/engine/async_llm_engine.py", line 3, in run_engine_loop\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.20 GiB is free. Of the allocated memory 75.00 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.'),
    ('sgl tp imbalance', 'vram.rank_imbalance', 'RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=10.1, local_gpu_memory=70.0'),
    ('kv fp', 'kv.max_len_exceeds_pool', "(EngineCore pid=1) ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GB KV cache is needed"),
    ('kv-neg tokens', 'vram.kv_budget_nonpositive', '# GPU blocks: 0, # CPU blocks: 2048\nValueError: No available memory for the cache blocks.'),
    ('free mem v0.9 below', 'vram.other_process', 'ValueError: Free memory on device (5.1/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB).'),
    ('gib exact', 'vram.single_huge_tensor', 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 60 GiB is free. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.'),
    ('json escaped', 'vram.activation_runtime', '{"object":"error","message":"CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.","type":"InternalServerError","code":500}'),
    ('one line tb', 'vram.graph_capture', 'ERROR Traceback (most recent call last): File "/x/gpu_worker.py", line 3, in compile_or_warm_up_model File "/x/gpu_model_runner.py", line 4, in capture_model torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cause", "text"), WORDINGS, ids=[row[0] for row in WORDINGS])
def test_wording(name: str, cause: str, text: str) -> None:
    assert judge(read_log(io.BytesIO(text.encode()), PATTERNS, name="t")).cause == cause, name
