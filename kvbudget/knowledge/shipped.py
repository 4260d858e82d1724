"""Our own YAML files, read once and kept parsed: start-up pays for decoding, not for YAML."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from kvbudget.errors import KnowledgeError
from kvbudget.knowledge.cache import kept

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = 200
"""Parsed files kept, of all releases of kvbudget in use together."""
_DECODER = msgspec.msgpack.Decoder()


@lru_cache(maxsize=128)
def load_shipped(path: Path, until: bytes | None = None) -> Any:  # noqa: ANN401 - any YAML value
    """A file of ours without the strict loader's checks (a test holds that both read it alike).

    until: stop before this line. A file the plain loader refuses goes to the strict one for a
    message with its position. Raises KnowledgeError.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise KnowledgeError(f"cannot read: {exc.strerror}", file=str(path)) from exc
    end = -1 if until is None else data.find(b"\n" + until)
    text = data if end < 0 else data[:end]
    return kept("yaml", [text], _DECODER.decode, lambda: _parse(text, path), entries=ENTRIES)


def _parse(text: bytes, path: Path) -> Any:  # noqa: ANN401 - any YAML value
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        from kvbudget.knowledge.yamlfile import load_yaml

        return load_yaml(path)
