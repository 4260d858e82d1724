"""What people really ask about a start-up log, answered where its figures raise the question."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvbudget.knowledge.schema import Line
from kvbudget.logs.engines import verbose_setting
from kvbudget.units import GIB, format_gib, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.budget import Budget
    from kvbudget.facts import Fact
    from kvbudget.logs.collect import LogReading


@dataclass(frozen=True, slots=True)
class Note:
    id: str
    level: Literal["info", "warning"]
    message: str
    lines: tuple[int, ...] = ()


def notes_of(reading: LogReading, budgets: list[Budget]) -> Iterator[Note]:
    """Every note that applies, the important ones first."""
    by_name: dict[str, list[Fact]] = defaultdict(list)
    for fact in reading.facts:
        by_name[fact.name].append(fact)
    yield from _input_notes(reading)
    yield from _line_notes(reading)
    yield from _kv_notes(by_name)
    yield from _budget_notes(budgets)
    if not budgets:
        yield from _no_budget_note(by_name, verbose_setting(reading.engine))
    yield from _margin_notes(by_name)
    yield from _unit_notes(reading)


def _input_notes(reading: LogReading) -> Iterator[Note]:
    if len(reading.engines) > 1:
        named = ", ".join(sorted(reading.engines))
        yield Note("mixed_engines", "warning", f"lines of several engines stand here: {named}")
    if reading.reversed:
        yield Note("reversed_order", "info", "the newest line comes first; read from the end")
    if reading.starts:
        yield Note(
            "several_runs", "warning",
            f"{len(reading.starts) + 1} starts in one text: figures of different runs may differ",
            tuple(reading.starts),
        )  # fmt: skip
    if reading.repeated_lines:
        yield Note(
            "repeated_lines", "info",
            "a collector folded repeated lines; other ranks printed them too",
            tuple(reading.repeated_lines[:8]),
        )  # fmt: skip
    if reading.truncated and reading.facts:
        yield Note(
            "truncated", "info", "the text ends in the middle of a line", (reading.total_lines,)
        )


def _line_notes(reading: LogReading) -> Iterator[Note]:
    """What the data says about a line that stands here, once per note."""
    lines: dict[str, list[int]] = defaultdict(list)
    for hit in reading.hits:
        if isinstance(hit.pattern.entry, Line) and hit.pattern.entry.note:
            lines[hit.pattern.entry.note].append(hit.line)
    for text, where in lines.items():
        name, _, message = text.partition(": ")
        yield Note(name, "info", message, tuple(where[:8]))


def _kv_notes(facts: dict[str, list[Fact]]) -> Iterator[Note]:
    kv = [f for f in facts["kv_cache_memory"] if isinstance(f.value, int)]
    for fact in kv:
        if isinstance(fact.value, int) and fact.value <= 0:
            yield Note(
                "negative_kv", "warning",
                f"nothing is left for KV ({format_gib(fact.value)}): the other terms exceed the "
                "request; raise the utilisation or make the terms smaller",
                (fact.line,),
            )  # fmt: skip
    for name in ("kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens", "weights_memory"):
        ranked = {f.rank: f for f in facts[name] if f.rank is not None}
        values = {f.value for f in ranked.values()}
        if len(values) > 1:
            least = min(ranked.values(), key=lambda f: float(f.value))
            yield Note(
                "ranks_disagree", "warning",
                f"ranks disagree on {name}; the pool follows the smallest, {least.rank} "
                f"({least.printed})",
                tuple(f.line for f in ranked.values()),
            )  # fmt: skip
    if len({f.value for f in facts["swa_pool_memory"]}) or (
        len({f.value for f in facts["kv_cache_k_memory"] if f.rank is None}) > 1
    ):
        yield Note(
            "two_pools", "info",
            "two KV pools: one for full-attention and one for sliding-window layers",
            tuple(f.line for f in facts["kv_cache_k_memory"][:4]),
        )  # fmt: skip
    tokens, times, length = (
        next(iter(facts[name]), None)
        for name in ("kv_cache_tokens", "max_concurrency", "max_model_len")
    )
    if (
        tokens
        and times
        and length
        and all(isinstance(f.value, (int, float)) for f in (tokens, times, length))
    ):
        by_tokens = float(tokens.value) / float(length.value)
        if (
            times.low is not None
            and times.high is not None
            and not (times.low * 0.99 <= by_tokens <= times.high * 1.01)
        ):
            yield Note(
                "hybrid_tokens", "info",
                f"tokens / max_model_len is {by_tokens:.2f}, the line says {times.printed}x: layers "
                "of several kinds share the pool; the concurrency is the figure to believe",
                (tokens.line, times.line),
            )  # fmt: skip


def _budget_notes(budgets: list[Budget]) -> Iterator[Note]:
    for budget in budgets:
        names = {term.name for term in budget.terms}
        whole = {"weights_memory", "peak_activation_memory", "non_torch_memory", "kv_cache_memory"}
        rest = budget.remainder
        if whole <= names and not budget.closes:
            yield Note(
                "unexplained_residual", "warning",
                f"the printed terms leave {format_size(int(rest.value))} of the request unexplained",
                tuple(line for term in budget.terms for line in term.lines),
            )  # fmt: skip
        for term in budget.terms:
            if term.name == "non_torch_memory" and term.amount.value > 4 * GIB:
                yield Note(
                    "neighbour_suspected", "warning",
                    f"{format_gib(term.amount.value)} outside torch is more than an engine takes: "
                    "another process on the card is probably booked here",
                    term.lines,
                )  # fmt: skip


def _no_budget_note(facts: dict[str, list[Fact]], verbose: str | None) -> Iterator[Note]:
    """Why no budget adds up, and who supplies the rest."""
    known = facts["kv_cache_memory"] or facts["weights_memory"]
    if not known:
        return
    printer = f"{verbose} prints them where the release has them, " if verbose else ""
    yield Note(
        "not_printed_by_version", "info",
        f"no budget: not all of its terms are in this text; {printer}"
        "kvbudget derive MODEL --gpu NAME --from-log FILE works them out",
        (known[0].line,),
    )  # fmt: skip


def _margin_notes(facts: dict[str, list[Fact]]) -> Iterator[Note]:
    free, wanted, total = (
        next((f for f in facts[n] if isinstance(f.value, int)), None)
        for n in ("free_memory", "requested_memory", "total_memory")
    )
    if free and wanted and total:
        margin = int(free.value) - int(wanted.value)
        naive = int(total.value) - int(wanted.value)
        if margin >= 0:
            yield Note(
                "real_margin", "info",
                f"outside the budget {format_gib(margin)} is left (free at the first snapshot less "
                f"requested), not {format_gib(naive)}; contexts, collectives, workspaces and "
                "fragmentation come out of it",
                (free.line, wanted.line),
            )  # fmt: skip
        elif int(free.value) < 0.9 * int(total.value):
            yield Note(
                "neighbour_suspected", "warning",
                f"{format_gib(int(total.value) - int(free.value))} of the card was in use before "
                "this engine took its first snapshot",
                (free.line,),
            )  # fmt: skip
    if facts["kv_cache_memory"] or facts["kv_cache_tokens"]:
        first = (facts["kv_cache_memory"] or facts["kv_cache_tokens"])[0]
        yield Note(
            "kv_fills_the_rest", "info",
            "the KV pool takes what is left of the request by design, per GPU: a full card after "
            "start is no leak",
            (first.line,),
        )  # fmt: skip


def _unit_notes(reading: LogReading) -> Iterator[Note]:
    lines = []
    for hit in reading.hits:
        specs = [
            s
            for v in hit.pattern.entry.yields.values()
            for s in (v if isinstance(v, tuple) else (v,))
        ]
        if any(s.unit == "GiB" for s in specs) and " GB" in hit.match.group():
            lines.append(hit.line)
    if lines:
        yield Note(
            "unit_label",
            "info",
            'what is printed as "GB" here is GiB (2^30 bytes)',
            tuple(lines[:8]),
        )
