"""Vision towers and projectors: their weights from `vision_config`, family by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model.parts import Weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.model.fields import Fields

Tower = tuple[tuple[Weight, ...], tuple[Weight, ...]]


def _tensor(part: str, rows: int, cols: int = 1, copies: int = 1) -> Weight:
    """A matrix is divided by tensor parallelism like the text model's, a vector is not."""
    return Weight(part, rows, cols, copies, "split" if cols > 1 else "replicated")


def _vit_blocks(width: int, inner: int, depth: int) -> list[Weight]:
    """Pre-norm transformer blocks: two LayerNorms, attention and a plain MLP, all with biases."""
    return [
        _tensor("vision", 4 * width, 1, depth),
        _tensor("vision", width, 4 * width + 4, depth),
        _tensor("vision", inner, width, 2 * depth),
        _tensor("vision", inner + width, 1, depth),
    ]


def siglip(vision: Fields, _top: Fields, text_hidden: int) -> Tower:
    """SigLIP tower and Gemma-3's projector (norm and one matrix)."""
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    positions = (vision.int("image_size") // patch) ** 2
    tower = [
        _tensor("vision", width, 3 * patch * patch + 1),
        _tensor("vision", positions, width),
        *_vit_blocks(width, vision.int("intermediate_size"), vision.int("num_hidden_layers")),
        _tensor("vision", 2 * width),
    ]
    return tuple(tower), (_tensor("projector", width), _tensor("projector", width, text_hidden))


def qwen_vision(vision: Fields, _top: Fields, text_hidden: int) -> Tower:
    """Qwen3-VL / Qwen3.5 tower; the patch merger counts with it, deep-stack mergers as well."""
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    pixels = vision.int("in_channels", default=3) * vision.int("temporal_patch_size", default=2)
    merged = width * vision.int("spatial_merge_size", default=2) ** 2
    out = vision.int("out_hidden_size", default=text_hidden)
    deep = len(vision.list("deepstack_visual_indexes") or [])
    tower = [
        _tensor("vision", width, pixels * patch * patch + 1),
        _tensor("vision", vision.int("num_position_embeddings", default=0), width),
        *_vit_blocks(width, vision.int("intermediate_size"), vision.int("depth")),
        _tensor("vision", 2 * width),
        _tensor("vision", merged, merged + 1, 1 + deep),
        _tensor("vision", out, merged + 1, 1 + deep),
    ]
    if deep:
        tower.append(_tensor("vision", 2 * merged, 1, deep))
    return tuple(tower), ()


def moon_vit(vision: Fields, _top: Fields, text_hidden: int) -> Tower:
    """MoonViT of Kimi-K2.5 and its patch-merger projector."""
    width, patch = vision.int("vt_hidden_size"), vision.int("patch_size")
    height, across = vision.int("init_pos_emb_height"), vision.int("init_pos_emb_width")
    kernel = vision.ints("merge_kernel_size") or [2, 2]
    merged = width * kernel[0] * kernel[-1]
    tower = [
        _tensor("vision", width, 3 * patch * patch + 1),
        _tensor("vision", height * across, width),
        *_vit_blocks(width, vision.int("vt_intermediate_size"), vision.int("vt_num_hidden_layers")),
        _tensor("vision", 2 * width),
    ]
    projector = (
        _tensor("projector", 2 * width),
        _tensor("projector", merged, merged + 1),
        _tensor("projector", text_hidden, merged + 1),
    )
    return tuple(tower), projector


def pixtral(vision: Fields, top: Fields, text_hidden: int) -> Tower:
    """Pixtral tower (gated, no biases) and Mistral-3's patch-merging projector."""
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    depth, inner = vision.int("num_hidden_layers"), vision.int("intermediate_size")
    tower = [
        _tensor("vision", width, 3 * patch * patch),
        _tensor("vision", width),
        _tensor("vision", width, 2 + 4 * width, depth),
        _tensor("vision", inner, width, 3 * depth),
    ]
    merge = top.int("spatial_merge_size", default=1)
    bias = int(top.flag("multimodal_projector_bias"))
    projector = [
        _tensor("projector", text_hidden, width + bias),
        _tensor("projector", text_hidden, text_hidden + bias),
    ]
    if merge > 1:
        projector += [_tensor("projector", width), _tensor("projector", width, width * merge**2)]
    return tuple(tower), tuple(projector)


def gemma4_vision(vision: Fields, _top: Fields, text_hidden: int) -> Tower:
    """Gemma-4 tower: gated, grouped-query, four norms a block, two position tables."""
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    depth, inner = vision.int("num_hidden_layers"), vision.int("intermediate_size")
    heads, kv_heads = vision.int("num_attention_heads"), vision.int("num_key_value_heads")
    dim = vision.int("head_dim")
    tower = [
        _tensor("vision", width, 3 * patch * patch),
        _tensor("vision", 2 * vision.int("position_embedding_size"), width),
        _tensor("vision", width, 2 * (heads + kv_heads) * dim, depth),
        _tensor("vision", width, 3 * inner, depth),
        _tensor("vision", 4 * width + 2 * dim, 1, depth),
    ]
    if vision.flag("standardize"):
        tower.append(Weight("vision", 2 * width, 1, 1, "replicated", counted=False))
    return tuple(tower), (_tensor("projector", width, text_hidden),)


TOWERS: dict[str, Callable[[Fields, Fields, int], Tower]] = {
    "siglip_vision_model": siglip,
    "qwen3_vl": qwen_vision,
    "qwen3_vl_moe": qwen_vision,
    "qwen3_5": qwen_vision,
    "qwen3_5_moe": qwen_vision,
    "kimi_k25": moon_vit,
    "pixtral": pixtral,
    "gemma4_vision": gemma4_vision,
}
"""By `vision_config.model_type`, or by the model's own type where that field is absent."""
