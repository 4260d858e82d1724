"""Pools that two other planners predict for the same start-ups, as JSON for capacity_accuracy.py.

Run it with a Python that has them: pip install aiconfigurator-core==0.12.0 llm-d-planner==0.3.3

    PEER_PYTHON tests/bench/peer_predictions.py ROWS.jsonl CONFIGS -o peers.json

llm-d-planner asks a hub for parameter counts; here it is given the printed weights instead (in its
favour). A row a tool refuses is null. `--fractions` prints aiconfigurator's default SGLang
fractions on a grid of cards and ranks instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 2**30
SYSTEMS = {
    "H100-80GB": "h100_sxm", "H200": "h200_sxm", "A100-80GB": "a100_sxm", "L40S": "l40s",
    "L4": "l4", "B200": "b200_sxm", "RTX PRO 6000": "rtx_pro_6000_server",
}  # fmt: skip


def namespace(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{key: namespace(item) for key, item in value.items()})
    return value


def configurator(row: dict[str, Any], folder: Path) -> float | None:
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    system = SYSTEMS.get(row["gpu"])
    flags = row["flags"]
    if system is None or not flags.get("gpu_memory_utilization"):
        return None
    answer = estimate_kv_cache(
        str(folder), system, "vllm", "0.24.0",
        max_num_tokens=flags.get("max_num_batched_tokens") or 8192,
        max_batch_size=flags.get("max_num_seqs") or 256,
        memory_fraction_kind="of_total", memory_fraction_value=flags["gpu_memory_utilization"],
        tp_size=row["tp"] or 1, pp_size=row["pp"] or 1, kvcache_quant_mode="bfloat16",
        gpu_memory_capacity_bytes_override=int(row["gpu_total_gib"] * GIB),
    )  # fmt: skip
    return float(answer["total_kv_size_bytes"])


def planner(row: dict[str, Any], folder: Path) -> float | None:
    from planner import capacity_planner as llmd

    tp, pp = row["tp"] or 1, row["pp"] or 1
    weights = row["observed"]["weights_gib"] * tp * pp
    llmd.model_memory_req = lambda *_args, **_kwargs: weights
    config = namespace(json.loads((folder / "config.json").read_text()))
    total = llmd.allocatable_kv_cache_memory(
        "local", config, row["gpu_total_gib"], row["flags"]["gpu_memory_utilization"], tp, pp
    )
    return float(total / (tp * pp) * GIB)


def fractions() -> list[list[float]]:
    """[MiB of the card, ranks, fraction] over cards and tensor-parallel sizes."""
    from aiconfigurator_core.sdk.backends.sglang_backend import derive_sglang_mem_fraction_static

    cards = [15360, 20480, 23034, 24564, 32607, 40960, 46068, 49140, 65536, 81559, 81920, 95830,
             97871, 143771, 163840, 183359, 196592, 275040]  # fmt: skip
    return [
        [card, tp, derive_sglang_mem_fraction_static(card << 20, tp)]
        for card in cards
        for tp in (1, 2, 4, 8, 16)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("configs", type=Path, nargs="?")
    parser.add_argument("--fractions", action="store_true")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    if options.fractions:
        options.output.write_text(json.dumps(fractions()))
        return 0
    tools = {"aiconfigurator 0.12.0": configurator, "llm-d-planner 0.3.3": planner}
    found: dict[str, dict[str, float | None]] = {}
    for line in options.rows.read_text().splitlines():
        row = json.loads(line)
        if row["engine"] != "vllm" or not row["model_config"]:
            continue
        for name, tool in tools.items():
            try:
                value = tool(row, options.configs / row["model_config"])
            except Exception as exc:  # a planner refuses in many ways
                print(
                    f"{name} refuses {row['model_config']}: {type(exc).__name__}: {str(exc)[:120]}",
                    file=sys.stderr,
                )
                value = None
            found.setdefault(row["id"], {})[name] = value
    options.output.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
