"""The `kvbudget` program: its commands, and the one place from errors to exit codes."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvbudget import __version__
from kvbudget.cli.lazy import LazyGroup
from kvbudget.cli.page import CONTEXT, UsageError, epilog, refusal
from kvbudget.errors import EXIT_INTERNAL, EXIT_USAGE, KvbudgetError

FIRST = """kvbudget: where the GPU memory of a vLLM or SGLang server goes, and why.

Start with what you have:
  a crash            kvbudget oom-triage crash.log
  a start-up log     kvbudget explain-log serve.log
  two runs           kvbudget diff before.log after.log
  a model            kvbudget derive MODEL_DIR --engine vllm --gpu h100-80gb
  a load to serve    kvbudget plan MODEL_DIR --gpu h100-80gb --context 8k --concurrency 48
  a GPU              kvbudget profile --model tiny
  a running server   kvbudget watch --url http://localhost:8000/metrics
  a repository       kvbudget gate deploy/
  a request trace    kvbudget residency report trace.jsonl --model MODEL_DIR --gpu h100-80gb

kvbudget COMMAND -h shows its options, examples and exit codes."""

EPILOG = epilog(
    """
    kvbudget oom-triage crash.log --startup-log serve.log
    kvbudget explain-log serve.log --format markdown -o ticket.md
    """,
    {
        0: "done: explained, classified, fits, clean, no alarm",
        1: "findings: violated, does not fit, out of memory while profiling, an alarm",
        2: "bad usage, unreadable input, or a missing extra",
        3: "nothing recognised",
        4: "not enough evidence for a number",
        70: "internal error; run again with --debug",
        130: "interrupted",
    },
)

app = typer.Typer(
    name="kvbudget",
    cls=LazyGroup,
    help="Where the GPU memory of a vLLM or SGLang server goes, and why.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    epilog=EPILOG,
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
    if ctx.invoked_subcommand is None:
        typer.echo(FIRST)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _open_closed_streams() -> None:
    """Give a stream that the caller closed (`>&-`, some supervisors) back, on the null device.

    Without it the next file opened would take the place of stdout and receive the result.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - kept open


def main() -> None:
    """Run the program; every way out has its own exit code (docs/exit-codes.md)."""
    _open_closed_streams()
    # `--debug` is accepted anywhere on the line, as people add it at the end when a run failed.
    before_passthrough = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    debug = "--debug" in before_passthrough
    if debug:
        position = sys.argv.index("--debug")
        sys.argv = [*sys.argv[:position], *sys.argv[position + 1 :]]
    try:
        code = app(prog_name="kvbudget", standalone_mode=False)
    except UsageError as error:
        # A group without its command shows its help, which says what to type.
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
        else:
            _say(*refusal(error))
        sys.exit(EXIT_USAGE)
    except KvbudgetError as error:
        if debug:
            raise
        _say(str(error), error.hint)
        sys.exit(error.exit_code)
    except SystemExit:
        # The reader left (`| head`): nothing more to say, and nothing went wrong. typer would end
        # with 1, the code of findings; the wrapper it leaves behind is all that tells.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(0)
        raise
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
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _say(f"cannot write the result: {error.strerror}", "make room, or write it elsewhere")
            sys.exit(EXIT_USAGE)
        print(
            f"kvbudget: internal error: {type(error).__name__}: {error}\n"
            "  this is a bug in kvbudget; run again with --debug and report the traceback",
            file=sys.stderr,
        )
        sys.exit(EXIT_INTERNAL)
    sys.exit(code if isinstance(code, int) else 0)


def _say(what: str, hint: str | None) -> None:
    from kvbudget.render.text import plain

    print(f"kvbudget: {plain(what)}", file=sys.stderr)
    if hint:
        print(f"  {plain(hint)}", file=sys.stderr)
