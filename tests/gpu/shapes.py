"""Writes config.json of a 1B and an 8B decoder: shapes only, the profile fills in random weights."""

import json
import sys
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

for name, shape in SHAPES.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**BASE, **shape}, indent=1))
