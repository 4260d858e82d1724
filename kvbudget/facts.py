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
gpu_memory_utilization | ratio | vLLM: the fraction of the card in force
mem_fraction_static | ratio | SGLang: the fraction in force
effective_gpu_memory_utilization | ratio | vLLM 0.21 and later: what the setting comes to with the graphs' estimate taken off
suggested_gpu_memory_utilization | ratio | vLLM 0.21 and later: the setting that keeps the pool as large as without that estimate
suggested_mem_fraction_static | ratio | SGLang: the fraction above which weights leave something for KV, as the engine says
requested_memory | B | total x utilisation
weights_memory | B | weights on this rank ("Model loading took", "model weights take", "Load weight end .. mem usage")
peak_activation_memory | B | torch peak above weights in the profile run
peak_torch_memory | B | 0.6.4 only: weights + activations
non_torch_memory | B | growth outside torch; a neighbour's memory may be booked here
non_kv_memory | B | sum of the three ("Total non KV cache memory")
memory_used_before_profile | B | vLLM 0.6.4: in use on the card before the profile run
memory_used_after_profile | B | vLLM 0.6.4: in use on the card after the profile run
free_memory_after_profile | B | free on the card after the profile run
free_memory_within_request | B | of that, what lies within the request
cuda_graph_memory | B | what capturing the graphs took
cuda_graph_memory_estimate | B | what capturing the graphs was expected to take
kv_cache_memory | B | bytes for KV ("Available KV cache memory", "reserved for KV Cache", `kv_cache_size`); may be negative
kv_memory_needed | B | KV of one request of max_model_len
estimated_max_model_len | tok | the longest request that fits
suggested_kv_cache_memory | B | first `--kv-cache-memory=` of the "Actual usage" line (exact bytes; its rounded GiB is informational)
kv_cache_tokens | tok | pool size ("GPU KV cache size", `#tokens`, summary `max_total_num_tokens`, "stored in KV cache (N)")
kv_cache_k_memory | B | keys of the pool (K size)
kv_cache_v_memory | B | values of the pool (V size)
swa_pool_memory | B | both pools of a model with sliding-window layers together
kv_cache_swa_tokens | tok | size of the sliding-window pool
kv_cache_full_tokens | tok | size of the full-attention pool beside it
kv_cache_tokens_requested | tok | pool size the user asked for (`max_total_tokens`)
kv_cache_tokens_profiled | tok | pool size that was possible instead; may be negative
num_gpu_blocks | blk | blocks of the pool on the device
num_cpu_blocks | blk | blocks of the swap space in host memory
max_concurrency | x | requests of max_model_len the pool holds at once
max_model_len | tok | longest request, prompt and answer together (`context_len`)
max_running_requests | req | requests SGLang runs at once
chunked_prefill_size | tok | tokens of a prefill chunk
max_prefill_tokens | tok | tokens of a prefill batch
dist_init_memory | B | "Init torch distributed ends. mem usage"
avail_memory_before_weights | B | SGLang: free when loading begins
avail_memory_after_weights | B | SGLang: free when the weights are loaded
avail_memory_after_pool | B | SGLang: free when the pool is allocated
avail_memory_before_graph | B | SGLang: free when graph capture begins
avail_memory_before_prefill_graph | B | SGLang: free when the capture of prefill graphs begins
avail_memory_after_graph | B | SGLang: free when the graphs are captured
avail_memory_ready | B | SGLang: free when the server is ready (`available_gpu_mem`)
avail_memory_during_graph | B i | SGLang: free while graphs are captured (progress bar)
attention_workspace_memory | B i | workspace an attention backend says it reserves
sampler_warmup_requests | req | requests of the sampler's warm-up batch
mm_worst_case_tokens | tok | tokens of the largest multi-modal item
encoder_cache_budget | tok | tokens the encoder cache holds
sleep_freed_memory | B | freed on the device by going to sleep
sleep_in_use_memory | B | still in use on the device while asleep, by anybody
sleep_pool_freed_memory | B | freed by the allocator of sleep mode
sleep_cpu_backup_memory | B | of that, kept in host memory
sleep_discarded_memory | B | of that, thrown away
preemptions | n | requests preempted so far
request_tokens | tok | length of a request that was refused
max_request_tokens | tok | the limit it met
kv_pool.requested_tokens | tok | tokens the pool's allocator was asked for
kv_pool.available_tokens | tok | tokens free in the pool
kv_pool.evictable_tokens | tok | tokens the prefix cache could give up
kv_pool.size | tok | tokens of the pool
kv_pool.protected_tokens | tok i | tokens of the prefix cache that running requests hold
kv_pool.full_available_tokens | tok | tokens free in the full-attention pool
kv_pool.full_evictable_tokens | tok | tokens the full-attention pool could give up
kv_pool.mamba_available_slots | slot | state slots free
kv_pool.mamba_evictable_slots | slot | state slots that could be given up
kv_pool.mamba_size | slot | state slots of the pool
oom.tried_to_allocate | B | what an allocator asked for and did not get
oom.total_memory | B | the card, as the allocator's sentence says
oom.free | B | free on it at that moment
oom.process_in_use | B | in use by the process that failed ("this process has")
oom.listed_process_in_use | B | in use by a listed process ("Process N has"); it may be the one that failed
oom.torch_allocated | B | in use by PyTorch's tensors
oom.torch_reserved | B | held by PyTorch's allocator, in use or not
oom.graph_pools | B | of the tensors, those in private pools of graphs
oom.reserved_unallocated | B | held by PyTorch's allocator and not in use
oom.device | dev i | number of the card
oom.max_buffer | B i | the largest buffer the device allows
kernel.shared_memory_required | B | on-chip memory a kernel wants
kernel.shared_memory_limit | B | on-chip memory the device has for it
workspace_required | B | what a fixed workspace would have had to hold
host.requested_memory | B | host memory asked for
host.free_memory | B | host memory free at that moment
host.pool_memory | B | host KV pool of this rank
host.total_vm | B | address space of the process the kernel killed
host.anon_rss | B | its own memory in RAM
host.file_rss | B i | its mapped files in RAM
host.shmem_rss | B i | its shared memory in RAM
host.pgtables | B i | its page tables
host.cgroup_usage | B | in use by the container (cgroup)
host.cgroup_limit | B | limit of the container (cgroup)
host.cgroup_failcnt | n | times the limit was met
host.cgroup_anon | B i | of the container's memory, anonymous
host.cgroup_shmem | B i | of the container's memory, shared (/dev/shm included)
host.process_rss | B | RAM of the process that Ray killed
host.node_used | B | RAM in use on the node, as Ray sees it
host.node_total | B | RAM of the node, as Ray sees it
host.usage_ratio | ratio | their quotient
host.usage_threshold | ratio | the quotient at which Ray kills
host.workers_killed | n i | workers Ray killed for memory
host.shm_segment | B | size of the shared-memory segment that failed
running_requests | req i | requests being worked on
queued_requests | req i | requests waiting
transferring_requests | req i | requests whose KV is on its way to another server
retracted_requests | req i | requests put back because the pool was full
scheduled_tokens | tok i | tokens of the step being scheduled
computed_tokens | tok i | tokens computed already
used_tokens | tok i | tokens in use in the pool
full_tokens | tok i | tokens in use in the full-attention pool
swa_tokens | tok i | tokens in use in the sliding-window pool
token_usage | ratio i | share of the pool in use
full_token_usage | ratio i | share of the full-attention pool in use
swa_token_usage | ratio i | share of the sliding-window pool in use
kv_cache_usage | ratio i | share of the KV cache in use
new_token_ratio_before | ratio i | share of a request's answer that was set aside, before requests were retracted
new_token_ratio_after | ratio i | the same afterwards
tensor_parallel_size | n i | ranks that share a layer
pipeline_parallel_size | n i | stages the layers are cut into
max_num_seqs | req i | requests of one step
max_num_batched_tokens | tok i | tokens of one step
page_size | tok i | tokens of a page of the pool
swap_space | B i | host memory for swapped blocks
cuda_graph_max_bs | req i | largest batch a graph is captured for
kv_cache_dtype | str i | format of the numbers in the KV cache
enforce_eager | str i | vLLM: whether CUDA graphs are switched off
weights_load_time | s i | time loading the weights took
cuda_graph_time | s i | time capturing the graphs took
exit_code | code i | exit code of a process or container
error_code | code i | error number of a library or driver
xid | code i | number of an NVIDIA driver error (Xid)
slot_limit | n i | slots that had run out
host.thread_limit | n i | threads the system allows
driver_total_memory | B i | the card, as the driver reports it
"""


def _parse(table: str) -> dict[str, FactSpec]:
    specs = {}
    for row in table.strip().splitlines():
        name, unit, doc = (cell.strip() for cell in row.split("|", 2))
        word, _, flag = unit.partition(" ")
        specs[name] = FactSpec(name, None if word == "str" else word, doc, flag == "i")
    return specs


FACTS: dict[str, FactSpec] = _parse(_VOCABULARY)
