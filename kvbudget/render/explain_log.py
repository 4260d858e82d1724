"""explain-log for people (bars, derivation, notes), for tickets (Markdown) and for scripts (JSON)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.json_v1 import dumps
from kvbudget.units import format_amount, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvbudget.budget import Amount, Term
    from kvbudget.derivation import Derivation
    from kvbudget.facts import Fact
    from kvbudget.logs.explain import RankBudget, Report

BAR = 24


def render_all(reports: Sequence[Report], form: str, *, several: bool, output: Path | None) -> str:
    """All reports in one of text, json, markdown; several files in JSON are one object a line."""
    if form == "json":
        if not several:
            return dumps(to_json(reports[0]))
        return "\n".join(dumps({**to_json(r), "file": r.name}, indent=None) for r in reports)
    if form == "markdown":
        parts = [_markdown(report, several) for report in reports]
        if several:
            parts.append(_markdown_table(reports))
        return "\n\n".join(parts)
    from kvbudget.render.text import render

    blocks: list[Any] = []
    for report in reports:
        blocks += _text(report, several)
        if several:
            blocks.append("")
    if several:
        blocks.append(_table(reports))
    return render(*blocks, output=output)


def to_json(report: Report) -> dict[str, Any]:
    """`kvbudget.explain-log/1`."""
    return {
        "schema": "kvbudget.explain-log/1",
        "engine": report.engine,
        "engine_version": report.engine_version,
        "facts": [fact_json(fact) for fact in report.facts],
        "budgets": [_budget_json(entry) for entry in report.budgets],
        "derivations": [_derivation_json(rank, d) for rank, d in report.derivations],
        "notes": [
            {"id": n.id, "level": n.level, "message": n.message, "lines": list(n.lines)}
            for n in report.notes
        ],
    }


def fact_json(fact: Fact) -> dict[str, Any]:
    """One fact as the contract spells it."""
    return {
        "name": fact.name,
        "value": fact.value,
        "unit": fact.unit,
        "printed": fact.printed,
        "low": fact.low,
        "high": fact.high,
        "rank": fact.rank,
        "line": fact.line,
        "pattern": fact.pattern,
        "source": fact.source,
    }


def _budget_json(entry: RankBudget) -> dict[str, Any]:
    rest = entry.budget.remainder
    return {
        "rank": entry.budget.scope,
        "layout": entry.layout,
        "complete": entry.complete,
        "capacity": _term_json(entry.budget.capacity),
        "terms": [_term_json(term) for term in entry.budget.terms],
        "missing": list(entry.missing),
        "residual": {"value": rest.value, "low": rest.low, "high": rest.high},
        "closes": entry.budget.closes if entry.complete else None,
    }


def _term_json(term: Term) -> dict[str, Any]:
    return {
        "name": term.name,
        "value": term.amount.value,
        "low": term.amount.low,
        "high": term.amount.high,
        "unit": "B",
        "source": "printed" if term.provenance.kind == "log" else "derived",
        "from": list(term.facts),
        "lines": list(term.lines),
    }


def _derivation_json(rank: str | None, derivation: Derivation) -> dict[str, Any]:
    return {
        "rank": rank,
        "steps": [
            {
                "name": s.name,
                "symbol": s.symbol,
                "expr": s.expr,
                "substituted": s.substituted,
                "value": s.amount.value,
                "low": s.amount.low,
                "high": s.amount.high,
                "unit": s.amount.unit,
            }
            for s in derivation.steps
        ],
    }


# -- text --------------------------------------------------------------------------------------


def _text(report: Report, several: bool) -> list[Any]:
    from rich.text import Text

    from kvbudget.render.text import can_unicode, foreign

    unicode = can_unicode()
    out: list[Any] = []
    nothing = "nothing recognised: no line of a known engine stands in this text"
    head = report.engine or ("no engine recognised" if report.facts else nothing)
    if report.engine_version:
        head += f" {report.engine_version}"
    out.append(foreign((f"{report.name}: " if several else "") + head, "bold"))
    if not report.facts:
        out.append(
            Text("  give the start-up log from its first line; knowledge list shows what is read")
        )
        return out
    for entry in report.budgets:
        out.append(Text(""))
        out += [foreign(line) for line in _waterfall(entry, unicode=unicode)]
    shown = {
        name
        for e in report.budgets
        for t in (e.budget.capacity, *e.budget.terms)
        for name in t.facts
    }
    rest = [f for f in report.facts if f.name not in shown]
    if rest:
        out += [Text(""), Text("also printed")]
        out += [foreign("  " + _fact_line(fact)) for fact in rest]
    for rank, derivation in report.derivations:
        out += [Text(""), foreign("bytes to blocks" + (f", {rank}" if rank else ""))]
        for step in derivation.steps:
            out += [foreign("  " + line) for line in _three_lines(step)]
        source = derivation.steps[0].source
        if source:
            out.append(foreign(f"  {source.path}  ({source.versions})"))
    if report.notes:
        out += [Text(""), Text("notes")]
        for note in report.notes:
            where = f" (line {', '.join(map(str, note.lines[:4]))})" if note.lines else ""
            mark = "!" if note.level == "warning" else "-"
            style = "yellow" if note.level == "warning" else ""
            out.append(foreign(f"  {mark} {note.message}{where} [{note.id}]", style))
    return out


def _waterfall(entry: RankBudget, *, unicode: bool) -> list[str]:
    from kvbudget.render.text import columns

    capacity = entry.budget.capacity
    whole = max(1, int(capacity.amount.value))
    rows = [(capacity.label, capacity.amount, _lines(capacity), whole)]
    left = whole
    for term in entry.budget.terms:
        rows.append((term.label, term.amount, _lines(term), left))
        left -= int(term.amount.value)
    rest = entry.budget.remainder
    rows.append(("unexplained" if entry.complete else "not printed", rest, "", int(rest.value)))
    title = "budget" + (f" of {entry.budget.scope}" if entry.budget.scope else "")
    names = max(len(label) for label, *_ in rows)
    sizes = max(len(_amount(amount)) for _, amount, *_ in rows)
    cells = max(4, min(BAR, columns() - names - sizes - max(len(row[2]) for row in rows) - 6))
    out = [title]
    for label, amount, lines, start in rows:
        bar = _bar(amount, start, whole, cells, unicode)
        out.append(f"  {label:<{names}} {_amount(amount):>{sizes}}  {bar} {lines}")
    if entry.missing:
        out.append("  not in this text: " + ", ".join(entry.missing))
    elif entry.budget.closes:
        out.append("  closes: the remainder is zero within the printed digits")
    else:
        out.append("  does not close: the remainder is larger than the printed digits allow")
    return out


def _bar(amount: Amount, start: int, whole: int, cells: int, unicode: bool) -> str:
    """A row of the waterfall: the term's share, placed where the rows above ended."""
    full, gap = ("█", "·") if unicode else ("#", ".")
    end = round(max(0.0, min(1.0, start / whole)) * cells)
    size = min(end, round(max(0.0, amount.value / whole) * cells))
    return gap * (end - size) + full * size + gap * (cells - end)


