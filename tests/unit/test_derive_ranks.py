"""What parallelism divides, and what settings say that the figures leave out."""

from __future__ import annotations

import pytest
from model_configs import DEEPSEEK_V3, LLAMA_8B, QWEN3_235B

from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.model.config import model_from_config

GPU = find_gpu("h200")
MOE = model_from_config(QWEN3_235B, name="moe")
LLAMA = model_from_config(LLAMA_8B, name="llama")
LATENT = model_from_config(DEEPSEEK_V3, name="latent")


def got(engine, model, version=None, env=None, **flags):
    return derive(Request(engine, version, model, GPU, env=env or {}, flags=flags))


def value(derived, name):
    return derived.amount(name).value


def test_data_parallel_attention_keeps_all_heads_on_its_ranks():
    plain = got("sglang", MOE, tp_size=8)
    pairs = got("sglang", MOE, tp_size=8, dp_size=4, enable_dp_attention=True)
    alone = got("sglang", MOE, tp_size=8, dp_size=8, enable_dp_attention=True)
    # 4 KV heads: one of 8 ranks holds one, one of 2 holds two, one alone holds all four.
    assert value(pairs, "bytes_per_token") == 2 * value(plain, "bytes_per_token")
    assert value(alone, "bytes_per_token") == 4 * value(plain, "bytes_per_token")
    attention = sum(
        w.numel * 2
        for w in (*MOE.anatomy.first, *(w for la in MOE.anatomy.layers for w in la.mixer.weights))
        if w.shard in ("split", "kv")
    )
    grown = value(alone, "weights_memory") - value(plain, "weights_memory")
    assert grown == pytest.approx(attention * 7 / 8, rel=0.05)
    # Without the flag the replicas are servers of their own.
    assert value(got("sglang", MOE, tp_size=8, dp_size=8), "bytes_per_token") == value(
        plain, "bytes_per_token"
    )


def test_experts_are_divided_by_data_parallel_ranks_too():
    one = value(got("vllm", MOE, tensor_parallel_size=8), "weights_memory")
    two = value(got("vllm", MOE, tensor_parallel_size=8, data_parallel_size=2), "weights_memory")
    experts = sum(
        w.numel * 2 for la in MOE.anatomy.layers for w in la.weights if w.shard == "expert"
    )
    assert one - two == pytest.approx(experts / 16, rel=0.01)


@pytest.mark.parametrize(
    ("version", "times"),
    [("0.33.0", 4), ("0.20.2", 8), ("0.14.1", 8), ("0.11.2", 4), ("0.10.2", 4)],
)
def test_a_context_spread_over_ranks(version, times):
    flags = {"tensor_parallel_size": 8, "max_model_len": 8192}
    spread = {"decode_context_parallel_size": 4, "prefill_context_parallel_size": 2}
    plain = got("vllm", LATENT, version, **flags)
    shared = got("vllm", LATENT, version, **flags, **spread)
    assert value(plain, "blocks_per_request") == times * value(shared, "blocks_per_request")
    per_block = [value(d, "kv_cache_tokens") / value(d, "num_gpu_blocks") for d in (shared, plain)]
    assert per_block[0] == pytest.approx(times * per_block[1], rel=1e-4)


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
def test_ranks_that_share_a_context_print_their_part_and_hold_it_together(version):
    alone = got("sglang", LATENT, version, tp_size=8)
    shared = got("sglang", LATENT, version, tp_size=8, dcp_size=4)
    assert value(shared, "kv_cache_tokens") == value(alone, "kv_cache_tokens")
    assert value(shared, "max_concurrency") == pytest.approx(4 * value(alone, "max_concurrency"))


def test_throughput_mode_doubles_the_defaults_and_nothing_stated():
    doubled = got("vllm", LLAMA, performance_mode="throughput")
    assert value(doubled, "max_num_batched_tokens") == 16384
    assert doubled.gathered.value("max_num_seqs") == 2048
    stated = got("vllm", LLAMA, performance_mode="throughput", max_num_batched_tokens=4096)
    assert value(stated, "max_num_batched_tokens") == 4096
    assert value(stated, "kv_cache_memory") < value(
        got("vllm", LLAMA, max_num_batched_tokens=4096), "kv_cache_memory"
    )


def test_prefill_in_one_piece_needs_a_batch_of_the_longest_request():
    long = model_from_config({**LLAMA_8B, "max_position_embeddings": 131072}, name="long")
    whole = got("vllm", long, enable_chunked_prefill=False)
    assert value(whole, "max_num_batched_tokens") == 131072


@pytest.mark.parametrize(
    ("engine", "model", "flags", "said"),
    [
        ("vllm", LLAMA, {"tensor_parallel_size": 3}, "32 attention heads"),
        ("vllm", LLAMA, {"quantization": "fp8"}, "quantising at load"),
        ("vllm", LLAMA, {"distributed_executor_backend": "external_launcher"}, "LLM()"),
        ("sglang", LLAMA, {"speculative_algorithm": "EAGLE"}, "draft"),
        ("sglang", LLAMA, {"kv_cache_dtype": "fp8"}, "--kv-cache-dtype takes auto"),
    ],
)  # fmt: skip
def test_what_the_figures_leave_out_is_said(engine, model, flags, said):
    assert any(said in note for note in got(engine, model, **flags).notes)


def test_nothing_is_said_without_need():
    assert got("vllm", LATENT, quantization="fp8").notes == []
    assert got("vllm", LLAMA, distributed_executor_backend="mp").notes == []
    assert got("sglang", LLAMA, dcp_size=1).notes == []
    env = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    assert any("without effect" in n for n in got("sglang", LATENT, env=env, tp_size=8).notes)


@pytest.mark.parametrize(
    "flags",
    [{"disable_cuda_graph": True}, {"enable_memory_saver": True}, {"dcp_size": 2, "tp_size": 2},
     {"cuda_graph_backend_prefill": "disabled"}, {"chunked_prefill_size": -1}],
)  # fmt: skip
def test_a_pool_is_not_sized_after_capture_where_the_engine_would_not(flags):
    env = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    plain, asked = got("sglang", LLAMA, **flags), got("sglang", LLAMA, env=env, **flags)
    assert value(asked, "mem_fraction_static") == value(plain, "mem_fraction_static")
    assert value(got("sglang", LLAMA, env=env), "mem_fraction_static") > 0.98


def test_a_request_longer_than_the_model_is_said_to_be_refused():
    notes = got("vllm", LLAMA, max_model_len=131072).notes
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in note for note in notes)
    env = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    assert got("vllm", LLAMA, env=env, max_model_len=131072).notes == []


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 32768),
        ({"type": "dynamic", "factor": 2.0}, 16384),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"rope_type": "default"}, 8192),
    ],
)
def test_the_length_a_rotary_scaling_gives(scaling, length):
    model = model_from_config({**LLAMA_8B, "rope_scaling": scaling}, name="scaled")
    assert model.context_length == length
    assert value(got("vllm", model), "max_model_len") == length
