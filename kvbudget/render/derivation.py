"""A derivation in three lines a step: formula, numbers put in, result with its source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.formula.evaluate import leading_to
from kvbudget.formula.program import joined
from kvbudget.units import GIB, format_amount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.budget import Amount
    from kvbudget.derivation import Source, Step
    from kvbudget.derive.assemble import Derived


_ONE_WORD = re.compile(r"[\w.]+")
ANSWERS = {"kv_cache_memory", "kv_cache_tokens", "max_concurrency", "fits", "margin_memory"}


def chain(derived: Derived) -> list[Step]:
    """The steps that the answers are computed from; the JSON has every step.

    What is 0 because the model or the flags have no such thing is left out.
    """
    _, specs = joined(derived.programs)
    wanted = {spec.name for spec in leading_to(specs, ANSWERS)}
    return [
        step
        for step in derived.derivation.steps
        if step.name.partition("[")[0] in wanted and not _idle(step)
    ]


def _idle(step: Step) -> bool:
    zero = step.amount.value == 0 and step.amount.is_exact
    return zero and step.name not in ANSWERS and _ONE_WORD.fullmatch(step.expr) is not None


def figure(value: float, unit: str) -> str:
    """A number with its unit: bytes both exact and in GiB where they are large."""
    if unit == "B" and abs(value) >= GIB // 10:
        return f"{int(value):,} B ({value / GIB:,.2f} GiB)"
    if unit in ("B", "B/blk", "B/tok"):
        return f"{int(value):,} {unit}"
    if unit in ("x", "ratio", "n"):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f"{text}x" if unit == "x" else text
    return format_amount(value, unit)


def band(amount: Amount) -> str:
    """The interval, where it shows at the printed digits: `[55.10 .. 56.53 GiB]`."""
    if amount.unit == "B":
        low, high = f"{amount.low / GIB:,.2f}", f"{amount.high / GIB:,.2f} GiB"
        wide = amount.high - amount.low >= GIB // 50
    else:
        low, high = figure(amount.low, amount.unit), figure(amount.high, amount.unit)
        wide = low != high
    return f"[{low} .. {high}]" if wide else ""


def source_text(source: Source) -> str:
    """`vllm/v1/worker/utils.py:724  (>=0.26)`."""
    lines = f":{source.lines}" if source.lines else ""
    return f"{source.path}{lines}  ({source.versions or 'any version'})"


def step_lines(step: Step) -> list[str]:
    """The three lines; a formula that is only a number or a name takes two."""
    pad = " " * len(step.symbol)
    lines = [f"{step.symbol} = {step.expr}"]
    if step.substituted not in (step.expr, figure(step.amount.value, "n")):
        lines.append(f"{pad} = {step.substituted}")
    result = f"{pad} = {figure(step.amount.value, step.amount.unit)}"
    tail = band(step.amount)
    lines.append(f"{result}  {tail}".rstrip())
    return lines


def derivation_text(steps: Iterable[Step]) -> str:
    """The steps, each with its meaning before it and its source below, as plain text."""
    blocks = []
    for step in steps:
        lines = [f"# {step.doc}", *step_lines(step)]
        if step.source is not None:
            lines.append(f"{'':<{len(step.symbol)}}   {source_text(step.source)}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
