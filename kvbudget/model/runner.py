"""Which of an engine's model runners a release takes for a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.model.eras import runner

if TYPE_CHECKING:
    from kvbudget.model.config import Model
    from kvbudget.model.eras import Setting


def for_model(setting: Setting, model: Model) -> Setting:
    """`setting` with the model runner that the release takes for `model`."""
    kinds = set(model.attention_kinds)
    found = runner(
        setting, architecture=model.architecture, experts=model.is_moe,
        hybrid="linear" in kinds, quantised=model.quantization_config is not None,
    )  # fmt: skip
    return replace(setting, runner=found)
