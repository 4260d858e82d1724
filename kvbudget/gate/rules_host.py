"""Rules on the host tier and /dev/shm (GATE040-053), and on the pool against the context (GATE017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.gate.facts import (
    Tier,
    connectors,
    offload_backend,
    ranks,
    tiers,
    version_in,
)
from kvbudget.gate.finding import Bench, place
from kvbudget.gate.rules_gpu import env_is
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.gate.invocation import Invocation
    from kvbudget.gate.pool import Pool, Pools

_DEFAULT_SHM = 64 << 20


def host(bench: Bench, inv: Invocation, pools: Pools) -> None:
    """All rules of the section on one process."""
    pool = pools.of(inv)
    active = tiers(inv, pool)
    _limits(bench, inv, active)
    _region(bench, inv, active)
    _shm(bench, inv)
    _pool(bench, inv, active, pool)
    _sizes(bench, inv)
    _switch(bench, inv)
    _incomplete(bench, inv)
    _context(bench, inv, pool, pools.knows(inv))


def _limits(bench: Bench, inv: Invocation, active: list[Tier]) -> None:
    if not active:
        if _ratio_active(inv):
            _without_limit(bench, inv, True)
        return
    last = max(active, key=lambda tier: tier.total)
    total = sum(tier.total for tier in active)
    overhead = int(bench.parameter("GATE040", "host_overhead_gib") * GIB)
    limit = inv.host.memory_limit
    if limit is not None and total + overhead > limit:
        bench.add("GATE040", inv, last.line,
                  f"host tier {total / GIB:.1f} GiB + {overhead / GIB:g} GiB > limit {limit / GIB:.1f} GiB",
                  file=last.file, value=last.stated, tier_bytes=total, limit_bytes=limit)  # fmt: skip
    ram = inv.host.node_ram
    share = bench.parameter("GATE041", "max_host_fraction")
    if ram is not None and total > share * ram:
        bench.add("GATE041", inv, last.line,
                  f"host tier {total / GIB:.1f} GiB > {share:.0%} of {ram / GIB:.1f} GiB", file=last.file,
                  value=last.stated, tier_bytes=total, node_ram_bytes=ram)  # fmt: skip
    _without_limit(bench, inv, bool(active))
    for tier in active:
        if (
            tier.per_rank is not None
            and tier.ranks > 1
            and tier.name in ("hicache_size", "LMCACHE_MAX_LOCAL_CPU_SIZE")
        ):
            bench.add("GATE047", inv, tier.line, f"the size is per rank: {tier.total / GIB:.1f} GiB on this host",
                      file=tier.file, value=tier.stated, tier_bytes=tier.total)  # fmt: skip


def _ratio_active(inv: Invocation) -> bool:
    return bool(inv.get("enable_hierarchical_cache"))


def _without_limit(bench: Bench, inv: Invocation, active: bool) -> None:
    if active and inv.host.container and inv.host.memory_limit is None:
        bench.add("GATE045", inv, inv.line, "host tier in a container without a memory limit")


def _region(bench: Bench, inv: Invocation, active: list[Tier]) -> None:
    if not inv.host.container or inv.host.ipc_host:
        return
    native = [c for c in connectors(inv) if str(c.get("kv_connector")) == "OffloadingConnector"]
    tiering = any(
        "Tiering" in str((c.get("kv_connector_extra_config") or {}).get("spec_name", ""))
        for c in native
    )
    by_size = (
        inv.get("kv_offloading_size") is not None
        and offload_backend(inv) == "native"
        and env_is(inv, "VLLM_USE_SIMPLE_KV_OFFLOAD", "1", "true") is None
    )
    if not (native or by_size) or not version_in(inv, ">=0.25.1" if tiering else ">=0.29"):
        return
    tier = next((t for t in active if t.name in ("kv_offloading_size", "kv_transfer_config")), None)
    shm = inv.host.shm
    if tier is None or (shm is None and inv.host.shm_provided):
        return
    have = _DEFAULT_SHM if shm is None else shm
    if have < tier.total:
        bench.add("GATE042", inv, tier.line, f"/dev/shm {have / GIB:.2f} GiB < offload region {tier.total / GIB:.1f} GiB",
                  file=tier.file, value=tier.stated, shm_bytes=have, region_bytes=tier.total)  # fmt: skip


def _shm(bench: Bench, inv: Invocation) -> None:
    h = inv.host
    if h.shm_tmpfs is not None and h.memory_limit is not None:
        size, line = h.shm_tmpfs
        if size is not None and size >= h.memory_limit:
            bench.add("GATE044", inv, line, f"a Memory emptyDir of {size / GIB:.1f} GiB is charged to the limit of {h.memory_limit / GIB:.1f} GiB",
                      value=size)  # fmt: skip
    if not h.container or h.ipc_host or (h.shm is None and h.shm_provided):
        return
    tp = inv.tp
    if tp is None or tp <= 1:
        return
    least = int(bench.parameter("GATE043", "min_shm_bytes"))
    if h.shm is None or h.shm < least:
        have = _DEFAULT_SHM if h.shm is None else h.shm
        line = (h.shm_line or inv.line) if h.shm is not None else inv.line
        bench.add(
            "GATE043",
            inv,
            line,
            f"/dev/shm of {have / (1 << 20):.0f} MiB with tensor parallel size {tp}",
            value=have,
        )


def _pool(bench: Bench, inv: Invocation, active: list[Tier], pool: Pool | None) -> None:
    """GATE046: a host tier no larger than the pool of the cards it stands behind."""
    ratio, size = inv.get("hicache_ratio"), inv.get("hicache_size")
    if inv.get("enable_hierarchical_cache") and size:
        if pool is not None and size * 10**9 <= pool.size:
            at = place(inv, "hicache_size")
            level = "error" if version_in(inv, "<0.5.15") else "note"
            bench.add("GATE046", inv, at["line"], f"host pool {size * 10**9 / GIB:.1f} GiB <= device pool {pool.size / GIB:.1f} GiB",
                      level=level, file=at["file"], value=size)  # fmt: skip
    elif inv.get("enable_hierarchical_cache") and isinstance(ratio, (int, float)) and ratio <= 1:
        _ratio(bench, inv, float(ratio))
    offload = [t for t in active if t.offload and not t.name.startswith("hicache")]
    n = ranks(inv)
    if not offload or pool is None or n is None:
        return
    total, device = sum(tier.total for tier in offload), pool.size * n
    if total < device:
        bench.add("GATE046", inv, offload[0].line, f"host tier {total / GIB:.1f} GiB < device pool {device / GIB:.1f} GiB",
                  level="note", file=offload[0].file, value=offload[0].stated)  # fmt: skip


def _ratio(bench: Bench, inv: Invocation, ratio: float) -> None:
    at = place(inv, "hicache_ratio")
    if ratio < 1:
        level = "error" if version_in(inv, "<0.5.15") else "note"
    else:
        level = "error" if version_in(inv, "<0.5.9") else "note"
    said = (
        "fails an assertion in this release" if level == "error" else "hardly ever serves anything"
    )
    bench.add("GATE046", inv, at["line"], f"a host pool not larger than the device pool {said}", level=level,
              file=at["file"], value=ratio)  # fmt: skip


def _sizes(bench: Bench, inv: Invocation) -> None:
    if inv.get("hicache_size") and inv.get("hicache_ratio") is not None:
        at = place(inv, "hicache_ratio")
        bench.add(
            "GATE048", inv, at["line"], "hicache_size overrides hicache_ratio", file=at["file"]
        )
    size = inv.get("kv_offloading_size")
    if isinstance(size, (int, float)):
        at = place(inv, "kv_offloading_size")
        if inv.get("kv_offloading_backend") == "lmcache" and version_in(inv, ">=0.25.1"):
            bench.add("GATE049", inv, at["line"], "the size is ignored: capacity belongs to the external LMCache server",
                      file=at["file"], value=size)  # fmt: skip
        if size > bench.parameter("GATE053", "max_offloading_gib"):
            bench.add("GATE053", inv, at["line"], f"kv_offloading_size={size:g} is in GiB; this looks like another unit",
                      file=at["file"], value=size)  # fmt: skip
    for config in connectors(inv):
        extra = config.get("kv_connector_extra_config")
        count = extra.get("cpu_bytes_to_use") if isinstance(extra, dict) else None
        if isinstance(count, (int, float)) and not isinstance(count, bool) and 0 < count < GIB:
            at = place(inv, "kv_transfer_config")
            bench.add("GATE053", inv, at["line"], f"cpu_bytes_to_use={count:g} bytes looks like another unit", file=at["file"],
                      value=count)  # fmt: skip


def _switch(bench: Bench, inv: Invocation) -> None:
    """GATE052: settings of a tier that is not switched on (decode retraction uses some of them)."""
    switch = "enable_hierarchical_cache"
    if inv.get(switch) or switch in inv.settings.unresolved:
        return
    retraction = (
        inv.get("disaggregation_decode_retraction_backup")
        and inv.get("disaggregation_mode") == "decode"
    )
    if retraction and not version_in(inv, "<0.5.18"):
        return
    first = next((s for n, s in inv.settings.values.items() if n.startswith("hicache_")), None)
    if first is not None:
        bench.add("GATE052", inv, first.line, f"{first.name} without {switch} has no effect",
                  file=first.file, value=first.name)  # fmt: skip


def _incomplete(bench: Bench, inv: Invocation) -> None:
    for config in connectors(inv):
        if config is not inv.get("kv_transfer_config"):
            continue
        at = place(inv, "kv_transfer_config")
        extra = config.get("kv_connector_extra_config")
        extra = extra if isinstance(extra, dict) else {}
        said = str(config.get("kv_connector") or "")
        if said and not config.get("kv_role"):
            bench.add(
                "GATE051",
                inv,
                at["line"],
                "kv_connector needs kv_role",
                level="error",
                file=at["file"],
                value="kv_role",
            )
        elif said == "OffloadingConnector" and not any(
            key in extra
            for key in ("cpu_bytes_to_use", "cpu_bytes_to_use_per_rank", "num_cpu_blocks")
        ):
            bench.add("GATE051", inv, at["line"], "OffloadingConnector needs cpu_bytes_to_use", level="error", file=at["file"],
                      value="cpu_bytes_to_use")  # fmt: skip
    backend, size = inv.get("kv_offloading_backend"), inv.get("kv_offloading_size")
    eleven = version_in(inv, ">=0.11,<0.12")
    unknown = "kv_offloading_size" in inv.settings.unresolved or any(
        b.name == "kv_offloading_size" for b in inv.settings.bad
    )
    if backend and size is None and not unknown:
        at = place(inv, "kv_offloading_backend")
        bench.add("GATE051", inv, at["line"], "an offloading backend without kv_offloading_size does nothing",
                  level="error" if eleven else "warning", file=at["file"], value="kv_offloading_size")  # fmt: skip
    if size is not None and backend is None and eleven:
        at = place(inv, "kv_offloading_size")
        bench.add("GATE051", inv, at["line"], "kv_offloading_size without a backend is ignored in 0.11", level="warning",
                  file=at["file"], value="kv_offloading_backend")  # fmt: skip
    if eleven and backend == "native" and size:
        at = place(inv, "kv_offloading_backend")
        bench.add(
            "GATE050",
            inv,
            at["line"],
            "native offloading raises in 0.11: num_cpu_blocks is 0",
            file=at["file"],
        )
    elif eleven and any(
        str(c.get("kv_connector")) == "OffloadingConnector" and _no_blocks(c)
        for c in connectors(inv)
    ):
        at = place(inv, "kv_transfer_config")
        bench.add(
            "GATE050",
            inv,
            at["line"],
            "native offloading raises in 0.11: num_cpu_blocks is 0",
            file=at["file"],
        )


def _no_blocks(config: dict[str, Any]) -> bool:
    extra = config.get("kv_connector_extra_config")
    return not (isinstance(extra, dict) and extra.get("num_cpu_blocks"))


def _context(bench: Bench, inv: Invocation, pool: Pool | None, model: bool) -> None:
    """GATE017: one request of the longest context against the pool with nothing reserved."""
    name = inv.engine.roles["context"]
    length = inv.get(name)
    if not isinstance(length, int) or length <= 0:
        return
    if pool is None:
        bench.skip("GATE017", inv, "card" if model else "model config")
        return
    spare = 1 + bench.parameter("GATE017", "tolerance")
    if pool.most > 0 and (pool.need is None or pool.need <= pool.most * spare):
        return
    at = place(inv, name)
    have = (
        f"the pool has about {pool.size / GIB:.1f} GiB"
        if pool.size > 0
        else "the weights leave no pool"
    )
    needed = "room" if pool.need is None else f"{pool.need / GIB:.1f} GiB per rank"
    bench.add("GATE017", inv, at["line"], f"{length} tokens need {needed}, {have}",
              file=at["file"], value=length, need_bytes=pool.need, pool_bytes=pool.size)  # fmt: skip
