"""Runs the program on what nobody meant to hand in; what the tests of hostile input share."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvbudget.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = (
    "INFO 01-02 10:00:00 [gpu_worker.py:1] Available KV cache memory: 10.25 GiB\n"
    "INFO 01-02 10:00:01 [kv_cache_utils.py:1] GPU KV cache size: 83,968 tokens\n"
)
NASTY: tuple[Any, ...] = (
    10**400, 10**18, -1, 0, 1.5, float("nan"), float("inf"), "", "x", "\ud800", "\u00b2",
    "\x1b[31m[bold]", None, True, [], {}, [1], {"a": 1}, [[[]]],
)  # fmt: skip


class Outcome(NamedTuple):
    code: int
    out: bytes
    err: str


def run(*arguments: object, data: bytes = b"") -> Outcome:
    """The program in this process: exit code, stdout, stderr."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    err = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["kvbudget", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            app.main()
        out.flush()
    code = end.value.code
    assert isinstance(out.buffer, io.BytesIO)
    return Outcome(code if isinstance(code, int) else 0, out.buffer.getvalue(), err.getvalue())


def orderly(outcome: Outcome) -> Outcome:
    """Fails the test unless the program ended as documented, with a reason where it refused."""
    assert outcome.code in {0, 1, 2, 3, 4}, outcome.err
    assert "Traceback" not in outcome.err
    assert "\x1b" not in outcome.err
    assert b"\x1b" not in outcome.out
    if outcome.code == 2:
        assert outcome.err.strip()
    return outcome


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a JSON document (of a list: the first two)."""
    pairs = (
        list(document.items()) if isinstance(document, dict)
        else list(enumerate(document))[:2] if isinstance(document, list) else []
    )  # fmt: skip
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def spoilt(document: Any, values: tuple[Any, ...] = NASTY) -> Iterator[tuple[str, Any]]:
    """Every copy of `document` in which one value is deleted or replaced, with a label."""
    for path in places(document):
        for value in ("(deleted)", *values):
            changed = copy.deepcopy(document)
            holder = changed
            for key in path[:-1]:
                holder = holder[key]
            if value == "(deleted)":
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(value)
            yield f"{'.'.join(map(str, path))} = {str(value)[:20]!a}", changed


def write(path: Path, document: Any) -> Path:
    """`document` as JSON in `path`, odd characters and numbers included."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
