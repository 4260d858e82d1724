"""What formula files ask of a model: numbers, texts and the table of layers, by fact name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbudget.budget import Amount
from kvbudget.formula.versions import holds
from kvbudget.model.eras import NEWEST, Setting, choose, constants
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.model.layers import LayerGroup

LayerRow = dict[str, int | str]


@dataclass(frozen=True)
class ModelFacts:
    """Inputs of formula files that a config decides. `numbers` are exact ints or Amounts."""

    numbers: dict[str, int | Amount] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    layers: list[LayerRow] = field(default_factory=list)


def layer_rows(groups: list[LayerGroup], max_model_len: int) -> list[LayerRow]:
    """The `layer_groups` table: one row per group; a layer without a window keeps everything."""
    return [
        {
            "kind": group.kind,
            "layers": group.layers,
            "layer_token_bytes": group.bytes_per_token,
            "layer_state_bytes": group.state_bytes,
            "layer_window": group.window if group.window is not None else max_model_len,
        }
        for group in groups
    ]


def model_facts(
    model: Model, setting: Setting, groups: list[LayerGroup], max_model_len: int
) -> ModelFacts:
    """Everything the formula files of `setting.engine` read from the model of one rank."""
    kinds: set[str] = {group.kind for group in groups}
    pool = _swa_pool(model, setting, kinds)
    caching = [group for group in groups if group.kind not in ("linear", "indexer")]
    texts = {
        "attention": "mla" if "mla" in kinds else "full",
        "multimodal": "yes" if model.is_multimodal else "no",
        "state_layers": _share("linear" in kinds, bool(caching), ("none", "some", "only")),
        "swa_pool": _swa_word(pool, kinds),
    }
    numbers: dict[str, int | Amount] = {
        "cache_layers": sum(group.layers for group in caching),
        "model_layers": model.num_hidden_layers,
    }
    windows = [group.window for group in groups if group.window is not None]
    if pool is not None and windows:
        less = model.model_type in pool.get("window_less_one", ())
        numbers["swa_window"] = max(windows) - less
    for row in constants(setting.engine).get("state_buffers", []):
        if model.model_type in row["model_types"] and holds(
            setting.version or NEWEST, row["versions"]
        ):
            numbers["state_extra_slots"] = int(row["slots"])
    vision = model.config.get("vision_config")
    if isinstance(vision, dict):
        layers = vision.get("num_hidden_layers") or vision.get("depth")
        width = vision.get("hidden_size")
        numbers |= {"vit_layers": int(layers)} if layers else {}
        numbers |= {"vit_hidden": int(width)} if width else {}
    spread = choose(setting, "rank_spread_gib")
    if spread is not None:
        low, best, high = (int(value * GIB) for value in spread["gib"])
        numbers["rank_spread"] = Amount(best, low, high, "B")
    return ModelFacts(numbers, texts, layer_rows(groups, max_model_len))


def _share(has: bool, others: bool, words: tuple[str, str, str]) -> str:
    if not has:
        return words[0]
    return words[1] if others else words[2]


def _swa_pool(model: Model, setting: Setting, kinds: set[str]) -> dict[str, Any] | None:
    """The rule by which sliding layers have a pool of their own in this release, or None."""
    local = bool(kinds & {"sliding", "chunked"})
    for row in constants(setting.engine).get("swa_pools", []):
        applies = holds(setting.version or NEWEST, row["versions"])
        if local and applies and model.model_type in row["model_types"]:
            return dict(row)
    return None


def _swa_word(pool: dict[str, Any] | None, kinds: set[str]) -> str:
    if pool is None:
        return "no"
    return "yes" if kinds & {"full", "mla"} else "only"
