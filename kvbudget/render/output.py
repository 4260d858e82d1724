"""Where a finished result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from kvbudget.errors import InputError


def emit(text: str, output: Path | None) -> None:
    """Write `text` (a final newline is added) to `output`, or to stdout.

    A file is replaced in one step, so a failed run leaves the old one. Raises InputError when it
    cannot be written. A reader that left (`| head`) is no failure: the command keeps its exit code
    (typer would turn the BrokenPipeError into 1, the code of findings).
    """
    if not text.endswith("\n"):
        text += "\n"
    # A lone surrogate (half of an odd file name) stays legible, and JSON that holds it stays JSON.
    data = text.encode("utf-8", "backslashreplace")
    if output is None or str(output) == "-":
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            _abandon_stdout()
        except OSError as exc:  # a full disk behind `> file`
            _abandon_stdout()
            raise InputError(
                f"cannot write to stdout: {exc.strerror}", "make room, or give -o FILE elsewhere"
            ) from exc
        return
    if output.exists() and not output.is_file():  # /dev/stderr, a pipe: nothing to replace
        try:
            output.write_bytes(data)
        except OSError as exc:
            raise InputError(
                f"cannot write {output}: {exc.strerror}", "give a writable -o FILE"
            ) from exc
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            mode = output.stat().st_mode & 0o777 if output.exists() else 0o666 & ~_umask()
            Path(name).chmod(mode)
            Path(name).replace(output)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as exc:
        raise InputError(
            f"cannot write {output}: {exc.strerror}", "give a writable -o FILE"
        ) from exc


def _abandon_stdout() -> None:
    """What is still buffered goes nowhere, so that the interpreter's own flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
