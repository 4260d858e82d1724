"""Configs of public models (their published dimensions), written for the tests."""

from __future__ import annotations

from typing import Any

from kvbudget.model.config import Model, model_from_config


def _base(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": kind, "architectures": [name], "torch_dtype": "bfloat16", **fields}


LLAMA_8B = _base(
    "llama", "LlamaForCausalLM", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
    max_position_embeddings=8192, tie_word_embeddings=False,
)  # fmt: skip
LLAMA_70B = {
    **LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
DEEPSEEK_V3 = _base(
    "deepseek_v3", "DeepseekV3ForCausalLM", hidden_size=7168, intermediate_size=18432,
    moe_intermediate_size=2048, num_hidden_layers=61, num_attention_heads=128,
    num_key_value_heads=128, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=3, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, vocab_size=129280, num_nextn_predict_layers=1,
    max_position_embeddings=163840, tie_word_embeddings=False,
    quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
)  # fmt: skip
DEEPSEEK_V32 = {
    **DEEPSEEK_V3, "model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64,
}  # fmt: skip
QWEN3_235B = _base(
    "qwen3_moe", "Qwen3MoeForCausalLM", hidden_size=4096, intermediate_size=12288,
    moe_intermediate_size=1536, num_hidden_layers=94, num_attention_heads=64,
    num_key_value_heads=4, head_dim=128, num_experts=128, num_experts_per_tok=8,
    vocab_size=151936, max_position_embeddings=40960,
)  # fmt: skip
GEMMA3_27B: dict[str, Any] = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
    "torch_dtype": "bfloat16", "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
        "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 128, "vocab_size": 262208, "sliding_window": 1024,
        "sliding_window_pattern": 6, "max_position_embeddings": 131072,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
        "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
    },
}  # fmt: skip
GPT_OSS_20B = _base(
    "gpt_oss", "GptOssForCausalLM", hidden_size=2880, intermediate_size=2880,
    num_hidden_layers=24, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
    num_local_experts=32, num_experts_per_tok=4, vocab_size=201088, sliding_window=128,
    max_position_embeddings=131072, tie_word_embeddings=False,
    quantization_config={"quant_method": "mxfp4"},
)  # fmt: skip
QWEN3_NEXT = _base(
    "qwen3_next", "Qwen3NextForCausalLM", hidden_size=2048, intermediate_size=5120,
    moe_intermediate_size=512, shared_expert_intermediate_size=512, num_hidden_layers=48,
    num_attention_heads=16, num_key_value_heads=2, head_dim=256, num_experts=512,
    num_experts_per_tok=10, linear_conv_kernel_dim=4, linear_key_head_dim=128,
    linear_num_key_heads=16, linear_num_value_heads=32, linear_value_head_dim=128,
    full_attention_interval=4, vocab_size=151936, max_position_embeddings=262144,
)  # fmt: skip

SEVEN = {
    "llama-8b": LLAMA_8B, "llama-70b": LLAMA_70B, "deepseek-v3": DEEPSEEK_V3,
    "qwen3-235b": QWEN3_235B, "gemma-3-27b": GEMMA3_27B, "gpt-oss-20b": GPT_OSS_20B,
    "qwen3-next": QWEN3_NEXT,
}  # fmt: skip


def model(config: dict[str, Any], name: str = "m") -> Model:
    return model_from_config(config, name=name)
