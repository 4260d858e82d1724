"""Numbers that no engine starts with are named instead of entering the arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import LLAMA_8B, QWEN3_NEXT

from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.flags import check_value, load_flags
from kvbudget.derive.request import Request
from kvbudget.errors import InputError, KvbudgetError
from kvbudget.model.config import model_from_config

MODELS = [model_from_config(LLAMA_8B, name="llama"), model_from_config(QWEN3_NEXT, name="hybrid")]
GPU = find_gpu("h200")
NUMBERS = {
    engine: sorted(f.name for f in load_flags(engine).values() if f.kind in ("int", "float"))
    for engine in ("vllm", "sglang")
}


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("vllm", "gpu_memory_utilization", 1.5),
        ("vllm", "gpu_memory_utilization", math.nan),
        ("vllm", "gpu_memory_utilization", 0.0),
        ("vllm", "tensor_parallel_size", 0),
        ("vllm", "max_model_len", 0),
        ("vllm", "max_model_len", -5),
        ("vllm", "block_size", 0),
        ("vllm", "max_num_seqs", 10**20),
        ("sglang", "mem_fraction_static", 1.2),
        ("sglang", "page_size", -1),
        ("sglang", "swa_full_tokens_ratio", math.inf),
        ("sglang", "context_length", 0),
    ],
)
def test_out_of_range(engine, name, value):
    flag = load_flags(engine)[name]
    with pytest.raises(InputError, match="out of range") as failure:
        derive(Request(engine, None, MODELS[0], GPU, flags={name: value}))
    assert flag.cli[0] in str(failure.value)
    assert failure.value.hint.startswith("it takes ")


def test_values_with_a_meaning_of_their_own_pass():
    check_value(load_flags("vllm")["max_model_len"], -1)
    check_value(load_flags("sglang")["chunked_prefill_size"], -1)
    check_value(load_flags("vllm")["gpu_memory_utilization"], 1)
    check_value(load_flags("vllm")["max_logprobs"], -1)


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_no_number_trips_the_arithmetic(data):
    engine = data.draw(st.sampled_from(["vllm", "sglang"]))
    name = data.draw(st.sampled_from(NUMBERS[engine]))
    value = data.draw(
        st.integers(-2, 70) | st.sampled_from([0, 2**31, 2**60, 10**30]) | st.floats()
    )
    if load_flags(engine)[name].kind == "int":
        value = int(value) if math.isfinite(value) else 1
    try:
        got = derive(Request(engine, None, data.draw(st.sampled_from(MODELS)), GPU,
                             flags={name: value}))  # fmt: skip
    except KvbudgetError:
        return
    for step in got.derivation.steps:
        assert step.amount.low <= step.amount.value <= step.amount.high
    for name in ("num_gpu_blocks", "kv_cache_tokens", "max_concurrency", "bytes_per_token"):
        amount = got.amount(name)
        assert amount is None or amount.value >= 0
