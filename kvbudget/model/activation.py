"""The activation peak of a profile run, from shapes: sampler, forward, experts, encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.model.eras import Setting, choose, constants, generation
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.model.config import Model

LOGITS_BYTES = 4
"""Samplers work on float32."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The warm-up batch: tokens (max_num_batched_tokens) and requests (max_num_seqs).

    sampler: torch, flashinfer or None (unknown: the era's default, with a wider band).
    """

    tokens: int
    requests: int
    sampler: str | None = None
    sm_count: int | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak and its parts in bytes. `bound` says which of the two was larger."""

    amount: Amount
    sampler: int
    forward: int
    workspace: int
    encoder: int
    bound: str
    formula: str


def activation_peak(model: Model, setting: Setting, batch: Batch, *, stage: int = 0) -> Peak:
    """Peak of torch memory above the weights on one rank of `stage`, in bytes.

    max(sampler, forward) + workspace + encoder + residue; profile.md §2.3 with the constants
    of formulas/activation.yaml. The vocabulary is not divided: logits are gathered.
    """
    table = constants(setting.engine)
    era = choose(setting, "sampler") or {}
    residue = choose(setting, "residue_gib") or {"sampler": 0.0, "forward": 0.0}
    last = stage == setting.pp - 1
    requests = min(batch.requests, batch.tokens)
    name = batch.sampler or _default_sampler(era, setting)
    sampling = _sampler(model, era, name, batch, requests) if last else 0
    forward = _forward(model, setting, batch.tokens)
    workspace, persistent = _workspace(model, setting, batch.tokens)
    if not persistent and model.is_moe:
        forward = workspace + batch.tokens * model.hidden_size * model.dtype_bytes
        workspace = 0
    encoder = encoder_bytes(model, batch.tokens) if stage == 0 else 0
    sampled = sampling + int(residue["sampler"] * GIB)
    passed = forward + int(residue["forward"] * GIB)
    best = max(sampled, passed) + workspace + encoder
    bound = "sampler" if sampled >= passed else "forward"
    low, high = _band(model, table["activation_band"], best, workspace, bound)
    if batch.sampler is None and not era.get("known", True) and bound == "sampler":
        others = [_sampler(model, era, other, batch, requests) for other in era["per_logit"]]
        low -= max(0, sampling - max(min(others), forward))
        high += max(0, max(others) - sampling)
    if "leanest" in era and bound == "sampler":
        lean = requests * model.vocab_size * int(era["leanest"])
        low = min(low, best - sampling + max(lean, forward))
    formula = f"max(sampler {name}, forward) + workspace + encoder, {generation(setting)}"
    amount = Amount(best, max(0, low), high, "B")
    return Peak(amount, sampling, forward, workspace, encoder, bound, formula)


def _default_sampler(era: dict[str, Any], setting: Setting) -> str:
    fallback = era.get("fallback")
    capability = setting.compute_capability
    if fallback and capability is not None and float(capability) < float(fallback["below"]):
        return str(fallback["use"])
    return str(era.get("default", "torch"))


def _sampler(model: Model, era: dict[str, Any], name: str, batch: Batch, requests: int) -> int:
    """Logits in the model's precision and in float32, what the kernel adds, two hidden states."""
    each = model.dtype_bytes + LOGITS_BYTES + int(era.get("per_logit", {}).get(name, 0))
    logits = requests * model.vocab_size * each
    rows = (batch.sm_count or 0) * int(era.get("per_sm", {}).get(name, 0)) * model.vocab_size
    hidden = (batch.tokens + 2 * requests) * model.hidden_size * model.dtype_bytes
    return logits + rows + hidden


def _forward(model: Model, setting: Setting, tokens: int) -> int:
    """Residual in and out, attention output, gate-up and activation of the widest MLP."""
    widths = {
        weight.rows
        for layer in model.anatomy.layers
        for weight in layer.feed_forward
        if weight.part == "mlp" and weight.cols == model.hidden_size
    }
    per_token = 3 * model.hidden_size + 3 * max(widths, default=0) // setting.tp
    if setting.pp > 1:
        per_token += 2 * model.hidden_size
    mixer = next((layer.mixer for layer in model.anatomy.layers if layer.mixer.kind == "mla"), None)
    if mixer is not None:
        value = model.text.int("v_head_dim", default=128)
        nope = model.text.int("qk_nope_head_dim", default=128)
        wide = 2 * (nope + mixer.rope) + nope + 2 * value
        per_token = max(per_token, 3 * model.hidden_size + mixer.heads * wide // setting.tp)
    return tokens * per_token * model.dtype_bytes


def _workspace(model: Model, setting: Setting, tokens: int) -> tuple[int, bool]:
    """(bytes, kept for the process?) of the fused expert kernels' two buffers."""
    row = choose(setting, "expert_workspace")
    if row is None or not model.is_moe:
        return 0, True
    method = (model.quantization_config or {}).get("quant_method")
    if method in row["except"]:
        return 0, True
    inner, hidden = model.moe_intermediate_size // setting.tp, model.hidden_size
    wide = max(inner, hidden) + max(2 * inner, hidden)
    size = tokens * max(1, model.num_experts_per_tok) * wide * model.dtype_bytes
    return int(size * row["factor"]), bool(row["persistent"])


def encoder_bytes(model: Model, tokens: int) -> int:
    """Encoder outputs and pixel values that stay alive while the sampler is profiled.

    One embedding per token; as many images as fill the batch where the config says how many
    tokens an image becomes.
    """
    if not model.is_multimodal:
        return 0
    size = tokens * model.hidden_size
    vision = model.config.get("vision_config")
    per_image = model.config.get("mm_tokens_per_image")
    if isinstance(vision, dict) and per_image and vision.get("image_size"):
        size += tokens // int(per_image) * 3 * int(vision["image_size"]) ** 2
    return size * model.dtype_bytes


def _band(
    model: Model, band: dict[str, float], best: int, workspace: int, bound: str
) -> tuple[int, int]:
    share = band["share"] if bound == "sampler" else band["forward_share"]
    slack = int(band["gib"] * GIB + share * (best - workspace) + band["moe_share"] * workspace)
    low, high = best - slack, best + slack
    if model.is_multimodal:
        described = isinstance(model.config.get("vision_config"), dict)
        low -= int(band["tower_low_gib"] * GIB)
        name = "tower_high_gib" if described else "unknown_tower_high_gib"
        high += int(band[name] * GIB)
    return low, high
