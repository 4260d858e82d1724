"""What drafting tokens adds to a derivation: caches, weights, states, requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configs import DEEPSEEK_V3, DEEPSEEK_V32, GPT_OSS_20B, LLAMA_8B, QWEN3_NEXT

from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.derive.speculation import parse_config
from kvbudget.model.config import model_from_config

GPU = find_gpu("h200")
LLAMA = model_from_config(LLAMA_8B, name="llama")
LATENT = model_from_config(DEEPSEEK_V3, name="latent")
SPARSE = model_from_config(DEEPSEEK_V32, name="sparse")
OSS = model_from_config(GPT_OSS_20B, name="oss")
HYBRID = model_from_config({**QWEN3_NEXT, "mtp_num_hidden_layers": 1}, name="hybrid")
MTP = '{"method": "mtp", "num_speculative_tokens": 3}'


def got(engine, model, version=None, **flags):
    return derive(Request(engine, version, model, GPU, flags=flags))


def value(derived, name):
    return derived.amount(name).value


@pytest.mark.parametrize(("model", "layer"), [(LATENT, 1152), (SPARSE, 656 + 132)])
@pytest.mark.parametrize("version", ["0.11.2", "0.20.2", "0.33.0"])
def test_a_prediction_layer_caches_what_the_others_do(model, layer, version):
    flags = {"tensor_parallel_size": 8, "block_size": 64}
    plain = got("vllm", model, version, **flags)
    drafted = got("vllm", model, version, speculative_config=MTP, **flags)
    block = value(plain, "bytes_per_block")
    assert block == 61 * 64 * layer
    assert value(drafted, "bytes_per_block") == 62 * 64 * layer


def test_the_checkpoints_own_prediction_layer_is_loaded_without_embedding_and_head():
    flags = {"tp_size": 8}
    plain = got("sglang", LATENT, "0.5.23", **flags)
    drafted = got("sglang", LATENT, "0.5.23", speculative_algorithm="EAGLE", **flags)
    added = value(drafted, "weights_memory") - value(plain, "weights_memory")
    experts = 257 * 3 * 7168 * 2048
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    attention += 7 * (7168 * 1536 + 7168 * 576)  # the down-projections are whole on every rank
    projection = 8 * 2 * 2 * 7168 * 7168  # 16 bits, whole on every rank
    assert added == pytest.approx((experts + attention + projection) / 8, rel=0.03)
    assert value(plain, "cell_size") == 61 * 1152
    assert value(drafted, "cell_size") == 62 * 1152
    assert drafted.amount("weights_memory").high > value(drafted, "weights_memory") + 2 * 10**8


def test_a_release_that_does_not_charge_the_drafts_cache_says_so():
    older = got("sglang", LATENT, "0.5.12", tp_size=8, speculative_algorithm="EAGLE")
    assert value(older, "cell_size") == 61 * 1152
    assert any("out of margin_memory" in note for note in older.notes)


def test_a_draft_that_is_not_at_hand_is_named_and_ngrams_have_none():
    away = got("vllm", LLAMA, speculative_config='{"model": "org/draft", "method": "eagle3"}')
    assert any("draft whose config is not at hand" in note for note in away.notes)
    ngram = got("vllm", LLAMA, speculative_config='{"method": "ngram"}')
    assert not any("draft" in note for note in ngram.notes)
    assert value(ngram, "bytes_per_block") == value(got("vllm", LLAMA), "bytes_per_block")


def test_a_draft_in_a_folder_adds_its_weights_and_its_layers(tmp_path):
    small = {**LLAMA_8B, "num_hidden_layers": 2, "hidden_size": 2048, "head_dim": 128,
             "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4096}  # fmt: skip
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(small))
    weights = model_from_config(small, name="draft").weights_bytes().value
    plain = got("vllm", LLAMA, "0.33.0")
    config = json.dumps({"method": "draft_model", "model": str(folder)})
    drafted = got("vllm", LLAMA, "0.33.0", speculative_config=config)
    assert value(drafted, "weights_memory") - value(plain, "weights_memory") == weights
    assert value(drafted, "bytes_per_block") == value(plain, "bytes_per_block") * 34 // 32
    own = got("sglang", LLAMA, "0.5.23", speculative_algorithm="STANDALONE",
              speculative_draft_model_path=str(folder))  # fmt: skip
    assert value(own, "cell_size") == 131072 * 34 // 32


def test_drafted_tokens_widen_a_convolution_state_and_take_blocks():
    plain = got("vllm", HYBRID, "0.25.1")
    drafted = got("vllm", HYBRID, "0.25.1", speculative_config=MTP)
    channels = 2 * 16 * 128 + 32 * 128
    state = 3 * channels * 2 + 32 * 128 * 128 * 2
    assert plain.run.tables["layer_groups"][0]["layer_state_bytes"].best == state
    wider = drafted.run.tables["layer_groups"][0]["layer_state_bytes"].best
    assert wider == state + 3 * channels * 2
    # 16 tokens x 2,048 bytes until a page holds the state: 34 -> 544, 36 -> 560.
    assert value(plain, "block_tokens") == 544
    assert value(drafted, "block_tokens") == 560
    blocks = value(drafted, "blocks_per_request")
    assert blocks == -(-262144 // 560) + 3 * (1 + 3)


def test_speculation_bounds_the_requests_and_cuts_the_sliding_pool_to_them():
    free = got("sglang", OSS, "0.5.23")
    radix_off = got("sglang", OSS, "0.5.23", disable_radix_cache=True)
    assert value(radix_off, "kv_cache_tokens") == value(free, "kv_cache_tokens")
    cut = got("sglang", OSS, "0.5.23", disable_radix_cache=True, max_running_requests=64)
    assert value(cut, "swa_request_cap") == 64 * (127 + 128 + 1 + 1) + 2 * 8192 + 1
    assert value(cut, "kv_cache_tokens") > 1.5 * value(free, "kv_cache_tokens")
    assert value(cut, "kv_cache_swa_tokens") == value(cut, "swa_request_cap")
    more = got("sglang", OSS, "0.5.23", disable_radix_cache=True, max_running_requests=128)
    assert value(more, "kv_cache_tokens") < value(cut, "kv_cache_tokens")
    drafted = got("sglang", LLAMA, "0.5.23", speculative_algorithm="NGRAM")
    assert value(drafted, "max_running_requests") == 48


@pytest.mark.parametrize(
    ("version", "requests", "each"),
    [("0.4.3.post3", 32, 5 * 4 + 8), ("0.4.6.post5", 48, 5 * 4 + 8), ("0.5.4", 48, 5 * 4 + 8),
     ("0.5.7", 48, 0)],
)  # fmt: skip
def test_older_releases_add_tokens_for_drafts(version, requests, each):
    found = got("sglang", LLAMA, version, speculative_algorithm="EAGLE")
    assert value(found, "draft_tokens") == requests * each


def test_small_letters_name_an_algorithm_too():
    small, large = (
        got("sglang", HYBRID, "0.5.23", tp_size=4, speculative_algorithm=word)
        for word in ("ngram", "NGRAM")
    )
    assert value(small, "state_memory") == value(large, "state_memory")
    assert small.notes == large.notes


def test_the_drafts_own_block_is_what_it_verifies(tmp_path):
    config = {**LLAMA_8B, "num_hidden_layers": 2, "dflash_config": {"block_size": 6}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = {"tp_size": 4, "speculative_algorithm": "DFLASH", "max_mamba_cache_size": 50}
    held = {}
    for path in ("org/draft", str(tmp_path)):
        found = got("sglang", HYBRID, "0.5.23", speculative_draft_model_path=path, **flags)
        held[path] = value(found, "state_memory") // value(found, "state_bytes_per_request")
    assert list(held.values()) == [51 + 11 * 16, 51 + 11 * 6]


@pytest.mark.parametrize("text", ["", "null", "[1]", "{", "{'a': ", "9" * 5000, "('x',)"])
def test_anything_but_an_object_says_nothing(text):
    assert parse_config(text) == {}
    assert got("vllm", LLAMA, speculative_config=text).notes is not None


def test_a_printed_dict_reads_like_json():
    assert parse_config("{'method': 'mtp', 'quiet': True}") == {"method": "mtp", "quiet": True}


@pytest.mark.parametrize(("version", "padding"), [("0.5.15", 0), ("0.5.18", 1), ("0.5.23", 1)])
def test_states_of_drafted_tokens_come_out_of_the_states_share(version, padding):
    plain = got("sglang", HYBRID, version, tp_size=4)
    drafted = got("sglang", HYBRID, version, tp_size=4, speculative_algorithm="NGRAM")
    assert value(drafted, "state_memory") < value(plain, "state_memory")
    assert value(drafted, "state_ratio") == 5
    state = value(drafted, "state_bytes_per_request")
    slots = value(drafted, "state_slots")
    requests = min(48, slots // 5)
    held = slots + padding + (requests + padding) * 12
    assert value(drafted, "state_memory") == held * state
    assert value(drafted, "max_running_requests") == requests
    # What the drafts give back goes to the tokens.
    assert value(drafted, "kv_cache_memory") > value(plain, "kv_cache_memory")


ROLES = {"null": 4, "prefill": 0, "decode": 4}
EVERY = dict.fromkeys(ROLES, 4)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("version", "kept"), [("0.5.18", EVERY), ("0.5.22", ROLES), ("0.5.23", ROLES)]
)
@pytest.mark.parametrize(("stated", "most"), [({}, 48), ({"max_mamba_cache_size": 90}, 90 // 5)])
def test_a_prefill_server_keeps_no_states_of_drafted_tokens(version, kept, role, stated, most):
    flags = {"tp_size": 4, "disaggregation_mode": role, **stated}
    drafted = got("sglang", HYBRID, version, speculative_algorithm="EAGLE", **flags)
    drafts = (most + 1) * kept[role] if kept[role] else 0
    held = value(drafted, "state_slots") + 1 + drafts
    assert value(drafted, "state_memory") == held * value(drafted, "state_bytes_per_request")
    assert value(drafted, "max_running_requests") == most


@pytest.mark.parametrize("switch", ["enable_pd_role_switch", "enable_unified_memory"])
def test_a_prefill_server_that_may_decode_keeps_them(switch):
    flags = {"tp_size": 4, "disaggregation_mode": "prefill", "speculative_algorithm": "NGRAM"}
    fixed = got("sglang", HYBRID, "0.5.23", **flags)
    may = got("sglang", HYBRID, "0.5.23", **flags, **{switch: True})
    assert value(may, "state_slots") < value(fixed, "state_slots")


@pytest.mark.parametrize(("version", "each"), [("0.5.18", 0), ("0.5.22", 1), ("0.5.23", 1)])
def test_a_group_holds_at_least_one_request(version, each):
    flags = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "max_running_requests": 3}
    states = got("sglang", HYBRID, version, disable_radix_cache=True, **flags)
    assert value(states, "state_slots") == each
    assert value(states, "max_running_requests") == each
    plain = got("sglang", LLAMA, version, **flags)
    assert value(plain, "max_running_requests") == each
    drafted = got("sglang", HYBRID, version, max_mamba_cache_size=60, speculative_algorithm="EAGLE",
                  **flags)  # fmt: skip
    held = 60 // 4 + 1 + (each + 1) * 4
    assert value(drafted, "state_memory") == held * value(drafted, "state_bytes_per_request")


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.15", "0.5.18", "0.5.23"])
def test_state_slots_as_set_and_one_per_request_without_a_prefix_cache(version):
    stated = got("sglang", HYBRID, version, tp_size=4, max_mamba_cache_size=40)
    assert value(stated, "state_slots") == 40
    single = got("sglang", HYBRID, version, tp_size=4, disable_radix_cache=True,
                 max_running_requests=64)  # fmt: skip
    assert value(single, "state_slots") == 64
    assert value(single, "state_memory") > 1.5 * value(stated, "state_memory")


def test_where_the_states_of_drafts_are_not_modelled_it_is_said():
    older = got("sglang", HYBRID, "0.5.7", tp_size=4, speculative_algorithm="NGRAM")
    assert any("state per draft token" in note for note in older.notes)


CASES = [
    ("vllm", LATENT, {"tensor_parallel_size": 8, "speculative_config": MTP}),
    ("vllm", HYBRID, {"tensor_parallel_size": 8, "speculative_config": MTP}),
    ("sglang", LATENT, {"tp_size": 8, "speculative_algorithm": "EAGLE"}),
    ("sglang", HYBRID, {"tp_size": 8, "speculative_algorithm": "NGRAM"}),
    ("sglang", OSS, {"disable_radix_cache": True, "max_running_requests": 64}),
]


@pytest.mark.parametrize(("engine", "model", "flags"), CASES)
@settings(max_examples=6, deadline=None)
@given(st.integers(110, 160), st.integers(1, 30))
def test_more_memory_never_means_fewer_tokens(engine, model, flags, size, more):
    given_flags = {**flags, "mem_fraction_static": 0.9} if engine == "sglang" else flags
    fewer, tokens = (
        value(
            derive(Request(engine, None, model, None, gib * 2**30, flags=given_flags)),
            "kv_cache_tokens",
        )
        for gib in (size, size + more)
    )
    assert tokens >= fewer > 0
