"""Fake tensors and real tensors need the same bytes, to the byte; and the tracker can tell."""

import pytest

torch = pytest.importorskip("torch")

from kvbudget.model.config import model_from_config  # noqa: E402
from kvbudget.model.forward import Pass  # noqa: E402
from kvbudget.model.shapes import model_shape  # noqa: E402
from kvbudget.profile.mirror import MirrorModel  # noqa: E402
from kvbudget.profile.sampling import SamplerBuffers  # noqa: E402
from kvbudget.profile.tracker import LiveBytes  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.torch

BASE = {
    "torch_dtype": "bfloat16", "hidden_size": 128, "vocab_size": 640, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 352, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "dense": {**BASE, "model_type": "llama"},
    "moe": {
        **BASE, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 96, "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "mla": {
        **BASE, "model_type": "deepseek_v2", "q_lora_rank": 48, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "first_k_dense_replace": 1, "moe_layer_freq": 1,
    },
    "sliding": {
        **BASE, "model_type": "gemma3_text", "sliding_window": 64,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
    "gpt-oss": {
        **BASE, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2,
        "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gdn": {
        **BASE, "model_type": "qwen3_next", "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1, "full_attention_interval": 4, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    },
}  # fmt: skip


def measure(config, tokens, *, fake, requests=64, mode=LiveBytes, once=False, tp=1, pp=1, stage=0):
    model = model_from_config(config, name="test")
    device = "meta" if fake else "cpu"
    with torch.no_grad(), mode() as tracker:
        runner = MirrorModel(
            model_shape(model, tp, pp=pp, stage=stage), dtype=torch.bfloat16, device=device,
            how=Pass(), once=once,
        )  # fmt: skip
        runner.load(fill=not fake)
        out = [tracker.allocated]
        tracker.reset_peak()
        runner.forward(tokens)
        out += [tracker.peak, tracker.allocated]
        tracker.reset_peak()
        runner.sample(tokens, requests, SamplerBuffers(8, 4, 3))
        out.append(tracker.peak)
        cache = runner.cache(8, 3)
        for _ in range(3):
            tracker.reset_peak()
            runner.decode(cache)
            out.append(tracker.peak)
        assert int(model.weights_bytes(tp, pp, stage=stage).value) == out[0]
    return out


@pytest.mark.parametrize("tokens", [256, 448])
@pytest.mark.parametrize("name", CONFIGS)
def test_fake_equals_real(name, tokens):
    assert measure(CONFIGS[name], tokens, fake=True) == measure(CONFIGS[name], tokens, fake=False)


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_that_are_alike_are_measured_once(name):
    config = {**CONFIGS[name], "num_hidden_layers": 12}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"] * 3
    every, once = (measure(config, 256, fake=True, once=o) for o in (False, True))
    assert once == every


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_stages_and_ranks(stage):
    """Stages divide the layers; later ones hold what arrives, only the last one samples."""
    for name in ("dense", "moe", "gdn"):
        config = CONFIGS[name]
        fake, real = (measure(config, 256, fake=f, tp=2, pp=3, stage=stage) for f in (True, False))
        assert fake == real, name
        samples = fake[3] - fake[2]
        assert (samples > 0) == (stage == 2), name


def test_twice_the_tokens_twice_the_peak():
    for name in ("dense", "sliding"):
        one, two = (measure(CONFIGS[name], t, fake=True) for t in (1024, 2048))
        assert 2 * (one[1] - one[0]) == two[1] - two[0], name


def test_the_tracker_can_fail():
    """A mode that misses one kind of operation disagrees with the real run: the check is alive."""

    class Blind(LiveBytes):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "mm" in str(func):
                return func(*args, **(kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)

    config = CONFIGS["dense"]
    assert measure(config, 256, fake=True, mode=Blind) != measure(config, 256, fake=False)


def test_views_add_nothing_and_death_is_noticed():
    with torch.no_grad(), LiveBytes() as tracker:
        tensor = torch.zeros(1000)
        tensor.view(10, 100)[3:].mul_(2)
        assert (tracker.allocated, tracker.reserved) == (4000, 4096)
        del tensor
        assert (tracker.allocated, tracker.peak) == (0, 4000)


def test_llama_8b_forward_and_70b_weights():
    """The closed form T d (3h + 3I) of an 8B shape at 8192 tokens, within 1 %."""
    shape = {
        **BASE, "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 128256,
    }  # fmt: skip
    weights, peak, *_ = measure(shape, 8192, fake=True)
    assert weights == 16_060_522_496
    assert abs((peak - weights) / 905_969_664 - 1) < 0.01
