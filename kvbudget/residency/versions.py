"""Which counting rules a release follows (engine_rules.json beside this module)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files

from kvbudget.errors import InputError


@dataclass(frozen=True, slots=True)
class EngineRules:
    """None: the release has no such rule."""

    backup_invariant: str | None
    inserts_per_request: int | None
    note: str | None = None


def _key(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    if numbers is None:
        raise InputError(f"not a version: {version!r}", "write ENGINE@V, for example sglang@0.5.23")
    return tuple(int(part) for part in numbers.group().split("."))


def engine_rules(text: str) -> EngineRules:
    """`sglang@0.5.23` -> its rules. Raises InputError for an unknown engine or an older release."""
    name, _, version = text.partition("@")
    table = json.loads(files("kvbudget.residency").joinpath("engine_rules.json").read_text("utf-8"))
    rows = table["engines"].get(name.lower())
    if rows is None or not version:
        known = ", ".join(sorted(table["engines"]))
        raise InputError(f"not an engine version: {text!r}", f"write ENGINE@V; engines: {known}")
    wanted = _key(version)
    fit = [row for row in rows if _key(row["from"]) <= wanted]
    if not fit:
        raise InputError(
            f"no rules known for {text}",
            f"known from {rows[0]['from']} on; or say --backup-invariant and --inserts-per-request",
        )
    row = fit[-1]
    return EngineRules(row.get("backup_invariant"), row.get("inserts_per_request"), row.get("note"))
