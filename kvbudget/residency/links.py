"""Fetch or recompute: the prefill rate below which a link beats computing the prefix again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvbudget.errors import InputError
from kvbudget.units import parse_size


@dataclass(frozen=True, slots=True)
class Link:
    """`bandwidth` in bytes per second and direction, `latency_s` per transfer (None: unknown)."""

    name: str
    bandwidth: float
    latency_s: float | None = None
    source: str = "given"


PEAKS = (
    Link("hbm3", 3.35e12, source="data sheet of one HBM3 card"),
    Link("nvlink-c2c", 450e9, source="data sheet, one direction"),
    Link("pcie6x16", 128e9, source="link rate, one direction"),
    Link("pcie5x16", 64e9, source="link rate, one direction"),
    Link("pcie4x16", 32e9, source="link rate, one direction"),
    Link("nvme-gen5", 14e9, source="sequential read of an enterprise drive"),
    Link("100gbe", 12.5e9, source="line rate"),
    Link("10gbe", 1.25e9, source="line rate"),
)
"""Ceilings. Real pinned copies and file systems come in lower, which only moves a verdict towards
recompute."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """read_threshold: R* = B / b for a read whose write happened earlier; swap_threshold = B / 2b.

    Units: tokens per second. `break_even_tokens`: the shortest prefix that is fetched sooner than
    computed; None without a latency, or when no length is.
    """

    link: Link
    read_threshold: float
    swap_threshold: float
    ratio: float | None
    verdict: str | None
    break_even_tokens: int | None


def judge(link: Link, bytes_per_token: float, prefill_rate: float | None) -> Verdict:
    """Compare a link with a prefill rate (tokens/s). Above ratio 1 fetching wins."""
    read = link.bandwidth / bytes_per_token
    if prefill_rate is None:
        return Verdict(link, read, read / 2, None, None, None)
    ratio = read / prefill_rate
    even: int | None = None
    if link.latency_s is not None and ratio > 1:
        # latency + n/read < n/rate
        even = int(link.latency_s / (1 / prefill_rate - 1 / read)) + 1
    return Verdict(link, read, read / 2, ratio, "fetch" if ratio > 1 else "recompute", even)


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
        known = next((link for link in PEAKS if link.name == name.lower()), None)
        if known is None:
            names = ", ".join(link.name for link in PEAKS)
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
