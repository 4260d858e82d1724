"""Writes the pages that are made from data, and the output that pages show: `make docs`.

`pages()` returns them as text, so that a test can compare without writing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent

GLOSSARY = (
    ("pool", "the memory of the KV cache; what is left, not what is asked for"),
    ("block, page", "the unit the pool is handed out in: a block of vLLM, a page of SGLang"),
    ("rank", "one process with one card; figures are of one rank unless a total is named"),
    ("budget", "what an engine may use of a card: utilisation times total, or its own fraction"),
    (
        "utilisation, share",
        "the fraction of the card an engine may use, whatever its flag is called",
    ),
    ("weights", "the parameters of this rank, as they lie on the device"),
    ("activation peak", "scratch memory of the largest forward pass, taken and given back"),
    ("non-torch", "what the process holds outside PyTorch: context, NCCL, workspaces"),
    ("graphs", "memory of captured CUDA graphs; by release inside or outside the budget"),
    ("margin", "what is left of the card outside the budget; what an unforeseen need is met from"),
    ("remainder, unexplained", "what the printed terms leave of the whole; never spread over them"),
    ("closes", "the remainder is zero within the digits that were printed"),
    ("band, `[low .. high]`", "the interval a figure lies in; a printed figure has one too"),
    (
        "origin, `provenance`",
        "where a figure is from: flag, log, profile, config, headers, derived, "
        "modelled, catalogue or assumed",
    ),
    ("modelled", "estimated from a model of the engine, always with a band; not a measurement"),
    ("cause, phase", "what a failure was, and during what: loading, profiling, sizing, serving"),
    ("confidence", "certain, likely, possible or unknown: what the text allows to be said"),
    ("knob, direction", "a setting, and which way it has to go; given before any value is"),
    ("L1, L2, L3", "tiers of KV: the device pool, host memory of a rank, storage"),
    ("window", "how long a block stays in a tier before newer ones push it out"),
    ("overlay", "a folder of your own formulas and log lines, given with `--knowledge`"),
)


def words() -> str:
    """docs/words.md: every fact name with unit and meaning."""
    from kvbudget.facts import FACTS

    rows = [
        f"| `{spec.name}` | {spec.unit or 'text'} | {spec.doc.replace('|', chr(92) + '|')} |"
        for spec in FACTS.values()
    ]
    return "\n".join(
        [
            "# Words",
            "",
            *_table(("word", "what is meant"), GLOSSARY),
            "",
            "## Facts",
            "",
            "Every figure that is read or computed has one of these names, in the JSON too. Memory is",
            "integer bytes on the device, per rank; names that begin with `host.` are host memory. Units:",
            "B bytes, tok tokens, blk KV blocks, req requests, x times, s seconds, n count, slot state",
            "slots, dev number of a device.",
            "",
            "| name | unit | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def commands() -> str:
    """docs/commands.md: every command with its help text."""
    from typer.main import get_command

    from kvbudget.cli.app import app

    lines = [
        "# Commands",
        "",
        "What `kvbudget COMMAND -h` prints. Pages with more: [commands/](commands/).",
        "",
    ]

    def walk(command: Any, name: str, parent: Any) -> None:  # noqa: ANN401 - typer's objects
        context = command.make_context(name, [], parent=parent, resilient_parsing=True)
        formatter = context.make_formatter()
        formatter.width = 100
        command.format_help(context, formatter)
        if parent is not None:
            page = formatter.getvalue().rstrip()
            lines.extend([f"## {context.command_path}", "", "```", page, "```", ""])
        for child in getattr(command, "list_commands", lambda _: [])(context):
            walk(command.get_command(context, child), child, context)

    walk(get_command(app), "kvbudget", None)
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n"))


def causes() -> dict[Path, str]:
    """docs/causes/*.md from logparsers/causes.yaml."""
    from kvbudget.render.oom_triage import cause_index, cause_page
    from kvbudget.triage.causes import catalogue

    folder = DOCS / "causes"
    found = {
        folder / f"{name}.md": cause_page(name, row) for name, row in catalogue().causes.items()
    }
    return {folder / "README.md": cause_index(), **found}


def rules() -> dict[Path, str]:
    """docs/rules/*.md from formulas/gate/rules.yaml."""
    from kvbudget.gate.finding import rule_data
    from kvbudget.render.gate import explain

    folder = DOCS / "rules"
    table = [(f"[{id}]({id}.md)", row["title"], row["level"]) for id, row in rule_data().items()]
    index = [
        "# Rules", "",
        "What `kvbudget gate` looks for. Made from `formulas/gate/rules.yaml`.", "",
        *_table(("rule", "meaning", "level"), table), "",
    ]  # fmt: skip
    found = {folder / f"{rule}.md": explain(rule) for rule in rule_data()}
    return {folder / "README.md": "\n".join(index), **found}


def engines() -> dict[Path, str]:
    """docs/engines/*.md: what is known of each program, from formulas/ and logparsers/."""
    from kvbudget.formula.registry import engine_names
    from kvbudget.knowledge.patterns import load_patterns

    patterns = load_patterns().patterns
    named = [*engine_names(), *sorted({p.engine for p in patterns} - set(engine_names()))]
    found, index = {}, []
    for name in named:
        lines = [p for p in patterns if p.engine == name and not p.is_failure]
        failures = [p for p in patterns if p.engine == name and p.is_failure]
        page = [f"# {name}", "", "What kvbudget knows of it, made from the data.", ""]
        page += _arithmetic(name) if name in engine_names() else []
        page += _patterns("Lines that are read", lines, ("id", "releases", "facts", "meaning"))
        page += _patterns("Failures that are recognised", failures, ("id", "cause", "meaning"))
        found[DOCS / "engines" / f"{name}.md"] = "\n".join(page)
        read = "yes" if name in engine_names() else "-"
        index.append((f"[{name}]({name}.md)", read, str(len(lines)), str(len(failures))))
    text = [
        "# Engines and what stands around them", "",
        "Arithmetic (`derive`, `plan`, the gate) is known of some, lines and failures of all.", "",
        *_table(("program", "arithmetic", "lines", "failures"), index), "",
    ]  # fmt: skip
    return {DOCS / "engines" / "README.md": "\n".join(text), **found}


def _arithmetic(name: str) -> list[str]:
    from kvbudget.derive.flags import load_flags
    from kvbudget.formula.registry import load_engine
    from kvbudget.knowledge.yamlfile import load_yaml

    engine = load_engine(name)
    parts = [
        (part, row["versions"], f"[{row['file']}](../../formulas/{name}/{row['file']})",
         " ".join(str(load_yaml(engine.files(row["file"])[0]).get("doc", "")).split()))
        for part, rows in engine.raw["parts"].items()
        for row in rows
    ]  # fmt: skip
    switches = [
        (f"`{rule['env']}`" if "env" in rule else "-", key, ", ".join(rule.get("values", {})))
        for key, rule in (engine.raw.get("selectors") or {}).items()
    ]
    flags = [
        (", ".join(f"`{o}`" for o in flag.cli), _shown(flag.defaults[-1]["value"]), flag.doc)
        for flag in load_flags(name).values()
    ]
    return [
        "## Arithmetic", "",
        f"Releases that were read: {', '.join(engine.checked)}. Another release takes the files of",
        "the range it lies in, and a note says how far it is from one that was read.", "",
        *_table(("part", "releases", "file", "what it holds"), parts), "",
        "The environment picks between code paths (`--env NAME=VALUE`):", "",
        *_table(("variable", "picks", "values"), switches), "",
        "## Flags", "",
        "Spelled as the engine spells them; the default is that of the newest releases.", "",
        *_table(("flag", "default", "meaning"), flags), "",
    ]  # fmt: skip


def _shown(value: Any) -> str:  # noqa: ANN401 - a flag's value
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None else str(value)


def _patterns(title: str, patterns: list[Any], head: tuple[str, ...]) -> list[str]:
    if not patterns:
        return []
    rows = []
    for pattern in patterns:
        entry = pattern.entry
        facts = ", ".join(f"`{fact}`" for fact in entry.yields)
        cause = getattr(entry, "cause", None)
        page = f"[{cause}](../causes/{cause}.md)" if cause else "(looks like a cause and is not)"
        cells = {"id": f"`{entry.id}`", "releases": entry.versions, "facts": facts or "-",
                 "meaning": " ".join(entry.doc.split()), "cause": page}  # fmt: skip
        rows.append(tuple(cells[name] for name in head))
    return [f"## {title}", "", *_table(head, rows), ""]


def _table(head: tuple[str, ...], rows: Any) -> list[str]:  # noqa: ANN401 - tuples of cells
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def pages() -> dict[Path, str]:
    """Page -> text, for every generated page."""
    return {
        DOCS / "words.md": words(), DOCS / "commands.md": commands(),
        **causes(), **rules(), **engines(),
    }  # fmt: skip


def main() -> int:
    import transcripts

    written = pages()
    for path in transcripts.pages():
        text = written.get(path) or path.read_text(encoding="utf-8")
        written[path] = transcripts.refreshed(text)
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
