"""Facts of a start-up log or of a recorded profile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.request import Evidence
from kvbudget.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def profile_evidence(path: Path) -> dict[str, Evidence]:
    """The terms of the worst rank of a kvbudget.profile/1 file, and the device's total."""
    raw = read_json(path)
    if not str(raw.get("schema", "")).startswith("kvbudget.profile/"):
        raise InputError(f"{path.name} is not a kvbudget profile", "kvbudget profile --record FILE")
    out: dict[str, Evidence] = {}
    source = Provenance("profile", path.name)
    total = (raw.get("device") or {}).get("total_memory")
    if total is not None:
        out["total_memory"] = Evidence(Amount.exact(int(total), "B"), source)
    for rank in raw.get("ranks") or ():
        for term in rank.get("terms") or ():
            value = term.get("value")
            if value is None:
                continue
            amount = Amount(value, _or(term.get("low"), value), _or(term.get("high"), value), "B")
            known = out.get(term["name"])
            pick = min if term["name"] == "kv_cache_memory" else max
            if (
                known is None
                or not isinstance(known.value, Amount)
                or (pick(known.value.value, value) == value)
            ):
                out[term["name"]] = Evidence(amount, source)
    return out


def _or(value: Any, fallback: Any) -> Any:  # noqa: ANN401 - numbers of a JSON file
    return fallback if value is None else value


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises InputError."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise InputError(f"{path.name} is not JSON") from exc
    if not isinstance(raw, dict):
        raise InputError(f"{path.name} is not a JSON object")
    return raw


def log_evidence(
    path: Path, engine: str | None
) -> tuple[str | None, str | None, dict[str, Evidence], list[str]]:
    """(engine, version, facts, notes) of a start-up log."""
    raise InputError("reading logs is not available in this build")
