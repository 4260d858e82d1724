"""Fetch or recompute: the prefill rate below which a link beats computing the prefix again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kvbudget.errors import InputError
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file
from kvbudget.residency.transfer import values
from kvbudget.units import parse_size


@dataclass(frozen=True, slots=True)
class Link:
    """`bandwidth` in bytes per second and direction, `latency_s` per transfer (None: unknown)."""

    name: str
    bandwidth: float
    latency_s: float | None = None
    source: str = "given"


@lru_cache(maxsize=1)
def peaks() -> tuple[Link, ...]:
    """The links known by name (formulas/transfer/links.yaml)."""
    rows = load_shipped(knowledge_file("formulas", "transfer", "links.yaml"))["links"]
    return tuple(Link(row["name"], float(row["bandwidth"]), None, row["source"]) for row in rows)


@dataclass(frozen=True, slots=True)
class Verdict:
    """read_threshold, swap_threshold in tokens per second; ratio: how many times quicker fetching.

    `break_even_tokens`: the shortest prefix that is fetched sooner than computed; None without a
    latency, or when no length is.
    """

    read_threshold: float
    swap_threshold: float
    ratio: float | None
    verdict: str | None
    break_even_tokens: int | None


def judge(link: Link, bytes_per_token: float, prefill_rate: float | None) -> Verdict:
    """Compare a link with a prefill rate in tokens/s (formulas/transfer/thresholds.yaml)."""
    found = values(
        "thresholds",
        link_bandwidth=link.bandwidth,
        bytes_per_token=bytes_per_token,
        prefill_rate=prefill_rate,
        link_latency=link.latency_s,
    )
    ratio = found.get("read_ratio")
    verdict = None if ratio is None else "fetch" if ratio > 1 else "recompute"
    even = int(found.get("break_even_tokens", 0)) or None
    return Verdict(found["read_threshold"], found["swap_threshold"], ratio, verdict, even)


_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_seconds(text: str) -> float:
    """`25us`, `1.5ms`, `0.01` (seconds). Raises InputError."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?\d+)?)\s*(s|ms|us|µs|ns)?\s*", text)
    if match is None:
        raise InputError(f"not a time: {text!r}", "write 25us, 1.5ms, 2s")
    return float(match.group(1)) * _TIMES[match.group(2) or "s"]


def parse_link(text: str) -> Link:
    """`NAME=64GB/s`, `NAME=64GB/s@20us`, or a known NAME. Raises InputError."""
    name, given, rest = text.partition("=")
    if not given:
        name, _, latency = text.partition("@")
        known = next((link for link in peaks() if link.name == name.lower()), None)
        if known is None:
            names = ", ".join(link.name for link in peaks())
            raise InputError(f"unknown link {name!r}", f"known: {names}; or NAME=64GB/s[@20us]")
        seconds = parse_seconds(latency) if latency else None
        return Link(known.name, known.bandwidth, seconds, known.source)
    rate, _, latency = rest.partition("@")
    size = rate.strip()
    bits = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)(?:bit|bps|b)/?s?", size)
    if bits is not None and bits.group(2):
        power = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[bits.group(2)]
        bandwidth = float(bits.group(1)) * power / 8
    else:
        bandwidth = float(parse_size(size.removesuffix("/s").removesuffix("ps")))
    if bandwidth <= 0 or not name:
        raise InputError(
            f"not a link: {text!r}", "write NAME=64GB/s, with @20us for a start-up time"
        )
    return Link(name.strip(), bandwidth, parse_seconds(latency) if latency else None)
