"""What the log reader knows of the engines beside their lines (logparsers/engines.yaml)."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kvbudget.derivation import Source
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file


@cache
def engines() -> dict[str, dict[str, Any]]:
    """Name -> entry, in the order of the file."""
    data = load_shipped(knowledge_file("logparsers", "engines.yaml"))
    return {entry["name"]: entry for entry in data["engines"]}


@cache
def traces() -> dict[str, re.Pattern[str]]:
    """Words that show whose text this is."""
    return {
        name: re.compile(entry["traces"]) for name, entry in engines().items() if "traces" in entry
    }


def verbose_setting(engine: str | None) -> str | None:
    """The setting with which the engine prints the terms it keeps to itself; None if there is none."""
    found = engines().get(engine or "", {}).get("verbose")
    return str(found) if found else None


def blocks_source(engine: str | None, version: str | None) -> Source | None:
    """Where the engine divides bytes by blocks; None for an engine that does not, or unknown ones."""
    blocks = engines().get(engine or "", {}).get("blocks")
    if blocks is None:
        return None
    for entry in blocks["sources"]:
        if (
            "before" not in entry
            or version is None
            or _numbers(version) < _numbers(entry["before"])
        ):
            return Source(blocks["repo"], entry["path"], versions=entry["versions"])
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
