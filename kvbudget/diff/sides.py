"""What can be compared: a log, a profile, or JSON of derive or explain-log, as one of two sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BufferedReader
from typing import TYPE_CHECKING, Any, BinaryIO

from kvbudget.budget import Amount
from kvbudget.derive.document import RESULT
from kvbudget.derive.settings import LOGGED_SWITCHES
from kvbudget.derive.shapes import DeriveShape, ExplainShape, require
from kvbudget.derive.sources import fact_evidence, profile_terms
from kvbudget.errors import InputError
from kvbudget.formula.registry import engine_names, load_engine
from kvbudget.jsonfile import MAX_BYTES, parse_object
from kvbudget.logs.scan import open_input, unpacking

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kvbudget.derive.request import Evidence


@dataclass(frozen=True)
class Side:
    """One of the two: numbers by fact name, settings by flag name."""

    label: str
    engine: str | None
    version: str | None
    numbers: Mapping[str, Amount]
    flags: Mapping[str, Any] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    """Flags that nobody set: their values are the release's own."""


PROFILE_ONLY = {"runner", "load_format"}
"""Settings of a profile that an engine's flags of the same name do not mean."""
COMPARABLE = "a start-up log, a profile, or JSON of derive (one engine) or explain-log"


def read_side(path: Path) -> Side:
    """A log, a profile, or JSON of derive or explain-log. Raises InputError for anything else."""
    # One pass, as A and B may be pipes: kvbudget diff <(zcat a.log.gz) b.json
    with open_input(path) as stream, unpacking(str(path)):
        head = stream.peek(4096)[:4096].lstrip() if isinstance(stream, BufferedReader) else b""
        if not (head.startswith(b"{") and b'"schema"' in head):
            return _from_log(stream, path)
        raw = parse_object(stream.read(MAX_BYTES + 1), path.name, f"give {COMPARABLE}")
    kind = str(raw.get("schema", "")).partition("/")[0]
    if kind == "kvbudget.derive" and "engines" not in raw:
        require(raw, DeriveShape, path.name)
        return from_document(raw, path.name)
    if kind == "kvbudget.profile":
        return _from_profile(raw, path.name)
    if kind == "kvbudget.explain-log":
        require(raw, ExplainShape, path.name)
        return _from_explain(raw, path.name)
    raise InputError(f"{path.name} is not something to compare", COMPARABLE)


def _numbers(evidence: Mapping[str, Evidence]) -> dict[str, Amount]:
    return {k: e.value for k, e in evidence.items() if isinstance(e.value, Amount)}


def from_document(raw: Mapping[str, Any], label: str) -> Side:
    """A kvbudget.derive/1 object: terms, memory steps, results and flags."""
    numbers: dict[str, Amount] = {}
    for row in (*raw.get("terms", ()), *raw.get("steps", ())):
        wanted = row["unit"] == "B" or row["name"] in RESULT
        if wanted and "[" not in row["name"]:
            numbers[row["name"]] = Amount(row["value"], row["low"], row["high"], row["unit"])
    numbers = {**_results(raw), **numbers}
    stated = raw.get("flags") or {}
    flags = {k: v.get("value") for k, v in stated.items()}
    unset = frozenset(k for k, v in stated.items() if not v.get("set"))
    flags |= _model_name(raw)
    return Side(label, raw.get("engine"), raw.get("engine_version"), numbers, flags, unset)


def _model_name(raw: Mapping[str, Any]) -> dict[str, Any]:
    name = (raw.get("model") or {}).get("name")
    return {"model": name} if name else {}


def _results(raw: Mapping[str, Any]) -> dict[str, Amount]:
    """What a document says comes of its terms: pool, blocks, tokens, margin."""
    found = (raw.get("result") or {}).items()
    return {name: Amount.exact(value, _unit(name)) for name, value in found if value is not None}


def _unit(name: str) -> str:
    from kvbudget.facts import FACTS

    spec = FACTS.get(name)
    if spec is not None and spec.unit is not None:
        return spec.unit
    return "B" if name.endswith("_memory") else "n"


def _from_profile(raw: Mapping[str, Any], label: str) -> Side:
    terms = profile_terms(dict(raw), label)
    engine, _, version = str(raw.get("policy") or "").partition("@")
    names, roles = _settings(engine)
    stated = {roles.get(k, k): v for k, v in (raw.get("settings") or {}).items()}
    flags = {k: v for k, v in stated.items() if k in names - PROFILE_ONLY}
    return Side(label, engine or None, version or None, {**_results(raw), **_numbers(terms)},
                {**flags, **_model_name(raw)})  # fmt: skip


def _from_log(stream: BinaryIO, path: Path) -> Side:
    from kvbudget.logs.collect import read_log

    reading = read_log(stream, name=str(path))
    if not reading.facts:
        raise InputError(f"{path}: no line of a known engine", f"give {COMPARABLE}")
    start = reading.starts[-1] if len(reading.starts) > 1 else 0
    facts = [fact for fact in reading.facts if fact.line >= start]
    evidence = fact_evidence(facts, path.name)
    return _split(path.name, reading.engine, reading.engine_version, evidence)


def _from_explain(raw: Mapping[str, Any], label: str) -> Side:
    from kvbudget.facts import Fact

    facts = [
        Fact(f["name"], f["value"], f["unit"], f["printed"], f["low"], f["high"], f["rank"],
             f["line"], f["pattern"], f.get("source", "log"))
        for f in raw.get("facts", ())
    ]  # fmt: skip
    if not facts:
        raise InputError(f"{label} holds no facts", "kvbudget explain-log recognised nothing")
    evidence = fact_evidence(facts, label)
    return _split(label, raw.get("engine"), raw.get("engine_version"), evidence)


def _split(
    label: str, engine: str | None, version: str | None, evidence: Mapping[str, Evidence]
) -> Side:
    """Settings to one side, measurements to the other."""
    settings, roles = _settings(engine)
    flags: dict[str, Any] = {}
    numbers: dict[str, Amount] = {}
    for fact, item in evidence.items():
        name = roles.get(fact, fact)  # a log says what it is, an engine how its flag is spelled
        if name in settings and name not in ("kv_cache_memory", "num_gpu_blocks"):
            value = item.value.value if isinstance(item.value, Amount) else item.value
            flags[name] = LOGGED_SWITCHES.get(str(value), value)
        elif isinstance(item.value, Amount):
            numbers[name] = item.value
    return Side(label, engine, version, numbers, flags)


def _settings(engine: str | None) -> tuple[set[str], Mapping[str, str]]:
    """Names of an engine's flags and of the facts they set, and how it spells what others say."""
    from kvbudget.derive.flags import load_flags

    if engine not in engine_names():
        return set(), {}
    known, roles = load_flags(str(engine)), load_engine(str(engine)).raw["roles"]
    return {flag.fact for flag in known.values()} | set(known), roles
