"""How an installed engine is started: argv and environment from formulas/engine_argv.yaml."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

from kvbudget.errors import InputError
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file

ASK_TIMEOUT = 180.0
"""Seconds an engine may take to print its version or its help (it imports much)."""


@dataclass(frozen=True)
class Launch:
    """A command line ready to run, what to wait for, and what was left out."""

    engine: str
    version: str | None
    argv: tuple[str, ...]
    env: dict[str, str]
    needed: tuple[str, ...]
    reported: tuple[str, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)


def _ask(argv: list[str]) -> str:
    """What a program prints; empty where it fails. Raises InputError where it is not installed."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ASK_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except FileNotFoundError as exc:
        raise InputError(
            f"{argv[0]} is not installed here", "activate the environment the engine lives in"
        ) from exc
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def engine_row(engine: str) -> dict[str, Any]:
    """The data of one engine. Raises InputError for an unknown one."""
    engines = load_shipped(knowledge_file("formulas", "engine_argv.yaml"))["engines"]
    if engine not in engines:
        raise InputError(f"cannot drive engine {engine!r}", f"one of: none, {', '.join(engines)}")
    return dict(engines[engine])


def make_launch(
    engine: str, values: dict[str, str], *, asked: frozenset[str] = frozenset(),
    version: str | None = None,
) -> Launch:  # fmt: skip
    """The command for the installed release. `values` fills the placeholders.

    An empty value leaves its option out, so that the engine takes its own. asked: which of the data's conditions hold: no_graphs, stages, expert_parallel.

    Raises InputError where the engine is not installed or lacks an option that is needed.
    """
    row = engine_row(engine)
    if version is None:
        found = re.search(r"\d+\.\d+\.\d+[\w.]*", _ask(list(row["version"])))
        version = found.group() if found else None
    listed = "".join(_ask(list(argv)) for argv in row["help"])
    argv = [part.format(**values) for part in row["command"]]
    notes = []
    for option in row["options"]:
        words, versions = option["words"], option.get("versions")
        if "when" in option and option["when"] not in asked:
            continue
        if any(not word.format(**values) for word in words):
            continue
        if versions and version and not holds(version, versions):
            continue
        known = not listed or re.search(rf"{re.escape(words[0])}(?![\w-])", listed)
        if not known and option.get("optional"):
            notes.append(f"{words[0]} is not an option of this release: left out")
            continue
        if not known:
            raise InputError(
                f"{engine} {version or ''} does not list {words[0]} in its --help".replace(
                    "  ", " "
                ),
                "this release needs an entry of its own in engine_argv.yaml",
            )
        argv += [word.format(**values) for word in words]
    if not listed:
        notes.append("the engine's --help could not be read: its options are not checked")
    needed = tuple(row["needed"]) + (() if "no_graphs" in asked else tuple(row["with_graphs"]))
    return Launch(engine, version, tuple(argv), dict(row["env"]), needed,
                  tuple(row["reported"]), tuple(notes))  # fmt: skip
