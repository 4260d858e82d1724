"""Which counting rules a release follows (formulas/transfer/replay_rules.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvbudget.errors import InputError
from kvbudget.formula.versions import holds
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file


@dataclass(frozen=True, slots=True)
class EngineRules:
    """None: the release has no such rule."""

    backup_invariant: str | None = None
    inserts_per_request: int | None = None
    note: str | None = None


def _engines() -> dict[str, Any]:
    known: dict[str, Any] = load_shipped(
        knowledge_file("formulas", "transfer", "replay_rules.yaml")
    )["engines"]
    return known


def engine_of(policy: str) -> str | None:
    """The engine that has this policy; None for one that any cache could have."""
    return next((name for name, row in _engines().items() if policy in row["policies"]), None)


def engine_rules(text: str) -> EngineRules:
    """`sglang@0.5.23` -> its rules. Raises InputError for an unknown engine or an older release."""
    name, _, version = text.partition("@")
    engines = _engines()
    rows = engines.get(name.lower(), {}).get("releases")
    if rows is None or not version:
        known = ", ".join(sorted(engines))
        raise InputError(f"not an engine version: {text!r}", f"write ENGINE@V; engines: {known}")
    fit = next((row for row in rows if holds(version, row["versions"])), None)
    if fit is None:
        spans = ", ".join(row["versions"] for row in rows)
        raise InputError(
            f"no rules known for {text}",
            f"known: {spans}; or say --backup-invariant and --inserts-per-request",
        )
    return EngineRules(**{key: value for key, value in fit.items() if key != "versions"})
