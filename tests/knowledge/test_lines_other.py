"""The lines of every program but vLLM: each file proves itself, and wordings from far apart."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from kvbudget.knowledge.patterns import load_patterns, pattern_files
from kvbudget.logs.collect import read_log
from kvbudget.logs.selftest import check_patterns
from kvbudget.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from pathlib import Path

FILES = [p for p in pattern_files() if p.name.startswith("lines") and p.parent.name != "vllm"]


def facts(text: str) -> dict[str, list[int | float | str]]:
    found: dict[str, list[int | float | str]] = {}
    for fact in read_log(io.BytesIO(text.encode()), load_patterns()).facts:
        found.setdefault(fact.name, []).append(fact.value)
    return found


def test_there_are_files() -> None:
    assert {p.parent.name for p in FILES} >= {"sglang", "torch", "nccl", "host"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
def test_every_entry_proves_itself(path: Path) -> None:
    outcome = check_patterns([path])
    assert [str(problem) for problem in outcome.problems] == []
    assert outcome.samples >= outcome.patterns


def gib(number: float) -> int:
    return round(number * GIB)


WORDINGS: dict[str, tuple[str, dict[str, int]]] = {
    "sglang 0.4.1 load end": (
        "[2024-12-30 10:00:00 TP0] Load weight end. type=A, dtype=torch.float16, avail mem=61.25 GB",
        {"avail_memory_after_weights": gib(61.25)},
    ),
    "sglang 0.5.9 load end": (
        "[2026-01-02 10:00:00] Load weight end. elapsed=9.1 s, type=A, dtype=torch.bfloat16,"
        " avail mem=61.25 GB, mem usage=15.50 GB.",
        {"avail_memory_after_weights": gib(61.25), "weights_memory": gib(15.5)},
    ),
    "sglang 0.5.23 load end": (
        "[2026-05-02 10:00:00] Load weight end. elapsed=9.1 s, type=A, quant=fp8, fmt=e4m3,"
        " avail mem=61.25 GB, mem usage=15.50 GB.",
        {"avail_memory_after_weights": gib(61.25), "weights_memory": gib(15.5)},
    ),
    "address space is not memory": (
        "[2026-05-02 10:00:00] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900,"
        " K size: 1.25 GB, V size: 1.25 GB",
        {},
    ),
    "latent pool": (
        "[2026-05-02 10:00:00] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 64000,"
        " KV size: 4.25 GB",
        {"kv_cache_tokens": 64000, "kv_cache_memory": gib(4.25)},
    ),
    "all layers slide": (
        "[2026-05-02 10:00:00] Use sliding window memory pool (all SWA). swa_layer_tokens=7000",
        {"kv_cache_swa_tokens": 7000},
    ),
    "draft capture of 0.4.6 prints the two the other way round": (
        "[2025-05-02 10:00:00] Capture draft cuda graph end. Time elapsed: 3.1 s."
        " avail mem=11.25 GB. mem usage=0.50 GB.",
        {"avail_memory_after_graph": gib(11.25), "cuda_graph_memory": gib(0.5)},
    ),
    "summary of 0.4.1": (
        "[2024-12-30 10:00:00 TP0] max_total_num_tokens=30100, max_prefill_tokens=16384,"
        " max_running_requests=2049, context_len=4096",
        {"kv_cache_tokens": 30100, "max_prefill_tokens": 16384, "max_model_len": 4096},
    ),
    "host tier is decimal": (
        "[2025-12-30 10:00:00 TP0] Allocating 12.50 GB host memory for hierarchical KV cache.",
        {"host.pool_memory": 12_500_000_000},
    ),
    "torch 2": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 1 has a total"
        " capacity of 31.50 GiB of which 96.00 MiB is free. Of the allocated memory 30.25 GiB is"
        " allocated by PyTorch, and 8.00 MiB is reserved by PyTorch but unallocated.",
        {
            "oom.tried_to_allocate": 512 * MIB,
            "oom.total_memory": gib(31.5),
            "oom.free": 96 * MIB,
            "oom.torch_allocated": gib(30.25),
            "oom.reserved_unallocated": 8 * MIB,
        },
    ),
    "torch 1": (
        "RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 3; 60.50 GiB total"
        " capacity; 58.25 GiB already allocated; 58.25 GiB current active; 5.00 MiB free;"
        " 59.50 GiB reserved in total by PyTorch)",
        {
            "oom.total_memory": gib(60.5),
            "oom.torch_allocated": gib(58.25),
            "oom.free": 5 * MIB,
            "oom.torch_reserved": gib(59.5),
        },
    ),
    "torch 1.0": (
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.50 GiB total capacity;"
        " 9.25 GiB already allocated; 5.50 MiB free; 86.50 MiB cached)",
        {"oom.total_memory": gib(10.5), "oom.torch_reserved": round(86.5 * MIB)},
    ),
    "xpu has no figure of free memory": (
        "XPU out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 15.25 GiB."
        " Of the allocated memory 14.50 GiB is allocated by PyTorch, and 96.00 MiB is reserved by"
        " PyTorch but unallocated.",
        {"oom.total_memory": gib(15.25), "oom.torch_allocated": gib(14.5)},
    ),
    "apple": (
        "MPS backend out of memory (MPS allocated: 17.25 GB, other allocations: 384.00 KB,"
        " max allowed: 18.50 GB). Tried to allocate 1024.00 MB on private pool.",
        {"oom.torch_allocated": gib(17.25), "oom.tried_to_allocate": GIB},
    ),
    "kernel": (
        "[  101.5] Memory cgroup out of memory: Killed process 77 (python) total-vm:4000kB,"
        " anon-rss:3000kB, file-rss:20kB, shmem-rss:8kB, UID:0 pgtables:40kB oom_score_adj:0",
        {"host.total_vm": 4000 * KIB, "host.anon_rss": 3000 * KIB},
    ),
    "older kernel": (
        "Killed process 77, UID 500, (java) total-vm:4000kB, anon-rss:3000kB, file-rss:20kB",
        {"host.total_vm": 4000 * KIB, "host.anon_rss": 3000 * KIB},
    ),
    "the reaper counts nothing": (
        "oom_reaper: reaped process 77 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        {},
    ),
    "container without limit": (
        "memory: usage 2048kB, limit 9007199254740988kB, failcnt 0",
        {"host.cgroup_usage": 2048 * KIB, "host.cgroup_failcnt": 0},
    ),
}


@pytest.mark.parametrize("name", WORDINGS)
def test_wordings(name: str) -> None:
    text, expected = WORDINGS[name]
    got = facts(text + "\n")
    for fact, value in expected.items():
        assert got.get(fact) == [value], (fact, got)
    if not expected:
        assert got == {}


def test_limit_of_no_limit_is_unknown() -> None:
    assert "host.cgroup_limit" not in facts(WORDINGS["container without limit"][0] + "\n")
