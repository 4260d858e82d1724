"""Everything a budget needs that no config states, as Amounts with bands: one call per rank."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.budget import Amount, Provenance
from kvbudget.errors import MissingFact
from kvbudget.model import weights
from kvbudget.model.activation import Batch, activation_peak
from kvbudget.model.eras import Setting, choose, constants
from kvbudget.model.layers import stage_ranges
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.model.quantisation import Quantisation


@dataclass(frozen=True, slots=True)
class Modelled:
    """One modelled term: bytes with a band, and what it was computed from."""

    amount: Amount
    formula: str

    @property
    def provenance(self) -> Provenance:
        return Provenance("modelled", self.formula)


def rope_cache_bytes(model: Model) -> int:
    """Rotary tables of one rank: positions x rotary width x bytes; never divided by TP.

    yarn tables cover original length x factor (float32 for latent attention), linear and dynamic
    scaling stretch the table by the factor. Gemma-3 keeps a plain table for its sliding layers
    beside the stretched one (factor 8 unless the config says otherwise).
    """
    dim = model.anatomy.rotary_dim
    if not dim:
        return 0
    scaling = model.text.sub("rope_scaling") or model.text.sub("rope_parameters")
    kind = scaling.text("rope_type", scaling.text("type", "")) if scaling else ""
    length, bytes_each = model.max_position_embeddings, model.dtype_bytes
    local = length if model.model_type == "gemma3_text" else 0
    factor = scaling.float("factor", 1.0) if scaling else (8.0 if local else 1.0)
    if model.is_mla:
        bytes_each = 4
    if kind == "yarn" and scaling is not None:
        length = int(scaling.int("original_max_position_embeddings", default=length) * factor)
    elif kind in ("linear", "dynamic") or (local and scaling is None):
        length = int(length * factor)
    return (length + local) * dim * bytes_each


def _absorbed_bytes(model: Model, setting: Setting, stage: int) -> int:
    """Latent attention keeps its up-projections a second time, unquantised, per rank."""
    layers = stage_ranges(len(model.anatomy.layers), setting.pp)[stage]
    total = 0
    for index in layers:
        mixer = model.anatomy.layers[index].mixer
        if mixer.kind == "mla":
            nope = model.text.int("qk_nope_head_dim")
            value = model.text.int("v_head_dim")
            total += mixer.heads * (nope + value) * mixer.latent * model.dtype_bytes
    return total // (setting.attention_tp or setting.tp)


def _padding_bytes(model: Model, setting: Setting, stage: int) -> int:
    """What an engine adds to packed experts whose intermediate width its kernels do not like."""
    table = constants(setting.engine).get("expert_padding", {})
    grain = int(table.get(model.quantisation.method, 0)) if model.quantisation else 0
    if not grain or not model.moe_intermediate_size:
        return 0
    width = max(1, model.moe_intermediate_size // setting.ranks.expert_cuts)
    padded = -(-width // grain) * grain
    packed = sum(
        weights.share_bytes(weight, setting.ranks, model.dtype_bytes, model.quantisation)
        for group in weights.stage_weights(model.anatomy, pp=setting.pp, stage=stage)
        for weight in group
        if model.quantisation is not None and model.quantisation.reaches(weight)
    )
    return packed * (padded - width) // width


def weights_memory(
    model: Model, setting: Setting, *, stage: int = 0, mtp: bool = False
) -> Modelled:
    """What "model loading took" reports for one rank, in bytes.

    Checkpoint bytes of the rank + rotary tables + copies of absorbed projections + what the
    caching allocator rounds up + what kernels pad. Raises MissingFact where the checkpoint's
    width is not known.
    """
    base = model.weights_bytes(setting.ranks, setting.pp, stage=stage, mtp=mtp)
    extra = rope_cache_bytes(model) + _absorbed_bytes(model, setting, stage)
    if model.quantization_config is None:
        extra += weights.allocator_slack(
            model.anatomy, setting.ranks, pp=setting.pp, stage=stage,
            dtype_bytes=model.dtype_bytes, mtp=mtp,
        )  # fmt: skip
    padding = _padding_bytes(model, setting, stage)
    band = constants(setting.engine).get("weights_band_gib", {"low": 0.02, "high": 0.04})
    high = band.get("multimodal_high", band["high"]) if model.is_multimodal else band["high"]
    amount = Amount(
        base.value + extra + padding, int(base.low + extra - band["low"] * GIB),
        int(base.high + extra + 2 * padding + high * GIB), "B",
    )  # fmt: skip
    source = model.checkpoint.source if model.checkpoint else "config.json"
    return Modelled(amount, f"{source}: weights + rotary tables + allocator rounding")


def draft_memory(model: Model, setting: Setting) -> Amount:
    """Bytes of the checkpoint's own prediction layers on one rank, as an engine keeps them.

    From the quantised width to the model's own (checkpoints often leave these layers wide), and
    up to a copy of embedding and head more, because both are loaded before they are shared.
    Raises MissingFact where the checkpoint's width is not known.
    """
    if model.quantization_config is not None and model.quantisation is None:
        raise MissingFact("the width of the draft's weights is not known", ("weights_memory",), "")

    def of(quantisation: Quantisation | None) -> int:
        return weights.draft_bytes(
            model.anatomy, setting.ranks, dtype_bytes=model.dtype_bytes, quantisation=quantisation
        )

    best, wide = of(model.quantisation), of(None)
    shared = 2 * model.vocab_size * model.hidden_size * model.dtype_bytes // setting.tp
    return Amount(best, best, max(best, wide) + (shared if best else 0), "B")


def plus(term: Modelled, added: Amount) -> Modelled:
    """`term` with further bytes of weights."""
    have = term.amount
    total = Amount(have.value + added.value, have.low + added.low, have.high + added.high, "B")
    return Modelled(total, f"{term.formula} + the draft's")


def _table(setting: Setting, name: str) -> Modelled:
    row = choose(setting, name)
    if row is None:
        raise MissingFact(
            f"no modelled {name} for {setting.engine} {setting.version or ''}".strip(),
            (name,), "state it with --set, or give a start-up log",
        )  # fmt: skip
    low, best, high = (int(value * GIB) for value in row["gib"])
    return Modelled(Amount(best, low, high, "B"), f"activation.yaml {name}: {row['reason']}")


def non_torch_memory(setting: Setting) -> Modelled:
    """Growth outside torch on one rank during the profile run, in bytes."""
    return _table(setting, "non_torch_gib")


def context_memory(setting: Setting) -> Modelled:
    """Memory gone before the engine's first snapshot (context, NCCL): total - free, in bytes."""
    return _table(setting, "context_gib")


