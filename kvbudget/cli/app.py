"""The `kvbudget` program: its commands, and the one place from errors to exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from kvbudget import __version__
from kvbudget.cli.lazy import LazyGroup
from kvbudget.errors import EXIT_INTERNAL, EXIT_USAGE, KvbudgetError

app = typer.Typer(
    name="kvbudget",
    cls=LazyGroup,
    help="Where the GPU memory of a vLLM or SGLang server goes, and why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kvbudget {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Where the GPU memory of a vLLM or SGLang server goes, and why."""


def main() -> None:
    """Run the program; every way out has its own exit code (docs/exit-codes.md)."""
    # `--debug` is accepted anywhere on the line, as people add it at the end when a run failed.
    before_passthrough = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    debug = "--debug" in before_passthrough
    if debug:
        position = sys.argv.index("--debug")
        sys.argv = [*sys.argv[:position], *sys.argv[position + 1 :]]
    try:
        app()
    except KvbudgetError as error:
        if debug:
            raise
        _say(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader left (`| head`): nothing more to say, and nothing went wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except RecursionError as error:
        if debug:
            raise
        print(f"kvbudget: input nested too deeply ({error})", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except Exception as error:
        if debug:
            raise
        print(
            f"kvbudget: internal error: {type(error).__name__}: {error}\n"
            "  this is a bug in kvbudget; run again with --debug and report the traceback",
            file=sys.stderr,
        )
        sys.exit(EXIT_INTERNAL)


def _say(error: KvbudgetError) -> None:
    from kvbudget.render.text import plain

    print(f"kvbudget: {plain(str(error))}", file=sys.stderr)
    if error.hint:
        print(f"  {plain(error.hint)}", file=sys.stderr)
