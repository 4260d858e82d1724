"""A process in a copy of the repository that runs a few tests on one changed file after another.

Reads {"file", "text", "tests"} as JSON lines and answers with true where a test failed. What the
tests import is imported once; each run is a fork, so no cache of an earlier one is left.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path


def main() -> None:
    _warm()
    for line in sys.stdin:
        job = json.loads(line)
        path = Path(job["file"])
        before = path.read_text(encoding="utf-8")
        path.write_text(job["text"], encoding="utf-8")
        child = os.fork()
        if child == 0:
            os._exit(_run(job["tests"]))
        _, status = os.waitpid(child, 0)
        path.write_text(before, encoding="utf-8")
        print(json.dumps(os.waitstatus_to_exitcode(status) != 0), flush=True)


def _warm() -> None:
    """Imports what tests import; a module whose extra is missing is left to its tests."""
    import hypothesis  # noqa: F401
    import pytest
    import typer.testing  # noqa: F401

    import kvbudget

    with contextlib.redirect_stdout(sys.stderr):
        pytest.main(["--version"])  # loads the plugins

    for found in pkgutil.walk_packages(kvbudget.__path__, "kvbudget."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)


def _run(tests: list[str]) -> int:
    import pytest

    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120"]
    return int(pytest.main([*options, *tests]))


if __name__ == "__main__":
    main()
