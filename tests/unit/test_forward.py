"""The closed form of a forward pass, and the same pass on tensors that hold no memory."""

from __future__ import annotations

from typing import Any

import pytest

from kvbudget.model.eras import Setting
from kvbudget.model.forward import Pass, forward_memory, forward_peak, profile_pass
from kvbudget.model.shapes import model_shape
from tests.unit import model_configs as c

MIXTRAL = {
    **c.LLAMA_8B, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
    "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
UNGATED = {
    "model_type": "opt", "architectures": ["OPTForCausalLM"], "torch_dtype": "float16",
    "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768,
    "do_layer_norm_before": True,
}  # fmt: skip
HYBRID_ONLY = {
    "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
    "torch_dtype": "bfloat16", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "hybrid_override_pattern": "M-M*", "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "attention_head_dim": 128, "vocab_size": 32000,
    "mamba_num_heads": 32, "mamba_head_dim": 64, "n_groups": 4, "ssm_state_size": 128,
    "conv_kernel": 4, "mlp_hidden_act": "relu2", "max_position_embeddings": 8192,
}  # fmt: skip
ALL = {**c.SEVEN, "deepseek-v3.2": c.DEEPSEEK_V32, "mixtral": MIXTRAL, "ungated": UNGATED,
       "mamba": HYBRID_ONLY}  # fmt: skip


def setting(version: str, tp: int = 1, pp: int = 1) -> Setting:
    return Setting("vllm", version, None, tp, pp, "nvlink", "9.0")


def test_a_gated_mlp_holds_three_inner_widths_and_an_ungated_two() -> None:
    gated, _ = forward_memory(c.model(c.LLAMA_8B), setting("0.19.0"), 8192)
    assert gated == 905_969_664 == 8192 * 2 * (3 * 4096 + 3 * 14336)
    ungated, _ = forward_memory(c.model(UNGATED), setting("0.19.0"), 8192)
    assert ungated == 8192 * 2 * (3 * 768 + 2 * 3072)


def test_expert_buffers_by_release() -> None:
    """Two experts of 14336 on 4096: one buffer more before products shared one; kept from 0.14."""
    model, tokens = c.model(MIXTRAL), 2048
    beside = tokens * (2 * (4 * 4096 + 8 + 2) + 2 * 8)
    for version, widths, kept in (
        ("0.6.3", 3 * 14336 + 4096, False),
        ("0.10.2", 3 * 14336, False),
        ("0.19.0", 3 * 14336, True),
    ):
        space = tokens * 2 * 2 * widths
        assert forward_memory(model, setting(version), tokens) == (
            (beside, space) if kept else (beside + space, 0)
        )


def test_an_expert_narrower_than_the_model_is_as_wide_as_the_model_where_buffers_are_shared() -> (
    None
):
    how = profile_pass(c.model(c.QWEN3_235B), setting("0.19.0"))
    layer = model_shape(c.model(c.QWEN3_235B), 1).layers[0]
    assert how.workspace_widths(layer, 4096) == [8 * 4096, 8 * 4096]
    assert Pass(buffers=(("2I", "h"), ("I",))).workspace_widths(layer, 4096) == [8 * 4096, 8 * 1536]


def test_latent_attention_sets_aside_a_long_context_from_0_11() -> None:
    """64 Ki rows of 128 heads, 128 keys and 128 values each, divided by the ranks."""
    model = c.model({**c.DEEPSEEK_V3, "num_hidden_layers": 3})
    before, after = (forward_memory(model, setting(v, 8), 64)[0] for v in ("0.10.2", "0.13.0"))
    assert after > 65536 * 16 * 256 * 2 > before


def test_a_profile_batch_runs_no_recurrence_but_a_prompt_does() -> None:
    """The second generation's profile leaves the chunk buffers out; they come with a prompt."""
    shape = model_shape(c.model(c.QWEN3_NEXT), 1)
    quiet, _ = forward_peak(shape, Pass(kernels=False, buffers=()), 8192, 2)
    prompt, _ = forward_peak(shape, Pass(kernels=True, buffers=()), 8192, 2)
    each = 4 * (1 + 64) + 2 * (128 + 128)
    assert prompt - quiet == 32 * (8192 * each + 128 * 128 * 128 * 2)


def test_layers_after_the_first_with_experts_run_beside_its_buffers() -> None:
    dense_first = {**c.DEEPSEEK_V3, "num_hidden_layers": 4, "first_k_dense_replace": 3}
    how = Pass(kernels=False, context_rows=0)
    one = forward_peak(model_shape(c.model(dense_first), 1), how, 1024, 2)
    only = forward_peak(
        model_shape(c.model({**dense_first, "first_k_dense_replace": 0}), 1), how, 1024, 2
    )
    assert one[1] == only[1] > 0
    assert one[0] < only[0]


@pytest.mark.torch
@pytest.mark.parametrize("tokens", [512, 8192])
@pytest.mark.parametrize("version", ["0.6.3", "0.11.2", "0.33.0"])
@pytest.mark.parametrize("name", sorted(ALL))
def test_the_same_pass_on_tensors(name: str, version: str, tokens: int) -> None:
    """Tensors need the closed form, 8 bytes a token of ids, and roundings to 512 bytes."""
    model = c.model(ALL[name])
    for tp, pp, stage in ((1, 1, 0), (4, 1, 0), (2, 2, 0), (2, 2, 1)):
        here = setting(version, tp, pp)
        closed = sum(forward_memory(model, here, tokens, stage=stage))
        held = on_tensors(model, here, stage, tokens)
        assert closed <= held <= closed + 16 * tokens + 40 * 512, (tp, pp, stage)


def on_tensors(model: Any, here: Setting, stage: int, tokens: int) -> int:
    torch = pytest.importorskip("torch", reason="the mirror runs on PyTorch's tensors")
    from kvbudget.profile.mirror import MirrorModel
    from kvbudget.profile.tracker import LiveBytes

    with torch.no_grad(), LiveBytes() as tracker:
        runner = MirrorModel(
            model_shape(model, here.tp, pp=here.pp, stage=stage), dtype=torch.bfloat16,
            device="meta", how=profile_pass(model, here), once=True,
        )  # fmt: skip
        runner.load(fill=False)
        weights = tracker.allocated
        tracker.reset_peak()
        runner.forward(tokens)
        return int(tracker.peak - weights)
