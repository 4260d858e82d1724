"""The vocabulary: every fact name, its unit and one line of meaning.

The names are public (docs/words.md lists them); add freely, rename never. Memory is integer
bytes on the device, or in host memory where the name starts with `host.`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.units import Number


@dataclass(frozen=True, slots=True)
class FactSpec:
    """unit None: text. `informational`: useful context that no budget needs."""

    name: str
    unit: str | None
    doc: str
    informational: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure as a text printed it. `value` lies in [low, high], the interval its digits allow.

    `rank` is the tag of the process that printed it, `line` counts from 1 in the input.
    """

    name: str
    value: Number | str
    unit: str | None
    printed: str
    low: Number | None
    high: Number | None
    rank: str | None
    line: int
    pattern: str
    source: str = field(default="log")


_VOCABULARY = """
total_memory | B | device total as the engine uses it
free_memory | B | free on the device at the engine's first snapshot (start-up check, "Initial free memory")
gpu_memory_utilization | ratio | vLLM's / SGLang's fraction in force
mem_fraction_static | ratio | vLLM's / SGLang's fraction in force
effective_gpu_memory_utilization | ratio | vLLM >= 0.21: the setting without graph profiling; the one that keeps the old KV size
suggested_gpu_memory_utilization | ratio | vLLM >= 0.21: the setting without graph profiling; the one that keeps the old KV size
requested_memory | B | total x utilisation
weights_memory | B | weights on this rank ("Model loading took", "model weights take", "Load weight end .. mem usage")
peak_activation_memory | B | torch peak above weights in the profile run
peak_torch_memory | B | 0.6.4 only: weights + activations
non_torch_memory | B | growth outside torch; a neighbour's memory may be booked here
non_kv_memory | B | sum of the three ("Total non KV cache memory")
memory_used_before_profile | B | 0.6.4 `initial_memory_usage`, `memory_usage_post_profile`
memory_used_after_profile | B | 0.6.4 `initial_memory_usage`, `memory_usage_post_profile`
free_memory_after_profile | B | "Free memory after profiling" (total; within requested), "current free memory"
free_memory_within_request | B | "Free memory after profiling" (total; within requested), "current free memory"
cuda_graph_memory | B | graphs: measured ("took", "actual", "mem usage" of capture end); estimated before capture
cuda_graph_memory_estimate | B | graphs: measured ("took", "actual", "mem usage" of capture end); estimated before capture
kv_cache_memory | B | bytes for KV ("Available KV cache memory", "reserved for KV Cache", `kv_cache_size`); may be negative
kv_memory_needed | B | KV for one request of max_model_len; the length that fits
estimated_max_model_len | tok | KV for one request of max_model_len; the length that fits
suggested_kv_cache_memory | B | first `--kv-cache-memory=` of the "Actual usage" line (exact bytes; its rounded GiB is informational)
kv_cache_tokens | tok | pool size ("GPU KV cache size", `#tokens`, summary `max_total_num_tokens`, "stored in KV cache (N)")
kv_cache_k_memory | B | K and V size of one pool line
kv_cache_v_memory | B | K and V size of one pool line
swa_pool_memory | B | SWAKVPool line: both pools together; sliding; full attention
kv_cache_swa_tokens | tok | SWAKVPool line: both pools together; sliding; full attention
kv_cache_full_tokens | tok | SWAKVPool line: both pools together; sliding; full attention
kv_cache_tokens_requested | tok | `max_total_tokens=A is larger than the profiled value B`; B may be negative
kv_cache_tokens_profiled | tok | `max_total_tokens=A is larger than the profiled value B`; B may be negative
num_gpu_blocks | blk | block counts
num_cpu_blocks | blk | block counts
max_concurrency | x | "Maximum concurrency for L tokens per request"; also max seq len, `context_len`
max_model_len | tok | "Maximum concurrency for L tokens per request"; also max seq len, `context_len`
max_running_requests | req | summary line, `max_num_reqs`
chunked_prefill_size | tok | summary line, `max_num_reqs`
max_prefill_tokens | tok | summary line, `max_num_reqs`
dist_init_memory | B | "Init torch distributed ends. mem usage"
avail_memory_before_weights | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_after_weights | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_after_pool | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_before_graph | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_before_prefill_graph | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_after_graph | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_ready | B | SGLang `avail mem` at load begin, load end, "Memory pool end", capture begin, prefill capture begin, capture end, `available_gpu_mem`
avail_memory_during_graph | B i | figure inside a progress bar; printed workspace
attention_workspace_memory | B i | figure inside a progress bar; printed workspace
sampler_warmup_requests | req | warm-up size; multi-modal worst case; encoder budget
mm_worst_case_tokens | tok | warm-up size; multi-modal worst case; encoder budget
encoder_cache_budget | tok | warm-up size; multi-modal worst case; encoder budget
sleep_freed_memory | B | "Sleep mode freed"; "still in use" is the whole device
sleep_in_use_memory | B | "Sleep mode freed"; "still in use" is the whole device
sleep_pool_freed_memory | B | "CuMemAllocator: sleep freed" line
sleep_cpu_backup_memory | B | "CuMemAllocator: sleep freed" line
sleep_discarded_memory | B | "CuMemAllocator: sleep freed" line
preemptions | n | cumulative preemption count
request_tokens | tok | refused request; limit it met
max_request_tokens | tok | refused request; limit it met
kv_pool.requested_tokens | tok | token allocator and leak-check messages (debug prints of the same getters need not be reported)
kv_pool.available_tokens | tok | token allocator and leak-check messages (debug prints of the same getters need not be reported)
kv_pool.evictable_tokens | tok | token allocator and leak-check messages (debug prints of the same getters need not be reported)
kv_pool.size | tok | token allocator and leak-check messages (debug prints of the same getters need not be reported)
kv_pool.protected_tokens | tok i | token allocator and leak-check messages (debug prints of the same getters need not be reported)
kv_pool.full_available_tokens | tok | hybrid leak check
kv_pool.full_evictable_tokens | tok | hybrid leak check
kv_pool.mamba_available_slots | slot | hybrid leak check
kv_pool.mamba_evictable_slots | slot | hybrid leak check
kv_pool.mamba_size | slot | hybrid leak check
oom.tried_to_allocate | B | allocator sentence ("Tried to allocate", total capacity, free); also NCCL calloc
oom.total_memory | B | allocator sentence ("Tried to allocate", total capacity, free); also NCCL calloc
oom.free | B | allocator sentence ("Tried to allocate", total capacity, free); also NCCL calloc
oom.process_in_use | B | "this process has"; "Process N has" (owner not stated: may be this one)
oom.listed_process_in_use | B | "this process has"; "Process N has" (owner not stated: may be this one)
oom.torch_allocated | B | allocated by PyTorch; "reserved in total"; private pools; reserved but unallocated
oom.torch_reserved | B | allocated by PyTorch; "reserved in total"; private pools; reserved but unallocated
oom.graph_pools | B | allocated by PyTorch; "reserved in total"; private pools; reserved but unallocated
oom.reserved_unallocated | B | allocated by PyTorch; "reserved in total"; private pools; reserved but unallocated
oom.device | dev i | device index; per-buffer limit
oom.max_buffer | B i | device index; per-buffer limit
kernel.shared_memory_required | B | on-chip shared memory of a kernel
kernel.shared_memory_limit | B | on-chip shared memory of a kernel
workspace_required | B | sub-allocation refused in a fixed workspace
host.requested_memory | B | host allocation asked for; host memory free
host.free_memory | B | host allocation asked for; host memory free
host.pool_memory | B | host KV pool of this rank
host.total_vm | B | kernel "Killed process" line; the reaper line does not count
host.anon_rss | B | kernel "Killed process" line; the reaper line does not count
host.file_rss | B i | kernel "Killed process" line; the reaper line does not count
host.shmem_rss | B i | kernel "Killed process" line; the reaper line does not count
host.pgtables | B i | kernel "Killed process" line; the reaper line does not count
host.cgroup_usage | B | cgroup `memory:` line (not `memory+swap`, not `kmem`)
host.cgroup_limit | B | cgroup `memory:` line (not `memory+swap`, not `kmem`)
host.cgroup_failcnt | n | cgroup `memory:` line (not `memory+swap`, not `kmem`)
host.cgroup_anon | B i | cgroup `memory:` line (not `memory+swap`, not `kmem`)
host.cgroup_shmem | B i | cgroup `memory:` line (not `memory+swap`, not `kmem`)
host.process_rss | B | Ray memory monitor
host.node_used | B | Ray memory monitor
host.node_total | B | Ray memory monitor
host.usage_ratio | ratio | Ray memory monitor
host.usage_threshold | ratio | Ray memory monitor
host.workers_killed | n i | Ray memory monitor
host.shm_segment | B | size of the shared-memory segment that failed
running_requests | req i | scheduler lines and dumps
queued_requests | req i | scheduler lines and dumps
transferring_requests | req i | scheduler lines and dumps
retracted_requests | req i | scheduler lines and dumps
scheduled_tokens | tok i | scheduler lines and dumps
computed_tokens | tok i | scheduler lines and dumps
used_tokens | tok i | scheduler lines and dumps
full_tokens | tok i | scheduler lines and dumps
swa_tokens | tok i | scheduler lines and dumps
token_usage | ratio i | scheduler lines and dumps
full_token_usage | ratio i | scheduler lines and dumps
swa_token_usage | ratio i | scheduler lines and dumps
kv_cache_usage | ratio i | scheduler lines and dumps
new_token_ratio_before | ratio i | scheduler lines and dumps
new_token_ratio_after | ratio i | scheduler lines and dumps
tensor_parallel_size | n i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
pipeline_parallel_size | n i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
max_num_seqs | req i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
max_num_batched_tokens | tok i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
page_size | tok i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
swap_space | B i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
cuda_graph_max_bs | req i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
kv_cache_dtype | str i | settings (sizes of parallelism n; max_num_seqs and cuda_graph_max_bs req; swap_space B; a str has unit null, low and high null)
weights_load_time | s i | times, codes, limits
cuda_graph_time | s i | times, codes, limits
exit_code | code i | times, codes, limits
error_code | code i | times, codes, limits
xid | code i | times, codes, limits
slot_limit | n i | times, codes, limits
host.thread_limit | n i | times, codes, limits
driver_total_memory | B i | times, codes, limits
"""


def _parse(table: str) -> dict[str, FactSpec]:
    specs = {}
    for row in table.strip().splitlines():
        name, unit, doc = (cell.strip() for cell in row.split("|", 2))
        word, _, flag = unit.partition(" ")
        specs[name] = FactSpec(name, None if word == "str" else word, doc, flag == "i")
    return specs


FACTS: dict[str, FactSpec] = _parse(_VOCABULARY)
