"""Fields that most families share: heads, embeddings, and which layers have a window."""

from __future__ import annotations

from collections.abc import Callable

from kvbudget.model import blocks
from kvbudget.model.fields import Fields
from kvbudget.model.parts import Anatomy, Kind, Weight

Builder = Callable[[Fields], Anatomy]


def attention_heads(c: Fields) -> tuple[int, int, int]:
    """(query heads, KV heads, head dimension)."""
    heads = c.int("num_attention_heads")
    return heads, c.int("num_key_value_heads", default=heads), c.head_dim(heads)


def embeddings(
    c: Fields, *, tied: bool, head_bias: bool = False, norm: int = 1
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Embedding of the first stage; final norm and head of the last (a tied head counts once)."""
    vocab, hidden = c.int("vocab_size"), c.int("hidden_size")
    last = [blocks.vector("norm", norm * hidden)]
    if not tied:
        last.append(Weight("head", vocab, hidden + int(head_bias)))
    return (Weight("embedding", vocab, hidden),), tuple(last)


def rotary(c: Fields, dim: int) -> int:
    return int(dim * c.float("partial_rotary_factor", 1.0))


WINDOWED: dict[str, Kind] = {
    "full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked",
}  # fmt: skip


def listed_kinds(c: Fields, count: int, default: str) -> list[str]:
    """`layer_types`, or `default` everywhere. Raises through Fields when the length differs."""
    listed = c.list("layer_types")
    return [str(kind) for kind in listed] if listed and len(listed) == count else [default] * count


def window(c: Fields, kind: str) -> Kind:
    if kind not in WINDOWED:
        raise c.wrong("layer_types", kind, f"one of {', '.join(WINDOWED)}")
    return WINDOWED[kind]


def window_kinds(c: Fields, count: int, windows: str) -> list[Kind]:
    """Full or sliding for every layer, from layer_types, a pattern, or the family's habit."""
    if c.list("layer_types"):
        return [window(c, kind) for kind in listed_kinds(c, count, "full_attention")]
    if windows == "alternate" and c.get("sliding_window"):
        return ["full" if i % 2 else "sliding" for i in range(count)]
    if windows == "pattern" and c.get("sliding_window"):
        step = c.int("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return ["sliding" if (i + 1) % step else "full" for i in range(count)]
    if windows == "all" and c.get("sliding_window"):
        return ["sliding"] * count
    return ["full"] * count
