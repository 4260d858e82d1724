"""Residency documents as text for people and as Markdown for a ticket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.grid import grid
from kvbudget.render.text import columns, plain, render, verbatim
from kvbudget.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Document = dict[str, Any]
Table = tuple[list[str], list[list[str]]]


def number(value: Any, digits: int = 1) -> str:  # noqa: ANN401 - int, float or None
    """A figure for people; an unknown one is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return plain(str(value))


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def text(document: Document, output: Path | None = None) -> str:
    """A document for a terminal."""
    title, tables = _layout(document)
    return as_text(title, tables, document.get("notes") or [], output)


def as_text(title: str, tables: list[Table], notes: list[str], output: Path | None) -> str:
    """A title, tables and notes for a terminal."""
    parts: list[Any] = title.split("\n")
    for head, rows in tables:
        parts += ["", verbatim(grid(head, rows, columns()))]
    if notes:
        parts.append("")
    parts += [f"note: {plain(note)}" for note in notes]
    return render(*parts, output=output)


def markdown(document: Document) -> str:
    """A document as Markdown tables."""
    title, tables = _layout(document)
    return as_markdown(title, tables, document.get("notes") or [])


def as_markdown(title: str, tables: list[Table], notes: list[str]) -> str:
    """A title, tables and notes as Markdown."""
    lines = [f"**{title}**"]
    for head, rows in tables:
        lines += ["", "| " + " | ".join(head) + " |"]
        lines.append("|" + "|".join("---" if k == 0 else "---:" for k in range(len(head))) + "|")
        lines += [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
        ]
    if notes:
        lines.append("")
    lines += [f"- {plain(note)}" for note in notes]
    return "\n".join(lines)


def _layout(document: Document) -> tuple[str, list[Table]]:
    return _LAYOUTS[document["schema"]](document)


def trace_line(trace: Document) -> str:
    """One line about a trace."""
    return (
        f"{trace['requests']:,} requests, {trace['block_accesses']:,} block accesses "
        f"({trace['unique_blocks']:,} distinct, {trace['block_tokens']} tokens each), "
        f"{trace['tokens']:,} tokens in {trace['span_s']:,.1f} s"
    )


def gap_table(gaps: list[Document]) -> Table:
    """The histogram of reuse gaps, with the running share."""
    total = sum(row["reuses"] for row in gaps)
    done = 0
    rows = []
    for row in gaps:
        done += row["reuses"]
        upper = "longer" if row["to_s"] is None else f"{row['to_s']:g}"
        rows.append([f"{row['from_s']:g} - {upper}", number(row["reuses"]), percent(done, total)])
    return ["reuse gap, s", "reuses", "up to here"], rows


def _window(document: Document) -> tuple[str, list[Table]]:
    rows = []
    for row in document["windows"]:
        if row["tier"] == "l1":
            rows.append(["L1", number(row["seconds"]), number(row["seconds"] / 60)])
            continue
        for kind in ("inclusive", "exclusive"):
            seconds = row[f"{kind}_seconds"]
            rows.append([f"L1+L2 {kind}", number(seconds), number(seconds / 60)])
    tables: list[Table] = [(["tier", "seconds", "minutes"], rows)]
    if document["working_set"] is not None:
        solved = [
            [row["tier"].replace("l1", "L1").replace("l2", "L2"), number(row["seconds"])]
            for row in document["working_set"]
        ]
        tables.append((["working-set form", "seconds"], solved))
        tables.append(gap_table(document["gaps"]))
    return f"residency windows at {document['rate_tok_s']:,g} tokens/s", tables


def _links(document: Document) -> tuple[str, list[Table]]:
    rows = [
        [
            plain(row["name"]),
            f"{row['bandwidth'] / 1e9:,.2f}",
            number(row["read_threshold_tok_s"], 0),
            number(row["swap_threshold_tok_s"], 0),
            "-" if row["ratio"] is None else f"{row['ratio']:,.2f}x",
            row["verdict"] or "-",
            number(row["break_even_tokens"]),
            row["source"],
        ]
        for row in document["links"]
    ]
    rate = document["prefill_rate_tok_s"]
    title = f"{format_size(document['bytes_per_token'])} per token, " + (
        "no prefill rate given" if rate is None else f"prefill at {rate:,g} tokens/s"
    )
    head = [
        "link",
        "GB/s",
        "R* read tok/s",
        "R* swap tok/s",
        "ratio",
        "verdict",
        "from tokens",
        "rate is",
    ]
    return title, [(head, rows)]


