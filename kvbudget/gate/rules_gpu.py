"""Rules on reading (GATE001, 002) and on GPU memory of vLLM (GATE010 to GATE024)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kvbudget.gate.facts import (
    card,
    context_bytes,
    ranks,
    release_of,
    total_bytes,
    utilisation,
    version_in,
)
from kvbudget.gate.finding import Bench, place, rule_data
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.gate.draft import EnvValue
    from kvbudget.gate.invocation import Invocation

U = "gpu_memory_utilization"


def env_is(inv: Invocation, name: str, *values: str) -> EnvValue | None:
    """The variable if it has one of these values (case ignored)."""
    item = inv.env.get(name)
    return item if item is not None and item.value.s.strip().lower() in values else None


def reading(bench: Bench, inv: Invocation) -> None:
    """GATE001 unresolved values, GATE002 unpinned versions."""
    level = "error" if bench.strict else None
    for name, problem in inv.settings.unresolved.items():
        option = inv.engine.options.get(name)
        if option is None or not option.memory:
            continue
        bench.add("GATE001", inv, problem.line, _unknown(inv, name),
                  level=level, file=problem.file, value=name)  # fmt: skip
    if inv.model_unresolved:
        bench.add("GATE001", inv, inv.model_unresolved, _unknown(inv, "model"),
                  level=level, value="model")  # fmt: skip
    if inv.unpinned and not (inv.image is not None and inv.image.digest):
        name = inv.engine.roles["fraction"]
        decides = inv.get(name) is None and name not in inv.settings.unresolved
        said = "engine version is not pinned"
        if decides:
            said += "; the memory default differs between releases"
        bench.add("GATE002", inv, inv.version_line, f"{said} ({inv.unpinned})",
                  level="warning" if decides else "note", value=inv.version_hint or "")  # fmt: skip


def _unknown(inv: Invocation, name: str) -> str:
    silent = [
        rule
        for rule, entry in rule_data().items()
        if name in entry.get("reads", ())
        and inv.engine.name in entry.get("engines", [inv.engine.name])
    ]
    tail = f"; not evaluated: {', '.join(silent)}" if silent else ""
    return f"{name} has no static value{tail}"


def gpu(bench: Bench, inv: Invocation) -> None:
    """Rules on the memory of one process."""
    u = utilisation(inv)
    stated = inv.settings.values.get(U)
    if u is not None and stated is not None:
        _limit(bench, inv, u)
    if u is not None:
        _headroom(bench, inv, u)
        _budget(bench, inv, u)
    _overrides(bench, inv)


def _limit(bench: Bench, inv: Invocation, u: float) -> None:
    at = place(inv, U)
    top = bench.parameter("GATE010", "max_utilization")
    if u >= 1 or u <= 0:
        why = (
            "free memory is always below the total once a context exists"
            if u >= 1
            else "no memory at all"
        )
        bench.add(
            "GATE011", inv, at["line"], f"{U}={u:g}: {why}", file=at["file"], value=u, utilization=u
        )
    elif u > top:
        tail = ""
        total = total_bytes(inv)
        if total is not None:
            slack = (total - context_bytes(inv) - total * u) / GIB
            tail = f"; on {inv.host.gpu_type} {slack:.2f} GiB are left for everything that is not profiled"
        tested, longest = bench.tested_max_prompt_tokens, inv.get("max_model_len")
        covered = tested is not None and isinstance(longest, int) and 0 < longest <= tested
        level = "warning" if covered else None
        bench.add("GATE010", inv, at["line"], f"{U}={u:g} is above the limit {top:g}{tail}", file=at["file"],
                  level=level, value=u, utilization=u, limit=top)  # fmt: skip


def _headroom(bench: Bench, inv: Invocation, u: float) -> None:
    total = total_bytes(inv)
    if total is None or u >= 1 or u <= 0:
        return
    if inv.settings.values.get(U) is not None and u > bench.parameter("GATE010", "max_utilization"):
        return
    need = float(bench.parameter("GATE012", "min_margin_gib"))
    if version_in(inv, "<0.20.2") and not inv.get("enforce_eager"):
        need += float(bench.parameter("GATE012", "graphs_before_0_20_2_gib"))
    left = (total - context_bytes(inv) - total * u) / GIB
    if left < need:
        line = inv.at(U) or inv.line
        bench.add(
            "GATE012", inv, line,
            f"head-room {left:.2f} GiB < {need:.2f} GiB on {inv.host.gpu_type}: "
            f"{total / GIB:.2f} - {context_bytes(inv) / GIB:.2f} - {total * u / GIB:.2f}",
            level="error" if left < 0 else None, file=_file(inv, U), value=u, headroom_bytes=int(left * GIB),
        )  # fmt: skip


def _file(inv: Invocation, name: str) -> str | None:
    setting = inv.settings.values.get(name)
    return setting.file if setting else None


def _budget(bench: Bench, inv: Invocation, u: float) -> None:
    tokens = inv.get("max_num_batched_tokens")
    most = bench.parameter("GATE018", "max_batched_tokens")
    if (
        isinstance(tokens, int)
        and tokens > most
        and u >= bench.parameter("GATE018", "from_utilization")
    ):
        vocabulary = bench.parameter("GATE018", "vocabulary")
        need = tokens * vocabulary * 6 / GIB
        at = place(inv, "max_num_batched_tokens")
        bench.add("GATE018", inv, at["line"],
                  f"{tokens} tokens per step at u={u:g}: one prompt_logprobs step needs {need:.1f} GiB at vocab {vocabulary}",
                  file=at["file"], value=tokens, tokens=tokens)  # fmt: skip


def _overrides(bench: Bench, inv: Invocation) -> None:
    if inv.get("kv_cache_memory_bytes") is not None:
        at = place(inv, "kv_cache_memory_bytes")
        if inv.settings.values.get(U) is not None:
            bench.add("GATE015", inv, at["line"], f"kv_cache_memory_bytes sizes the pool; {U} is only checked at start",
                      file=at["file"], value=inv.get("kv_cache_memory_bytes"))  # fmt: skip
        if version_in(inv, ">=0.29"):
            bench.add("GATE016", inv, at["line"],
                      "if this number was copied from the log: the suggestion counts the graph pool twice and holds back 150 MiB",
                      file=at["file"], value=inv.get("kv_cache_memory_bytes"))  # fmt: skip
    item = env_is(inv, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0", "false")
    known = release_of(inv)
    if item and not inv.get("enforce_eager") and (known is None or version_in(inv, ">=0.20.2")):
        bench.add(
            "GATE019",
            inv,
            item.line,
            "the graph pool is not subtracted; it comes out of the margin",
            file=item.file,
        )
    if inv.get("skip_mm_profiling"):
        at = place(inv, "skip_mm_profiling")
        bench.add(
            "GATE020", inv, at["line"], "the encoder's peak is in nobody's budget", file=at["file"]
        )
    probs = inv.get("max_logprobs")
    if isinstance(probs, int) and (
        probs == -1 or probs > bench.parameter("GATE021", "max_logprobs")
    ):
        at = place(inv, "max_logprobs")
        bench.add("GATE021", inv, at["line"], f"max_logprobs={probs}: copies of [tokens, vocab] outside the profile",
                  file=at["file"], value=probs)  # fmt: skip
    if inv.get("num_gpu_blocks_override") is not None:
        at = place(inv, "num_gpu_blocks_override")
        bench.add("GATE022", inv, at["line"], "the number of blocks is for tests and may exceed real memory", file=at["file"],
                  value=inv.get("num_gpu_blocks_override"))  # fmt: skip
    loras, rank = inv.get("max_loras"), inv.get("max_lora_rank")
    loras = loras if isinstance(loras, int) else 1
    rank = rank if isinstance(rank, int) else 16
    if (
        loras * rank > bench.parameter("GATE023", "max_slots_times_rank")
        and inv.get("enable_lora") is not False
    ):
        name = "max_loras" if "max_loras" in inv.settings.values else "max_lora_rank"
        if name in inv.settings.values:
            at = place(inv, name)
            bench.add("GATE023", inv, at["line"], f"{loras} slots of rank {rank} are allocated up front", file=at["file"],
                      value=loras * rank)  # fmt: skip
    item = env_is(inv, "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1", "true")
    if item:
        bench.add(
            "GATE024",
            inv,
            item.line,
            "lengths beyond the model's own limit are allowed",
            file=item.file,
        )


# ---- several processes on one card -----------------------------------------------------------
def groups(invocations: list[Invocation]) -> list[list[Invocation]]:
    """Processes known to share at least one card."""
    shared: dict[tuple[str, str], list[Invocation]] = defaultdict(list)
    for inv in invocations:
        host = inv.host
        unit = host.share_unit
        if unit is None:
            continue
        folder = (
            f"{unit}"
            if unit.startswith("triton:") or unit.startswith("compose:")
            else f"{inv.file}|{unit}"
        )
        ids = host.share_ids
        if ids is None and host.count_shares and host.gpus:
            ids = [str(number) for number in range(host.gpus)]
        for one in ids or []:
            shared[(folder, one)].append(inv)
    out: list[list[Invocation]] = []
    seen: set[tuple[int, ...]] = set()
    for members in shared.values():
        key = tuple(sorted({id(inv) for inv in members}))
        if len(key) > 1 and key not in seen:
            seen.add(key)
            out.append(sorted(members, key=lambda inv: (inv.file, inv.line)))
    return out


def colocated(bench: Bench, invocations: list[Invocation]) -> None:
    """GATE013 and GATE014 over the groups that share a card."""
    reported: set[int] = set()
    for members in groups(invocations):
        values = [share_of(inv) for inv in members]
        last = members[-1]
        if any(value is None for value in values) or id(last) in reported:
            continue
        name = last.engine.roles["fraction"]
        total = sum(value for value in values if value is not None)
        most = bench.parameter("GATE013", "max_colocated_sum")
        line = last.at(name) or last.line
        if total > most + 1e-9:
            reported.add(id(last))
            said = " + ".join(f"{value:g}" for value in values)
            bench.add("GATE013", last, line, f"utilisations on one GPU sum to {total:.2f} (limit {most:g}): {said}",
                      file=_file(last, name), value=f"{total:.3f}", sum=total)  # fmt: skip
        if all(_charges_whole_card(inv) for inv in members):
            bench.add("GATE014", last, line, "this release charges every byte in use on the card to its own utilisation",
                      file=_file(last, name), value=f"{total:.3f}")  # fmt: skip


def _charges_whole_card(inv: Invocation) -> bool:
    """V1 up to 0.8.5, which is the default engine from 0.8 on."""
    if version_in(inv, ">=0.8,<0.9"):
        return env_is(inv, "VLLM_USE_V1", "0", "false") is None
    return version_in(inv, ">=0.6.6,<0.8") and env_is(inv, "VLLM_USE_V1", "1", "true") is not None


def share_of(inv: Invocation) -> float | None:
    """Share of the whole card a process takes."""
    if inv.engine.of_total:
        return utilisation(inv)
    value = inv.get(inv.engine.roles["fraction"])
    return float(value) if isinstance(value, (int, float)) else None


def describe(inv: Invocation) -> str:
    """For messages: card and ranks."""
    found = card(inv)
    return f"{found['name']} x {ranks(inv) or '?'}" if found else "unknown card"
