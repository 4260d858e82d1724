"""A hub id to a local folder, with the `hf` extra: config and index only, never weights."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from kvbudget.errors import InputError

_WANTED = ("config.json", "model.safetensors.index.json")


def fetch_config(model_id: str) -> Path:
    """Folder of the cached (or downloaded) config.json of `model_id`.

    HF_HUB_OFFLINE and HF_ENDPOINT are honoured by the hub library itself; cached files come
    first. Raises InputError when the extra is missing or the id cannot be resolved.
    """
    if "/" not in model_id or model_id.startswith((".", os.sep)) or model_id.count("/") != 1:
        raise InputError(
            f"no such model folder: {model_id}",
            "MODEL is a folder with a config.json, a path to one, or a hub id (org/name)",
        )
    if find_spec("huggingface_hub") is None:
        raise InputError(
            f"no such model folder: {model_id}; as a hub id it needs an extra",
            'check the path, or pip install "kvbudget[hf]"',
        )
    import huggingface_hub as hub

    found: Path | None = None
    for name in _WANTED:
        try:
            cached = hub.try_to_load_from_cache(model_id, name)
            path = cached if isinstance(cached, str) else hub.hf_hub_download(model_id, name)
        except Exception as exc:  # the hub raises a family of its own, network errors and OSError
            if name == "config.json":
                raise InputError(
                    f"cannot fetch the config of {model_id}: {type(exc).__name__}",
                    "check the id, HF_ENDPOINT and HF_HUB_OFFLINE, or pass a local folder",
                ) from exc
            continue
        found = found or Path(path).parent
    if found is None:
        raise InputError(f"{model_id} has no config.json")
    return found
