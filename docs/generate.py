"""Writes the pages that are made from data: `python docs/generate.py` (make docs).

`pages()` returns them as text, so that a test can compare without writing.
"""

from __future__ import annotations

import sys
from pathlib import Path

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

    group = get_command(app)
    lines = [
        "# Commands",
        "",
        "Made from `kvbudget COMMAND --help`. Pages with examples: [commands/](commands/).",
        "",
    ]
    import click

    def walk(name: str, command: click.Command, parent: click.Context | None) -> None:
        context = click.Context(
            command, info_name=name.rsplit(" ", 1)[-1], parent=parent, terminal_width=100,
            max_content_width=100,
        )  # fmt: skip
        if parent is not None:
            lines.extend([f"## {name}", "", "```", command.get_help(context).rstrip(), "```", ""])
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                found = command.get_command(context, sub)
                if found is not None and not found.hidden:
                    walk(f"{name} {sub}", found, context)

    walk("kvbudget", group, None)
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


def pages() -> dict[Path, str]:
    """Page -> text, for every generated page."""
    return {DOCS / "words.md": words(), DOCS / "commands.md": commands(), **causes()}


def main() -> int:
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
