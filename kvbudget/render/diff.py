"""A difference for people: one row per figure that moved, with its cause."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from kvbudget.render.text import plain
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence


def _figure(value: float | None, unit: str, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    plus = "+" if sign and value > 0 else ""
    if unit == "B":
        return f"{plus}{value / GIB:,.2f} GiB"
    if isinstance(value, float) and not value.is_integer():
        return f"{plus}{value:,.2f} {unit}"
    return f"{plus}{int(value):,} {unit}"


def terms_table(
    rows: Sequence[dict[str, Any]], labels: tuple[str, str], *, markdown: bool = False
) -> str:
    """The rows that both sides state as a text or Markdown table, `labels` heading the two; what
    only one of them states is named below it.
    """
    moved = [row for row in rows if row["delta"] is not None]
    alone = "\n".join(_alone(rows, labels, markdown=markdown))
    if not moved:
        return f"nothing moved\n\n{alone}".rstrip()
    cells = [("term", plain(labels[0])[:24], plain(labels[1])[:24], "delta", "cause", "why")]
    for row in moved:
        unit = row["unit"]
        cells.append((
            row["name"], _figure(row["a"], unit), _figure(row["b"], unit),
            _figure(row["delta"], unit, sign=True), plain(row["cause"]), plain(row["explanation"]),
        ))  # fmt: skip
    if markdown:
        head, *body = (f"| {' | '.join(line)} |" for line in cells)
        table = "\n".join([head, "|---|---:|---:|---:|---|---|", *body])
        return f"{table}\n\n{alone}".rstrip()
    widths = [max(len(line[i]) for line in cells) for i in range(5)]
    out = []
    for line in cells:
        name, *numbers, cause, why = line
        aligned = [f"{text:>{widths[i + 1]}}" for i, text in enumerate(numbers)]
        out.append("  ".join([f"{name:<{widths[0]}}", *aligned, f"{cause:<{widths[4]}}", why]))
    table = "\n".join(line.rstrip() for line in out)
    return f"{table}\n\n{alone}".rstrip()


def _alone(rows: Sequence[dict[str, Any]], labels: tuple[str, str], *, markdown: bool) -> list[str]:
    out = []
    for other, label in (("b", labels[0]), ("a", labels[1])):
        names = [row["name"] for row in rows if row["delta"] is None and row[other] is None]
        if names:
            text = f"only in {plain(label)}: {', '.join(names)}"
            out.append(f"- {text}" if markdown else fill(text, 100, subsequent_indent="  "))
    return out


def render_diff(payload: dict[str, Any], *, markdown: bool) -> str:
    """Heading, changed flags, table."""
    a, b = payload["a"], payload["b"]
    title = f"{_title(a)}  ->  {_title(b)}"
    flags = [f"{f['name']}: {f['a']} -> {f['b']}" for f in payload["flags"]]
    parts = [f"## {title}" if markdown else title]
    if flags:
        lead = "- " if markdown else "  "
        parts.append("changed flags\n" + "\n".join(lead + plain(flag) for flag in flags))
    labels = ("a", "b") if a["label"] == b["label"] else (a["label"], b["label"])
    parts.append(terms_table(payload["terms"], labels, markdown=markdown))
    return "\n\n".join(parts)


def _title(side: dict[str, Any]) -> str:
    engine = " ".join(str(side[k]) for k in ("engine", "engine_version") if side[k])
    return plain(f"{side['label']} ({engine})" if engine else side["label"])
