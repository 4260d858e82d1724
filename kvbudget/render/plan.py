"""A plan for people: one row per option, the derivation of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.derivation import derivation_text
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.plan.solve import Option


def render_plan(payload: dict[str, Any], options: Sequence[Option], *, markdown: bool) -> str:
    """Text or Markdown."""
    asked = payload["asked"]
    model = (payload["model"] or {}).get("name", "model")
    want = [f"{asked['context']:,} tokens" if asked["context"] else "",
            f"{asked['concurrency']:,} at once" if asked["concurrency"] else ""]  # fmt: skip
    wanted = ", ".join(part for part in want if part) or "the largest safe share"
    title = f"{model}, {payload['engine']} {payload['engine_version']}: {wanted}"
    cells = [("verdict", "flags", "requests", "KV pool", "tokens", "margin", "buys")]
    for row in payload["options"]:
        result = row["result"]
        cells.append((
            row["verdict"], row["command"] or "(defaults)", f"{row['concurrency']:,}",
            _gib(result["kv_cache_memory"]), _count(result["kv_cache_tokens"]),
            _gib(row["margin_memory"]), "; ".join(row["buys"]),
        ))  # fmt: skip
    blocks = [f"## {title}" if markdown else title, _table(cells, markdown=markdown)]
    blocks += [f"note: {note}" for note in payload["notes"]]
    if options:
        steps = derivation_text(options[0].derived.derivation.steps)
        blocks.append("derivation of the first option")
        blocks.append(f"```\n{steps}\n```" if markdown else steps)
    return "\n\n".join(blocks)


def _gib(value: float | None) -> str:
    return "-" if value is None else f"{value / GIB:,.2f} GiB"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{int(value):,}"


def _table(cells: Sequence[tuple[str, ...]], *, markdown: bool) -> str:
    if markdown:
        head, *body = (f"| {' | '.join(line)} |" for line in cells)
        return "\n".join([head, "|---|---|---:|---:|---:|---:|---|", *body])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = []
    for line in cells:
        padded = [f"{text:<{w}}" if i in (0, 1, 6) else f"{text:>{w}}"
                  for i, (text, w) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
