"""One layout for every help page: purpose, arguments, options, examples, exit codes."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from kvbudget.cli.words import PlainWords

# Wide enough for an example on one line; inherited by every subcommand.
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

# The base of everything that the parser refuses; typer exports only this descendant of it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def epilog(examples: str, exits: dict[int, str], note: str = "") -> str:
    """The end of a help page: `examples` one a line, then every exit code with its meaning."""
    blocks = [] if not note else [note]
    shown = "\n".join(f"  {line.strip()}" for line in examples.strip().split("\n"))
    blocks.append(f"\b\nExamples:\n{shown}")
    codes = "\n".join(f"  {code:<3} {meaning}" for code, meaning in sorted(exits.items()))
    blocks.append(f"\b\nExit codes:\n{codes}")
    return "\n\n".join(blocks)


class Page(PlainWords, TyperCommand):
    """A command whose help names its arguments by what they are, without Python types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's context
        """`[OPTIONS] [FILE]...`"""
        return ["[OPTIONS]", *(_piece(param) for param in _arguments(self, ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's objects
        """Arguments, then options, as two definition lists."""
        arguments = [(_piece(param), param.help or "") for param in _arguments(self, ctx)]
        records = [
            param.get_help_record(ctx)
            for param in self.get_params(ctx)
            if param.param_type_name == "option"
        ]
        for title, rows in (("Arguments", arguments), ("Options", [r for r in records if r])):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's objects
        """At the margin, like the other sections."""
        _write_epilog(self, formatter)


class Pages(PlainWords, TyperGroup):
    """A group of commands with the same layout."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's objects
        """At the margin, like the other sections."""
        _write_epilog(self, formatter)


def _write_epilog(command: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's objects
    if command.epilog:
        formatter.write_paragraph()
        formatter.write_text(command.epilog)


def _arguments(command: Any, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's objects
    return [param for param in command.get_params(ctx) if param.param_type_name == "argument"]


def _piece(param: Any) -> str:  # noqa: ANN401 - typer's object
    name = str(param.metavar)
    shown = name if param.required else f"[{name}]"
    return f"{shown}..." if param.nargs != 1 and not name.endswith("...") else shown


def refusal(error: Any) -> tuple[str, str]:  # noqa: ANN401 - typer's UsageError
    """What the parser refused and what to do, in the words of every other error.

    `error` is a UsageError of typer; returns (one sentence, one hint).
    """
    path = error.ctx.command_path if error.ctx else "kvbudget"
    near = sorted(getattr(error, "possibilities", None) or ())
    message = str(error.message) or str(error.format_message())
    message = re.sub(r"^Value error, |, unable to parse.*$|\.$", "", message)
    message = message.replace("Input should be", "must be")
    suggested = re.search(r"\.? Did you mean (.+?)\??$", message)
    if suggested:
        message = message[: suggested.start()]
        near = re.findall(r"'([^']+)'", suggested[1])
    param = getattr(error, "param", None)
    if param is not None:
        name = param.opts[0] if param.param_type_name == "option" else param.metavar
        message = f"{name}: {message}" if error.message else f"missing {name}"
    hint = f"{path} -h shows what it takes"
    if near:
        hint = f"did you mean {' or '.join(near)}? {hint}"
    return message[:1].lower() + message[1:], hint
