"""What a capacity planner reads: one document from one trace, one device pool and one host pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvbudget.residency import documents, sweep
from kvbudget.residency import windows as win
from kvbudget.residency.curve import Curve
from kvbudget.residency.curve import curve as all_capacities
from kvbudget.residency.links import Link, judge
from kvbudget.residency.replay import TREE, Policy, Result, Setup, replay
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.residency.trace import Trace

Document = dict[str, Any]

MONTH_S = 30 * 24 * 3600
BIN_S = 60.0
POINTS = 160


@dataclass(frozen=True, slots=True)
class Question:
    """Everything a report needs beside the trace; None is unknown and stays unknown.

    prefill_rate: tokens/s of one rank. host_gib_month and gpu_hour: money, in any one currency.
    """

    setup: Setup
    bytes_per_token: int | None
    prefill_rate: float | None
    links: Sequence[Link]
    host_gib_month: float | None
    gpu_hour: float | None
    assumptions: Sequence[str]


def report(trace: Trace, ask: Question, progress: sweep.Progress | None = None) -> Document:
    """The whole document; every figure is of one rank and of this trace."""
    found = all_capacities(trace)
    every = _policies(ask.setup)
    results = sweep.run(trace, every, progress=progress)
    chosen = replay(trace, ask.setup, bin_s=BIN_S)
    single = found.at(_size(ask.setup.l1_blocks, trace))[1]
    rows = [_row(trace, ask, result, single) for result in results]
    mine = _row(trace, ask, chosen, single)
    gaps = win.gaps_us(trace)
    stays = documents.tier_windows(trace, ask.setup)
    document: Document = {
        "schema": "kvbudget.residency-report/1",
        "trace": trace.summary(),
        "config": ask.setup.as_config(),
        "bytes_per_token": ask.bytes_per_token,
        "prefill_rate_tok_s": ask.prefill_rate,
        "curve": _curve(trace, found, ask),
        "result": mine,
        "policies": rows,
        "windows": stays,
        "gaps": win.histogram(gaps),
        "gap_shares": _shares(trace, gaps, stays, ask.setup),
        "traffic": _traffic(trace, chosen, ask),
        "links": [_link(link, ask) for link in ask.links],
        "verdict": _verdict(mine, rows),
        "assumptions": list(ask.assumptions),
    }
    document["notes"] = [*trace.notes, *_warnings(trace, ask, chosen)]
    return document


def _policies(setup: Setup) -> list[Setup]:
    rows = [replace(setup, policy=Policy.lru, l2_blocks=0, l3_blocks=0)]
    for policy in Policy:
        if policy is Policy.lru:
            continue
        l3 = setup.l3_blocks if policy in TREE else 0
        rows.append(replace(setup, policy=policy, l3_blocks=l3))
    return rows


def _size(blocks: int | None, trace: Trace) -> int:
    return trace.blocks + 1 if blocks is None else blocks


def _row(trace: Trace, ask: Question, result: Result, single_tokens: int) -> Document:
    """One policy: hits, bytes, seconds and money. `gained_tokens`: beyond the device pool."""
    counters = result.counters
    gained = counters["hit_tokens"] - single_tokens
    rate, block = ask.prefill_rate, _block_bytes(trace, ask)
    lower = counters["l2_hit_blocks"] + counters["l3_hit_blocks"]
    row: Document = {
        "config": result.setup.as_config(),
        **counters,
        "hit_blocks": result.hit_blocks,
        "block_hit_rate": result.hit_blocks / trace.accesses if trace.accesses else None,
        "token_hit_rate": counters["hit_tokens"] / trace.tokens if trace.tokens else None,
        "gained_tokens": gained,
        "avoided_gpu_s": None if rate is None else counters["hit_tokens"] / rate,
        "gained_gpu_s": None if rate is None else gained / rate,
        "write_amplification": counters["d2h_blocks"] / lower if lower else None,
    }
    for name in ("d2h", "h2d", "h2s", "s2h"):
        row[f"{name}_bytes"] = None if block is None else counters[f"{name}_blocks"] * block
    row |= _money(trace, ask, result, row)
    return row


def _block_bytes(trace: Trace, ask: Question) -> int | None:
    return None if ask.bytes_per_token is None else ask.bytes_per_token * trace.block_tokens


def _money(trace: Trace, ask: Question, result: Result, row: Document) -> Document:
    """Host memory against the GPU seconds it saves, both per month at the trace's pace."""
    block, size = _block_bytes(trace, ask), result.setup.l2_blocks
    cost = saved = None
    if block is not None and size is not None and ask.host_gib_month is not None:
        cost = size * block / GIB * ask.host_gib_month
    if row["gained_gpu_s"] is not None and ask.gpu_hour is not None and trace.span_s:
        saved = row["gained_gpu_s"] / 3600 * ask.gpu_hour * MONTH_S / trace.span_s
    pays: bool | None = None
    if size == 0:
        pays = None
    elif row["gained_tokens"] <= 0:
        pays = False
    elif cost is not None and saved is not None:
        pays = saved > cost
    return {"host_cost_month": cost, "saved_month": saved, "pays": pays}


