"""`kvbudget derive` for people: a bar per term, the result, the derivation with its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.derivation import band, chain, derivation_text, figure
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvbudget.budget import Amount
    from kvbudget.derive.assemble import Derived

ROWS = (
    ("kv_cache_memory", "KV pool"), ("num_gpu_blocks", "blocks"), ("kv_cache_tokens", "tokens"),
    ("max_concurrency", "requests of max_model_len"), ("max_model_len", "max_model_len"),
    ("max_model_len_that_fits", "longest that fits"), ("bytes_per_token", "bytes per token"),
    ("bytes_per_block", "bytes per block"), ("state_bytes_per_request", "state per request"),
    ("margin_memory", "free outside the budget"),
)  # fmt: skip
WIDTH = 40
BESIDE_BAR = 76  # label, figure, band and origin
NON_KV_PARTS = {"weights_memory", "peak_activation_memory", "non_torch_memory"}


def render_derive(
    results: Sequence[Derived],
    payload: dict[str, Any],
    *,
    markdown: bool,
    output: Path | None,
    every_step: bool = False,
) -> str:
    """Text or Markdown of one derivation, or of two side by side with the gap."""
    from kvbudget.render.text import can_unicode

    full, empty = ("█", "░") if can_unicode() or output is not None else ("#", ".")
    parts = [_one(derived, full, empty, markdown, every_step) for derived in results]
    if len(results) > 1:
        parts.append(_gap(payload, markdown=markdown))
    return "\n\n".join(parts)


def _one(derived: Derived, full: str, empty: str, markdown: bool, every_step: bool) -> str:
    from kvbudget.render.text import plain

    model = derived.request.model
    gpu = derived.request.gpu
    name = model.name if model else "model not given"
    title = f"{name} on {gpu.name if gpu else 'this card'}, {derived.engine.name} {derived.version}"
    heading = f"## {title}" if markdown else title
    bars = "\n".join(_bars(derived, full, empty))
    rows = [
        _row(label, amount)
        for key, label in ROWS
        if (amount := derived.amount(key)) and (amount.value or key != "state_bytes_per_request")
    ]
    if markdown:
        table = ["| result | value | low .. high |", "|---|---|---|"]
        table += [f"| {label} | {value} | {interval} |" for label, value, interval in rows]
        result = "\n".join(table)
    else:
        names = max((len(label) for label, *_ in rows), default=0)
        sizes = max((len(value) for _, value, _ in rows), default=0)
        result = "\n".join(f"{a:<{names}}  {b:>{sizes}}  {c}".rstrip() for a, b, c in rows)
    taken = derived.derivation.steps
    shown = taken if every_step else chain(derived)
    steps = derivation_text(shown)
    if len(shown) < len(taken):
        steps += f"\n\n{len(taken) - len(shown)} more steps beside this chain: --all-steps"
    verdict = "fits" if derived.fits else "DOES NOT FIT: " + _why(derived)
    notes = "\n".join(f"note: {note}" for note in derived.notes)
    fence = "```" if markdown else ""
    blocks = [
        heading, _fenced(bars, fence), result, verdict, notes,
        _fenced(steps, fence),
    ]  # fmt: skip
    return "\n\n".join(plain_lines(block, plain) for block in blocks if block)


def plain_lines(text: str, clean: Any) -> str:  # noqa: ANN401 - render.text.plain
    """Control characters out, line breaks kept."""
    return "\n".join(clean(line) for line in text.split("\n"))


def _fenced(text: str, fence: str) -> str:
    return f"{fence}\n{text}\n{fence}" if fence and text else text


def _row(label: str, amount: Amount) -> tuple[str, str, str]:
    return label, figure(amount.value, amount.unit), band(amount)


def _why(derived: Derived) -> str:
    pool, needed = derived.amount("kv_cache_memory"), derived.amount("kv_memory_needed")
    if pool is not None and pool.value <= 0:
        share = derived.amount("requested_memory")
        if share is None:
            return "nothing is left for a KV pool"
        rows = budget_rows(derived)
        held = sum(amount.value for label, amount, _ in rows if label != "kv_cache_memory")
        return (
            f"nothing is left for a KV pool: {held / GIB:.2f} GiB are taken, the share is "
            f"{share.value / GIB:.2f} GiB; kvbudget plan looks for flags that fit"
        )
    length = derived.amount("max_model_len")
    longest = derived.amount("max_model_len_that_fits")
    if needed is None or pool is None or length is None:
        tokens = derived.amount("kv_cache_tokens")
        if tokens is None or length is None:
            return "one request of max_model_len is larger than the pool"
        return f"one request of {int(length.value):,} tokens, a pool of {int(tokens.value):,}"
    fits = f"; the longest that fits is {int(longest.value):,} tokens" if longest else ""
    return (
        f"one request of {int(length.value):,} tokens needs {needed.value / GIB:.2f} GiB of "
        f"{pool.value / GIB:.2f} GiB{fits}"
    )


def _bars(derived: Derived, full: str, empty: str) -> list[str]:
    capacity = derived.amount("total_memory") or derived.amount("avail_memory_before_weights")
    if capacity is None or capacity.value <= 0:
        return []
    rows = budget_rows(derived)
    lines = []
    left: float = capacity.value
    for label, amount, origin in rows:
        left -= amount.value
        lines.append(
            _bar(label, amount.value, capacity.value, full, empty, f"{band(amount)}  {origin}")
        )
    lines.append(
        _bar("remainder", left, capacity.value, full, empty, "outside the budget, in use or free")
    )
    lines.append(f"{'total':<28} {capacity.value / GIB:8.2f} GiB")
    return lines


def budget_rows(derived: Derived) -> list[tuple[str, Amount, str]]:
    """The memory terms that share the capacity: label, bytes, origin."""
    skip = {"total_memory", "free_memory", "context_memory", "cuda_graph_memory",
            "cuda_graph_memory_estimate", "requested_memory", "suggestion_buffer",
            "external_weight_memory", "avail_memory_before_weights",
            "avail_memory_after_weights", "kv_memory_needed"}  # fmt: skip
    rows: list[tuple[str, Amount, str]] = []
    pool = derived.amount("kv_cache_memory")
    stated = {term.name for term in derived.derivation.inputs}
    if "non_kv_memory" in stated:
        # A log states the sum beside its parts: one of the two is drawn.
        skip |= {"non_kv_memory"} if stated >= NON_KV_PARTS else NON_KV_PARTS
    rows += [
        (term.name, term.amount, term.provenance.kind)
        for term in derived.derivation.inputs
        if term.amount.unit == "B" and term.name not in skip and term.amount.value
    ]
    graphs = derived.amount("cuda_graph_memory_applied")
    if graphs is not None and graphs.value:
        inputs = {term.name: term.provenance.kind for term in derived.derivation.inputs}
        origin = inputs.get("cuda_graph_memory_estimate", "derived")
        rows.insert(-1 if pool else len(rows), ("cuda_graph_memory_applied", graphs, origin))
    return rows


def _bar(label: str, value: float, total: float, full: str, empty: str, tail: str) -> str:
    from kvbudget.render.text import columns

    width = max(6, min(WIDTH, columns() - BESIDE_BAR))
    cells = max(0, min(width, round(value / total * width)))
    bar = full * cells + empty * (width - cells)
    return f"{label:<28} {value / GIB:8.2f} GiB  {bar}  {tail.strip()}".rstrip()


def _gap(payload: dict[str, Any], *, markdown: bool) -> str:
    from kvbudget.render.diff import terms_table

    heading = "## Where the two differ" if markdown else "Where the two differ"
    first, second = (str(item["engine"]) for item in payload["engines"])
    return f"{heading}\n\n{terms_table(payload['gap'], (first, second), markdown=markdown)}"
