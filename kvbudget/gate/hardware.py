"""Names of cards and machines as manifests spell them -> the catalogue of formulas/gpus.yaml."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from kvbudget.derive.catalogue import find_gpu
from kvbudget.errors import InputError
from kvbudget.gate.knowledge import load

_NOISE = re.compile(
    r"nvidia|tesla|geforce|gpu|amd|instinct|accelerator|sxm\d*|pcie|hbm\d*e?|[^a-z0-9]"
)


def _squeeze(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for gpu in load("gpus.yaml").get("gpus", []):
        for name in (gpu["name"], *gpu.get("aliases", [])):
            out[_squeeze(name)] = gpu
    return out


@lru_cache(maxsize=1)
def _labels() -> dict[str, str]:
    data = load("gate/hardware.yaml")
    return {_squeeze(key): value for key, value in data["labels"].items()}


@lru_cache(maxsize=256)
def card(text: str) -> str | None:
    """`nvidia-tesla-t4`, `NVIDIA-L40S`, `h100`, `A100-40G` -> catalogue name; None if unknown."""
    whole = _squeeze(text)
    labels, catalogue = _labels(), _catalogue()
    for key in (whole, _NOISE.sub("", text.lower())):
        if not key:
            continue
        if key in labels:
            return labels[key]
        if key in catalogue:
            return str(catalogue[key]["name"])
        for suffix in ("gb", "g"):
            if key.endswith(suffix) and key.removesuffix(suffix) + "gb" in catalogue:
                return str(catalogue[key.removesuffix(suffix) + "gb"]["name"])
    return None


def family(text: str) -> bool:
    """True for a name that a cluster's own labels give to cards of several capacities."""
    names = load("gate/hardware.yaml")["families"]
    return _squeeze(text) in {_squeeze(name) for name in names}


def machine(text: str) -> tuple[str | None, int | None]:
    """Cloud machine type -> (card, number of cards); (None, None) if unknown."""
    entry = load("gate/hardware.yaml")["machines"].get(text)
    return (entry[0], entry[1]) if entry else (None, None)


def entry(name: str) -> dict[str, Any] | None:
    """Catalogue entry of a card, found as `--gpu` of derive finds it; None if unknown."""
    try:
        return _catalogue()[_squeeze(find_gpu(name).name)]
    except InputError:
        return None


def named(name: str) -> str:
    """Catalogue name of a card that a user asks for. Raises InputError for an unknown one."""
    found = entry(name)
    if found is None:
        raise InputError(
            f"unknown card: {name}", "use a name of formulas/gpus.yaml, such as H100-80GB"
        )
    return str(found["name"])