def load_growth(setting: Setting) -> Modelled:
    """Free memory lost while loading beyond the parameters, in bytes."""
    return _table(setting, "load_growth_gib")


def graph_estimate(
    model: Model, setting: Setting, requests: int, *, eager: bool = False
) -> Modelled:
    """The part of the budget the engine sets aside for graphs before it captures them."""
    row = choose(setting, "graph_estimate")
    if eager or row is None or not row["applied"]:
        reason = "no graphs" if eager else (row or {}).get("reason", "none in this release")
        return Modelled(Amount.exact(0, "B"), str(reason))
    share = min(row["batch"], 2 * requests) / row["batch"]
    layers = row["per_layer"] * model.num_hidden_layers / setting.pp
    wide = row["per_4096"] * model.hidden_size / 4096
    best = share * (row["scaled"] + layers + row["moe"] * model.is_moe + wide)
    return Modelled(_around(best, row["band"]), str(row["reason"]))


def graphs_actual(model: Model, setting: Setting, *, eager: bool = False) -> Modelled:
    """Memory the captured graphs really take, in bytes."""
    row = choose(setting, "graphs_actual")
    if eager or row is None:
        return Modelled(Amount.exact(0, "B"), "no graphs")
    best = (
        row["base"] + row["per_layer"] * model.num_hidden_layers / setting.pp
        + row["moe"] * model.is_moe + row["tensor"] * (setting.tp > 1)
        + row["per_4096"] * model.hidden_size / 4096
    )  # fmt: skip
    return Modelled(_around(best, row["band"]), str(row["reason"]))


def _around(best: float, band: list[float]) -> Amount:
    below, above = band
    low = max(0.0, best - below)
    return Amount(int(best * GIB), int(low * GIB), int((best + above) * GIB), "B")


def estimate(
    model: Model,
    setting: Setting,
    batch: Batch | None,
    *,
    stage: int = 0,
    eager: bool = False,
    mtp: bool = False,
) -> dict[str, Modelled]:
    """The modelled terms of one rank by fact name; terms the tables have none for are absent.

    weights_memory is absent (not 0) where the checkpoint's width is unknown.
    """
    terms: dict[str, Modelled] = {}
    with suppress(MissingFact):
        terms["weights_memory"] = weights_memory(model, setting, stage=stage, mtp=mtp)
    tables = constants(setting.engine)
    if batch is not None and "sampler" in tables:
        peak = activation_peak(model, setting, batch, stage=stage)
        terms["peak_activation_memory"] = Modelled(peak.amount, peak.formula)
        terms["cuda_graph_memory_estimate"] = graph_estimate(
            model, setting, batch.requests, eager=eager
        )
        terms["cuda_graph_memory"] = graphs_actual(model, setting, eager=eager)
    if "non_torch_gib" in tables:
        terms["non_torch_memory"] = non_torch_memory(setting)
    if "context_gib" in tables:
        terms["context_memory"] = context_memory(setting)
    if "load_growth_gib" in tables:
        terms["load_growth_memory"] = load_growth(setting)
    if "rank_spread_gib" in tables:
        terms["rank_spread"] = _table(setting, "rank_spread_gib")
    return terms
