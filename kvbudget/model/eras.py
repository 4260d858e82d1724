"""Reads formulas/activation.yaml: which constants hold for a release, a card, a number of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvbudget.errors import KnowledgeError
from kvbudget.formula.versions import holds, version_key
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file
from kvbudget.model.parts import Ranks

NEWEST = "9999"
"""Stands for "the newest release known" where the caller has no version."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an era is chosen by. `version` None: the newest. `peer`: as in gpus.yaml, or None.

    shared: others hold a good part of the card before the engine starts (or memory is unified).
    runner: the model runner, where a release has two; None: the release's own for any model.
    attention_tp, ep, expert_tp, shared_whole: as in Ranks. gathered: replicas whose tokens the
    experts of one rank work on together.
    """

    engine: str
    version: str | None = None
    generation: str | None = None
    tp: int = 1
    pp: int = 1
    peer: str | None = None
    compute_capability: str | None = None
    shared: bool = False
    runner: str | None = None
    attention_tp: int | None = None
    ep: int = 1
    expert_tp: int | None = None
    shared_whole: bool = False
    gathered: int = 1

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.tp, self.attention_tp, self.ep, self.expert_tp, self.shared_whole)


@lru_cache(maxsize=1)
def _load() -> dict[str, Any]:
    file = knowledge_file("formulas", "activation.yaml")
    data = load_shipped(file)
    if not isinstance(data, dict) or data.get("schema") != "kvbudget.activation/1":
        raise KnowledgeError("not a kvbudget.activation/1 file", file=str(file))
    return dict(data["engines"])


def constants(engine: str) -> dict[str, Any]:
    """All tables of `engine`. Raises KnowledgeError for an engine without any."""
    engines = _load()
    if engine not in engines:
        raise KnowledgeError(
            f"no activation constants for engine {engine!r}", hint=f"known: {', '.join(engines)}"
        )
    return dict(engines[engine])


def generation(setting: Setting) -> str:
    """The engine generation in force: stated, or the default of the release."""
    if setting.generation:
        return setting.generation
    for row in constants(setting.engine).get("generations", []):
        if holds(setting.version or NEWEST, row["versions"]):
            return str(row["use"])
    return ""


def runner(setting: Setting, **traits: object) -> str:
    """The model runner in force: stated, or what the release takes for a model of these traits.

    traits: architecture (text), experts, hybrid, quantised (truth). Without them only a rule
    that holds for every model applies.
    """
    if setting.runner:
        return setting.runner
    for row in constants(setting.engine).get("runners", []):
        asked = [key for key in ("experts", "hybrid", "quantised") if key in row]
        if any(traits.get(key) != row[key] for key in asked):
            continue
        if "architectures" in row and traits.get("architecture") not in row["architectures"]:
            continue
        if holds(setting.version or NEWEST, row["versions"]):
            return str(row["use"])
    return ""


def choose(setting: Setting, table: str) -> dict[str, Any] | None:
    """The first row of `table` whose conditions all hold, or None."""
    for row in constants(setting.engine).get(table, []):
        if _applies(setting, row):
            return dict(row)
    return None


def _applies(setting: Setting, row: dict[str, Any]) -> bool:
    if "versions" in row and not holds(setting.version or NEWEST, row["versions"]):
        return False
    if "generation" in row and generation(setting) != row["generation"]:
        return False
    if "runner" in row and runner(setting) != row["runner"]:
        return False
    if "ranks" in row:
        ranks = "tensor" if setting.tp > 1 else "stages" if setting.pp > 1 else "one"
        if row["ranks"] != ranks:
            return False
    if "peer" in row and setting.peer != row["peer"]:
        return False
    if "shared" in row and setting.shared != row["shared"]:
        return False
    return _capable(setting.compute_capability, row)


def _capable(have: str | None, row: dict[str, Any]) -> bool:
    least, below = row.get("compute_capability"), row.get("capability_below")
    if least is None and below is None:
        return True
    if have is None:
        return False
    key = version_key(have)
    return (least is None or key >= version_key(least)) and (
        below is None or key < version_key(below)
    )


def engine_formats(
    engine: str, version: str | None, kv_dtype: str, state_dtype: str, *, sparse: bool
) -> tuple[str, str]:
    """(KV format, state dtype) an engine uses where the plain names mean something of its own."""
    tables = constants(engine)
    release = version or NEWEST
    for row in tables.get("kv_formats", []):
        if sparse and kv_dtype in row["kv_dtype"] and holds(release, row["versions"]):
            kv_dtype = str(row["use"])
    if state_dtype == "auto":
        for row in tables.get("state_dtype", []):
            if holds(release, row["versions"]):
                state_dtype = str(row["use"])
    return kv_dtype, state_dtype
