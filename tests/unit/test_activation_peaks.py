"""34 peaks that public vLLM start-ups on an 80 GB H100 printed, from the models' dimensions alone.

Figures: the "Capacity Planner Accuracy Report" of llm-d planner (vLLM 0.17 and 0.19) and its
table of earlier releases; 8192 tokens and 1024 requests, the defaults of that card.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest

from kvbudget.model.activation import Batch, activation_peak
from kvbudget.model.config import Model, model_from_config
from kvbudget.model.eras import Setting
from kvbudget.units import GIB
from tests.unit import model_configs as c


def dense(kind: str, hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int) -> Any:
    return {
        "model_type": kind, "architectures": [kind], "torch_dtype": "bfloat16",
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab,
        "max_position_embeddings": 8192,
    }  # fmt: skip


def gemma3(hidden: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    text = {**c.GEMMA3_27B["text_config"], "hidden_size": hidden, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": 256}  # fmt: skip
    return {**c.GEMMA3_27B, "text_config": text}


QWEN_7B = dense("qwen2", 3584, 18944, 28, 28, 4, 152064)
QWEN_72B = dense("qwen2", 8192, 29568, 80, 64, 8, 152064)
QWEN3_8B = dense("qwen3", 4096, 12288, 36, 32, 8, 151936)
QWEN3_14B = dense("qwen3", 5120, 17408, 40, 40, 8, 151936)
MISTRAL_SMALL = {
    **dense("mistral", 5120, 32768, 40, 32, 8, 131072), "head_dim": 128,
    "architectures": ["Mistral3ForConditionalGeneration"],
}  # fmt: skip
MIXTRAL = {
    **dense("mixtral", 4096, 14336, 32, 32, 8, 32000), "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
QWEN15_MOE = {
    **dense("qwen2_moe", 2048, 5632, 24, 16, 16, 151936), "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
}  # fmt: skip
QWEN3_30B = {
    **c.QWEN3_235B, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32,
}  # fmt: skip
V2_LITE = {
    **dense("deepseek_v2", 2048, 10944, 27, 16, 16, 102400), "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip

DENSE = [
    (c.LLAMA_8B, "0.19.0", 1, 1.89), (c.LLAMA_8B, "0.19.0", 2, 1.89),
    (c.LLAMA_8B, "0.19.0", 4, 1.89), (c.LLAMA_70B, "0.19.0", 2, 1.96),
    (c.LLAMA_70B, "0.19.0", 4, 1.97), (QWEN_7B, "0.19.0", 1, 2.21), (QWEN_7B, "0.19.0", 4, 2.21),
    (QWEN_72B, "0.19.0", 2, 2.29), (QWEN3_8B, "0.19.0", 1, 2.21),
    (QWEN3_14B, "0.17.0", 1, 2.23),
    (dense("phi3", 5120, 17920, 40, 40, 10, 100352), "0.19.0", 1, 1.52),
    (dense("phi", 2560, 10240, 32, 32, 32, 51200), "0.19.0", 1, 0.79),
    (dense("granite", 2048, 8192, 40, 32, 8, 49155), "0.19.0", 1, 0.75),
    (dense("granite", 4096, 12800, 40, 32, 8, 49155), "0.19.0", 1, 0.85),
    (dense("llama", 4096, 11008, 32, 32, 32, 32016), "0.19.0", 1, 0.77),
    (dense("gemma2", 2304, 9216, 26, 8, 4, 256000), "0.19.0", 1, 3.62),
    (dense("gemma2", 3584, 14336, 42, 16, 8, 256000), "0.19.0", 1, 3.65),
    (dense("gemma2", 4608, 36864, 46, 32, 16, 256000), "0.19.0", 1, 3.66),
    (dense("gemma", 3072, 24576, 28, 16, 16, 256000), "0.19.0", 1, 3.63),
    (c.LLAMA_8B, "0.16.0", 1, 4.76), (c.LLAMA_70B, "0.16.0", 2, 4.84),
    (dense("qwen3", 1024, 3072, 28, 16, 8, 151936), "0.16.0", 1, 5.56),
    (QWEN3_14B, "0.16.0", 1, 5.64),
    (dense("qwen3", 5120, 25600, 64, 64, 8, 151936), "0.16.0", 1, 5.64),
]  # fmt: skip
OTHERS = [
    (gemma3(2560, 10240, 34, 8), "0.19.0", 1, 3.89),
    (gemma3(3840, 15360, 48, 16), "0.19.0", 1, 3.94),
    (c.GEMMA3_27B, "0.19.0", 1, 3.99), (MISTRAL_SMALL, "0.19.0", 1, 2.03),
    (c.GPT_OSS_20B, "0.19.0", 2, 2.87), (MIXTRAL, "0.19.0", 2, 1.21),
    (QWEN15_MOE, "0.19.0", 1, 2.47), (V2_LITE, "0.19.0", 1, 1.93), (QWEN3_30B, "0.19.0", 1, 2.68),
    (c.GPT_OSS_20B, "0.16.0", 1, 7.38),
]  # fmt: skip


def error(config: dict[str, Any], version: str, tp: int, printed: float) -> float:
    """Share by which the modelled peak misses the printed one, which must lie in its band."""
    model: Model = model_from_config(config, name="m")
    setting = Setting("vllm", version, None, tp, 1, "nvlink", "9.0")
    peak = activation_peak(model, setting, Batch(8192, 1024, "torch", 132)).amount
    assert peak.low - 0.005 * GIB <= printed * GIB <= peak.high + 0.005 * GIB
    return abs(peak.value / GIB - printed) / printed


@pytest.mark.parametrize(("config", "version", "tp", "printed"), DENSE + OTHERS)
def test_each_peak_is_met(config: dict[str, Any], version: str, tp: int, printed: float) -> None:
    assert error(config, version, tp, printed) < 0.01


def test_dense_models_on_average() -> None:
    assert len(DENSE + OTHERS) == 34
    assert mean(error(*row) for row in DENSE) < 0.003
