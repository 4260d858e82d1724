"""`kvbudget knowledge list | show | check | drift`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvbudget.cli import complete
from kvbudget.cli.options import Format, FormatOption, KnowledgeOption, OutputOption
from kvbudget.cli.page import CONTEXT, Page, Pages, epilog
from kvbudget.errors import EXIT_FINDINGS, InputError, near

EPILOG = epilog(
    """
    kvbudget knowledge list vllm
    kvbudget knowledge show vllm.kv.available
    kvbudget knowledge check ./my-patterns
    kvbudget knowledge drift vllm --checkout ~/src/vllm
    """,
    {0: "fine", 1: "something is wrong (check) or moved (drift)", 2: "bad usage, or no such thing"},
)
LIST = epilog(
    """
    kvbudget knowledge list vllm
    kvbudget knowledge list "cuda graph" --format json
    """,
    {0: "listed", 2: "bad usage, or nothing holds the word"},
)
SHOW = epilog(
    """
    kvbudget knowledge show vllm.kv.available
    kvbudget knowledge show vllm/pool-v1-0.26
    """,
    {0: "shown", 2: "bad usage, or no such entry"},
)
CHECK = epilog(
    """
    kvbudget knowledge check
    kvbudget knowledge check ./my-patterns
    """,
    {0: "every sample and example holds", 1: "something is wrong", 2: "bad usage"},
)
DRIFT = epilog(
    """
    kvbudget knowledge drift vllm --checkout ~/src/vllm
    kvbudget knowledge drift sglang --checkout ~/src/sglang --engine-version 0.5.12
    """,
    {0: "every cited line stands", 1: "something moved", 2: "bad usage"},
)

knowledge = typer.Typer(
    cls=Pages,
    help="Show and check what is known of each engine release.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
    epilog=EPILOG,
)


@knowledge.command("list", cls=Page, epilog=LIST)
def list_(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help="Only ids, versions or meanings that hold WORD.",
            show_default=False,
        ),
    ] = "",
    format: FormatOption = Format.text,
    output: OutputOption = None,
    overlays: KnowledgeOption = None,
) -> None:
    """List every log line, failure and formula file."""
    from kvbudget.knowledge import listing
    from kvbudget.knowledge.where import overlaid

    with overlaid(overlays):
        found = listing.rows()
    rows = [row for row in found if word.lower() in " ".join(row[:4]).lower()]
    if not rows:
        raise InputError(
            f"nothing known holds {word!r}", "kvbudget knowledge list shows everything"
        )
    _emit_table("list", ("kind", "id", "versions", "doc"), rows, format, output)


@knowledge.command(cls=Page, epilog=SHOW)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An id as `knowledge list` prints it.",
            autocompletion=complete.entries,
        ),
    ],
    format: FormatOption = Format.text,
    output: OutputOption = None,
    overlays: KnowledgeOption = None,
) -> None:
    """Show one entry whole.

    Pattern, facts and units, source, samples and lines that it must not match.
    """
    import msgspec

    from kvbudget.knowledge.listing import entry_names
    from kvbudget.knowledge.patterns import load_patterns
    from kvbudget.knowledge.where import knowledge_dir, overlaid
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit
    from kvbudget.render.text import plain

    with overlaid(overlays):
        pattern = load_patterns().get(name)
    if pattern is not None:
        entry: dict[str, Any] = {
            "schema": "kvbudget.knowledge-show/1",
            "engine": pattern.engine,
            "file": "/".join(Path(pattern.file).parts[-2:]),
            **msgspec.to_builtins(pattern.entry),
        }
        if format is Format.json:
            emit(dumps(entry), output)
            return
        body = "\n".join(_lines(entry))
        emit(
            f"```\n{_plain_lines(body)}\n```" if format is Format.markdown else _plain_lines(body),
            output,
        )
        return
    path = knowledge_dir("formulas") / f"{name}.yaml"
    if not path.is_file() or ".." in name:
        raise InputError(
            f"nothing known is called {plain(name)}",
            near(name, entry_names(), "kvbudget knowledge list names all"),
        )
    text = path.read_text(encoding="utf-8")
    if format is Format.json:
        from kvbudget.knowledge.yamlfile import load_yaml

        emit(dumps({**load_yaml(path), "schema": "kvbudget.knowledge-show/1"}), output)
        return
    emit(f"```yaml\n{text}```" if format is Format.markdown else text, output)


@knowledge.command(cls=Page, epilog=CHECK)
def check(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Your own files; without it, the shipped ones."),
    ] = None,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Prove the data files: samples, rejects, worked examples, units."""
    from kvbudget.formula.check import check_dir, formula_files
    from kvbudget.knowledge.patterns import pattern_files
    from kvbudget.knowledge.where import knowledge_dir
    from kvbudget.logs.selftest import check_patterns
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit
    from kvbudget.render.text import plain

    if folder is None:
        paths, below = pattern_files(), knowledge_dir("formulas")
    else:
        if not folder.is_dir():
            raise InputError(f"not a folder: {folder}", "give a folder of YAML files")
        own = folder / "logparsers" if (folder / "logparsers").is_dir() else folder
        below = folder / "formulas"
        paths = [p for p in sorted(own.rglob("*.yaml")) if not p.is_relative_to(below)]
        if not paths and not below.is_dir():
            raise InputError(f"no YAML file below {folder}", "logparsers/README.md shows one")
    programs = formula_files(below)
    formulas = check_dir(below) if below.is_dir() else []
    outcome = check_patterns(paths)
    errors = [str(p) for p in outcome.problems if p.level == "error"] + [str(p) for p in formulas]
    warnings = [str(p) for p in outcome.problems if p.level == "warning"]
    if format is Format.json:
        document = {
            "schema": "kvbudget.knowledge-check/1",
            "files": outcome.files,
            "formula_files": len(programs),
            "patterns": outcome.patterns,
            "samples": outcome.samples,
            "rejects": outcome.rejects,
            "errors": errors,
            "warnings": warnings,
        }
        emit(dumps(document), output)
    else:
        lines = [f"error: {plain(text)}" for text in errors]
        lines += [f"warning: {plain(text)}" for text in warnings]
        counts = (
            (outcome.patterns, "pattern"), (outcome.samples, "sample"), (outcome.rejects, "reject"),
            (len(programs), "formula file"), (len(errors), "error"), (len(warnings), "warning"),
        )  # fmt: skip
        said = [f"{n:,} {what}{'' if n == 1 else 's'}" for n, what in counts]
        lines.append(f"{', '.join(said[:4])}: {', '.join(said[4:])}")
        emit(
            "\n".join(f"- {line}" if format is Format.markdown else line for line in lines), output
        )
    if errors:
        raise typer.Exit(EXIT_FINDINGS)


