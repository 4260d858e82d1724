"""formulas/gpus.yaml: cards by name, blanks, dashes, case and maker ignored."""

from __future__ import annotations

from dataclasses import dataclass

from kvbudget.budget import Amount
from kvbudget.errors import InputError, near
from kvbudget.knowledge.shipped import load_shipped
from kvbudget.knowledge.where import knowledge_file
from kvbudget.units import GIB, MIB


@dataclass(frozen=True)
class Gpu:
    """One card: total as the driver reports it, nvidia-smi's total, rates."""

    name: str
    total: Amount
    smi_total: int | None
    sm_count: int | None
    compute_capability: str | None
    peer: str | None
    hbm_bytes_per_s: int | None
    host_link_name: str | None
    host_link_bytes_per_s: int | None


MAKERS = ("nvidia", "amd", "tesla", "geforce", "quadro", "instinct")
"""Words that nvidia-smi and its like put before a card's name, in this order."""


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def _unmade(name: str) -> str:
    """The plain name without the words of its maker."""
    for maker in MAKERS:
        name = name.removeprefix(maker)
    return name


def card_names() -> list[str]:
    """Every card of the catalogue, in its order."""
    return [row["name"] for row in load_shipped(knowledge_file("formulas", "gpus.yaml"))["gpus"]]


def find_gpu(name: str) -> Gpu:
    """Raises InputError for an unknown or ambiguous name, listing the candidates."""
    rows = load_shipped(knowledge_file("formulas", "gpus.yaml"))["gpus"]
    wanted = _plain(name)
    spelled = {_plain(s): row for row in rows for s in (row["name"], *(row.get("aliases") or ()))}
    row = spelled.get(wanted) or spelled.get(wanted := _unmade(wanted))
    if row is None:
        found = {r["name"]: r for text, r in spelled.items() if wanted and text.startswith(wanted)}
        if len(found) != 1:
            what = "is ambiguous" if found else "is not in the catalogue"
            known = ", ".join(found or [row["name"] for row in rows])
            hint = f"--gpu-memory SIZE does without; known: {known}"
            raise InputError(
                f"GPU {name!r} {what}", hint if found else near(name, card_names(), hint)
            )
        row = next(iter(found.values()))
    low, usual, high = (int(value * GIB) for value in row["reported_gib"])
    smi, link = row.get("smi_mib"), row.get("host_link") or {}
    return Gpu(
        row["name"], Amount(usual, low, high, "B"), None if smi is None else smi * MIB,
        row.get("sm_count"), row.get("compute_capability"), row.get("peer"),
        row.get("hbm_bytes_per_s"), link.get("name"), link.get("bytes_per_s"),
    )  # fmt: skip
