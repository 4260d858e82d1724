"""Modelled terms beside the figures that real start-ups printed: the terms table of accuracy.md.

    python tests/bench/capacity_terms.py ROWS.jsonl CONFIGS [--fractions FILE]

Peaks: those of tests/unit/test_activation_peaks.py. Weights: unquantised text models. Encoder
pass: multimodal start-ups of the V0 engine. Graph estimates: as shipped, and with the four
constants refitted by least squares without the model that is looked at. Fractions: a peer's
default SGLang fractions, as peer_predictions.py --fractions writes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import test_activation_peaks as peaks
from capacity_blind import batch_of, peak_of, setting_of
from capacity_rows import GIB, derived, read_rows

from kvbudget.formula.evaluate import Facts, evaluate
from kvbudget.formula.interval import Interval
from kvbudget.formula.registry import load_engine
from kvbudget.model.eras import constants
from kvbudget.model.estimate import weights_memory

Row = dict[str, Any]
RESOLUTION = 0.03
"""GiB: small tensors that no config states, and what a figure of two decimals hides."""


def described(errors: list[float], unit: str) -> str:
    sizes = [abs(error) for error in errors]
    return (f"{len(sizes)}: mean {statistics.mean(sizes):.2f} {unit}, "
            f"worst {max(sizes):.2f} {unit}")  # fmt: skip


def peak_errors(rows: list[tuple[Any, ...]]) -> list[float]:
    return [100 * peaks.error(*row) for row in rows]


def weight_errors(rows: list[Row], configs: Path) -> list[tuple[float, str]]:
    """GiB by which the modelled weights miss the printed ones, and whose."""
    found = []
    for row in rows:
        result = derived(row, configs)
        if row["engine"] != "vllm" or row["quantization"] or result is None:
            continue
        model = result.request.model
        if model is None or model.is_multimodal or (row["pp"] or 1) > 1:
            continue
        held = weights_memory(
            model.with_dtype(row["flags"].get("dtype") or "auto"), setting_of(row)
        )
        error = held.amount.value / GIB - row["observed"]["weights_gib"]
        found.append((error, f"{row['model_config']} {row['version']}"))
    return found


def encoder_errors(rows: list[Row], configs: Path) -> list[str]:
    said = []
    for row in rows:
        printed = row["observed"].get("peak_activation_gib")
        if not printed or not str(row["version"]).endswith("V0"):
            continue
        peak, batch = peak_of(row, configs), batch_of(row, configs)
        if peak is not None and batch is not None and batch[0].is_multimodal:
            said.append(
                f"{row['model_config']} {100 * (peak.amount.value / GIB / printed - 1):+.0f} %"
            )
    return said


def graph_table(rows: list[Row], configs: Path) -> list[tuple[str, float, list[float]]]:
    """(model, printed GiB, the four terms) of start-ups that print an estimate."""
    table = []
    shipped = next(r for r in constants("vllm")["graph_estimate"] if r["applied"])
    for row in rows:
        printed, batch = row["observed"].get("cuda_graph_est_gib"), batch_of(row, configs)
        if row["engine"] != "vllm" or printed is None or batch is None:
            continue
        if row["flags"].get("max_num_seqs") is None or (row["pp"] or 1) > 1:
            continue
        model, wanted = batch
        share = min(shipped["batch"], 2 * wanted.requests) / shipped["batch"]
        terms = [1.0, float(model.num_hidden_layers), model.hidden_size / 4096, float(model.is_moe)]
        table.append((row["model_config"], printed, [share * term for term in terms]))
    return table


def graph_errors(table: list[tuple[str, float, list[float]]]) -> tuple[list[float], list[float]]:
    row = next(r for r in constants("vllm")["graph_estimate"] if r["applied"])
    shipped = np.array([row["scaled"], row["per_layer"], row["per_4096"], row["moe"]])
    as_shipped = [float(np.dot(shipped, terms)) - printed for _, printed, terms in table]
    blind = []
    for name, printed, terms in table:
        others = [(p, t) for other, p, t in table if other != name]
        fit, *_ = np.linalg.lstsq(
            np.array([t for _, t in others]), np.array([p for p, _ in others]), rcond=None
        )
        blind.append(float(np.dot(fit, terms)) - printed)
    return as_shipped, blind


def fractions(file: Path) -> str:
    """How many of a peer's [MiB of the card, ranks, fraction] are ours too."""
    engine, version = load_engine("sglang"), "0.5.16"
    programs = engine.programs(version, engine.selectors(version, {}))
    part = [program for program in programs if program.part == "fraction"]
    texts = {"attention": "full", "cuda_graph_backend_prefill": "disabled"}
    rows = json.loads(file.read_text())
    equal = 0
    for card, tp, theirs in rows:
        numbers = {"smi_memory_mib": Interval.exact(card), "tp_size": Interval.exact(tp)}
        ours = evaluate(part, Facts(numbers, texts, {})).numbers["mem_fraction_static"].best
        equal += ours == theirs
    return f"{equal} of {len(rows)} default fractions equal"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--fractions", type=Path)
    options = parser.parse_args()
    rows = read_rows(options.rows, options.configs)
    print("printed peaks, all", described(peak_errors(peaks.DENSE + peaks.OTHERS), "%"))
    print("printed peaks, dense", described(peak_errors(peaks.DENSE), "%"))
    held = weight_errors(rows, options.configs)
    print("weights, unquantised text", described([error for error, _ in held], "GiB"))
    far = [f"{name} {error:+.2f}" for error, name in held if abs(error) > RESOLUTION]
    print(f"of these {len(held) - len(far)} within {RESOLUTION} GiB; the others: {', '.join(far)}")
    print("encoder pass:", ", ".join(encoder_errors(rows, options.configs)))
    low, high = next(r for r in constants("vllm")["graph_estimate"] if r["applied"])["band"]
    names = ("graph estimate, shipped", "graph estimate, refitted without the model")
    for name, errors in zip(names, graph_errors(graph_table(rows, options.configs)), strict=True):
        inside = sum(-low <= -error <= high for error in errors)
        print(name, described(errors, "GiB") + f", {inside} inside -{low} / +{high}")
    if options.fractions:
        print(fractions(options.fractions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
