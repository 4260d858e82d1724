"""A command that takes an engine's flags among its own."""

from __future__ import annotations

from typing import Any

from kvbudget.cli.page import Page

MARK = "\x00"
OWN = ("-o", "-h")


class EngineFlagsCommand(Page):
    """Keeps single-dash words of an engine (`-tp4`, `-O.mode=x`) from being read as clusters."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        end = args.index("--") if "--" in args else len(args)
        marked = [MARK + arg if _is_engines(arg) else arg for arg in args[:end]]
        return super().parse_args(ctx, marked + args[end:])


def _is_engines(arg: str) -> bool:
    single = arg.startswith("-") and not arg.startswith("--") and len(arg) > 1
    return single and not arg.startswith(OWN)


def unmarked(words: list[str]) -> tuple[str, ...]:
    """The words as typed."""
    return tuple(word.removeprefix(MARK) for word in words)
