"""Writes config.json of a 1B and an 8B decoder, and for the 1B a file of zeros with its tensors.

The profile fills in random weights, or streams the file (which takes no room on the disk).
"""

import json
import sys
from math import prod
from pathlib import Path

BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
    "vocab_size": 128256, "max_position_embeddings": 8192, "num_key_value_heads": 8,
    "num_attention_heads": 32,
}  # fmt: skip
SHAPES = {
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "head_dim": 64, "tie_word_embeddings": True},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "head_dim": 128, "tie_word_embeddings": False},
}  # fmt: skip


def tensors(c: dict) -> dict[str, list[int]]:
    """Names and shapes as a published checkpoint of the config has them (tied head)."""
    h, inner, wide = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    found = {"model.embed_tokens.weight": [c["vocab_size"], h], "model.norm.weight": [h]}
    for n in range(c["num_hidden_layers"]):
        at = f"model.layers.{n}."
        for part, rows in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]),
                           ("v", c["num_key_value_heads"])):  # fmt: skip
            found[f"{at}self_attn.{part}_proj.weight"] = [rows * wide, h]
        found[f"{at}self_attn.o_proj.weight"] = [h, c["num_attention_heads"] * wide]
        found |= {f"{at}mlp.{part}_proj.weight": [inner, h] for part in ("gate", "up")}
        found[f"{at}mlp.down_proj.weight"] = [h, inner]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{norm}.weight"] = [h]
    return found


def write_zeros(path: Path, shapes: dict[str, list[int]]) -> None:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


for name, shape in SHAPES.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {**BASE, **shape}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if config["tie_word_embeddings"]:
        write_zeros(folder / "model.safetensors", tensors(config))
