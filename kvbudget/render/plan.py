"""A plan for people: one row per option, what its flags buy, the derivation of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.derivation import chain, derivation_text
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbudget.plan.search import Option


def render_plan(payload: dict[str, Any], options: Sequence[Option], *, markdown: bool) -> str:
    """Text or Markdown."""
    asked = payload["asked"]
    model = (payload["model"] or {}).get("name", "model")
    want = [f"{asked['context']:,} tokens" if asked["context"] else "",
            f"{asked['concurrency']:,} at once" if asked["concurrency"] else ""]  # fmt: skip
    wanted = ", ".join(part for part in want if part) or "the largest safe share"
    title = f"{model}, {payload['engine']} {payload['engine_version']}: {wanted}"
    cells = [("", "verdict", "requests", "KV pool", "tokens", "margin", "flags")]
    for number, row in enumerate(payload["options"], 1):
        result = row["result"]
        cells.append((
            str(number), row["verdict"], f"{row['concurrency']:,}",
            _gib(result["kv_cache_memory"]), _count(result["kv_cache_tokens"]),
            _gib(row["margin_memory"]), row["command"] or "(defaults)",
        ))  # fmt: skip
    blocks = [f"## {title}" if markdown else title]
    if all(row["verdict"] == "no" for row in payload["options"]):
        blocks.append(_nothing(payload))
    blocks.append(_table(cells, markdown=markdown))
    bought = list(_bought(payload["options"]))
    if bought:
        blocks.append("\n".join(["What each flag buys:", *([""] if markdown else []), *bought]))
    blocks += [f"note: {note}" for note in payload["notes"]]
    if options:
        steps = derivation_text(chain(options[0].derived))
        blocks.append("derivation of the first option")
        blocks.append(f"```\n{steps}\n```" if markdown else steps)
    return "\n\n".join(blocks)


def _nothing(payload: dict[str, Any]) -> str:
    cards = payload["asked"]["gpus"]
    said = f"NOTHING FITS on {cards} card{'s' if cards > 1 else ''}; the nearest stand below."
    needed = payload["gpus_needed"]
    if needed is not None:
        return f"{said} {needed} cards would do: --gpus {needed}"
    return f"{said} A smaller checkpoint, a shorter context or fewer requests would have to do"


def _bought(options: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(options, 1):
        for line in row["buys"]:
            yield f"- option {number}: {line}"


def _gib(value: float | None) -> str:
    return "-" if value is None else f"{value / GIB:,.2f} GiB"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{int(value):,}"


LEFT = (1, 6)


def _table(cells: Sequence[tuple[str, ...]], *, markdown: bool) -> str:
    columns = range(len(cells[0]))
    if markdown:
        head, *body = (f"| {' | '.join(line)} |" for line in cells)
        rule = "|".join("---" if i in LEFT else "---:" for i in columns)
        return "\n".join([head, f"|{rule}|", *body])
    widths = [max(len(line[i]) for line in cells) for i in columns]
    return "\n".join(
        "  ".join(
            f"{line[i]:<{widths[i]}}" if i in LEFT else f"{line[i]:>{widths[i]}}" for i in columns
        ).rstrip()
        for line in cells
    )
