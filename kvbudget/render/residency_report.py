"""The residency report as text, Markdown, and one self-contained HTML page with charts."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kvbudget.render.residency import (
    Document,
    Table,
    as_markdown,
    as_text,
    config_line,
    gap_table,
    number,
    percent,
    trace_line,
    window_table,
)
from kvbudget.units import format_size

if TYPE_CHECKING:
    from pathlib import Path


def text(document: Document, output: Path | None = None) -> str:
    """For a terminal."""
    return as_text(_title(document), _tables(document), _notes(document), output)


def markdown(document: Document) -> str:
    """For a ticket."""
    return as_markdown(_title(document), _tables(document), _notes(document))


def page(document: Document) -> str:
    """One HTML file: the data, the script and the style are inside it, nothing is fetched."""
    template = files("kvbudget.render").joinpath("residency_report.html").read_text("utf-8")
    data = json.dumps(document, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    verdict = document["verdict"]
    parts = {
        "@TITLE@": html.escape(f"Host tier: {verdict['answer']} ({verdict['why']})"),
        "@CONFIG@": html.escape(config_line(document["config"])),
        "@TRACE@": html.escape(trace_line(document["trace"])),
        "@SUMMARY@": _html_table(_summary(document)),
        "@TABLES@": "".join(_html_table(t) for t in _tables(document)[1:]),
        "@NOTES@": "".join(f"<li>{html.escape(n)}</li>" for n in _notes(document)),
        "@DATA@": data,
    }
    for mark, value in parts.items():
        template = template.replace(mark, value)
    return template


def _html_table(table: Table) -> str:
    head, rows = table
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _title(document: Document) -> str:
    verdict = document["verdict"]
    return (
        f"host tier: {verdict['answer']} ({verdict['why']})\n"
        f"{config_line(document['config'])}: {trace_line(document['trace'])}"
    )


def _notes(document: Document) -> list[str]:
    return [f"assumed: {a}" for a in document["assumptions"]] + list(document["notes"])


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _summary(document: Document) -> Table:
    trace, mine, curve = document["trace"], document["result"], document["curve"]
    accesses = trace["block_accesses"]
    tokens = trace["tokens"]
    rows = []
    for k in (1, 2, 3):
        hits = mine[f"l{k}_hit_blocks"]
        rows.append([f"hits in L{k}", number(hits), percent(hits, accesses)])
    for words, count, whole in (
        ("tokens not computed again", mine["hit_tokens"], tokens),
        ("of these beyond the device pool", mine["gained_tokens"], tokens),
        ("ceiling of an unlimited pool, blocks", curve["ceiling_hit_blocks"], accesses),
    ):
        rows.append([words, number(count), percent(count, whole)])
    rows += [
        ["bytes not computed again", _bytes(document, mine["hit_tokens"]), ""],
        ["GPU time saved", _seconds(mine["avoided_gpu_s"]), ""],
        ["of this beyond the device pool", _seconds(mine["gained_gpu_s"]), ""],
        ["knee of the curve, blocks", number(curve["knee_blocks"]), ""],
        ["written to the host per hit below L1", number(mine["write_amplification"], 2), ""],
        ["host memory, money per month", number(mine["host_cost_month"], 2), ""],
        ["GPU time saved, money per month", number(mine["saved_month"], 2), ""],
    ]
    return ["what", "figure", "share"], rows


def _bytes(document: Document, tokens: int) -> str:
    each = document["bytes_per_token"]
    return "-" if each is None else format_size(tokens * each)


def _tables(document: Document) -> list[Table]:
    shares = document["gap_shares"]
    reuse = [
        ["below W1: the device hits", _seconds(shares["w1_s"]), _share(shares["below_w1"])],
        ["W1 to W2: only the host can", _seconds(shares["w2_s"]), _share(shares["w1_to_w2"])],
        ["beyond: storage or nothing", "", _share(shares["beyond"])],
    ]
    return [
        _summary(document),
        _policy_table(document),
        window_table(document["windows"]),
        (["reuses by gap", "up to", "share"], reuse),
        _traffic_table(document),
        _link_table(document),
        gap_table(document["gaps"]),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _policy_table(document: Document) -> Table:
    rows = []
    for row in document["policies"]:
        pays = {True: "yes", False: "no", None: "-"}[row["pays"]]
        rows.append(
            [
                row["config"]["policy"],
                *(number(row[f"l{k}_hit_blocks"]) for k in (1, 2, 3)),
                _share(row["block_hit_rate"]),
                _share(row["token_hit_rate"]),
                number(row["gained_tokens"]),
                number(row["d2h_blocks"]),
                number(row["write_amplification"], 2),
                pays,
            ]
        )
    head = ["policy", "L1", "L2", "L3", "blocks", "tokens", "gained", "D2H", "D2H/hit", "pays"]
    return head, rows


def _traffic_table(document: Document) -> Table:
    traffic = document["traffic"]
    rows = []
    for name in traffic["series"]:
        mean, peak = traffic["mean_per_s"][name], traffic["peak_per_s"][name]
        row = [name.upper(), _rate(mean, traffic["unit"]), _rate(peak, traffic["unit"])]
        for link in document["links"][:1]:
            on_link = traffic["unit"] == "B" and name in ("d2h", "h2d") and peak is not None
            row.append(percent(peak, link["bandwidth"]) if on_link else "-")
        rows.append(row)
    head = ["traffic", "mean", "peak minute"]
    head += [f"peak of {link['name']}" for link in document["links"][:1]]
    return head, rows


def _rate(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{format_size(int(value))}/s" if unit == "B" else f"{value:,.1f} blk/s"


def _link_table(document: Document) -> Table:
    rows = [
        [
            link["name"],
            f"{link['bandwidth'] / 1e9:,.1f}",
            number(link["read_threshold_tok_s"], 0),
            "-" if link["ratio"] is None else f"{link['ratio']:,.2f}x",
            link["verdict"] or "-",
            link["source"],
        ]
        for link in document["links"]
    ]
    return ["link", "GB/s", "R* read tok/s", "ratio", "verdict", "rate is"], rows


def figures(document: Document) -> dict[str, Any]:
    """The figures a page shows at the top, for tests of the page."""
    return {row[0]: row[1] for row in _summary(document)[1]}
