"""Runner `hf`: transformers' forward beside ours, on real tensors and on none."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="the extra hf is not installed")

from kvbudget.errors import InputError  # noqa: E402
from kvbudget.model.config import load_model  # noqa: E402
from kvbudget.profile.hf import HfRunner  # noqa: E402
from kvbudget.profile.sampling import SamplerBuffers  # noqa: E402
from kvbudget.profile.tracker import LiveBytes  # noqa: E402

pytestmark = pytest.mark.torch
BASE = {
    "torch_dtype": "bfloat16", "hidden_size": 128, "vocab_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 352, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "dense": {**BASE, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "sliding": {
        **BASE, "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 64, "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
    },
    "moe": {
        **BASE, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
}  # fmt: skip


def measure(folder, tokens, *, fake):
    from contextlib import ExitStack

    from torch._subclasses.fake_tensor import FakeTensorMode

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if fake:
            stack.enter_context(FakeTensorMode())
        tracker = stack.enter_context(LiveBytes())
        runner = HfRunner(str(folder), dtype=torch.bfloat16, device="cpu")
        runner.load()
        weights = tracker.allocated
        tracker.reset_peak()
        runner.forward(tokens)
        forward = tracker.peak - weights
        assert tracker.allocated == weights
        tracker.reset_peak()
        runner.sample(tokens, 32, SamplerBuffers(8, 4, 3))
        sampler = tracker.peak - weights
        runner.unload()
    return weights, forward, sampler


@pytest.fixture(params=CONFIGS)
def folder(request, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[request.param]))
    return tmp_path


def test_fake_equals_real(folder):
    assert measure(folder, 192, fake=True) == measure(folder, 192, fake=False)


def test_weights_are_those_of_the_config(folder):
    """Beyond the parameters there are only tables of frequencies, float32, half a head wide."""
    weights = measure(folder, 64, fake=True)[0]
    spare = weights - load_model(folder).weights_bytes().value
    assert 0 <= spare <= 4096


def test_an_8b_forward_is_larger_than_ours(tmp_path):
    """Its gate, up, product and embeddings stay alive: about a twelfth above the closed form."""
    config = {
        **CONFIGS["dense"], "hidden_size": 4096, "intermediate_size": 14336, "head_dim": 128,
        "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    closed = 8192 * 2 * 3 * (4096 + 14336)
    forward = measure(tmp_path, 8192, fake=True)[1]
    assert forward / closed == pytest.approx(1.079, abs=0.001)


def test_a_config_transformers_does_not_know(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "of_tomorrow"}')
    with pytest.raises(InputError, match="cannot build this model"):
        HfRunner(str(tmp_path), dtype=torch.bfloat16, device="cpu").load()
