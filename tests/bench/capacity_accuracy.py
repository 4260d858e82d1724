"""Predicted pools beside those that real servers printed: the capacity tables of accuracy.md.

    python tests/bench/capacity_accuracy.py ROWS.jsonl CONFIGS [--peers FILE] [--into PAGE.md]

ROWS: capacity_rows.py says what a row holds. `--peers` names a JSON file {row id: {tool: bytes or
null}} made by peer_predictions.py. `--into` replaces what stands between the marks of a page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from capacity_blind import blind, cell
from capacity_rows import GIB, Result, predict, read_rows, release

from kvbudget.model import eras

MARK = "<!-- {} {}: make accuracy -->"
Peers = dict[str, dict[str, float | None]]
WORDS = {
    "vllm": "vLLM (weights modelled; printed where quantised)",
    "sglang": "SGLang (given its two printed free-memory figures)",
}


def summary(results: list[Result]) -> str:
    """Cells: start-ups, median and mean error, bias, share inside, median width."""
    errors = [result.error for result in results]
    widths = [(r.high - r.low) / r.observed * 100 for r in results]
    inside = sum(r.inside for r in results) / len(results)
    return (
        f"{len(results)} | {statistics.median(map(abs, errors)):.2f} % | "
        f"{statistics.mean(map(abs, errors)):.2f} % | {statistics.mean(errors):+.2f} % | "
        f"{inside:.0%} | {statistics.median(widths):.1f} %"
    )


def fitted(row: dict[str, Any]) -> str:
    """Which figures of activation.yaml were read from this start-up, as letters."""
    seen, marks = row["observed"], ""
    if row["engine"] == "sglang":
        return "S" if row["gpu"] == "GB10" else ""
    number = cell(row, "non_torch_gib")
    table = eras.constants("vllm")["non_torch_gib"]
    if number is not None and "fitted" in table[number]["reason"]:
        printed = seen.get("non_torch_gib") is not None
        marks += "N" if printed or "capability_below" in table[number] else ""
    marks += "R" if seen.get("peak_activation_gib") is not None else ""
    marks += "F" if row["flags"].get("sampler") == "flashinfer" and release(row) < "0.10.2" else ""
    marks += "G" if release(row) == "0.19.0" and seen.get("cuda_graph_est_gib") else ""
    return marks


def peer_lines(results: list[Result], peers: Peers) -> list[str]:
    tools = sorted({tool for row in peers.values() for tool in row})
    lines = []
    for tool in tools:
        errors = [
            (value - r.observed) / r.observed * 100
            for r in results
            if (value := peers.get(r.row["id"], {}).get(tool)) is not None
        ]
        lines.append(
            f"| {tool}, the rows it accepts | {len(errors)} | "
            f"{statistics.median(map(abs, errors)):.1f} % | "
            f"{statistics.mean(map(abs, errors)):.1f} % | {statistics.mean(errors):+.1f} % "
            "| - | - |"
        )
    return lines


def of(engine: str, results: list[Result]) -> list[Result]:
    return [result for result in results if result.row["engine"] == engine]


def summaries(results: list[Result], peers: Peers, held: dict[str, list[Result]]) -> str:
    lines = ["| | start-ups | median error | mean | bias | inside | median width |",
             "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for engine, words in WORDS.items():
        lines.append(f"| {words} | {summary(of(engine, results))} |")
        for by, blinds in held.items():
            what = f"the same, each {by} held out and the constants refitted"
            lines.append(f"| {what} | {summary(of(engine, blinds))} |")
        if engine == "vllm":
            lines += peer_lines(of(engine, results), peers)
    return "\n".join(lines)


def tables(results: list[Result], peers: Peers) -> str:
    return "\n\n".join("\n".join(table(engine, of(engine, results), peers)) for engine in WORDS)


def table(engine: str, results: list[Result], peers: Peers) -> list[str]:
    tools = sorted({tool for row in peers.values() for tool in row}) if engine == "vllm" else []
    unit = "GiB" if engine == "vllm" else "tokens"
    head = ["release", "model", "card", "TP", f"low ({unit})", "best", "high", "observed", "error",
            "inside", "fitted", *tools]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * 4 + "|---:" * 5 + "|---" * 2
             + "|---:" * len(tools) + "|"]  # fmt: skip
    for r in results:
        shown = [f"{x / GIB:.2f}" if engine == "vllm" else f"{int(x):,}"
                 for x in (r.low, r.best, r.high, r.observed)]  # fmt: skip
        ways = str(r.row["tp"]) + (f" PP{r.row['pp']}" if (r.row["pp"] or 1) > 1 else "")
        name = r.row["model_config"] + (
            f" ({r.row['quantization']})" if r.row["quantization"] else ""
        )
        cells = [str(r.row["version"]), name, str(r.row["gpu"]), ways, *shown,
                 f"{r.error:+.2f} %", "yes" if r.inside else "**no**", fitted(r.row)]  # fmt: skip
        theirs = peers.get(r.row["id"], {})
        cells += [peer_cell(theirs.get(tool), r.observed) for tool in tools]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def peer_cell(value: float | None, observed: float) -> str:
    return "-" if value is None else f"{(value - observed) / observed * 100:+.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    rows = read_rows(options.rows, options.configs)
    found = [predict(row, options.configs) for row in rows]
    results = [result for result in found if result is not None]
    peers = json.loads(options.peers.read_text()) if options.peers else {}
    held = {by: blind(rows, options.configs, by) for by in ("group", "campaign")}
    parts = {"summary": summaries(results, peers, held), "rows": tables(results, peers)}
    if options.into is None:
        print("\n\n".join(parts.values()))
    else:
        text = options.into.read_text()
        for name, part in parts.items():
            start, end = MARK.format("start of", name), MARK.format("end of", name)
            before, rest = text.split(start)
            text = f"{before}{start}\n{part}\n{end}{rest.split(end)[1]}"
        options.into.write_text(text)
    return 0 if len(results) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
