"""Rules on flags that are gone, do nothing, cannot be parsed or contradict each other (GATE030-038)."""

from __future__ import annotations

from kvbudget.formula.versions import holds
from kvbudget.gate.facts import connector, connectors, has_connector, ranks, release_of, version_in
from kvbudget.gate.finding import Bench, place, rule_data
from kvbudget.gate.invocation import Invocation, value_text
from kvbudget.gate.knowledge import variable_lives
from kvbudget.gate.rules_gpu import env_is


def dead(bench: Bench, inv: Invocation) -> None:
    """All rules of the section on one process."""
    _removed(bench, inv)
    _swap(bench, inv)
    _values(bench, inv)
    _variables(bench, inv)
    _switches(bench, inv)
    _allocator(bench, inv)
    _ranks(bench, inv)


def _gone(inv: Invocation, name: str) -> str | None:
    """First release that refuses a flag, where the release at hand is not older; else None."""
    since, version = inv.engine.options[name].gone(inv.python_call), release_of(inv)
    if since is None or version is None or not holds(version, f">={since}"):
        return None
    return since


def _removed(bench: Bench, inv: Invocation) -> None:
    silent = rule_data()["GATE030"]["silent_for"]
    for name, setting in inv.settings.values.items():
        since = _gone(inv, name)
        if since is not None and name not in silent:
            bench.add("GATE030", inv, setting.line,
                      f"{setting.spelled} was removed by {since}; {release_of(inv)} refuses to start",
                      file=setting.file, value=name, removed=since)  # fmt: skip


def _swap(bench: Bench, inv: Invocation) -> None:
    size = inv.get("swap_space")
    if not isinstance(size, (int, float)) or size <= 0:
        return
    v0 = version_in(inv, "<0.8") or (
        env_is(inv, "VLLM_USE_V1", "0", "false") is not None and version_in(inv, "<0.11")
    )
    if v0 or _gone(inv, "swap_space") is not None:
        return
    at = place(inv, "swap_space")
    said = "swap_space has no effect on the V1 engine"
    bench.add("GATE031", inv, at["line"], said, file=at["file"], value=size)


def _values(bench: Bench, inv: Invocation) -> None:
    for bad in inv.settings.bad:
        option = inv.engine.options.get(bad.name)
        if option is not None and option.memory:
            bench.add(
                "GATE032",
                inv,
                bad.line,
                f"{bad.spelled}: {bad.text}",
                file=bad.file,
                value=bad.text,
            )
    for bad in inv.settings.ambiguous:
        bench.add(
            "GATE032",
            inv,
            bad.line,
            f"{bad.spelled} is ambiguous: {bad.text}",
            file=bad.file,
            value=bad.spelled,
        )
    for first, second in inv.settings.twice:
        option = inv.engine.options.get(first.name)
        if option is not None and option.memory:
            bench.add("GATE034", inv, second.line,
                      f"{first.name} is given twice ({value_text(first)}, then {value_text(second)}); the last wins",
                      file=second.file, value=value_text(second))  # fmt: skip


def _variables(bench: Bench, inv: Invocation) -> None:
    """A variable that this release does not read (`values`: only these stopped to work)."""
    version = release_of(inv)
    for name, life in variable_lives(inv.engine.name).items():
        values = life.get("values")
        item = env_is(inv, name, *values) if values else inv.env.get(name)
        if item is not None and version is not None and not holds(version, life["versions"]):
            shown = f"{name}={item.value.s}" if values else name
            bench.add("GATE033", inv, item.line, f"{shown} has no effect: {life['said']}",
                      file=item.file, value=name)  # fmt: skip


def _switches(bench: Bench, inv: Invocation) -> None:
    if inv.get("hicache_write_policy") == "write_back":
        at = place(inv, "hicache_write_policy")
        said = "write_back copies synchronously at eviction"
        bench.add("GATE035", inv, at["line"], said, file=at["file"])
    if inv.get("enable_hierarchical_cache") and inv.get("disable_radix_cache"):
        at = place(inv, "disable_radix_cache")
        said = "hierarchical cache and disabled radix cache exclude each other"
        bench.add("GATE036", inv, at["line"], said, file=at["file"])
    simple = any(
        str(c.get("kv_connector")) == "SimpleCPUOffloadConnector" for c in connectors(inv)
    ) or (
        inv.get("kv_offloading_size") is not None
        and inv.get("kv_offloading_backend") in (None, "native")
        and env_is(inv, "VLLM_USE_SIMPLE_KV_OFFLOAD", "1", "true") is not None
        and not version_in(inv, "<0.20.2")
    )
    if simple and inv.get("enable_prefix_caching") is False:
        at = place(inv, "enable_prefix_caching")
        bench.add("GATE036", inv, at["line"], "a host tier without prefix caching: the connector switches itself off",
                  level="warning", file=at["file"])  # fmt: skip


def _allocator(bench: Bench, inv: Invocation) -> None:
    item = inv.env.get("PYTORCH_CUDA_ALLOC_CONF")
    if item is None or "expandable_segments:true" not in item.value.s.lower().replace(" ", ""):
        return
    asleep = bool(inv.get("enable_sleep_mode"))
    exempt = asleep or bool(inv.get("enable_cumem_allocator"))
    version = release_of(inv)
    if asleep and (version is None or version_in(inv, "<=0.17.1")):
        bench.add("GATE037", inv, item.line, "the sleep-mode allocator asserts against expandable_segments",
                  level="error" if version else "warning", file=item.file)  # fmt: skip
    if has_connector(inv) and not exempt and (version is None or version_in(inv, ">=0.25.1")):
        name = connector(inv) or "the offloading connector"
        bench.add("GATE037", inv, item.line, f"expandable_segments with a KV connector ({name}) raises",
                  level="error" if version else "warning", file=item.file)  # fmt: skip


def _ranks(bench: Bench, inv: Invocation) -> None:
    n, gpus = ranks(inv), inv.host.gpus
    if n is None or gpus is None or str(inv.get("distributed_executor_backend") or "") == "ray":
        return
    if inv.engine.roles["pipeline"] in inv.settings.unresolved:
        return
    nodes = inv.get("nnodes")
    if "nnodes" in inv.settings.unresolved:
        return
    nodes = int(nodes) if isinstance(nodes, int) else inv.host.nodes
    if n <= gpus * max(1, nodes):
        return
    name = next(
        (
            k
            for k in (inv.engine.roles["tensor"], inv.engine.roles["pipeline"])
            if k in inv.settings.values
        ),
        None,
    )
    if name is None:
        return
    at = place(inv, name)
    bench.add(
        "GATE038",
        inv,
        at["line"],
        f"{n} ranks on {gpus * max(1, nodes)} GPU(s)",
        file=at["file"],
        value=n,
        ranks=n,
        gpus=gpus,
    )
