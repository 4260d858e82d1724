"""A command that takes an engine's flags among its own."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from kvbudget.cli.page import Page
from kvbudget.errors import InputError

MARK = "\x00"
OWN = ("-o", "-h")


class EngineFlagsCommand(Page):
    """Keeps single-dash words of an engine (`-tp4`, `-O.mode=x`) from being read as clusters."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        end = args.index("--") if "--" in args else len(args)
        for arg in args[:end]:
            self._slip(ctx, arg.partition("=")[0])
        marked = [MARK + arg if _is_engines(arg) else arg for arg in args[:end]]
        return super().parse_args(ctx, marked + args[end:])

    def _slip(self, ctx: Any, word: str) -> None:  # noqa: ANN401 - typer's context
        """A misspelt option of ours is refused rather than taken for one of an engine."""
        own = {name for param in self.get_params(ctx) for name in param.opts if name[:2] == "--"}
        if not word.startswith("--") or word in own:
            return
        from kvbudget.derive.command_line import spellings
        from kvbudget.formula.registry import engine_names

        slipped = get_close_matches(word, own, 1, 0.85)
        if slipped and not any(word in spellings(engine) for engine in engine_names()):
            raise InputError(f"no such option: {word}", f"did you mean {slipped[0]}?")


def _is_engines(arg: str) -> bool:
    single = arg.startswith("-") and not arg.startswith("--") and len(arg) > 1
    return single and not arg.startswith(OWN)


def unmarked(words: list[str]) -> tuple[str, ...]:
    """The words as typed."""
    return tuple(word.removeprefix(MARK) for word in words)
