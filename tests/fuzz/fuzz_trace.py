"""Coverage-guided fuzzing of the trace reader and the replay behind it (make fuzz)."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

import nasty

# First and plain: the kernels are compiled from their source, which instrumented code is no longer.
from kvbudget.errors import KvbudgetError
from kvbudget.residency.curve import curve
from kvbudget.residency.replay import Policy, Setup, replay

with atheris.instrument_imports(include=["kvbudget.residency"]):
    from kvbudget.residency.load import load

REQUESTS = [
    {"timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [7, 9, 11]},
    {"timestamp": 250, "input_length": 32, "output_length": 3, "hash_ids": [7, 12]},
    {"timestamp": 900, "input_length": 48, "output_length": 3, "hash_ids": [7, 9, 11]},
]
STORED = {
    "type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": None, "token_ids": [5],
    "block_size": 16, "lora_id": None, "medium": "GPU",
}  # fmt: skip
EVENTS = [
    {"ts": 1.0, "events": [STORED]},
    [2.0, [["BlockStored", [3, 4], 2, [5], 16, None, "GPU"]], 0],
    {"ts": 3.0, "events": [{"type": "AllBlocksCleared"}, {**STORED, "parent_block_hash": 2}]},
]
LOOKUPS = [
    {"timestamp": 1.0, "seq_len": 512, "chunk_hashes": [1, 2], "chunk_size": 256},
    {"timestamp": 2.0, "num_tokens": 700, "chunk_hashes": ["a", 3]},
]
FILE = Path(tempfile.mkdtemp()) / "trace.jsonl"


def one_input(data: bytes) -> None:
    """Spoilt records of each format, damaged text or a damaged gzip file, to hits."""
    provider = atheris.FuzzedDataProvider(data)
    rows = nasty.spoil(provider, provider.PickValueInList([REQUESTS, EVENTS, LOOKUPS]))
    end = provider.PickValueInList(["\n", "\r\n", "\r", "\n\n"])
    text = end.join(map(json.dumps, rows)).encode()
    kind = provider.ConsumeIntInRange(0, 7)
    if kind == 0:
        text = nasty.damage(provider, gzip.compress(text))
    elif kind < 4:
        text = nasty.damage(provider, text)
    FILE.write_bytes(text)
    try:
        trace = load(
            str(FILE), block_tokens=provider.PickValueInList([1, 16, 512]),
            sort=provider.ConsumeBool(), local_ids=provider.ConsumeBool(), cache=False,
        )  # fmt: skip
        curve(trace)
        setup = Setup(provider.PickValueInList(list(Policy)), 2, 3, None)
        replay(trace, setup, bin_s=60.0)
    except KvbudgetError:
        pass


if __name__ == "__main__":
    nasty.run(one_input)
