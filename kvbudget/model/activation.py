"""The activation peak of a profile run, from shapes: sampler, forward, experts, encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.model import encoder
from kvbudget.model.eras import Setting, choose, constants, generation
from kvbudget.model.forward import forward_memory
from kvbudget.model.runner import for_model
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.model.config import Model

LOGITS_BYTES = 4
"""Samplers work on float32."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The warm-up batch: tokens (max_num_batched_tokens) and requests (max_num_seqs).

    sampler: torch, flashinfer or None (unknown: the era's default, with a wider band).
    """

    tokens: int
    requests: int
    sampler: str | None = None
    sm_count: int | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak and its parts in bytes. `bound` says which part was the largest."""

    amount: Amount
    sampler: int
    forward: int
    workspace: int
    encoder: int
    bound: str
    formula: str


Range = tuple[int, int, int]
"""low, best, high in bytes."""


def activation_peak(model: Model, setting: Setting, batch: Batch, *, stage: int = 0) -> Peak:
    """Peak of torch memory above the weights on one rank of `stage`, in bytes.

    max(sampler, forward, encoder pass) + workspace + kept embeddings + residue, with the
    constants of formulas/activation.yaml. The vocabulary is not divided: logits are gathered.
    Where only some ranks sample, the band reaches down to what the others need; where experts
    gather the tokens of several replicas, to what one replica's tokens need.
    """
    setting = for_model(setting, model)
    band = constants(setting.engine)["activation_band"]
    era = choose(setting, "sampler") or {}
    residue = choose(setting, "residue_gib") or {"sampler": 0.0, "forward": 0.0}
    requests = min(batch.requests, batch.tokens)
    single = requests if era.get("image_per_request") else None
    images = encoder.images_of(model, batch.tokens, single)
    if single is not None and images:
        requests = images
    forward, workspace = forward_memory(model, setting, batch.tokens, stage=stage)
    alone, least = forward, workspace
    if setting.gathered > 1:
        own = replace(setting, gathered=1)
        alone, least = forward_memory(model, own, batch.tokens, stage=stage)
    kept = looked = 0
    if stage == 0:
        kept = encoder.kept_bytes(model, batch.tokens, images)
        looked = encoder.pass_bytes(model, batch.tokens, images, setting.tp)
    name, sampling = "none", (0, 0, 0)
    if stage == setting.pp - 1:
        name, sampling = _sampler_range(model, setting, era, batch, requests)
    parts = {
        "sampler": _plus(_widened(sampling, residue["sampler"], band["share"]), kept),
        "forward": _plus(
            _widened((alone, forward, forward), residue["forward"], band["forward_share"]), kept
        ),
        "encoder": _widened((looked,) * 3, 0, band["encoder_share"]),
    }
    low, best, high = (max(part[i] for part in parts.values()) for i in range(3))
    others = ""
    if name != "none" and (setting.pp > 1 or (era.get("one_rank") and setting.tp > 1)):
        low, others = max(parts["forward"][0], parts["encoder"][0]), "; low: ranks without sampler"
    slack = int(era.get("slack_gib", band["gib"]) * GIB + band["moe_share"] * workspace)
    below, above = _tower_slack(model, band)
    amount = Amount(
        best + workspace, max(0, low + least - slack - below),
        high + workspace + slack + above, "B",
    )  # fmt: skip
    bound = max(parts, key=lambda part: parts[part][1])
    formula = (
        f"max(sampler {name}, forward, encoder) + workspace + embeddings, "
        f"{generation(setting)}{others}"
    )
    return Peak(amount, sampling[1], forward, workspace, kept, bound, formula)


def _widened(part: Range, residue_gib: float, share: float) -> Range:
    low, best, high = (value + int(residue_gib * GIB) if value else 0 for value in part)
    return int(low * (1 - share)), best, int(high * (1 + share))


def _plus(part: Range, more: int) -> Range:
    return part[0] + more, part[1] + more, part[2] + more


def _tower_slack(model: Model, band: dict[str, float]) -> tuple[int, int]:
    if not model.is_multimodal:
        return 0, 0
    described = isinstance(model.config.get("vision_config"), dict)
    above = band["tower_high_gib" if described else "unknown_tower_high_gib"]
    return int(band["tower_low_gib"] * GIB), int(above * GIB)


def _sampler_range(
    model: Model, setting: Setting, era: dict[str, Any], batch: Batch, requests: int
) -> tuple[str, Range]:
    """Kernel and bytes; where the release does not say which kernel, low and high span them all."""
    known = era.get("per_logit", {})
    stated = batch.sampler
    name = stated if stated is not None and stated in known else default_sampler(era, setting)
    best = _sampler(model, setting, era, name, batch, requests)
    if stated is not None or era.get("known", True):
        return name, (best, best, best)
    sizes = [_sampler(model, setting, era, other, batch, requests) for other in known]
    return name, (min(sizes), best, max(sizes))


def default_sampler(era: dict[str, Any], setting: Setting) -> str:
    """The kernel of a row of the table `sampler` on the card of `setting`."""
    fallback = era.get("fallback")
    capability = setting.compute_capability
    if fallback and capability is not None and float(capability) < float(fallback["below"]):
        return str(fallback["use"])
    return str(era.get("default", "torch"))


def _sampler(
    model: Model, setting: Setting, era: dict[str, Any], name: str, batch: Batch, requests: int
) -> int:
    """Logits in the model's precision and in float32, what the kernel adds, two hidden states.

    With several ranks the gathered logits exist twice for a moment, beside the rank's own part.
    """
    copy = LOGITS_BYTES if era.get("float_copy", True) else 0
    each = model.dtype_bytes + copy + kernel_bytes(era, name, requests)
    logits = requests * model.vocab_size * each
    if setting.tp > 1:
        part = requests * model.vocab_size * model.dtype_bytes
        logits = max(logits, 2 * part + part // setting.tp)
    rows = (batch.sm_count or 0) * int(era.get("per_sm", {}).get(name, 0)) * model.vocab_size
    hidden = (batch.tokens + 2 * requests) * model.hidden_size * model.dtype_bytes
    return logits + rows + hidden


def kernel_bytes(era: dict[str, Any], name: str, rows: int) -> int:
    """What a sampling kernel keeps per logit beyond the logits, in bytes, for so many rows."""
    few = era.get("few_rows", {"below": 0, "per_logit": {}})
    usual = era.get("per_logit", {}).get(name, 0)
    return int(few["per_logit"].get(name, usual) if rows < few["below"] else usual)
