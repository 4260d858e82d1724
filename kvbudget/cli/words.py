"""Words of a command line -> values, without the library that newer typers convert with.

Importing pydantic costs more than a derivation. Plain words are converted here; whatever is not
plain (and every refusal) is still typer's to judge.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin


class PlainWords:
    """Mixed into typer's command and group: their parameters convert plain words themselves."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's objects
        """The parameters, the help option among them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "_runtime_param", self) is None:
                param._runtime_param = _Plain()
        return params


class _Plain:
    """Stands where typer keeps its converter of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - typer's objects
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        bounded = param.type_descriptor.parameter_info
        converted = _converted(value, param.type_descriptor.annotation, bounded.min, bounded.max)
        if converted is not None:
            return converted
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _converted(value: Any, wanted: Any, least: Any, most: Any) -> Any:  # noqa: ANN401
    """`value` as `wanted`; None where that takes more than a plain conversion."""
    if get_origin(wanted) is list and isinstance(value, list | tuple):
        items = [_converted(item, get_args(wanted)[0], least, most) for item in value]
        return None if any(item is None for item in items) else items
    if wanted in (str, float) and type(value) is wanted:
        return value
    if wanted is Path and isinstance(value, str):
        return Path(value)
    digits = str(value).replace(".", "", 1) if wanted is float else str(value)
    if wanted in (int, float) and digits.isascii() and digits.isdigit() and len(digits) < 19:
        number = wanted(value)
        inside = (least is None or number >= least) and (most is None or number <= most)
        return number if inside else None
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next((member for member in wanted if value in (member, member.value)), None)
    return None
