"""Bytes per token per rank: the seven reference models at every tensor-parallel size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.model.layers import stage_ranges
from tests.unit import model_configs as c

TABLE = {
    "llama-8b": {1: 131072, 2: 65536, 4: 32768, 8: 16384, 16: 16384},
    "llama-70b": {1: 327680, 2: 163840, 4: 81920, 8: 40960, 16: 40960},
    "deepseek-v3": {1: 70272, 2: 70272, 4: 70272, 8: 70272, 16: 70272},
    "qwen3-235b": {1: 192512, 2: 96256, 4: 48128, 8: 48128, 16: 48128},
    "gemma-3-27b": {1: 81920, 2: 40960, 4: 20480, 8: 10240, 16: 5120},
    "gpt-oss-20b": {1: 24576, 2: 12288, 4: 6144, 8: 3072, 16: 3072},
    "qwen3-next": {1: 24576, 2: 12288, 4: 12288, 8: 12288, 16: 12288},
}


@pytest.mark.parametrize("name", TABLE)
def test_growing_bytes_per_token_per_rank(name: str) -> None:
    model = c.model(c.SEVEN[name])
    assert {tp: model.bytes_per_token(tp) for tp in TABLE[name]} == TABLE[name]


def test_reserved_bytes_count_sliding_layers_at_full_length() -> None:
    assert c.model(c.GEMMA3_27B).reserved_bytes_per_token() == 507_904
    assert c.model(c.GPT_OSS_20B).reserved_bytes_per_token() == 49_152


def test_recurrent_state_follows_its_dtype() -> None:
    model = c.model(c.QWEN3_NEXT)
    assert model.state_bytes_per_request() == 39_518_208
    assert model.state_bytes_per_request(state_dtype="float32") == 75_497_472 + 1_769_472


@pytest.mark.parametrize(
    ("kv_dtype", "expected"),
    [("fp8", 65536), ("nvfp4", 36864), ("int8_per_token_head", 67584),
     ("int4_per_token_head", 34816), ("float32", 262144)],
)  # fmt: skip
def test_formats_of_llama(kv_dtype: str, expected: int) -> None:
    assert c.model(c.LLAMA_8B).bytes_per_token(kv_dtype=kv_dtype) == expected


def test_packed_layouts_of_sparse_latent_attention() -> None:
    model = c.model(c.DEEPSEEK_V32)
    assert model.bytes_per_token() == 61 * (1152 + 132)
    assert model.bytes_per_token(kv_dtype="fp8_ds_mla") == 61 * (656 + 132)
    assert model.bytes_per_token(kv_dtype="nvfp4_ds_mla") == 61 * (352 + 132)
    own = model.layer_groups(kv_dtype="fp8_e4m3", engine="sglang", version="0.5.12")
    assert sum(g.layers * g.bytes_per_token for g in own) == 61 * (576 + 132)
    later = model.layer_groups(kv_dtype="fp8_e4m3", engine="sglang", version="0.5.18")
    assert sum(g.layers * g.bytes_per_token for g in later) == 48_068


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="fp7"):
        c.model(c.LLAMA_8B).layer_groups(kv_dtype="fp7")


def test_pipeline_stages_cover_every_layer_once() -> None:
    assert [len(r) for r in stage_ranges(32, 4)] == [8, 8, 8, 8]
    assert [len(r) for r in stage_ranges(61, 4)] == [15, 15, 16, 15]
    with pytest.raises(InputError):
        stage_ranges(2, 3)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(c.SEVEN)), st.integers(0, 5), st.sampled_from([1, 2, 4]))
def test_more_ranks_never_cost_more_per_rank(name: str, power: int, pp: int) -> None:
    model, tp = c.model(c.SEVEN[name]), 2**power
    fewer, more = (
        model.reserved_bytes_per_token(ways, pp) + model.state_bytes_per_request(ways, pp)
        for ways in (tp, 2 * tp)
    )
    assert more <= fewer
    assert model.weights_bytes(2 * tp, pp).value <= model.weights_bytes(tp, pp).value
    assert model.bytes_per_token(tp) <= model.reserved_bytes_per_token(tp)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(c.SEVEN)), st.sampled_from([1, 2, 4, 8]), st.integers(1, 9))
def test_stages_add_up_to_the_model(name: str, tp: int, pp: int) -> None:
    model = c.model(c.SEVEN[name])
    parts = [model.layer_groups(tp, pp, stage=stage) for stage in range(pp)]
    whole = model.layer_groups(tp)
    assert sum(g.layers for groups in parts for g in groups) == sum(g.layers for g in whole)
