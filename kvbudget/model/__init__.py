"""A model's `config.json` as memory: parameters, bytes per rank, KV layers, modelled terms."""
