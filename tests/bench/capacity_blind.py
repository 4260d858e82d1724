"""Constants refitted without a group of start-ups, and the error on what was held out.

    python tests/bench/capacity_blind.py ROWS.jsonl CONFIGS [--by group|campaign]

A group is one model with its settings, a campaign everything one source measured. Whatever of
formulas/activation.yaml was read from start-ups is read again from the others: memory outside
torch and its low and high distance kept, the runner's residues, FlashInfer's bytes per logit, the
spread of a busy card. A cell that loses all its start-ups takes the figure of the nearest earlier
release with the same number of ranks. The shapes of the formulas are not refitted: they were
written with these rows in view.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

from capacity_rows import GIB, Result, card, core, derived, predict, read_rows, release

from kvbudget.derive.catalogue import find_gpu
from kvbudget.model import eras
from kvbudget.model.activation import Batch, activation_peak
from kvbudget.model.config import load_model

if TYPE_CHECKING:
    from kvbudget.model.activation import Peak
    from kvbudget.model.config import Model

Row = dict[str, Any]
Tables = dict[str, Any]


def setting_of(row: Row) -> eras.Setting:
    name = card(row)
    gpu = find_gpu(name) if name else None
    return eras.Setting(
        row["engine"], release(row), core(row) or None, row["tp"] or 1, row["pp"] or 1,
        gpu.peer if gpu else None, gpu.compute_capability if gpu else None,
    )  # fmt: skip


def cell(row: Row, name: str) -> int | None:
    """Which row of the table the start-up is computed with."""
    setting = setting_of(row)
    for number, entry in enumerate(eras.constants(row["engine"]).get(name, [])):
        if eras._applies(setting, entry):
            return number
    return None


BATCHES: dict[str, tuple[Model, Batch] | None] = {}
"""Model and batch of a start-up, by id: no constant that is refitted touches them."""


def batch_of(row: Row, configs: Path) -> tuple[Model, Batch] | None:
    if row["id"] not in BATCHES:
        BATCHES[row["id"]] = _batch_of(row, configs)
    return BATCHES[row["id"]]


def _batch_of(row: Row, configs: Path) -> tuple[Model, Batch] | None:
    found = derived(row, configs)
    if found is None:
        return None
    tokens, requests = found.amount("max_num_batched_tokens"), found.amount("max_num_seqs")
    if tokens is None or requests is None:
        return None
    flags, sms = row["flags"], found.gathered.value("sm_count")
    model = load_model(configs / row["model_config"]).with_dtype(flags.get("dtype") or "auto")
    return model, Batch(int(tokens.value), int(requests.value), flags.get("sampler"), sms)


def peak_of(row: Row, configs: Path) -> Peak | None:
    """The modelled peak of a start-up whose batch is known."""
    found = batch_of(row, configs)
    return activation_peak(found[0], setting_of(row), found[1]) if found else None


def refit(rows: list[Row], configs: Path, shipped: Tables) -> Tables:
    """The shipped tables with every fitted figure taken from `rows` alone."""
    tables = copy.deepcopy(shipped)
    vllm = tables["vllm"]
    _non_torch(vllm["non_torch_gib"], [r for r in rows if r["engine"] == "vllm"])
    for entry in vllm["residue_gib"]:
        entry |= {"sampler": 0.0, "forward": 0.0}
    with patch.object(eras, "_load", return_value=tables):
        _residues(vllm["residue_gib"], rows, configs)
        _flashinfer(vllm["sampler"], rows, configs)
    busy = [r for r in rows if r["engine"] == "sglang" and r["gpu"] == "GB10"]
    if not busy:
        quiet = tables["sglang"]["rank_spread_gib"][-1]["gib"]
        for entry in tables["sglang"]["rank_spread_gib"][:2]:
            entry["gib"] = quiet
    return tables


def _non_torch(table: list[dict[str, Any]], rows: list[Row]) -> None:
    seen: dict[int, list[float]] = {}
    for row in rows:
        printed, number = row["observed"].get("non_torch_gib"), cell(row, "non_torch_gib")
        if printed is not None and number is not None:
            seen.setdefault(number, []).append(printed)
    for number, entry in enumerate(table):
        low, best, high = entry["gib"]
        if number in seen:
            found = median(seen[number])
        elif "fitted" in entry["reason"]:
            found = _earlier(table, seen, number)
        else:
            continue
        entry["gib"] = [max(0.0, found + low - best), found, found + high - best]


def _earlier(table: list[dict[str, Any]], seen: dict[int, list[float]], number: int) -> float:
    ranks = table[number].get("ranks")
    for other in range(number - 1, -1, -1):
        if other in seen and table[other].get("ranks") == ranks:
            return median(seen[other])
    return 0.0


def _residues(table: list[dict[str, Any]], rows: list[Row], configs: Path) -> None:
    rest: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        printed = row["observed"].get("peak_activation_gib")
        peak = peak_of(row, configs) if printed else None
        if peak is None or row["flags"].get("max_num_seqs") is None:
            continue
        rest.setdefault((eras.generation(setting_of(row)), peak.bound), []).append(
            printed - peak.amount.value / GIB
        )
    for entry in table:
        for bound in ("sampler", "forward"):
            found = rest.get((entry["generation"], bound), [0.0])
            entry[bound] = max(0.0, median(found))


def _flashinfer(table: list[dict[str, Any]], rows: list[Row], configs: Path) -> None:
    """Bytes per logit from pools alone: those start-ups print no peak."""
    found = []
    for row in rows:
        if row["flags"].get("sampler") != "flashinfer" or release(row) > "0.10.2":
            continue
        result = predict(row, configs)
        model = load_model(configs / row["model_config"])
        logits = model.vocab_size * row["flags"]["max_num_seqs"]
        if result is not None:
            found.append(6 + (result.best - result.observed) / logits)
    bytes_each = max(0, round(median(found))) if found else 8
    for entry in table:
        if "flashinfer" in entry["per_logit"]:
            entry["per_logit"]["flashinfer"] = bytes_each


def key_of(row: Row, by: str) -> str:
    return str(row["group"]) if by == "group" else str(row["group"]).partition("|")[0]


def blind(rows: list[Row], configs: Path, by: str) -> list[Result]:
    shipped = copy.deepcopy(eras._load())
    out = []
    for held in sorted({key_of(row, by) for row in rows}):
        others = [row for row in rows if key_of(row, by) != held]
        with patch.object(eras, "_load", return_value=refit(others, configs, shipped)):
            found = [predict(row, configs) for row in rows if key_of(row, by) == held]
        out += [replace(result) for result in found if result is not None]
    return out


def main() -> int:
    from capacity_accuracy import summary

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--by", choices=("group", "campaign"), action="append")
    options = parser.parse_args()
    rows = read_rows(options.rows, options.configs)
    for by in options.by or ("group", "campaign"):
        results = blind(rows, options.configs, by)
        for engine in ("vllm", "sglang"):
            mine = [result for result in results if result.row["engine"] == engine]
            print(f"{engine}, held out by {by}: {summary(mine)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
