"""Typed access to a `config.json`: a missing field is an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvbudget.errors import InputError, MissingFact

_Int = int
_Ints = list[int]
# The class below has methods of these names.

_DIVISORS = frozenset(
    {"attn_layer_period", "decoder_sparse_step", "expert_layer_period", "full_attention_interval",
     "head_dim", "attention_head_dim", "hidden_size", "interleave_moe_layer_step",
     "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "patch_size",
     "sliding_window_pattern", "_sliding_window_pattern", "swa_num_attention_heads", "swa_num_key_value_heads", "vocab_size"}
)  # fmt: skip
"""Fields that count something a model has at least one of, so that others are divided by them."""
_LARGEST = 2**40
_MOST_LAYERS = 10_000
"""No published model comes near either; a figure beyond is a slip, and layers are built one by one."""


class Fields:
    """One level of a config. `where` names it in errors (`text_config.`)."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        self.raw = raw
        self.where = where

    def get(self, *names: str) -> Any:  # noqa: ANN401 (JSON)
        """The first of `names` that is present and not null, else None."""
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                return value
        return None

    def int(self, *names: str, default: int | None = None) -> int:
        """Raises MissingFact naming the field, InputError if it is not a whole number >= 0."""
        value = self.get(*names)
        if value is None:
            if default is not None:
                return default
            label = " or ".join(self.where + name for name in names)
            raise MissingFact(
                f"config.json has no {label}",
                tuple(self.where + name for name in names),
                f"add the field to config.json, or state it: --assume {names[0]}=N",
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(names[0], value, "a whole number")
        used = next(name for name in names if self.raw.get(name) is not None)
        if value == 0 and used in _DIVISORS:
            raise self.wrong(used, value, "1 or more")
        if value > (_MOST_LAYERS if used.endswith("hidden_layers") else _LARGEST):
            raise self.wrong(used, value, "a size that a model can have")
        return value

    def wrong(self, name: str, value: object, wanted: str) -> InputError:
        """The error that says what stands in a field and what should."""
        shown = repr(value) if len(repr(value)) < 60 else f"{repr(value)[:50]}..."
        return InputError(
            f"config.json: {self.where}{name} is {shown}, not {wanted}",
            "fix the field in config.json",
        )

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw.get(name)
        return default if value is None else bool(value)

    def float(self, name: str, default: float) -> float:
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        if not 0 <= value <= _LARGEST:
            raise self.wrong(name, value, "a factor that a model can have")
        return float(value)

    def list(self, name: str) -> list[Any] | None:
        value = self.raw.get(name)
        return value if isinstance(value, list) else None

    def ints(self, name: str) -> _Ints | None:
        """A list of whole numbers >= 0. Raises InputError for anything else in it."""
        value = self.list(name)
        if value is None:
            return None
        if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in value):
            raise self.wrong(name, value, "a list of whole numbers")
        return value

    def text(self, name: str, default: str) -> str:
        value = self.raw.get(name)
        return default if value is None else str(value)

    def head_dim(self, heads: _Int) -> _Int:
        """Stated (0 counts as not stated), or the width of the model over its heads."""
        name = "head_dim" if self.get("head_dim") else "attention_head_dim"
        return self.int(name) if self.get(name) else self.int("hidden_size") // heads

    def sub(self, name: str) -> Fields | None:
        value = self.raw.get(name)
        return Fields(value, f"{self.where}{name}.") if isinstance(value, Mapping) else None
