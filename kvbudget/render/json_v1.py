"""JSON on stdout: plain `json.dumps`, never through rich."""

from __future__ import annotations

import json
from typing import Any


def dumps(document: Any, *, indent: int | None = 1) -> str:  # noqa: ANN401 - any JSON value
    """One JSON text. NaN and infinity are errors: unknown is null."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
