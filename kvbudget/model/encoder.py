"""What a vision encoder adds to a profile run: kept embeddings, and its own forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.model.config import Model

PIXEL_CHANNELS = 3


def image_tokens(model: Model) -> int:
    """Tokens one image becomes, where the config states it; 0 otherwise."""
    stated = model.config.get("mm_tokens_per_image")
    return stated if isinstance(stated, int) and stated > 0 and _tower(model) else 0


def kept_bytes(model: Model, tokens: int) -> int:
    """Encoder outputs and pixel values that stay alive while the sampler is profiled.

    One embedding per token; as many images as fill the batch where the config says how many
    tokens an image becomes.
    """
    if not model.is_multimodal:
        return 0
    each = image_tokens(model)
    pixels = tokens // each * _pixels(model) if each else 0
    return (tokens * model.hidden_size + pixels) * model.dtype_bytes


def pass_bytes(model: Model, tokens: int, tp: int) -> int:
    """Peak of the encoder's own forward over the images of one batch; 0 where none is described.

    Encoders run eagerly: the residual stream and its normed copy (2 x width per patch) and the
    MLP before and after its activation (2 x inner / TP) are alive together, the pixels as well.
    """
    tower = _tower(model)
    if not tower:
        return 0
    width = _number(tower, "hidden_size", "vt_hidden_size")
    inner = _number(tower, "intermediate_size", "vt_intermediate_size")
    each = image_tokens(model)
    if each:
        patch = _number(tower, "patch_size")
        side = _number(tower, "image_size") // patch if patch else 0
        patches, pixels = tokens // each * side * side, tokens // each * _pixels(model)
    else:
        patches, pixels = tokens * _number(tower, "spatial_merge_size") ** 2, 0
    return (patches * (2 * width + 2 * inner // tp) + pixels) * model.dtype_bytes


def _tower(model: Model) -> dict[str, object]:
    vision = model.config.get("vision_config")
    return vision if isinstance(vision, dict) else {}


def _pixels(model: Model) -> int:
    return PIXEL_CHANNELS * _number(_tower(model), "image_size") ** 2


def _number(tower: dict[str, object], *names: str) -> int:
    for name in names:
        value = tower.get(name)
        if isinstance(value, int):
            return value
    return 0
