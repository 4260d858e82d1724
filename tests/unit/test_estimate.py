"""Modelled terms: closed forms met, bands around the best value, laws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.model import encoder
from kvbudget.model.activation import Batch, activation_peak
from kvbudget.model.eras import Setting, choose, generation
from kvbudget.model.estimate import estimate, graph_estimate, rope_cache_bytes, weights_memory
from kvbudget.model.runner import for_model
from kvbudget.units import GIB, MIB
from tests.unit import model_configs as c

H100 = {"peer": "nvlink", "compute_capability": "9.0"}
SERVER = Batch(8192, 1024, "torch", 132)


def setting(version: str, tp: int = 1, pp: int = 1) -> Setting:
    return Setting("vllm", version, None, tp, pp, **H100)


@pytest.mark.parametrize(
    ("config", "version", "tp", "printed"),
    [
        (c.LLAMA_8B, "0.19.0", 1, 1.89),
        (c.LLAMA_8B, "0.19.0", 4, 1.89),
        (c.LLAMA_70B, "0.19.0", 2, 1.97),
        (c.LLAMA_8B, "0.11.2", 1, 4.76),
        (c.LLAMA_70B, "0.11.2", 2, 4.84),
        (c.GEMMA3_27B, "0.19.0", 1, 3.99),
        (c.GPT_OSS_20B, "0.19.0", 2, 2.87),
        (c.GPT_OSS_20B, "0.11.2", 1, 7.38),
    ],
)
def test_activation_peaks_of_public_start_ups(
    config: dict, version: str, tp: int, printed: float
) -> None:
    peak = activation_peak(c.model(config), setting(version, tp), SERVER).amount
    assert peak.value / GIB == pytest.approx(printed, abs=0.015)
    assert peak.low <= printed * GIB <= peak.high


def test_the_sampler_decides_and_the_number_of_requests_with_it() -> None:
    model = c.model(c.LLAMA_8B)
    many = activation_peak(model, setting("0.11.2"), SERVER)
    few = activation_peak(model, setting("0.11.2"), Batch(8192, 64, "torch", 132))
    assert many.bound == "sampler"
    assert few.bound == "forward"
    assert few.amount.value < many.amount.value / 4


def test_an_unknown_sampler_widens_the_band() -> None:
    model = c.model(c.LLAMA_8B)
    known = activation_peak(model, setting("0.9.2"), SERVER).amount
    open_ = activation_peak(model, setting("0.9.2"), Batch(8192, 1024, None, 132)).amount
    assert open_.value == known.value
    assert open_.high - open_.low > 4 * (known.high - known.low)


@pytest.mark.parametrize(
    ("config", "version", "taken"),
    [
        (c.LLAMA_8B, "0.20.2", "V1"), (c.LLAMA_8B, "0.22.1", "V1"), (c.LLAMA_8B, "0.23.0", "V2"),
        ({**c.LLAMA_8B, "quantization_config": {"quant_method": "fp8"}}, "0.23.0", "V1"),
        ({**c.LLAMA_8B, "quantization_config": {"quant_method": "fp8"}}, "0.24.0", "V2"),
        (c.GEMMA3_27B, "0.24.0", "V1"), (c.GEMMA3_27B, "0.25.1", "V2"),
        (c.GPT_OSS_20B, "0.25.1", "V1"), (c.GPT_OSS_20B, "0.29.0", "V2"),
    ],
)  # fmt: skip
def test_the_model_runner_follows_release_and_model(config: dict, version: str, taken: str) -> None:
    assert for_model(setting(version), c.model(config)).runner == taken


def test_the_second_runner_samples_on_little() -> None:
    """256 rows of 128256: 2 bytes a logit from 0.28, 6 before, 14 of the first runner."""
    model, batch = c.model(c.LLAMA_8B), Batch(256, 256, None, 108)
    first, copied, lean = (
        activation_peak(model, setting(version), batch).sampler
        for version in ("0.22.1", "0.23.0", "0.33.0")
    )
    assert copied - lean == 4 * 256 * 128256
    assert first - copied == 6 * 256 * 128256
    gathered = activation_peak(model, setting("0.33.0", tp=2), batch).sampler
    assert gathered - lean == 3 * 256 * 128256


def test_a_sort_of_few_rows_needs_more_for_each() -> None:
    """Two bytes of logit, four of float32 and 44 of sorting below 128 rows, 32 from there."""
    model = c.model(c.LLAMA_8B)
    few, many = (
        activation_peak(model, setting("0.11.2"), Batch(1024, rows, "torch", 132)).sampler
        for rows in (127, 128)
    )
    hidden = 2 * 4096 * (1024 + 2 * 127)
    assert few == 127 * 128256 * (2 + 4 + 44) + hidden
    assert many == 128 * 128256 * (2 + 4 + 32) + hidden + 2 * 2 * 4096


def test_only_some_ranks_sample() -> None:
    """Before V1 one rank of several; with pipeline stages the last: the band spans both kinds."""
    model = c.model(c.LLAMA_8B)
    one = activation_peak(model, setting("0.7.3"), Batch(2048, 256)).amount
    two = activation_peak(model, setting("0.7.3", tp=2), Batch(2048, 256)).amount
    assert one.value == two.value
    assert two.low < one.low / 4
    first = activation_peak(model, setting("0.19.0", pp=2), SERVER, stage=0).amount
    last = activation_peak(model, setting("0.19.0", pp=2), SERVER, stage=1).amount
    assert last.low <= first.value < last.value


def test_an_encoder_can_need_more_than_sampler_and_forward() -> None:
    """64 images of 4096 patches: two widths and the MLP twice, in two bytes, and the pixels."""
    model = c.model(c.GEMMA3_27B)
    peak = activation_peak(model, setting("0.8.5", tp=8), Batch(16384, 256, "torch", 108))
    assert peak.bound == "sampler"
    old = Setting("vllm", "0.8.5", "V0", 8, **H100)
    peak = activation_peak(model, old, Batch(16384, 256, None, 108))
    assert peak.bound == "encoder"
    patches, pixels = 64 * 4096 * (2 * 1152 + 2 * 4304 // 8), 64 * 3 * 896**2
    assert encoder.pass_bytes(model, 16384, 64, 8) == 2 * (patches + pixels)
    assert peak.amount.value == 2 * (patches + pixels)
    assert encoder.images_of(model, 65536, 40) == 40
    assert encoder.pass_bytes(c.model(c.LLAMA_8B), 16384, 0, 8) == 0


def test_rotary_tables() -> None:
    assert rope_cache_bytes(c.model(c.LLAMA_8B)) == 8192 * 128 * 2
    assert rope_cache_bytes(c.model(c.GEMMA3_27B)) == 9 * 131072 * 128 * 2
    yarn = {**c.LLAMA_8B, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
            "original_max_position_embeddings": 8192}}  # fmt: skip
    assert rope_cache_bytes(c.model(yarn)) == 4 * 8192 * 128 * 2


def test_weights_as_an_allocator_holds_them() -> None:
    held = weights_memory(c.model(c.LLAMA_8B), setting("0.19.0")).amount
    assert held.value / GIB == pytest.approx(14.96, abs=0.005)
    odd = {**c.LLAMA_8B, "intermediate_size": 14272}
    model = c.model(odd)
    slack = weights_memory(model, setting("0.19.0")).amount.value - model.weights_bytes().value
    up, down = -2 * 14272 * 4096 * 2 % (2 * MIB), -14272 * 4096 * 2 % (2 * MIB)
    kept = sum(x for x in (up, down) if x <= MIB)
    assert slack == 32 * kept + rope_cache_bytes(model) + _rest(model)


def _rest(model: object) -> int:
    embedding = -128256 * 4096 * 2 % (2 * MIB)
    return 2 * (embedding if embedding <= MIB else 0)


def test_non_torch_by_release_and_card() -> None:
    assert choose(setting("0.19.0", 2), "non_torch_gib")["gib"][1] == 2.1
    assert choose(setting("0.17.1", 2), "non_torch_gib")["gib"][1] == 0.54
    pcie = Setting("vllm", "0.19.0", None, 2, 1, "pcie", "8.9")
    assert choose(pcie, "non_torch_gib")["gib"][1] < 1
    assert (generation(setting("0.7.3")), generation(setting("0.9.2"))) == ("V0", "V1")


def test_graphs_are_set_aside_only_where_the_release_does() -> None:
    model = c.model(c.LLAMA_8B)
    assert graph_estimate(model, setting("0.19.0"), 1024).amount.value == 0
    assert graph_estimate(model, setting("0.20.2"), 1024).amount.value > 0
    assert graph_estimate(model, setting("0.20.2"), 1024, eager=True).amount.value == 0
    small = graph_estimate(model, setting("0.20.2"), 32).amount
    assert small.value < graph_estimate(model, setting("0.20.2"), 1024).amount.value


def test_an_unknown_width_is_absent_not_zero() -> None:
    unclear = {**c.LLAMA_8B, "quantization_config": {"quant_method": "compressed-tensors"}}
    terms = estimate(c.model(unclear), setting("0.19.0"), SERVER)
    assert "weights_memory" not in terms
    assert terms["peak_activation_memory"].provenance.kind == "modelled"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(c.SEVEN)), st.sampled_from(["0.6.6", "0.8.5", "0.11.2", "0.19.0", "0.33.0"]),
    st.integers(256, 32768), st.integers(1, 2048), st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, "torch", "flashinfer"]),
)  # fmt: skip
def test_every_band_contains_its_best_and_more_work_never_needs_less(
    name: str, version: str, tokens: int, requests: int, tp: int, sampler: str | None
) -> None:
    model = c.model(c.SEVEN[name])
    era = setting(version, tp)
    terms = estimate(model, era, Batch(tokens, requests, sampler, 132))
    for term in terms.values():
        assert 0 <= term.amount.low <= term.amount.value <= term.amount.high
    here = activation_peak(model, era, Batch(tokens, requests, sampler, 132)).amount.value
    wider = activation_peak(model, era, Batch(2 * tokens, requests, sampler, 132)).amount.value
    assert wider >= here


def test_packed_experts_are_padded_by_the_engine() -> None:
    held = weights_memory(c.model(c.GPT_OSS_20B), setting("0.11.2")).amount
    assert held.value / GIB == pytest.approx(13.47, abs=0.02)
    assert held.low / GIB < 12.85
