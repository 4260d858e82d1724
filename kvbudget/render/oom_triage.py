"""How a triage is shown to people: text, Markdown, and the pages about causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.render.json_v1 import dumps
from kvbudget.render.text import foreign, plain, render
from kvbudget.triage.causes import Cause, catalogue
from kvbudget.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

_ARROWS = {"raise": "raise", "lower": "lower", "set": "set", "unset": "unset"}


def text(document: dict[str, Any], output: Path | None = None) -> str:
    """The verdict first, then evidence, sums, remedies, what was ruled out and what is missing."""
    parts: list[RenderableType] = []
    for line, style in _lines(document):
        parts.append(foreign(line, style))
    return render(*parts, output=output).rstrip("\n")


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    verdict = document["verdict"]
    row = catalogue().cause(verdict["cause"])
    where = ", ".join(
        part
        for part in (
            f"phase {verdict['phase']}" if verdict["phase"] else "",
            f"rank {verdict['rank']}" if verdict["rank"] else "",
            "" if verdict["fatal"] or verdict["family"] == "none" else "not fatal",
        )
        if part
    )
    out: list[tuple[str, str]] = [
        (f"{verdict['cause']} ({verdict['confidence']}): {row.title}", "bold"),
    ]
    if where:
        out.append((f"  {where}", ""))
    out.append((f"  {verdict['explanation']}", ""))
    if verdict["evidence"]:
        out.append(("", ""))
        out.append(("evidence", "bold"))
        out += [(f"  line {e['line']}: {_short(e['text'])}", "") for e in verdict["evidence"]]
    out += _sums(document["arithmetic"])
    if verdict["remedies"]:
        out += [("", ""), ("what to do", "bold")]
        for number, step in enumerate(verdict["remedies"], 1):
            knob = " ".join(
                part for part in (_ARROWS.get(step["direction"] or ""), step["flag"]) if part
            )
            value = f" -> {step['value']}" if step["value"] else ""
            out.append(
                (f"  {number}. {step['action']}" + (f"  [{knob}{value}]" if knob else ""), "")
            )
            out.append((f"     because {step['why']}", ""))
    if verdict["cannot_help"]:
        out += [("", ""), ("cannot help", "bold")]
        out += [(f"  - {item}", "") for item in verdict["cannot_help"]]
    for cost in document["costs"]:
        out += [("", ""), ("what it costs", "bold"), (f"  {_cost(cost)}", "")]
    if document["alternatives"]:
        out += [("", ""), ("could also be", "bold")]
        out += [(f"  {a['cause']} ({a['confidence']})", "") for a in document["alternatives"]]
    if document["ruled_out"]:
        out += [("", ""), ("looks like a cause and is not", "bold")]
        out += [
            (f"  line {r['line']}: {_short(r['text'])}  ({r['why']})", "")
            for r in document["ruled_out"]
        ]
    if verdict["missing"]:
        out += [("", ""), ("would decide", "bold")]
        out += [(f"  {item}", "") for item in verdict["missing"]]
    return out


def _short(line: str, width: int = 160) -> str:
    line = plain(line.strip())
    return line if len(line) <= width else line[: width - 3] + "..."


def _sums(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    if not rows:
        return []
    out: list[tuple[str, str]] = [("", ""), ("the message in numbers", "bold")]
    for row in rows:
        indent = "    " if row.get("part_of") else "  "
        mark = "" if row["source"] == "printed" else "  (derived)"
        out.append((f"{indent}{format_size(row['value']):>12}  {row['label']}{mark}", ""))
    return out


def _cost(cost: dict[str, Any]) -> str:
    moved = cost["kv_bytes"]
    size = format_size(abs(moved))
    verb = f"takes {size} from the KV pool" if moved < 0 else f"gives the KV pool {size}"
    parts = []
    if cost["of_pool"] is not None:
        parts.append(f"{abs(cost['of_pool']):.0%}")
    if cost["tokens"] is not None:
        parts.append(f"{abs(cost['tokens']):,} tokens")
    if cost["blocks"] is not None:
        parts.append(f"{abs(cost['blocks']):,} blocks")
    if cost["requests_8k"] is not None:
        parts.append(f"about {abs(cost['requests_8k']):.0f} concurrent 8k requests")
    said = f"{cost['from']:.2f} -> {cost['to']:.2f} {verb}"
    return f"{said}: {', '.join(parts)}" if parts else said


def markdown(document: dict[str, Any]) -> str:
    """The same for a ticket. Foreign text stands in code spans only."""
    out: list[str] = []
    for line, style in _lines(document):
        if not line:
            out.append("")
        elif style == "bold":
            out.append(f"### {line}" if not out else f"**{line}**")
            out.append("")
        elif line.startswith("  line "):
            head, _, rest = line.strip().partition(": ")
            out.append(f"- {head}: `{rest.replace('`', chr(39))}`")
        elif line.startswith("     because"):
            out.append(f"   {line.strip()}")
        else:
            out.append(
                line.strip()
                if line.strip()[:1].isdigit() and ". " in line[:8]
                else f"- {line.strip(' -')}"
            )
    return "\n".join(out)


def explanation(name: str, output_format: str) -> str:
    """One cause (or `list`) as text, Markdown or JSON. Raises InputError for an unknown name."""
    book = catalogue()
    if name == "list":
        if output_format == "json":
            rows = [{"cause": c, "title": r.title} for c, r in book.causes.items()]
            return dumps({"schema": "kvbudget.oom-triage-list/1", "causes": rows})
        return "\n".join(f"{c:<34} {r.title}" for c, r in book.causes.items())
    row = book.cause(name)
    if output_format == "json":
        import msgspec

        schema = {"schema": "kvbudget.oom-triage-explain/1", "cause": name}
        return dumps({**schema, **msgspec.to_builtins(row)})
    page = cause_page(name, row)
    if output_format == "markdown":
        return page
    return page.replace("**", "").replace("`", "")


def cause_page(name: str, row: Cause) -> str:
    """docs/causes/<name>.md, generated from logparsers/causes.yaml."""
    book = catalogue()
    phases = ", ".join(row.phases) or "any"
    knob = {"raise": "raise it", "lower": "lower it", "none": "leave it: it has no part in this"}
    lines = [
        f"# {name}: {row.title}",
        "",
        f"Phase: {phases}. Utilisation knob (`--gpu-memory-utilization`, `--mem-fraction-static`): {knob[row.knob]}.",
        "",
        f"**What is seen.** {row.seen}",
        "",
        f"**Why it happens.** {row.why}",
    ]
    if row.do:
        lines += ["", "**What to do.**", ""]
        for step in row.do:
            flags = [step.flag] if step.flag else []
            if step.knob:
                flags = [f"{e}: `{f}`" for e, f in book.knobs[step.knob].items()]
                flags = [f.removeprefix("any: ") for f in flags]
            turn = f" ({step.direction}: {'; '.join(flags)})" if step.direction and flags else ""
            lines.append(f"- {step.action}{turn}. Because {step.why}.")
    if row.cannot:
        lines += ["", "**What cannot help.**", "", *[f"- {item}" for item in row.cannot]]
    if row.lookalikes:
        lines += ["", "**Look-alikes.**", "", *[f"- {item}" for item in row.lookalikes]]
    lines += ["", "**Lines that name it.**", "", *_patterns(name)]
    return "\n".join(lines).rstrip() + "\n"


def cause_index() -> str:
    """docs/causes/README.md."""
    rows = [
        f"| [{name}]({name}.md) | {row.title} | {'-' if row.knob == 'none' else row.knob} |"
        for name, row in catalogue().causes.items()
    ]
    return "\n".join(
        [
            "# Causes",
            "",
            "What `kvbudget oom-triage` can name. Made from `logparsers/causes.yaml`; knob is the direction",
            "of the utilisation knob.",
            "",
            "| cause | meaning | knob |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _patterns(name: str) -> list[str]:
    from kvbudget.knowledge.patterns import load_patterns

    found = [
        p
        for p in load_patterns().patterns
        if p.is_failure and getattr(p.entry, "cause", None) == name
    ]
    if not found:
        return ["- none by itself: it follows from several facts (see docs/commands/oom-triage.md)"]
    return [
        f"- `{p.id}` ({p.engine}, {p.entry.kind}): {p.entry.doc}"
        for p in sorted(found, key=lambda p: p.id)
    ]
