"""A profile as text and Markdown: the phases, the terms against the budget, the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.grid import grid
from kvbudget.render.text import can_unicode, columns, foreign, plain, render, verbatim
from kvbudget.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 20
PHASES = ("phase", "device free", "torch allocated", "torch peak", "s")
TERMS = ("term", "size", "source", "of the budget", "note")


def _size(value: int | None) -> str:
    return "unknown" if value is None else format_size(value)


def _bar(value: int | None, whole: int | None) -> str:
    if not value or not whole or value < 0:
        return ""
    full = "█" if can_unicode() else "#"
    return full * max(1, min(WIDTH, round(WIDTH * value / whole)))


def verdict(document: dict[str, Any]) -> str:
    """One sentence."""
    failure, result = document["failure"], document["result"]
    if failure:
        if failure["kind"] == "oom":
            return (
                f"out of memory in phase {failure['phase']}: requested "
                f"{_size(failure['requested'])}, free {_size(failure['free'])}"
            )
        return f"phase {failure['phase']} failed ({failure['kind']}): {failure['message']}"
    if not document["stable"]:
        return "unstable: somebody else's memory moved while we measured; run again"
    pool = result["kv_cache_memory"]
    if pool is None:
        return "the pool is unknown"
    if pool <= 0 and document["device"]["kind"] == "fake" and not document["judged"]:
        return f"no card was named (--gpu): against this machine's memory the pool is {_size(pool)}"
    if pool <= 0:
        return f"does not fit: the pool would be {_size(pool)}"
    tokens = result["kv_cache_tokens"]
    shown = f", {tokens:,} tokens" if tokens is not None else ""
    return (
        f"KV cache {_size(pool)}{shown}; margin outside the budget {_size(result['margin_memory'])}"
    )


def to_text(document: dict[str, Any], output: Path | None = None) -> str:
    """The document of `kvbudget profile` for people."""
    width = columns()
    device = document["device"]
    head = f"profile on {device['kind']} {device['name'] or ''}".rstrip()
    head += f", total {_size(device['total_memory'])}, policy {document['policy']}"
    parts: list[Any] = [foreign(head)]
    budget = document["identity"]["lhs"]
    counted = set(document["identity"]["terms"])
    for rank in document["ranks"]:
        phases = [
            [plain(row["phase"]), _size(row["driver_free"]), _size(row["torch_allocated"]),
             _size(row["torch_peak"]), "" if row["seconds"] is None else f"{row['seconds']:.2f}"]
            for row in rank["phases"]
        ]  # fmt: skip
        terms = [
            [term["name"], _size(term["value"]), term["source"],
             _bar(term["value"], budget) if term["name"] in counted else "(outside)",
             plain(term["note"])]
            for term in rank["terms"]
        ]  # fmt: skip
        parts += ["", foreign(f"rank {rank['rank']}")]
        parts.append(verbatim(grid(PHASES, phases, width)))
        parts += ["", verbatim(grid(TERMS, terms, width))]
    identity = document["identity"]
    if identity["difference"] is not None:
        parts += ["", foreign(
            f"budget {identity['lhs']:,} B = terms {identity['rhs']:,} B, "
            f"difference {identity['difference']} B"
        )]  # fmt: skip
    for row in document["modelled"]:
        if row["agrees"] is not None:
            word = "within" if row["agrees"] else "OUTSIDE"
            parts.append(foreign(
                f"{row['name']}: measured {_size(row['measured'])}, modelled {_size(row['value'])} "
                f"({word} {_size(row['low'])} .. {_size(row['high'])})"
            ))  # fmt: skip
    parts += ["", foreign(verdict(document))]
    parts += [foreign(f"note: {note}") for note in document["notes"]]
    return render(*parts, output=output)


def to_markdown(document: dict[str, Any]) -> str:
    """The same as Markdown, for a ticket."""
    device = document["device"]
    lines = [f"## Profile on {device['kind']}, policy {document['policy']}", "", verdict(document)]
    for rank in document["ranks"]:
        lines += ["", f"### {rank['rank']}", "", "| term | bytes | size | source | note |",
                  "| --- | ---: | ---: | --- | --- |"]  # fmt: skip
        for term in rank["terms"]:
            value = "unknown" if term["value"] is None else f"{term['value']:,}"
            lines.append(
                f"| {term['name']} | {value} | {_size(term['value'])} | {term['source']} "
                f"| {term['note']} |"
            )
    identity = document["identity"]
    lines += ["", f"Identity: {identity['lhs']} = {identity['rhs']}, difference "
              f"{identity['difference']}."]  # fmt: skip
    lines += [f"- {note}" for note in document["notes"]]
    return "\n".join(lines)
