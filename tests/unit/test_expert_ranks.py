"""What spreading experts over ranks does to one rank, counted here by hand from the dimensions."""

from __future__ import annotations

import pytest
from model_configs import DEEPSEEK_V3, GPT_OSS_20B, LLAMA_8B

from kvbudget.derive.assemble import derive
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.model.activation import Batch, activation_peak
from kvbudget.model.checkpoint import Tensor
from kvbudget.model.config import model_from_config
from kvbudget.model.eras import Setting
from kvbudget.model.estimate import weights_memory
from kvbudget.model.forward import forward_memory, profile_pass
from kvbudget.model.parts import Ranks
from kvbudget.profile.shards import Place, shard

GPU = find_gpu("h200")
MIXTRAL_CONFIG = {
    **LLAMA_8B, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
    "vocab_size": 32000, "max_position_embeddings": 32768, "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
DEEPSEEK = model_from_config(DEEPSEEK_V3, name="deepseek")
MIXTRAL = model_from_config(MIXTRAL_CONFIG, name="mixtral")
GPT_OSS = model_from_config(GPT_OSS_20B, name="gpt-oss")


def blocks(rows, cols):
    """An fp8 matrix and its float32 scales, one for each 128 x 128."""
    return rows * cols + 4 * -(-rows // 128) * -(-cols // 128)


def deepseek_rank(attention, tp, experts, shared):
    """Bytes of a rank that holds so many experts, with ranks of one replica and of the rest."""
    heads, h = 128 // attention, 7168
    mixer = (
        blocks(1536, h) + 2 * 1536 + blocks(heads * 192, 1536)
        + blocks(576, h) + 2 * 512 + blocks(heads * 256, 512) + blocks(h, heads * 128)
    )  # fmt: skip
    norms = 2 * 2 * h
    dense = 2 * blocks(18432 // tp, h) + blocks(h, 18432 // tp)
    one = 2 * blocks(2048, h) + blocks(h, 2048)
    beside = 2 * blocks(2048 // shared, h) + blocks(h, 2048 // shared)
    sparse = 2 * 256 * h + 4 * 256 + experts * one + beside
    # The embedding is divided over the ranks of one replica, the head over all.
    ends = 2 * 129280 // attention * h + 2 * 129280 // tp * h + 2 * h
    return 61 * (mixer + norms) + 3 * dense + 58 * sparse + ends


def deepseek_beside(attention):
    """Rotary tables in float32, and the up-projections of latent attention once more."""
    return 163840 * 64 * 4 + 61 * (128 // attention) * (128 + 128) * 512 * 2


def mixtral_rank(tp, experts, width):
    """Bytes in bfloat16 of a rank with `experts` experts of `width` columns."""
    h = 4096
    attention = (32 // tp * 128 * 2 + max(1, 8 // tp) * 128 * 2) * h
    sparse = 8 * h + experts * 3 * width * h
    return 2 * (32 * (attention + sparse + 2 * h) + 2 * (32000 // tp) * h + h)


def setting(tp, **ranks):
    return Setting("vllm", "0.19.0", None, tp, 1, "nvlink", "9.0", **ranks)


VLLM = "tensor_parallel_size", "data_parallel_size", "enable_expert_parallel"


@pytest.mark.parametrize(
    ("engine", "flags", "attention", "tp", "experts", "shared"),
    [
        ("vllm", dict(zip(VLLM, (8, 1, False), strict=True)), 8, 8, 32, 8),
        ("vllm", dict(zip(VLLM, (8, 1, True), strict=True)), 8, 8, 32, 8),
        ("vllm", dict(zip(VLLM, (1, 16, True), strict=True)), 1, 1, 16, 1),
        # Tensor and data parallel: the shared expert is whole, tokens are divided instead.
        ("vllm", dict(zip(VLLM, (2, 8, True), strict=True)), 2, 2, 16, 1),
        ("vllm", {**dict(zip(VLLM, (2, 8, True), strict=True)), "all2all_backend": "pplx"},
         2, 2, 16, 2),
        ("sglang", {"tp_size": 16}, 16, 16, 16, 16),
        ("sglang", {"tp_size": 16, "ep_size": 4}, 16, 16, 16, 16),
        ("sglang", {"tp_size": 16, "dp_size": 16, "enable_dp_attention": True,
                    "moe_a2a_backend": "deepep"}, 1, 16, 16, 1),
    ],
)  # fmt: skip
def test_a_rank_of_deepseek_v3(engine, flags, attention, tp, experts, shared):
    found = derive(Request(engine, None, DEEPSEEK, GPU, flags=flags)).amount("weights_memory")
    by_hand = deepseek_rank(attention, tp, experts, shared) + deepseek_beside(attention)
    assert found.value == by_hand


@pytest.mark.parametrize(
    ("ranks", "experts", "width"),
    [
        (Ranks(2), 8, 7168),
        (Ranks(2, ep=2), 4, 14336),
        (Ranks(4, ep=2, expert_tp=2), 4, 7168),
        # Eight experts over three ranks: the first two hold three.
        (Ranks(1, ep=3), 3, 14336),
        # More ranks than experts: no rank holds less than one.
        (Ranks(2, ep=16), 1, 14336),
    ],
)
def test_a_rank_of_mixtral(ranks, experts, width):
    assert MIXTRAL.weights_bytes(ranks).value == mixtral_rank(ranks.tp, experts, width)


def test_experts_that_do_not_divide_weigh_more_when_spread():
    cut = derive(Request("vllm", None, MIXTRAL, GPU, flags={"data_parallel_size": 3}))
    spread = derive(Request("vllm", None, MIXTRAL, GPU, flags={
        "data_parallel_size": 3, "enable_expert_parallel": True}))  # fmt: skip
    more = mixtral_rank(1, 3, 14336) - mixtral_rank(1, 8, 14336 // 3)
    grown = spread.amount("weights_memory").value - cut.amount("weights_memory").value
    assert grown == pytest.approx(more, abs=2**20 * 32 * 2)  # rounding of the large blocks


def test_packed_experts_are_padded_by_the_width_a_rank_has():
    """gpt-oss: 2880 columns. Cut by 2: 1440 -> 1536; by 8: 360 -> 512; spread: 2880 -> 3072."""

    def padding(tp, ep):
        found = weights_memory(GPT_OSS, setting(tp, ep=ep)).amount
        return found.high - found.value - 0.04 * 2**30  # the band reaches to twice of it

    whole = sum(
        GPT_OSS.quantisation.bytes_of(w)
        for layer in GPT_OSS.anatomy.layers
        for w in layer.weights
        if GPT_OSS.quantisation.reaches(w)
    )
    assert padding(2, 1) == pytest.approx(whole / 2 * 96 / 1440, rel=1e-6)
    assert padding(2, 2) == pytest.approx(whole / 2 * 192 / 2880, rel=1e-6)
    assert padding(8, 1) == pytest.approx(whole / 8 * 152 / 360, rel=1e-6)
    assert padding(8, 8) == pytest.approx(whole / 8 * 192 / 2880, rel=1e-6)


def test_spread_experts_work_at_full_width():
    tokens, chosen = 8192, 2
    _, cut = forward_memory(MIXTRAL, setting(8), tokens)
    _, spread = forward_memory(MIXTRAL, setting(8, ep=8), tokens)
    assert cut == tokens * chosen * (4096 + 4096) * 2  # I/8 = 1792 and 2I/8 = 3584: below h
    assert spread == tokens * chosen * (2 * 14336 + 14336) * 2


def test_replicas_gather_their_tokens_before_the_experts():
    tokens = 2048
    peak, kept = forward_memory(MIXTRAL, setting(1, ep=4, gathered=4), tokens)
    lone_peak, lone = forward_memory(MIXTRAL, setting(1, ep=4), tokens)
    assert kept == 4 * lone
    assert peak - lone_peak == 4 * tokens * 4096 * 2  # the gathered tokens themselves
    batch = Batch(tokens, 64, "torch", 132)
    band = activation_peak(MIXTRAL, setting(1, ep=4, gathered=4), batch).amount
    alone = activation_peak(MIXTRAL, setting(1, ep=4), batch).amount
    assert band.low < alone.value < band.value < band.high


def test_a_kernel_that_works_in_parts_has_room_for_one():
    parts, whole = (
        Setting("vllm", version, None, 1, 1, "nvlink", "9.0", ep=4, gathered=4)
        for version in ("0.17.1", "0.19.0")
    )
    assert forward_memory(MIXTRAL, parts, 4096) == forward_memory(MIXTRAL, whole, 4096)
    assert 2 * forward_memory(MIXTRAL, parts, 8192)[1] == forward_memory(MIXTRAL, whole, 8192)[1]
    beside = [forward_memory(MIXTRAL, era, 8192)[0] for era in (parts, whole)]
    assert beside[0] - beside[1] == 4 * 8192 * 4096 * 2  # the output is written part by part


@pytest.mark.parametrize(
    ("version", "room"),
    [("0.8.5", 32768), ("0.11.2", 32768), ("0.12.0", 16384), ("0.14.1", 16384), ("0.17.1", 16384),
     ("0.18.1", 10**6), ("0.33.0", 10**6)],
)  # fmt: skip
def test_how_many_tokens_an_expert_kernel_takes_at_a_time(version, room):
    how = profile_pass(MIXTRAL, Setting("vllm", version, None, 1, 1, "nvlink", "9.0"))
    assert how.workspace_rows(10**6) == room
    assert how.workspace_rows(5) == 5


def test_the_flag_reaches_the_derivation():
    flags = {"tensor_parallel_size": 8, "max_num_batched_tokens": 8192}
    plain = derive(Request("vllm", None, MIXTRAL, GPU, flags=flags))
    spread = derive(Request("vllm", None, MIXTRAL, GPU, flags={
        **flags, "enable_expert_parallel": True}))  # fmt: skip
    name = "peak_activation_memory"
    assert spread.amount(name).value > 2 * plain.amount(name).value
    assert spread.amount("kv_cache_memory").value < plain.amount("kv_cache_memory").value


def test_another_transport_is_said_to_be_left_out():
    flags = {"data_parallel_size": 8, "enable_expert_parallel": True,
             "all2all_backend": "deepep_low_latency"}  # fmt: skip
    notes = derive(Request("vllm", None, MIXTRAL, GPU, flags=flags)).notes
    assert any("--all2all-backend" in note for note in notes)


@pytest.mark.parametrize("stacked", [False, True])
def test_the_files_experts_are_spread_as_evenly_as_they_go(stacked):
    """Eight experts over three ranks: three, three and two, each of them once."""
    shape, at = (4096, 14336), "model.layers.0.block_sparse_moe.experts"
    size = 2 * 4096 * 14336
    if stacked:
        tensors = [Tensor(f"{at}.down_proj", "BF16", (8, *shape), 8 * size, "f", 0)]
    else:
        tensors = [Tensor(f"{at}.{n}.w2.weight", "BF16", shape, size, "f", 0) for n in range(8)]
    held = []
    for rank in range(3):
        found = shard(tensors, MIXTRAL, Place(rank, 3, ep=3))
        pieces = [piece for pieces in found.buffers.values() for piece in pieces]
        held.append(sum(piece.numel for piece in pieces) // (4096 * 14336))
    assert held == [3, 3, 2]
    assert held[0] == MIXTRAL.anatomy.layers[0].feed_forward[-1].rank_numel(
        Ranks(3, ep=3)
    ) // (4096 * 14336)  # fmt: skip
