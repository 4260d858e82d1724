"""Writes the pages that are made from data, and the output that pages show: `make docs`.

`pages()` returns them as text, so that a test can compare without writing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent


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
            "Every figure that kvbudget reports has one of these names. Memory is integer bytes on the",
            "device, per rank; names that begin with `host.` are host memory. Units: B bytes, tok tokens,",
            "blk KV blocks, req requests, x times, s seconds, n count, slot state slots, dev device index.",
            "",
            "Terms used throughout: the *pool* is the memory of the KV cache; a *block* (vLLM) or *page*",
            "(SGLang) is the unit it is handed out in; a *rank* is one process with one card; the *margin*",
            "is what is left of the card outside the engine's budget.",
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

    return {DOCS / "rules" / f"{rule}.md": explain(rule) for rule in rule_data()}


def pages() -> dict[Path, str]:
    """Page -> text, for every generated page."""
    return {DOCS / "words.md": words(), DOCS / "commands.md": commands(), **causes(), **rules()}


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
