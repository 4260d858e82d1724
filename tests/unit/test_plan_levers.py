"""Which levers `plan` names, in which order, and what it says they buy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import LLAMA_8B, LLAMA_70B, QWEN3_235B, QWEN3_NEXT

from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.errors import InputError
from kvbudget.model.config import model_from_config
from kvbudget.plan.search import Asked, first_true
from kvbudget.plan.solve import more_cards, solve

LLAMA = model_from_config(LLAMA_8B, name="Llama-3-8B")
LARGE = model_from_config(LLAMA_70B, name="Llama-3-70B")
H100, L4 = find_gpu("h100-80gb"), find_gpu("l4")


@given(st.integers(1, 200), st.integers(0, 201), st.integers(-5, 210))
def test_a_guess_changes_no_search(high, edge, guess):
    expected = edge if 1 <= edge <= high else (1 if edge < 1 else None)
    assert first_true(1, high, lambda n: n >= edge, guess) == expected


@given(st.sampled_from([(None, None), (4096, None), (None, 12), (4096, 12)]))
@settings(max_examples=4, deadline=None)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_option_is_a_derivation_of_its_own_flags(engine, asked):
    for option in solve(Request(engine, None, LLAMA, H100), Asked(*asked)):
        again = derive(Request(engine, None, LLAMA, H100, flags=option.flags))
        assert again.amount("kv_cache_memory") == option.derived.amount("kv_cache_memory")
        assert again.amount("max_concurrency") == option.derived.amount("max_concurrency")


def test_cheap_levers_come_before_costly_ones():
    options = solve(Request("vllm", None, LLAMA, H100), Asked(8192, 40))
    assert options[0].levers == frozenset()
    levers = [o.levers for o in options if o.verdict == "fits"]
    assert levers.index({"max_num_seqs"}) < levers.index({"kv_cache_dtype"})
    cap = next(o for o in options if o.levers == {"max_num_seqs"})
    assert cap.flags["gpu_memory_utilization"] < options[0].flags["gpu_memory_utilization"]
    assert any(line.startswith("--max-num-seqs 40 instead of 1024: pool ") for line in cap.buys)


def test_the_engines_limit_on_requests_is_lifted_where_it_is_in_the_way():
    small = model_from_config({**LLAMA_8B, "num_hidden_layers": 8}, name="small")
    asked = Asked(128, 600)
    options = solve(Request("vllm", None, small, L4), asked)
    served = [o for o in options if o.verdict != "no"]
    assert served
    assert all(o.flags["max_num_seqs"] == 600 for o in served)
    most = solve(Request("vllm", None, small, L4), Asked(128, None))[0]
    assert most.concurrency == most.flags["max_num_seqs"] > 256
    assert most.derived.amount("max_concurrency").low >= 1


def test_a_smaller_batch_is_named_where_the_batch_is_what_costs():
    moe = model_from_config({**QWEN3_235B, "num_hidden_layers": 12}, name="moe")
    flags = {"max_num_batched_tokens": 32768}
    wide = solve(Request("vllm", None, moe, H100, flags=flags), Asked(8192, None))
    assert not any("max_num_batched_tokens" in o.levers for o in wide)  # the user's own stays
    options = solve(Request("vllm", None, moe, H100), Asked(4096, None))
    batch = [o for o in options if "max_num_batched_tokens" in o.levers]
    assert batch
    for option in batch:
        assert option.flags["max_num_batched_tokens"] < 8192
        assert any(line.startswith("--max-num-batched-tokens") for line in option.buys)


@pytest.mark.parametrize(
    ("engine", "version", "value"),
    [("vllm", None, "fp8"), ("sglang", "0.4.1", "fp8_e5m2"), ("sglang", "0.5.23", "fp8_e4m3")],
)
def test_the_kv_format_is_one_the_release_has(engine, version, value):
    options = solve(Request(engine, version, LLAMA, H100), Asked(4096, None))
    formats = {o.flags["kv_cache_dtype"] for o in options if "kv_cache_dtype" in o.levers}
    assert formats == {value}


def test_only_cards_that_divide_the_heads():
    options = solve(Request("vllm", None, LARGE, H100), Asked(4096, 4, gpus=6))
    assert {o.flags["tensor_parallel_size"] for o in options} <= {2, 4}
    with pytest.raises(InputError, match="no more than"):
        solve(Request("vllm", None, LARGE, H100), Asked(4096, 4, gpus=10**12))


def test_a_stated_pool_leaves_no_share_to_find():
    flags = {"kv_cache_memory_bytes": 20 * 2**30}
    options = solve(Request("vllm", None, LLAMA, H100, flags=flags), Asked(4096, 8))
    assert all("gpu_memory_utilization" not in o.flags for o in options)
    assert all(o.derived.amount("kv_cache_memory").value == 20 * 2**30 for o in options)


def test_the_nearest_options_are_ones_the_engine_would_start_with():
    options = solve(Request("vllm", None, LARGE, H100), Asked(4096, 64))
    assert {o.verdict for o in options} == {"no"}
    assert all(o.derived.amount("startup_check").value == 1 for o in options)


def test_where_nothing_fits_the_nearest_lack_least_and_the_cards_that_would_do_are_named():
    """A 70B in 16 bits: 132 GiB of weights, more than two cards of 79 GiB with their terms."""
    request, asked = Request("vllm", None, LARGE, H100), Asked(32768, 4, gpus=1)
    options = solve(request, asked)
    assert {option.verdict for option in options} == {"no"}
    needed = more_cards(request, asked)
    assert needed is not None
    assert all(o.verdict == "no" for o in solve(request, replace(asked, gpus=needed // 2)))
    assert any(o.verdict != "no" for o in solve(request, replace(asked, gpus=needed)))
    nearest = solve(Request("vllm", None, LARGE, L4), Asked(8192, 4, gpus=4))
    assert nearest[0].flags["tensor_parallel_size"] == 4
    pools = [o.derived.amount("kv_cache_memory").value for o in nearest]
    assert pools == sorted(pools, reverse=True)


def test_no_number_of_cards_of_a_node_may_do():
    assert more_cards(Request("vllm", None, LARGE, find_gpu("t4")), Asked(8192, 4000)) is None


def test_a_limit_on_requests_that_memory_sets_is_met_by_a_larger_share():
    """A recurrent model runs as many requests as it has slots for states, and these are paid for
    by the same share: that tokens alone would fit at a smaller one is no answer."""
    request = Request("sglang", "0.5.15", model_from_config(QWEN3_NEXT, name="hybrid"),
                      find_gpu("h200"), flags={"tp_size": 2})  # fmt: skip
    options = solve(request, Asked(1024, 40))
    assert options[0].verdict == "fits"
    plain = next(option for option in options if not option.levers)
    share = plain.flags["mem_fraction_static"]
    assert plain.derived.amount("max_running_requests").value >= 40
    less = derive(replace(request, flags={"tp_size": 2, "context_length": 1024,
                                          "mem_fraction_static": share - 0.05}))  # fmt: skip
    assert less.amount("max_concurrency").value >= 40  # by tokens
    assert less.amount("max_running_requests").value < 40  # by states
