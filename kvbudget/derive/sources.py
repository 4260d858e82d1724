"""Facts of a start-up log or of a recorded profile, as evidence for a derivation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.request import Evidence
from kvbudget.derive.shapes import ProfileShape, require
from kvbudget.errors import InputError
from kvbudget.formula.registry import load_engine
from kvbudget.jsonfile import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kvbudget.facts import Fact

SMALLEST = frozenset(
    {"kv_cache_memory", "num_gpu_blocks", "kv_cache_tokens", "free_memory", "max_concurrency",
     "avail_memory_before_weights", "avail_memory_after_weights", "total_memory"}
)  # fmt: skip
"""Facts of which the smallest rank decides; of the others the largest does."""


def profile_evidence(path: Path) -> dict[str, Evidence]:
    """The terms of the worst rank of a kvbudget.profile/1 file, and the device's total."""
    raw = read_object(path, "give the JSON of kvbudget profile")
    if not str(raw.get("schema", "")).startswith("kvbudget.profile/"):
        raise InputError(f"{path.name} is not a kvbudget profile", "kvbudget profile --record FILE")
    return profile_terms(raw, path.name)


def profile_terms(raw: dict[str, Any], label: str) -> dict[str, Evidence]:
    """Terms of a parsed profile; several ranks give the worst one's figure.

    Raises InputError for one that is not whole.
    """
    require(raw, ProfileShape, label)
    source = Provenance("profile", label)
    found: dict[str, list[Amount]] = {}
    total = (raw.get("device") or {}).get("total_memory")
    if total is not None:
        found["total_memory"] = [Amount.exact(int(total), "B")]
    for rank in raw.get("ranks") or ():
        for term in rank.get("terms") or ():
            value = term.get("value")
            if value is not None:
                low, high = term.get("low"), term.get("high")
                amount = Amount(value, value if low is None else low,
                                value if high is None else high, "B")  # fmt: skip
                found.setdefault(term["name"], []).append(amount)
    return {name: Evidence(_worst(name, amounts), source) for name, amounts in found.items()}


def _worst(name: str, amounts: list[Amount]) -> Amount:
    pick = min if name in SMALLEST else max
    return pick(amounts, key=lambda amount: amount.value)


COMMON = frozenset(
    {"total_memory", "weights_memory", "tensor_parallel_size", "pipeline_parallel_size",
     "max_model_len", "dtype"}
)  # fmt: skip
"""Facts of a log that hold for another engine too: the card, the weights, how they are split."""


def log_evidence(path: Path) -> tuple[str | None, str | None, dict[str, Evidence], list[str]]:
    """(engine, version, facts, notes) of a start-up log; its last run where it holds several.

    Raises InputError when the log cannot be read or has no figure in it.
    """
    from kvbudget.logs.collect import read_log

    reading = read_log(path)
    if not reading.facts:
        raise InputError(
            f"{path}: no line of a known engine", "give the start-up log from its first line"
        )
    start = reading.starts[-1] if len(reading.starts) > 1 else 0
    facts = [fact for fact in reading.facts if fact.line >= start]
    notes = [f"{path.name} holds several runs: the last one is used"] if start else []
    return reading.engine, reading.engine_version, fact_evidence(facts, path.name), notes


def evidence_for(
    engine: str, speaker: str | None, logged: dict[str, Evidence]
) -> dict[str, Evidence]:
    """The facts of a log of `speaker` under the names `engine` has; a stranger's only if COMMON."""
    own = {k: v for k, v in logged.items() if speaker in (None, engine) or k in COMMON}
    for role, name in load_engine(engine).raw["roles"].items():
        if role in own:
            own.setdefault(name, own[role])
    return own


def fact_evidence(facts: Iterable[Fact], label: str) -> dict[str, Evidence]:
    """Facts of a log by name: over ranks the one that decides, over time the last one."""
    ranks: dict[str, dict[str | None, Fact]] = {}
    for fact in facts:
        ranks.setdefault(fact.name, {})[fact.rank] = fact
    out: dict[str, Evidence] = {}
    for name, by_rank in ranks.items():
        texts = [fact for fact in by_rank.values() if isinstance(fact.value, str)]
        if texts:
            last = texts[-1]
            out[name] = Evidence(str(last.value), _printed(last, label))
            continue
        pick = min if name in SMALLEST else max
        fact = pick(by_rank.values(), key=lambda f: float(f.value))
        out[name] = Evidence(_amount(fact), _printed(fact, label))
    return out


def _printed(fact: Fact, label: str) -> Provenance:
    return Provenance("log", f"{label}:{fact.line}: {fact.printed}", fact.line, fact.pattern)


def _amount(fact: Fact) -> Amount:
    assert not isinstance(fact.value, str)
    low = fact.value if fact.low is None else fact.low
    high = fact.value if fact.high is None else fact.high
    return Amount(fact.value, low, high, fact.unit or "n")