@knowledge.command(cls=Page, epilog=DRIFT)
def drift(
    engine: Annotated[
        str,
        typer.Argument(metavar="ENGINE", help="vllm or sglang.", autocompletion=complete.engines),
    ],
    checkout: Annotated[
        Path, typer.Option("--checkout", metavar="DIR", help="A checkout of the engine.")
    ],
    engine_version: Annotated[
        str | None,
        typer.Option(
            "--engine-version", metavar="V", help="Files of this release instead of the newest."
        ),
    ] = None,
    format: FormatOption = Format.text,
    output: OutputOption = None,
) -> None:
    """Say which cited lines a checkout of an engine no longer has.

    json and markdown list those that stand too.
    """
    from kvbudget.formula.drift import drift as look

    found = look(engine, checkout, engine_version)
    rows: list[tuple[str, ...]] = [
        (d.verdict, f"{d.file}:{d.step}", d.path, d.cited or "", str(d.line or ""), d.anchor or "")
        for d in found
        if d.verdict != "stands" or format is not Format.text
    ]
    _emit_table(
        "drift", ("verdict", "step", "path", "cited", "found", "anchor"), rows, format, output
    )
    gone = sum(d.verdict != "stands" for d in found)
    if format is Format.text:
        typer.echo(f"{len(found)} steps: the cited lines of {len(found) - gone} stand", err=True)
        if all(d.verdict == "file gone" for d in found):
            typer.echo(f"  {checkout} does not look like the root of {engine}'s source", err=True)
    if gone:
        raise typer.Exit(EXIT_FINDINGS)


def _emit_table(
    name: str,
    head: tuple[str, ...],
    rows: list[tuple[str, ...]],
    format: Format,
    output: Path | None,
) -> None:
    from kvbudget.render.json_v1 import dumps
    from kvbudget.render.output import emit
    from kvbudget.render.text import plain

    if format is Format.json:
        entries = [dict(zip(head, row, strict=True)) for row in rows]
        emit(dumps({"schema": f"kvbudget.knowledge-{name}/1", "entries": entries}), output)
    elif format is Format.markdown:
        cells = [head, tuple("---" for _ in head), *rows]
        escaped = (" | ".join(plain(cell).replace("|", "\\|") for cell in row) for row in cells)
        emit("\n".join(f"| {line} |" for line in escaped), output)
    else:
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)] if rows else []
        emit(
            "\n".join(
                "  ".join(
                    [*(plain(c).ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]
                )
                for row in rows
            ),
            output,
        )


def _lines(value: Any, indent: str = "") -> list[str]:  # noqa: ANN401 - any JSON value
    """A JSON value as indented `key: value` lines."""
    lines: list[str] = []
    pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in pairs:
        head = f"{indent}- " if key is None else f"{indent}{key}: "
        if isinstance(item, dict | list | tuple) and item:
            lines += [head.rstrip(), *_lines(item, indent + "  ")]
        elif item not in (None, "", [], {}, ()):
            lines.append(f"{head}{item}")
    return lines


def _plain_lines(text: str) -> str:
    """Each line of `text` without control characters."""
    from kvbudget.render.text import plain

    return "\n".join(plain(line) for line in text.split("\n"))


def register(app: typer.Typer) -> None:
    app.add_typer(knowledge, name="knowledge")
