"""From a config to the anatomy of a decoder: one builder per family of architectures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model.families.dense import dense, gemma4, opt, phi2
from kvbudget.model.families.experts import deepseek, gpt_oss, llama4, mimo_v2, mixture
from kvbudget.model.families.recurrent import jamba, nemotron_h, qwen_hybrid

if TYPE_CHECKING:
    from kvbudget.model.families.common import Builder

_QWEN2 = dense(qkv_bias=True)
_LLAMA = dense(qkv_bias=None, o_bias=None)

FAMILIES: dict[str, Builder] = {
    "llama": _LLAMA,
    "mistral": dense(windows="all"),
    "ministral": dense(windows="all"),
    "mistral3": dense(windows="all"),
    "granite": dense(qkv_bias=None, o_bias=None),
    "phi3": dense(),
    "phi": phi2,
    "opt": opt,
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": dense(qkv_bias=None, o_bias=None, qk_norm="head"),
    "qwen3_vl_text": dense(qkv_bias=None, o_bias=None, qk_norm="head"),
    "olmo2": dense(qk_norm="full"),
    "olmo3": dense(qk_norm="full"),
    "cohere": dense(norms=1, tied=True),
    "cohere2": dense(norms=1, tied=True, windows="pattern"),
    "ernie4_5": dense(tied=True),
    "exaone4": dense(qk_norm="head", windows="pattern"),
    "glm": dense(qkv_bias=None),
    "glm4": dense(qkv_bias=None, norms=4),
    "hunyuan_v1_dense": dense(qk_norm="head"),
    "nemotron": dense(gated_mlp=False, norm_width=2),
    "seed_oss": dense(qkv_bias=None),
    "smollm3": dense(tied=True),
    "starcoder2": dense(qkv_bias=None, o_bias=None, tied=True, gated_mlp=False, norm_width=2),
    "gemma": dense(tied=True),
    "gemma2": dense(tied=True, norms=4, windows="alternate"),
    "gemma3_text": dense(tied=True, norms=4, qk_norm="head", windows="pattern"),
    "gemma4_text": gemma4,
    "mixtral": mixture(),
    "granitemoe": mixture(),
    "minimax_m2": mixture(qk_norm_width="full", correction="buffer"),
    "olmoe": mixture(qk_norm_width="full"),
    "qwen2_moe": mixture(qkv_bias=True, shared="shared_expert_intermediate_size", shared_gate=True),
    "qwen3_moe": mixture(qkv_bias=None, qk_norm=True),
    "qwen3_vl_moe_text": mixture(qkv_bias=None, qk_norm=True),
    "glm4_moe": mixture(qkv_bias=None, qk_norm=None, first_dense=True, correction="buffer"),
    "deepseek_v2": deepseek(),
    "deepseek_v3": deepseek(correction="parameter"),
    "deepseek_v32": deepseek(correction="buffer"),
    "kimi_k2": deepseek(correction="buffer"),
    "glm_moe_dsa": deepseek(correction="buffer"),
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "qwen3_next": qwen_hybrid,
    "qwen3_5_text": qwen_hybrid,
    "qwen3_5_moe_text": qwen_hybrid,
    "mimo_v2_flash": mimo_v2,
    "nemotron_h": nemotron_h,
    "jamba": jamba,
}
"""By `model_type` of the (text) config."""

TEXT_OF: dict[str, str] = {
    "gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "kimi_k2",
    "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "mistral3": "mistral",
}  # fmt: skip
"""A multimodal type and the type of its text part, where `text_config` does not say."""