def _verdict(mine: Document, rows: list[Document]) -> Document:
    """pays, does not pay, wrong policy (another one would), or unknown with what is missing."""
    others = [r for r in rows if r["config"]["policy"] not in ("lru", "exclusive")]
    best = max(others, key=lambda r: r["gained_tokens"], default=None)
    name = best["config"]["policy"] if best else None
    if mine["pays"] is None:
        answer, why = "unknown", "give --prefill-rate, --host-cost and --gpu-cost for a verdict"
        if best is not None and mine["gained_tokens"] <= 0 < best["gained_tokens"]:
            answer, why = "wrong policy", f"{name} would gain {best['gained_tokens']:,} tokens"
    elif mine["pays"]:
        answer, why = "pays", "the GPU seconds it saves cost more than the memory"
    elif best is not None and (
        best["pays"] or (mine["gained_tokens"] <= 0 < best["gained_tokens"])
    ):
        answer, why = "wrong policy", f"{name} would gain {best['gained_tokens']:,} tokens"
    else:
        answer, why = "does not pay", "it saves fewer GPU seconds than the memory costs"
        if mine["gained_tokens"] <= 0:
            why = "nothing hits in it"
    return {"answer": answer, "why": why, "best_engine_policy": name}


def _curve(trace: Trace, found: Curve, ask: Question) -> Document:
    places = found.distinct()
    if len(places) > POINTS:
        last = len(places) - 1
        places = [places[round(k * last / (POINTS - 1))] for k in range(POINTS)]
    block = _block_bytes(trace, ask)
    points = []
    for capacity in places:
        blocks, tokens = found.at(capacity)
        points.append(
            {
                "capacity_blocks": capacity,
                "capacity_bytes": None if block is None else capacity * block,
                "hit_blocks": blocks,
                "hit_tokens": tokens,
            }
        )
    return {
        "points": points,
        "knee_blocks": found.knee(),
        "ceiling_hit_blocks": found.ceiling,
        "ceiling_hit_tokens": found.token_ceiling,
    }


def _shares(trace: Trace, gaps: Any, stays: list[Document], setup: Setup) -> Document:  # noqa: ANN401
    """Reuses by gap: below W1 (the device hits), up to W2 (only the host can), beyond."""
    edges = [row["p50_s"] for row in stays]
    w1 = edges[0]
    w2 = edges[1] if len(edges) > 1 else None
    n = len(gaps)
    if not n:
        return {"below_w1": None, "w1_to_w2": None, "beyond": None, "w1_s": w1, "w2_s": w2}
    below = sum(1 for g in gaps if w1 is None or g <= w1 * 1e6)
    within = below
    if setup.l2_blocks != 0:
        within = max(below, sum(1 for g in gaps if w2 is None or g <= w2 * 1e6))
    return {
        "below_w1": below / n,
        "w1_to_w2": (within - below) / n,
        "beyond": (n - within) / n,
        "w1_s": w1,
        "w2_s": w2,
    }


def _traffic(trace: Trace, chosen: Result, ask: Question) -> Document:
    """Bytes (blocks where bytes per token is unknown) per minute of the chosen policy."""
    block = _block_bytes(trace, ask) or 1
    rows = {name: [v * block for v in row] for name, row in chosen.traffic.items()}
    return {
        "bin_s": BIN_S,
        "unit": "blk" if ask.bytes_per_token is None else "B",
        "series": {name.removesuffix("_blocks"): row for name, row in rows.items()},
        "mean_per_s": {
            name.removesuffix("_blocks"): sum(row) / trace.span_s if trace.span_s else None
            for name, row in rows.items()
        },
        "peak_per_s": {
            name.removesuffix("_blocks"): max(row) / BIN_S if row else None
            for name, row in rows.items()
        },
    }


def _link(link: Link, ask: Question) -> Document:
    row: Document = {"name": link.name, "bandwidth": link.bandwidth, "source": link.source}
    if ask.bytes_per_token is None:
        return {**row, "read_threshold_tok_s": None, "ratio": None, "verdict": None}
    found = judge(link, ask.bytes_per_token, ask.prefill_rate)
    return {
        **row,
        "read_threshold_tok_s": found.read_threshold,
        "ratio": found.ratio,
        "verdict": found.verdict,
    }


def _warnings(trace: Trace, ask: Question, chosen: Result) -> list[str]:
    from kvbudget.residency.setups import warnings

    notes = warnings(ask.setup)
    if chosen.counters["cut_requests"]:
        notes.append(f"{chosen.counters['cut_requests']} requests are longer than L1 and were cut")
    if ask.setup.l3_blocks != 0 and ask.setup.prefetch_threshold <= trace.block_tokens:
        notes.append(
            f"a block is {trace.block_tokens} tokens: a prefetch threshold of "
            f"{ask.setup.prefetch_threshold} only ever refuses a partial last block"
        )
    notes.append("the host pool is that of one rank: a node pins it once per rank")
    notes.append("a time-free cache: transfers complete at once, running requests pin nothing")
    return notes