def _curve(document: Document) -> tuple[str, list[Table]]:
    rows = [
        [
            number(row["capacity_blocks"]),
            number(row["hit_blocks"]),
            percent(row["hit_blocks"], document["block_accesses"]),
            number(row["hit_tokens"]),
            percent(row["hit_tokens"], document["tokens"]),
        ]
        for row in document["points"]
    ]
    title = (
        f"{trace_line(document)}; ceiling {document['ceiling_hit_blocks']:,} block hits "
        f"({percent(document['ceiling_hit_blocks'], document['block_accesses'])}), "
        f"knee at {document['knee_blocks']:,} blocks"
    )
    return title, [(["capacity, blocks", "block hits", "share", "token hits", "share"], rows)]


COUNTER_WORDS = {
    "l1_hit_blocks": "hits in L1 (device), blocks",
    "l2_hit_blocks": "hits in L2 (host), blocks",
    "l3_hit_blocks": "hits in L3 (storage), blocks",
    "hit_tokens": "tokens not computed again",
    "d2h_blocks": "copied device to host",
    "h2d_blocks": "loaded into the device",
    "h2s_blocks": "written to storage",
    "s2h_blocks": "prefetched from storage",
    "l1_evicted_blocks": "evicted from L1",
    "l1_lost_blocks": "of these without a host copy",
    "l2_evicted_blocks": "host copies given up",
    "backup_refused_blocks": "backups refused",
    "prefetch_short": "prefetches too short",
    "unusable_l2_blocks": "host blocks behind a hole",
    "cut_requests": "requests longer than L1",
}


def config_line(config: Document) -> str:
    """A cell in one line: `write_back L1=3000 L2=6000 ...`."""
    words = [config["policy"]]
    for key, value in config.items():
        if key == "policy":
            continue
        short = {"l1_blocks": "L1", "l2_blocks": "L2", "l3_blocks": "L3"}.get(key, key)
        words.append(f"{short}={'inf' if value is None else value}")
    return " ".join(words)


def window_table(windows: list[Document]) -> Table:
    rows = [
        [
            row["tier"].upper(),
            *(number(row[f"p{p}_s"]) for p in (5, 50, 95)),
            row.get("note") or ("nothing was evicted" if row["p50_s"] is None else ""),
        ]
        for row in windows
    ]
    return ["stays, s", "p5", "p50", "p95", ""], rows


def _simulate(document: Document) -> tuple[str, list[Table]]:
    trace = document["trace"]
    rows = []
    for key, words in COUNTER_WORDS.items():
        whole = {"hit_tokens": trace["tokens"]}.get(key, trace["block_accesses"])
        share = percent(document[key], whole) if "hit" in key else ""
        rows.append([words, number(document[key]), share])
    tables: list[Table] = [(["what", "count", "share"], rows)]
    if "windows" in document:
        tables += [window_table(document["windows"]), gap_table(document["gaps"])]
    return f"{config_line(document['config'])}: {trace_line(trace)}", tables


def _sweep(document: Document) -> tuple[str, list[Table]]:
    rows = []
    for cell in document["cells"]:
        hits = sum(cell[f"l{tier}_hit_blocks"] for tier in (1, 2, 3))
        rows.append(
            [
                config_line(cell["config"]),
                *(number(cell[f"l{tier}_hit_blocks"]) for tier in (1, 2, 3)),
                percent(hits, document["trace"]["block_accesses"]),
                number(cell["hit_tokens"]),
                number(cell["d2h_blocks"]),
                number(cell["h2d_blocks"]),
            ]
        )
    head = ["cell", "L1 hits", "L2 hits", "L3 hits", "share", "token hits", "D2H", "H2D"]
    return f"{len(rows)} cells: {trace_line(document['trace'])}", [(head, rows)]


_LAYOUTS: dict[str, Callable[[Document], tuple[str, list[Table]]]] = {
    "kvbudget.residency-window/1": _window,
    "kvbudget.residency-links/1": _links,
    "kvbudget.residency-curve/1": _curve,
    "kvbudget.residency-simulate/1": _simulate,
    "kvbudget.residency-sweep/1": _sweep,
}
