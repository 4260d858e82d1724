"""What a model contributes to a derivation: lengths, layers with a cache, modelled terms."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.gathered import attention_ranks, product, role
from kvbudget.derive.settings import holds_for, take_context_ranks
from kvbudget.derive.speculation import wider_by
from kvbudget.errors import MissingFact
from kvbudget.formula.versions import holds
from kvbudget.model.eras import Setting
from kvbudget.model.facts import model_facts
from kvbudget.model.layers import merge_groups
from kvbudget.units import format_size

if TYPE_CHECKING:
    from kvbudget.derive.gathered import Gathered
    from kvbudget.derive.request import Request
    from kvbudget.formula.registry import Engine
    from kvbudget.model.config import Model
    from kvbudget.model.estimate import Modelled
    from kvbudget.model.layers import LayerGroup

_NO_GRAPHS = re.compile(r"cudagraph_mode\W+NONE\b|\blevel\W+0\b", re.IGNORECASE)
FULL_LENGTH = frozenset({"full", "mla", "indexer"})
BUSY_BELOW = 0.85
"""A card with less of its total free before the weights is shared, or unified memory."""


def take_layers(
    facts: Gathered, request: Request, engine: Engine, version: str, stage: int
) -> None:
    """The table layer_groups, and the text facts about its shape."""
    model = request.model
    assert model is not None
    roles = engine.raw["roles"]
    tp, pp = (
        role(facts, engine, "tensor_parallel_size", 1),
        role(facts, engine, "pipeline_parallel_size", 1),
    )
    kv_dtype = facts.texts.get(roles.get("kv_cache_dtype", ""), "auto")
    block = role(facts, engine, "block_size", 1)
    dtype = facts.texts.get(roles.get("dtype", ""), "auto")
    model = model.with_dtype(dtype)
    state = facts.texts.get(roles.get("state_dtype", ""), "auto")
    attention_tp = attention_ranks(facts, engine) or tp
    shared = engine.raw.get("context_heads")
    groups = model.layer_groups(
        attention_tp, pp, kv_dtype=kv_dtype, block_size=block, stage=stage, state_dtype=state,
        dcp=product(facts, [shared] if shared else []), engine=engine.name, version=version,
        draft_tokens=wider_by(facts, engine),
    )  # fmt: skip
    groups = _with_draft(facts, engine, model, groups, attention_tp, kv_dtype, block)
    take_context_ranks(facts, engine, version)
    heads = model.num_attention_heads
    if heads and heads % attention_tp:
        facts.notes.append(f"{heads} attention heads cannot be divided over {attention_tp} ranks: "
                           "the engine refuses to start")  # fmt: skip
    facts.groups = groups
    source = Provenance("config", "config.json")
    setting = _setting(facts, request, engine, version)
    found = model_facts(model, setting, groups, facts.value("max_model_len") or 0)
    facts.tables["layer_groups"] = [dict(row) for row in found.layers]
    for name, text in found.texts.items():
        facts.text(name, text, source)
    for name, number in found.numbers.items():
        amount = number if isinstance(number, Amount) else Amount.exact(number, "n")
        facts.number(name, amount, source)
    sizes = {g.bytes_per_token for g in groups}
    only_full = all(g.kind in FULL_LENGTH for g in groups)
    facts.text("page_layout", "mixed" if only_full and len(sizes) > 1 else "uniform", source)
    off = facts.value("disable_hybrid_kv_cache_manager")
    facts.text("hybrid_manager", "off" if off else "on", source)


def _with_draft(
    facts: Gathered, engine: Engine, model: Model, groups: list[LayerGroup], tp: int,
    kv_dtype: str, block: int,
) -> list[LayerGroup]:  # fmt: skip
    """The groups with those of the draft, where the engine gives its layers caches like these."""
    draft = facts.draft
    if draft is None or engine.raw["speculation"]["kv"] != "layer_groups":
        return groups
    if draft.model is not None:
        own = draft.model.layer_groups(tp, kv_dtype=kv_dtype, block_size=block)
    else:
        own = model.prediction_groups(groups)
    return merge_groups([*groups, *own])


def eager(facts: Gathered) -> bool:
    """True where no graphs are captured: --enforce-eager, -O0, cudagraph_mode NONE."""
    if facts.value("enforce_eager") or facts.value("optimization_level") == 0:
        return True
    if facts.value("disable_cuda_graph"):
        return True
    config = facts.texts.get("compilation_config", "").strip()
    return config == "0" or _NO_GRAPHS.search(config) is not None


def _setting(facts: Gathered, request: Request, engine: Engine, version: str) -> Setting:
    gpu = request.gpu
    total, free = facts.value("total_memory"), facts.value("avail_memory_before_weights")
    shared = total is not None and free is not None and free < BUSY_BELOW * total
    runner = facts.texts.get("model_runner")
    return Setting(
        engine.name, version, facts.texts.get("engine_core"),
        role(facts, engine, "tensor_parallel_size", 1),
        role(facts, engine, "pipeline_parallel_size", 1),
        gpu.peer if gpu else None, gpu.compute_capability if gpu else None, shared,
        None if runner == "by model" else runner,
        attention_tp=attention_ranks(facts, engine), **_expert_ranks(facts, engine, version),
    )  # fmt: skip


def _expert_ranks(facts: Gathered, engine: Engine, version: str) -> dict[str, Any]:
    """How the routed experts are shared, as fields of Setting (index.yaml: expert_ranks)."""
    rule = engine.raw["expert_ranks"]

    def first(name: str) -> dict[str, Any] | None:
        rows = (r for r in rule.get(name) or () if holds(version, r["versions"]))
        return next((r for r in rows if holds_for(facts, r)), None)

    spread, ways = first("whole"), product(facts, rule["of"])
    ep = min(ways, product(facts, spread["of"])) if spread else 1
    return {
        "ep": ep, "expert_tp": ways // ep, "shared_whole": first("shared_whole") is not None,
        "gathered": product(facts, rule.get("gathered") or ()),
    }  # fmt: skip


def take_estimates(
    facts: Gathered, request: Request, engine: Engine, version: str, stage: int
) -> None:
    """Modelled terms with their bands, for whatever nothing better is known of."""
    from kvbudget.model.activation import Batch
    from kvbudget.model.estimate import estimate

    assert request.model is not None
    roles, gpu = engine.raw["roles"], request.gpu
    setting = _setting(facts, request, engine, version)
    tokens = facts.value(roles.get("tokens", ""))
    requests = facts.value(roles.get("requests", ""))
    batch = None
    if tokens is not None and requests is not None:
        batch = Batch(tokens, requests, facts.texts.get("sampler"), gpu.sm_count if gpu else None)
    model = request.model.with_dtype(facts.texts.get(roles.get("dtype", ""), "auto"))
    terms = estimate(model, setting, batch, stage=stage, eager=eager(facts))
    for name, term in terms.items():
        source = term.provenance
        if name == "weights_memory":
            kind = "headers" if model.checkpoint is not None else "config"
            source = Provenance("headers" if kind == "headers" else "config", term.formula)
            term = _with_draft_weights(facts, model, setting, term)
        facts.number(name, term.amount, source)
    total, context = facts.numbers.get("total_memory"), facts.numbers.get("context_memory")
    if total is not None and context is not None:
        free = Amount(total.value - context.value, total.value - context.high,
                      total.value - context.low, "B")  # fmt: skip
        facts.number("free_memory", free, Provenance("modelled", "total - context_memory"))


def _with_draft_weights(
    facts: Gathered, model: Model, setting: Setting, term: Modelled
) -> Modelled:
    """Weights with those of the draft, which an engine loads beside the model."""
    from kvbudget.model.estimate import draft_memory, plus

    draft = facts.draft
    if draft is None or draft.layers is None:
        return term
    with suppress(MissingFact):
        own = None if draft.model is None else draft.model.weights_bytes(setting.tp)
        added = draft_memory(model, setting) if own is None else own
        if added.value:
            facts.notes.append(f"weights include {format_size(int(added.value))} of the draft")
            return plus(term, added)
    facts.notes.append("the weights of the draft are not in these figures: state the sum with "
                       "--set weights_memory=SIZE")  # fmt: skip
    return term
