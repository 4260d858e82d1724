"""The catalogue of cards, the flags and the activation constants: shape and sanity."""

from __future__ import annotations

import pytest

from kvbudget.derive.catalogue import find_gpu
from kvbudget.errors import InputError, KnowledgeError
from kvbudget.formula.versions import holds
from kvbudget.knowledge.where import knowledge_file
from kvbudget.knowledge.yamlfile import load_yaml
from kvbudget.model.eras import Setting, choose, constants
from kvbudget.units import GIB

CARDS = load_yaml(knowledge_file("formulas", "gpus.yaml"))["gpus"]
FLAGS = load_yaml(knowledge_file("formulas", "sglang", "flags.yaml"))["flags"]


def plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def test_every_spelling_names_one_card() -> None:
    spelled = [(plain(s), card["name"]) for card in CARDS for s in (card["name"], *card["aliases"])]
    owners = {text: {name for other, name in spelled if other == text} for text, _ in spelled}
    assert all(len(names) == 1 for names in owners.values())


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card["name"])
def test_a_card_is_complete(card: dict) -> None:
    low, usual, high = card["reported_gib"]
    assert 0 < low <= usual <= high
    assert high - low < 0.1 * usual
    assert card["sm_count"] > 0
    assert card["hbm_bytes_per_s"] > 10**11
    assert card["source"]["capacity"]
    assert card["peer"] in ("pcie", "nvlink", "xgmi", "none")
    assert card["vendor"] == "amd" or card["compute_capability"]
    if card["smi_mib"]:
        assert high * 1024 <= card["smi_mib"] + 16, "an engine sees no more than nvidia-smi"


def test_names_are_found_by_case_dashes_and_unique_prefix() -> None:
    assert find_gpu("h200").name == "H200-141GB"
    assert find_gpu("RTX-4090").name == find_gpu("rtx 4090").name == "RTX4090"
    assert find_gpu("H100-80GB").total.value / GIB == pytest.approx(79.19, abs=0.01)
    with pytest.raises(InputError, match="ambiguous"):
        find_gpu("a100")
    with pytest.raises(InputError, match="catalogue"):
        find_gpu("h9000")


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag["name"])
def test_a_flag_has_the_agreed_shape(flag: dict) -> None:
    assert flag["type"] in ("float", "int", "bool", "str", "json", "size")
    assert all(option.startswith("--") for option in flag["cli"])
    for row in flag["defaults"]:
        holds("0.5.12", row["versions"])
        assert "value" in row


@pytest.mark.parametrize("version", ["0.6.4", "0.8.5", "0.10.2", "0.17.1", "0.19.0", "0.33.0"])
@pytest.mark.parametrize("ranks", [(1, 1), (4, 1), (1, 2)])
@pytest.mark.parametrize("peer", [None, "pcie", "nvlink"])
def test_every_release_and_card_has_constants(
    version: str, ranks: tuple[int, int], peer: str | None
) -> None:
    setting = Setting("vllm", version, None, *ranks, peer, "9.0" if peer else None)
    for table in ("sampler", "residue_gib", "expert_workspace", "non_torch_gib", "context_gib"):
        row = choose(setting, table)
        assert row is not None, table
        low, best, high = row.get("gib", (0, 0, 0))
        assert low <= best <= high


def test_an_engine_without_constants_is_an_error() -> None:
    with pytest.raises(KnowledgeError):
        constants("nobody")
