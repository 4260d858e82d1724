"""Numbers that several rules need: fractions in force, host tiers, pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.formula.versions import holds
from kvbudget.gate import hardware
from kvbudget.gate.knowledge import load
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.gate.invocation import Invocation
    from kvbudget.gate.pool import Pool


def version_in(inv: Invocation, versions: str) -> bool:
    """True when the release is known and lies in the range."""
    version = inv.version or inv.assumed_version
    return version is not None and holds(version, versions)


def release_of(inv: Invocation) -> str | None:
    """The release that counts, None if unknown."""
    return inv.version or inv.assumed_version


def utilisation(inv: Invocation) -> float | None:
    """Fraction of the card's total in force (the default if unset); None if it cannot be known."""
    name = inv.engine.roles["fraction"]
    if not inv.engine.of_total or name in inv.settings.unresolved:
        return None
    if any(bad.name == name for bad in inv.settings.bad):
        return None
    value = inv.get(name)
    if value is None:
        value = inv.engine.default(name, release_of(inv))
    return float(value) if isinstance(value, (int, float)) else None


def ranks(inv: Invocation) -> int | None:
    """Ranks of one replica; None if unresolved."""
    return None if inv.tp is None else inv.tp * inv.pp


def local_ranks(inv: Invocation) -> int | None:
    """Ranks on one node."""
    total = ranks(inv)
    nodes = inv.get("nnodes") or inv.host.nodes
    return None if total is None else max(1, total // max(1, int(nodes)))


def connector(inv: Invocation) -> str | None:
    """KV connector of the transfer config, or the one the backend stands for."""
    config = inv.get("kv_transfer_config")
    if isinstance(config, dict):
        return str(config.get("kv_connector") or "") or None
    if inv.lmcache:
        return "LMCacheConnectorV1"
    return None


def has_connector(inv: Invocation) -> bool:
    """Any KV connector, also through kv_offloading_size or SGLang-independent charts."""
    return connector(inv) is not None or (
        inv.get("kv_offloading_size") is not None and offload_backend(inv) is not None
    )


def offload_backend(inv: Invocation) -> str | None:
    """`native` or `lmcache` in force for kv_offloading_size; None where neither is (0.11)."""
    backend = inv.get("kv_offloading_backend")
    if isinstance(backend, str):
        return backend
    return None if version_in(inv, ">=0.11,<0.12") else "native"


def connectors(inv: Invocation) -> list[dict[str, Any]]:
    """The transfer config and the ones inside a MultiConnector."""
    config = inv.get("kv_transfer_config")
    if not isinstance(config, dict):
        return []
    out = [config]
    extra = config.get("kv_connector_extra_config")
    if isinstance(extra, dict):
        out += [item for item in extra.get("connectors") or [] if isinstance(item, dict)]
    return out


@dataclass
class Tier:
    """A host tier: bytes on this host, the setting that sizes it, bytes per rank if it is per rank."""

    total: int
    name: str
    line: int
    file: str | None
    per_rank: int | None
    ranks: int
    offload: bool = True
    stated: str = ""


def tiers(inv: Invocation, pool: Pool | None) -> list[Tier]:
    """Active host tiers with a known size."""
    n = local_ranks(inv)
    if n is None:
        return []
    out: list[Tier] = []

    def flag(name: str, total: float, per_rank: float | None = None, offload: bool = True) -> None:
        setting = inv.settings.values[name]
        out.append(
            Tier(int(total), name, setting.line, setting.file, int(per_rank) if per_rank is not None else None,
                 n, offload, str(setting.value))
        )  # fmt: skip

    size = inv.get("kv_offloading_size")
    backend = offload_backend(inv)
    if size and backend is not None and not (backend == "lmcache" and version_in(inv, ">=0.25.1")):
        flag("kv_offloading_size", size * GIB)
    for config in connectors(inv):
        extra = config.get("kv_connector_extra_config")
        extra = extra if isinstance(extra, dict) else {}
        if str(config.get("kv_connector")) in (
            "OffloadingConnector",
            "SimpleCPUOffloadConnector",
        ):
            rank_bytes = extra.get("cpu_bytes_to_use_per_rank")
            whole = extra.get("cpu_bytes_to_use")
            if isinstance(rank_bytes, (int, float)):
                flag("kv_transfer_config", rank_bytes * n)
            elif isinstance(whole, (int, float)) and not isinstance(whole, bool):
                flag("kv_transfer_config", whole)
    out += _lmcache(inv, n)
    out += _hicache(inv, n, pool)
    offload = inv.get("cpu_offload_gb")
    if isinstance(offload, (int, float)) and offload > 0:
        flag("cpu_offload_gb", offload * GIB * n, offload * GIB, offload=False)
    return out


def _lmcache(inv: Invocation, n: int) -> list[Tier]:
    said = [str(config.get("kv_connector")) for config in connectors(inv)]
    active = inv.lmcache or any(name.startswith("LMCacheConnector") for name in said)
    item = inv.env.get("LMCACHE_MAX_LOCAL_CPU_SIZE")
    if not active or item is None:
        return []
    try:
        size = float(item.value.s)
    except ValueError:
        return []
    local = inv.env.get("LMCACHE_LOCAL_CPU")
    if size <= 0 or (local is not None and local.value.s.lower() in ("false", "0")):
        return []
    return [
        Tier(
            int(size * GIB * n),
            "LMCACHE_MAX_LOCAL_CPU_SIZE",
            item.line,
            item.file,
            int(size * GIB),
            n,
            True,
            item.value.s,
        )
    ]


def _hicache(inv: Invocation, n: int, pool: Pool | None) -> list[Tier]:
    if not inv.get("enable_hierarchical_cache"):
        return []
    size, ratio = inv.get("hicache_size"), inv.get("hicache_ratio")
    if isinstance(size, int) and size > 0:
        setting = inv.settings.values["hicache_size"]
        return [
            Tier(
                size * 10**9 * n,
                "hicache_size",
                setting.line,
                setting.file,
                size * 10**9,
                n,
                True,
                str(size),
            )
        ]
    if isinstance(ratio, (int, float)) and pool is not None and pool.host is not None:
        at = inv.settings.values["hicache_ratio"]
        total = pool.host * n
        return [
            Tier(total, at.name, at.line, at.file, pool.host, n, True, str(ratio)),
        ]
    return []


# ---- the card --------------------------------------------------------------------------------
def card(inv: Invocation) -> dict[str, Any] | None:
    """Catalogue entry of the card, None if unknown."""
    return hardware.entry(inv.host.gpu_type) if inv.host.gpu_type else None


def total_bytes(inv: Invocation) -> int | None:
    """What the driver reports for the card."""
    found = card(inv)
    return int(found["reported_gib"][1] * GIB) if found else None


def context_bytes(inv: Invocation) -> int:
    """CUDA context (and communicator with TP>1) that is there before the first check."""
    data = load("gate/rules.yaml")["assumptions"]
    gib = data["context_gib"] + (data["context_tp_gib"] if (ranks(inv) or 1) > 1 else 0)
    return int(gib * GIB)


def default_fraction(inv: Invocation) -> float | None:
    """mem_fraction_static that this release would choose on this card (formulas/sglang)."""
    found, version = card(inv), release_of(inv)
    if found is None or version is None or inv.tp is None:
        return None
    from kvbudget.errors import KvbudgetError
    from kvbudget.formula.evaluate import Facts, evaluate
    from kvbudget.formula.interval import Interval
    from kvbudget.formula.registry import load_engine

    numbers: dict[str, int | float] = {
        "smi_memory_mib": found["smi_mib"],
        "tp_size": inv.tp,
        "pp_size": inv.pp,
    }
    for name in ("dp_size", "chunked_prefill_size", "max_prefill_tokens", "max_running_requests"):
        value = inv.get(name)
        if isinstance(value, int):
            numbers[name] = value
    for name in ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"):
        value = inv.get(name)
        if isinstance(value, int):
            numbers["cuda_graph_max_bs"] = numbers["cuda_graph_max_bs_decode"] = value
    if inv.get("enable_dp_attention"):
        numbers["enable_dp_attention"] = 1
    numbers["host_tier"] = 1 if inv.get("enable_hierarchical_cache") else 0
    texts = {
        "attention": "full",
        "multimodal": "no",
        "speculative_algorithm": str(inv.get("speculative_algorithm") or "none"),
        "disaggregation_mode": str(inv.get("disaggregation_mode") or "null"),
    }
    try:
        engine = load_engine(inv.engine.name)
        chosen = {**engine.selectors(version, {}), **texts}
        programs = [p for p in engine.programs(version, chosen) if "fraction" in p.file]
        run = evaluate(programs, Facts({k: Interval.exact(v) for k, v in numbers.items()}, chosen))
        amount = run.amount("mem_fraction_static")
    except (KvbudgetError, KeyError, TypeError, ValueError):
        return None
    value = getattr(amount, "value", None) if amount is not None else None
    return float(value) if value is not None else None
