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


def images_of(model: Model, tokens: int, requests: int | None) -> int:
    """Images of `image_tokens` that fill a batch; `requests`: no more than one each."""
    each = image_tokens(model)
    fitting = tokens // each if each else 0
    return fitting if requests is None else min(fitting, requests)


def kept_bytes(model: Model, tokens: int, images: int) -> int:
    """Encoder outputs (one embedding per token) and pixel values that outlive the encoder."""
    if not model.is_multimodal:
        return 0
    return (tokens * model.hidden_size + images * _pixels(model)) * model.dtype_bytes


def pass_bytes(model: Model, tokens: int, images: int, tp: int) -> int:
    """Peak of the encoder's own forward over the images of one batch; 0 where none is described.

    Encoders run eagerly: the residual stream and its normed copy (2 x width per patch) and the
    MLP before and after its activation (2 x inner / TP) are alive together, the pixels as well.
    Where the config does not say how many tokens an image becomes, the batch's tokens are one.
    """
    tower = _tower(model)
    width = _number(tower, "hidden_size", "vt_hidden_size")
    inner = _number(tower, "intermediate_size", "vt_intermediate_size")
    if image_tokens(model):
        side = _number(tower, "image_size") // max(1, _number(tower, "patch_size"))
        patches, pixels = images * side * side, images * _pixels(model)
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
