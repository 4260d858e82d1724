"""The JSON documents of `kvbudget residency`: the one shape every renderer starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.residency import windows as win
from kvbudget.residency.curve import Curve
from kvbudget.residency.curve import curve as all_capacities
from kvbudget.residency.replay import Policy, Result, Setup, replay
from kvbudget.residency.sizes import tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.residency.links import Link
    from kvbudget.residency.trace import Trace

Document = dict[str, Any]

INCLUSIVE = frozenset({Policy.write_through, Policy.vllm_eager})


def window(
    l1: str,
    l2: str | None,
    rate: float,
    policy: Policy | None,
    block_tokens: int | None,
    bytes_per_token: int | None,
    trace: Trace | None,
) -> Document:
    """`residency window`: `rate` in tokens/s. Raises InputError for a rate of 0 or less."""
    from kvbudget.residency.transfer import values

    if not rate > 0:
        raise InputError("a rate of 0 or less", "give --rate in tokens per second")
    first = tokens_of(l1, block_tokens, bytes_per_token)
    second = None if l2 is None else tokens_of(l2, block_tokens, bytes_per_token)
    form = values(
        "windows", l1_tokens=float(first), token_rate=rate,
        l2_tokens=None if second is None else float(second),
    )  # fmt: skip
    l1_s = form["l1_window"]
    rows: list[Document] = [{"tier": "l1", "seconds": l1_s, "tokens": float(first)}]
    notes = [win.SIMPLE_FORM_NOTE]
    if second is not None:
        inclusive, exclusive = form["inclusive_window"], form["exclusive_window"]
        both: Document = {
            "tier": "l1+l2",
            "inclusive_seconds": inclusive,
            "exclusive_seconds": exclusive,
            "tokens": float(second),
        }
        rows.append(both)
        if policy is Policy.exclusive:
            both["seconds"] = exclusive
        elif policy in INCLUSIVE:
            both["seconds"] = inclusive
        elif policy is not None:
            both["seconds"] = None
            notes.append(f"{policy} lies between the two forms: residency simulate says where")
        if inclusive > l1_s:
            notes.append(
                f"an inclusive host tier serves reuse gaps between {l1_s / 60:.1f} and "
                f"{inclusive / 60:.1f} min: below, the device hits anyway; above, both miss"
            )
        else:
            notes.append(
                "the host pool is not larger than the device pool: an inclusive tier adds nothing"
            )
    document: Document = {
        "schema": "kvbudget.residency-window/1",
        "rate_tok_s": rate,
        "policy": None if policy is None else str(policy),
        "windows": rows,
        "working_set": None,
        "notes": notes,
    }
    if trace is not None:
        gaps = win.gaps_us(trace)
        size = trace.block_tokens
        reach = {"l1": first}
        if second is not None:
            reach["l1+l2 inclusive"] = max(first, second)
            reach["l1+l2 exclusive"] = first + second
        document["trace"] = trace.summary()
        document["working_set"] = [
            {"tier": tier, "seconds": win.working_set(trace, gaps, int(tokens // size))}
            for tier, tokens in reach.items()
        ]
        document["gaps"] = win.histogram(gaps)
    return document


def links(
    found: Sequence[Link],
    bytes_per_token: int,
    prefill_rate: float | None,
    latency_s: float | None,
) -> Document:
    """`residency links`: thresholds in tokens per second."""
    from kvbudget.residency.links import Link, judge

    rows = []
    for link in found:
        timed = link
        if link.latency_s is None and latency_s is not None:
            timed = Link(link.name, link.bandwidth, latency_s, link.source)
        verdict = judge(timed, bytes_per_token, prefill_rate)
        rows.append(
            {
                "name": timed.name,
                "bandwidth": timed.bandwidth,
                "source": timed.source,
                "read_threshold_tok_s": verdict.read_threshold,
                "swap_threshold_tok_s": verdict.swap_threshold,
                "ratio": verdict.ratio,
                "verdict": verdict.verdict,
                "latency_s": timed.latency_s,
                "break_even_tokens": verdict.break_even_tokens,
            }
        )
    return {
        "schema": "kvbudget.residency-links/1",
        "bytes_per_token": bytes_per_token,
        "prefill_rate_tok_s": prefill_rate,
        "links": rows,
        "notes": [
            "read threshold = bandwidth / bytes per token: a cached prefix crosses the link once, "
            "inwards; swap threshold is half of it, a preempted request crosses twice",
            "peak rates are ceilings: measured ones are lower, which only moves a verdict towards "
            "recompute; links shared by ranks divide",
            "SGLang leaves the storage tier alone below 256 tokens, host RAM below 10: the fixed "
            "cost of a transfer exceeds computing so short a prefix; break_even_tokens is that "
            "length for a given start-up time",
        ],
    }


def curve(trace: Trace, at: Sequence[int] | None, *, sample: bool = False) -> Document:
    """`residency curve`: every capacity that gains a hit, or those of `at`; with `sample` a few
    dozen of them, for reading."""
    found = all_capacities(trace)
    places: Sequence[int] = found.distinct() if at is None else at
    if at is None and sample and len(places) > 24:
        places = [places[round(k * (len(places) - 1) / 23)] for k in range(24)]
    return {
        "schema": "kvbudget.residency-curve/1",
        **trace.summary(),
        "points": _points(found, places),
        "ceiling_hit_blocks": found.ceiling,
        "ceiling_hit_tokens": found.token_ceiling,
        "knee_blocks": found.knee(),
        "notes": list(trace.notes),
    }


def _points(found: Curve, places: Sequence[int]) -> list[Document]:
    rows = []
    for capacity in places:
        blocks, tokens = found.at(capacity)
        rows.append({"capacity_blocks": capacity, "hit_blocks": blocks, "hit_tokens": tokens})
    return rows


def simulate(trace: Trace, setup: Setup, notes: Sequence[str], with_windows: bool) -> Document:
    """`residency simulate`: flat integers; with windows also p5/p50/p95 and the gap histogram."""
    result = replay(trace, setup)
    document: Document = {
        "schema": "kvbudget.residency-simulate/1",
        "trace": trace.summary(),
        "config": setup.as_config(),
        **result.counters,
        "notes": [*trace.notes, *notes, *_after(result)],
    }
    if with_windows:
        document["windows"] = tier_windows(trace, setup)
        document["gaps"] = win.histogram(win.gaps_us(trace))
    return document


def tier_windows(trace: Trace, setup: Setup) -> list[Document]:
    """Seconds from last touch to eviction, per tier; null with a note where a policy has none."""
    first = setup.l1_blocks
    rows: list[Document] = [{"tier": "l1", **win.measured(trace, first)}]
    if setup.policy is Policy.vllm_lazy and setup.reinsert:
        rows[0]["note"] = "of plain LRU: reinsertion disturbs it"
    second = setup.l2_blocks
    if second != 0:
        exclusive = setup.policy is Policy.exclusive
        if first is None or second is None:
            reach = None
        else:
            reach = first + second if exclusive else max(first, second)
        row: Document = {"tier": "l1+l2", **win.measured(trace, reach)}
        if not exclusive and setup.policy not in INCLUSIVE:
            row["note"] = "of an inclusive tier; this policy lies between it and the exclusive one"
        rows.append(row)
    return rows


def _after(result: Result) -> list[str]:
    counters, notes = result.counters, []
    if counters["cut_requests"]:
        notes.append(
            f"{counters['cut_requests']} requests are longer than L1: only their heads took part"
        )
    if counters["d2h_blocks"] and not counters["l2_hit_blocks"] + counters["l3_hit_blocks"]:
        notes.append("the lower tiers were written and never hit")
    return notes


def sweep(trace: Trace, results: Sequence[Result], notes: Sequence[str]) -> Document:
    """`residency sweep`: one object per cell, its config and the integers of simulate."""
    return {
        "schema": "kvbudget.residency-sweep/1",
        "trace": trace.summary(),
        "cells": [{"config": r.setup.as_config(), **r.counters} for r in results],
        "notes": [*trace.notes, *notes],
    }
