"""Snapshots of one rank -> the terms of the budget, by an engine's policy, exact to the byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.catalogue import find_gpu
from kvbudget.model.eras import Setting, constants
from kvbudget.model.estimate import context_memory, graph_estimate, graphs_actual
from kvbudget.profile.device import TRACKED
from kvbudget.profile.measure import is_stable, leak, measure
from kvbudget.profile.types import ProfileTerm, RankRecord, Scene
from kvbudget.units import format_size

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.profile.measure import Measured
    from kvbudget.profile.policy import Policy
    from kvbudget.profile.types import Job

GRAPH_TERM = "cuda_graph_memory"


@dataclass
class RankBudget:
    """One rank's terms and what follows from them. `lhs` is the budget, `rhs` the counted terms.

    forward: bytes the forward alone needs above the weights, without the sampler.
    """

    rank: str
    terms: list[ProfileTerm]
    result: dict[str, int | float | None]
    lhs: int | None
    rhs: int | None
    counted: tuple[str, ...]
    stable: bool
    notes: list[str] = field(default_factory=list)
    stage: int = 0
    forward: int | None = None

    def term(self, name: str) -> int | None:
        return next((t.value for t in self.terms if t.name == name), None)


def split(record: RankRecord, scene: Scene, job: Job, policy: Policy, model: Model) -> RankBudget:
    """The budget of one rank: measured terms, the pool by the engine's own formula files.

    Raises InputError for an incomplete record.
    """
    found = measure(record, policy)
    stable, notes = is_stable(record, policy)
    notes += leak(record)
    graphs, graph_source = found.graphs, "measured"
    graph_band: Amount | None = None
    if graphs is None and job.graphs:
        graph_band = _modelled_graphs(model, job, policy, notes)
        graphs, graph_source = int(graph_band.value), "modelled"
    elif graphs is None:
        graphs = 0
    profiled = policy.consumed != "load"
    context = _unseen_context(found, scene, job, policy)
    free = found.free_at_baseline - (0 if context is None else int(context.value))
    facts = _facts(found, free, job, policy, graphs if job.graphs else 0)
    outcome = _derive(facts, job, policy, model, notes, record.stage)
    lhs = outcome.get("requested_memory")
    kv = outcome.get("kv_cache_memory")
    applied = outcome.get("cuda_graph_memory_applied") or 0
    outside = found.before_baseline + (0 if applied else graphs)
    terms = [
        ProfileTerm.measured("weights_memory", found.weights, _weights_note(scene)),
        ProfileTerm.measured(
            "peak_activation_memory", found.activations,
            f"{format_size(found.persistent)} stay, {format_size(found.transient)} are transient",
        ),
        ProfileTerm.measured("non_torch_memory", found.non_torch, _no_driver(scene)),
        ProfileTerm(
            "uncounted_memory", outside, outside, outside,
            "measured" if applied or graph_source == "measured" or not graphs else "modelled",
            "on the device but outside the engine's budget",
        ),
        ProfileTerm(
            GRAPH_TERM, graphs,
            graphs if graph_band is None else int(graph_band.low),
            graphs if graph_band is None else int(graph_band.high),
            "measured" if graph_source == "measured" else "modelled",
            "subtracted from the budget" if applied else "not subtracted by this release",
        ),
        ProfileTerm.measured("allocator_slack", found.slack, "reserved, not allocated"),
    ]  # fmt: skip
    counted = ["weights_memory", "allocator_slack", "non_torch_memory"]
    if profiled:
        counted.append("peak_activation_memory")
    if applied:
        counted.append(GRAPH_TERM)
    for name in ("multimodal_reserve", "state_memory"):
        if outcome.get(name) and not profiled:
            value = int(outcome[name] or 0)
            terms.append(ProfileTerm(name, value, value, value, "modelled", "by the formula file"))
            counted.append(name)
    if kv is not None:
        source: Any = "modelled" if applied and graph_source == "modelled" else "measured"
        low, high = kv, kv
        if policy.consumed == "load" and context is not None:
            source = "modelled"
            low, high = (kv + int(job.utilization * (context.value - c))
                         for c in (context.high, context.low))  # fmt: skip
        if applied and graph_band is not None:
            low, high = kv - int(graph_band.high) + graphs, kv + graphs - int(graph_band.low)
        terms.append(ProfileTerm("kv_cache_memory", int(kv), int(low), int(high), source,
                                 f"the residual under {policy.name}"))  # fmt: skip
        counted.append("kv_cache_memory")
    terms.append(
        ProfileTerm("context_memory", found.context, found.context, found.context, "measured",
                    "device growth when the context came up" if found.context is not None
                    else "unknown: no reading of the device from outside")
    )  # fmt: skip
    rhs = None
    if kv is not None:
        rhs = sum(int(t.value or 0) for t in terms if t.name in counted)
    if policy.consumed == "load" and lhs is not None and rhs is not None and abs(rhs - lhs) <= 2:
        if lhs != rhs:
            terms.append(ProfileTerm("rounding", lhs - rhs, lhs - rhs, lhs - rhs, "modelled",
                                     "the engine computes with floating-point gigabytes"))  # fmt: skip
            counted.append("rounding")
        rhs = lhs
    budget = int(lhs) if lhs is not None else None
    if budget is not None and free < budget and profiled and scene.kind not in TRACKED:
        notes.append(
            f"{format_size(free)} were free at the baseline, less than the budget of "
            f"{format_size(budget)}: the engine refuses to start, or runs out later; lower the fraction"
        )
    margin = None if budget is None else free - budget
    if margin is not None and graphs and not applied:
        notes.append(
            f"graphs of {format_size(graphs)} come up after the pool: of the margin of "
            f"{format_size(margin)} they leave {format_size(margin - graphs)}"
        )
    if margin is not None and context is not None:
        low, high = (margin + int(context.value - c) for c in (context.high, context.low))
        notes.append(
            f"no context is measured here: {format_size(int(context.value))} are modelled for it, so the "
            f"margin lies between {format_size(low)} and {format_size(high)}"
        )
    result: dict[str, int | float | None] = {
        "kv_cache_memory": kv,
        "num_gpu_blocks": outcome.get("num_gpu_blocks"),
        "kv_cache_tokens": outcome.get("kv_cache_tokens"),
        "margin_memory": margin,
    }
    return RankBudget(
        record.rank, terms, result, budget, rhs, tuple(counted), stable, notes, record.stage,
        found.forward,
    )  # fmt: skip


def _weights_note(scene: Scene) -> str:
    return "allocated bytes" + ("" if scene.kind in TRACKED else ", rotary tables among them")


def _no_driver(scene: Scene) -> str:
    if scene.kind in TRACKED:
        return "nothing lives outside the tracked allocations on this device"
    return "growth outside torch since the baseline, all owners together"


def setting_of(job: Job, policy: Policy, scene: Scene) -> Setting:
    """What the modelled constants are chosen by: the release, the ranks, the card judged by."""
    card = find_gpu(job.card) if job.card is not None else None
    return Setting(
        policy.engine, policy.version, tp=job.tp, pp=job.pp, peer=card.peer if card else None,
        compute_capability=scene.compute_capability or (card.compute_capability if card else None),
        ep=job.ep,
    )  # fmt: skip


def _unseen_context(found: Measured, scene: Scene, job: Job, policy: Policy) -> Amount | None:
    """The modelled context of a device that has none of its own; None where one is measured."""
    if scene.kind not in TRACKED or found.context is not None:
        return None
    setting = setting_of(job, policy, scene)
    if "context_gib" not in constants(policy.engine):
        return None
    return context_memory(setting).amount


def _facts(
    found: Measured, free: int, job: Job, policy: Policy, graphs: int
) -> dict[str, tuple[float, str]]:
    facts: dict[str, tuple[float, str]] = {
        "total_memory": (found.total, "B"),
        "free_memory": (free, "B"),
        "weights_memory": (found.weights + found.slack, "B"),
        "peak_activation_memory": (found.activations, "B"),
        "non_torch_memory": (found.non_torch, "B"),
        "cuda_graph_memory": (graphs, "B"),
        "cuda_graph_memory_estimate": (graphs, "B"),
        policy.fraction: (job.utilization, "ratio"),
    }
    if policy.consumed == "load":
        facts["avail_memory_before_weights"] = (free, "B")
        facts["load_growth_memory"] = (found.non_torch, "B")
    return facts


def _derive(
    facts: dict[str, tuple[float, str]],
    job: Job,
    policy: Policy,
    model: Model,
    notes: list[str],
    stage: int,
) -> dict[str, int | None]:
    """The pool and its blocks by the engine's formula files, from measured facts."""
    from kvbudget.derive.assemble import derive
    from kvbudget.derive.request import Evidence, Request
    from kvbudget.formula.registry import load_engine

    source = Provenance("measured", "kvbudget profile")
    stated = {name: Evidence(Amount.exact(v, unit), source) for name, (v, unit) in facts.items()}
    roles = load_engine(policy.engine).raw["roles"]
    for role, value, unit in (
        ("tensor_parallel_size", job.tp, "n"), ("pipeline_parallel_size", job.pp, "n"),
        ("tokens", job.tokens, "tok"), ("requests", job.requests, "req"),
    ):  # fmt: skip
        if role in roles:
            stated[roles[role]] = Evidence(Amount.exact(value, unit), source)
    derived = derive(
        Request(engine=policy.engine, version=policy.version, model=model, stated=stated,
                gpu_memory=int(facts["total_memory"][0])),
        stage=stage,
    )  # fmt: skip
    names = ("requested_memory", "kv_cache_memory", "cuda_graph_memory_applied", "num_gpu_blocks",
             "kv_cache_tokens", "multimodal_reserve", "state_memory")  # fmt: skip
    out: dict[str, int | None] = {}
    for name in names:
        amount = derived.amount(name)
        out[name] = None if amount is None else int(amount.value)
    missing = [n for n in ("num_gpu_blocks", "kv_cache_tokens") if out[n] is None]
    if len(missing) == 2:
        notes.append("blocks and tokens are unknown: the pool leaves no room or a fact is missing")
    return out


def _modelled_graphs(model: Model, job: Job, policy: Policy, notes: list[str]) -> Amount:
    """What the release sets aside for graphs; where it sets nothing aside, what they take."""
    setting = Setting(policy.engine, policy.version, tp=job.tp, pp=job.pp)
    aside = graph_estimate(model, setting, job.requests).amount
    if aside.high:
        return aside
    if "graphs_actual" not in constants(policy.engine):
        notes.append("graphs are not modelled for this engine: they come out of the margin")
        return aside
    return graphs_actual(model, setting).amount