def _amount(amount: Amount) -> str:
    text = format_size(int(amount.value))
    if amount.is_exact:
        return text
    from kvbudget.render.text import can_unicode

    half = (amount.high - amount.low) / 2
    return f"{text} {'±' if can_unicode() else '+-'}{format_size(int(half))}"


def _lines(term: Term) -> str:
    if not term.lines:
        return ""
    return ("line " if term.provenance.kind == "log" else "from ") + ", ".join(
        str(line) for line in sorted(set(term.lines))
    )


def _fact_line(fact: Fact) -> str:
    value = str(fact.value) if isinstance(fact.value, str) else format_amount(fact.value, fact.unit)
    rank = f" {fact.rank}" if fact.rank else ""
    return f"{fact.name:<34} {value:>18}  line {fact.line}{rank}"


def _three_lines(step: Any) -> list[str]:  # noqa: ANN401 - derivation.Step
    amount = step.amount
    result = format_amount(amount.value, amount.unit)
    if not amount.is_exact:
        low, high = (format_amount(v, amount.unit) for v in (amount.low, amount.high))
        result += f"   ({low} to {high} within the printed digits)"
    return [f"{step.symbol} = {step.expr}", f"  = {step.substituted}", f"  = {result}"]


def _table(reports: Sequence[Report]) -> Any:  # noqa: ANN401 - a rich table
    from rich.table import Table

    from kvbudget.render.text import foreign

    table = Table(box=None, pad_edge=False)
    for title in ("file", "engine", "weights", "KV", "tokens", "concurrency"):
        table.add_column(title)
    for report in reports:
        table.add_row(*[foreign(cell) for cell in _summary(report)])
    return table


def _summary(report: Report) -> list[str]:
    def last(name: str) -> str:
        found = [f for f in report.facts if f.name == name and not isinstance(f.value, str)]
        return format_amount(found[-1].value, found[-1].unit) if found else "-"  # type: ignore[arg-type]

    engine = f"{report.engine or '-'} {report.engine_version or ''}".strip()
    names = ("weights_memory", "kv_cache_memory", "kv_cache_tokens", "max_concurrency")
    return [report.name, engine, *(last(name) for name in names)]


# -- markdown ----------------------------------------------------------------------------------


def _markdown(report: Report, several: bool) -> str:
    from kvbudget.render.text import plain

    def cell(text: str) -> str:
        return plain(text).replace("|", "\\|").replace("`", "'")

    out = [f"### {cell(report.name) if several else 'Start-up memory'}", ""]
    out.append(
        f"Engine: {cell(report.engine or 'not recognised')} {cell(report.engine_version or '')}".rstrip()
    )
    for entry in report.budgets:
        budget = entry.budget
        out += [
            "",
            f"| budget{cell(' ' + budget.scope if budget.scope else '')} | size | line |",
            "|---|---:|---|",
        ]
        for term in (budget.capacity, *budget.terms):
            lines = ", ".join(str(line) for line in sorted(set(term.lines)))
            out.append(f"| {cell(term.label)} | {_amount(term.amount)} | {lines} |")
        label = "unexplained" if entry.complete else "not printed"
        out.append(f"| {label} | {_amount(budget.remainder)} | |")
    if report.facts:
        out += ["", "| fact | value | rank | line |", "|---|---:|---|---:|"]
        for fact in report.facts:
            value = (
                fact.value if isinstance(fact.value, str) else format_amount(fact.value, fact.unit)
            )
            out.append(
                f"| {fact.name} | {cell(str(value))} | {cell(fact.rank or '')} | {fact.line} |"
            )
    else:
        out += ["", "Nothing recognised."]
    for _, derivation in report.derivations:
        out += ["", "```"]
        for step in derivation.steps:
            out += _three_lines(step)
        out.append("```")
    if report.notes:
        out.append("")
        out += [f"- {cell(note.message)} (`{note.id}`)" for note in report.notes]
    return "\n".join(out)


def _markdown_table(reports: Sequence[Report]) -> str:
    rows = [
        "| file | engine | weights | KV | tokens | concurrency |",
        "|---|---|---:|---:|---:|---:|",
    ]
    rows += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in _summary(r)) + " |" for r in reports
    ]
    return "\n".join(rows)
