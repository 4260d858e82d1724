"""What SGLang drafts where nothing is set, and what it makes of what is: a second writing."""

from __future__ import annotations

import pytest

from kvbudget.budget import Amount, Provenance
from kvbudget.derive.draft_lengths import draft_lengths
from kvbudget.derive.flags import Machine, default_of, load_flags
from kvbudget.derive.gathered import Gathered
from kvbudget.formula.versions import holds
from kvbudget.knowledge.where import knowledge_file
from kvbudget.knowledge.yamlfile import load_yaml
from kvbudget.units import GIB

OTHER, LLAMA, GROK = "OtherForCausalLM", "LlamaForCausalLM", "Grok1VForCausalLM"
TREE, CHAIN = (5, 4, 8), (3, 1, 4)
# (algorithm, architecture): steps, branches of the tree and tokens verified, from a release on
DRAFTS = {
    ("EAGLE", OTHER): {
        "0.4.2": (5, 8, 64), "0.4.3.post2": (5, 8, 64), "0.4.3.post3": TREE, "0.4.4": TREE,
        "0.4.6.post5": TREE, "0.5.4": TREE, "0.5.7": TREE, "0.5.8": CHAIN, "0.5.23": CHAIN,
    },
    ("NEXTN", "DeepseekV3ForCausalLM"): {"0.4.6.post5": TREE, "0.4.7": CHAIN, "0.5.23": CHAIN},
    ("EAGLE", "DeepseekV2ForCausalLM"): {"0.4.6.post5": TREE, "0.4.7": CHAIN, "0.5.7": CHAIN},
    ("EAGLE3", "GptOssForCausalLM"): {"0.4.10.post2": TREE, "0.5.1": CHAIN, "0.5.7": CHAIN},
    ("EAGLE", "DeepseekV32ForCausalLM"): {"0.5.2": TREE, "0.5.3": CHAIN, "0.5.7": CHAIN},
    ("EAGLE", "BailingMoeForCausalLM"): {"0.5.2": TREE, "0.5.3": CHAIN},
    ("EAGLE", "BailingMoeV2ForCausalLM"): {"0.5.2": TREE, "0.5.3": CHAIN},
    ("EAGLE", "Glm4MoeForCausalLM"): {"0.5.6": TREE, "0.5.7": CHAIN, "0.5.23": CHAIN},
    ("EAGLE", "MistralLarge3ForCausalLM"): {"0.5.6": TREE, "0.5.7": CHAIN},
    ("EAGLE", "PixtralForConditionalGeneration"): {"0.5.6": TREE, "0.5.7": CHAIN},
    ("EAGLE", "MiMoV2FlashForCausalLM"): {"0.5.6": TREE, "0.5.7": CHAIN},
    ("EAGLE3", LLAMA): {"0.4.6.post5": TREE, "0.5.7": TREE, "0.5.9": TREE, "0.5.23": TREE},
    ("EAGLE", GROK): {"0.4.7": TREE, "0.5.9": TREE, "0.5.23": TREE},
    ("EAGLE", "Grok1ForCausalLM"): {"0.5.9": TREE, "0.5.23": TREE},
    ("STANDALONE", LLAMA): {"0.5.2": CHAIN, "0.5.7": CHAIN, "0.5.23": CHAIN},
    ("NGRAM", OTHER): {
        "0.5.3": (0, 10, 12), "0.5.9": (0, 10, 12), "0.5.10": (0, 10, 12), "0.5.13": (0, 10, 12),
        "0.5.14": (1, 10, 12), "0.5.23": (1, 10, 12),
    },
    ("DFLASH", OTHER): {"0.5.11": (1, 1, 16), "0.5.23": (1, 1, 16)},
    ("DSPARK", OTHER): {"0.5.16": (1, 1, 7 + 1), "0.5.23": (1, 1, 7 + 1)},
    ("UNO", OTHER): {"0.5.20": (1, 1, 0)},
    ("FROZEN_KV_MTP", OTHER): {"0.5.12": (0, 0, 0), "0.5.23": (0, 0, 0)},
}  # fmt: skip
FLAGS = load_flags("sglang")
MACHINE = Machine(80 * GIB, "h100", "server", {})
SPECULATION = load_yaml(knowledge_file("formulas", "sglang", "index.yaml"))["speculation"]
NAMES = ("steps", "branches", "tokens")


def drafted(
    version: str,
    algorithm: str,
    architecture: str = OTHER,
    config: dict[str, object] | None = None,
    **said: int,
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Steps, branches and tokens (0: nothing says), and what follows from them."""
    facts = Gathered()
    for flag in FLAGS.values():
        value = said.get(flag.name, default_of(flag, version, MACHINE))
        if isinstance(value, int):
            facts.number(flag.name, Amount.exact(value, "n"), Provenance("flag", flag.name))
    stated = {"algorithm": algorithm, **said}
    found, follows = draft_lengths(
        facts, SPECULATION, stated, (version, architecture), config or {}
    )
    return tuple(found.get(name, 0) for name in NAMES), follows


@pytest.mark.parametrize(
    ("case", "version"), [(case, version) for case in DRAFTS for version in DRAFTS[case]]
)
def test_what_an_engine_drafts_where_nothing_is_set(case: tuple[str, str], version: str):
    assert drafted(version, *case)[0] == DRAFTS[case][version]


@pytest.mark.parametrize(
    ("version", "algorithm", "said", "wanted"),
    [
        ("0.5.23", "EAGLE", {"steps": 2, "branches": 3, "tokens": 7}, (2, 3, 7)),
        # a chain verifies a token more than it drafts, whatever is set
        ("0.5.23", "EAGLE", {"steps": 6, "branches": 1, "tokens": 4}, (6, 1, 6 + 1)),
        ("0.4.5.post3", "EAGLE", {"steps": 6, "branches": 1, "tokens": 4}, (6, 1, 6 + 1)),
        ("0.4.5.post2", "EAGLE", {"steps": 6, "branches": 1, "tokens": 4}, (6, 1, 4)),
        ("0.5.23", "STANDALONE", {"steps": 6, "branches": 1}, (6, 1, 6 + 1)),
        # the engine does not start with these: nothing is made up
        ("0.5.23", "EAGLE", {"tokens": 9}, (0, 0, 9)),
        # pages of several tokens hold no tree, until they do
        ("0.4.4.post4", "EAGLE", {"page_size": 16}, (5, 1, 8)),
        ("0.4.8", "EAGLE", {"page_size": 16}, (5, 1, 5 + 1)),
        ("0.4.8", "EAGLE", {"page_size": 1}, (5, 4, 8)),
        ("0.4.9", "EAGLE", {"page_size": 16}, (5, 4, 8)),
        ("0.4.4.post3", "EAGLE", {"page_size": 16}, (5, 4, 8)),
        ("0.4.4", "EAGLE", {"steps": 3}, (3, 4, 8)),
        ("0.4.3", "EAGLE", {"tokens": 32}, (5, 8, 32)),
        ("0.5.23", "NGRAM", {"tokens": 25, "branches": 3}, (25 // 10, 10, 25)),
        ("0.5.23", "NGRAM", {"tokens": 4}, (1, 10, 4)),
        ("0.5.23", "NGRAM", {"speculative_ngram_max_bfs_breadth": 5}, (12 // 5, 5, 12)),
        ("0.5.7", "NGRAM", {"speculative_ngram_max_match_window_size": 18}, (0, 10, 18)),
        ("0.5.23", "DFLASH", {"steps": 3, "branches": 2, "tokens": 8}, (1, 1, 8)),
        ("0.5.23", "DFLASH", {"speculative_dflash_block_size": 10}, (1, 1, 10)),
        ("0.5.23", "DSPARK", {"speculative_dspark_block_size": 4}, (1, 1, 4 + 1)),
        ("0.5.23", "UNO", {"steps": 3, "branches": 2, "tokens": 6}, (3, 2, 6)),
    ],
)
def test_what_an_engine_makes_of_lengths_that_are_set(
    version: str, algorithm: str, said: dict[str, int], wanted: tuple[int, ...]
):
    assert drafted(version, algorithm, **said)[0] == wanted
    assert drafted(version, algorithm.lower(), **said)[0] == wanted


@pytest.mark.parametrize(
    ("algorithm", "config", "tokens"),
    [
        ("DFLASH", {"block_size": 6}, 6), ("DSPARK", {"block_size": 6}, 7),
        ("DFLASH", {"block_size": 6, "dflash_config": {"block_size": 9}}, 9),
        ("DSPARK", {"dspark_block_size": 3, "block_size": 6}, 4),
        ("DFLASH", {"dflash_config": None, "block_size": None}, 16), ("EAGLE", {"block_size": 6}, 4),
    ],
)  # fmt: skip
def test_a_checkpoint_says_how_much_it_drafts_at_once(
    algorithm: str, config: dict[str, object], tokens: int
):
    assert drafted("0.5.23", algorithm, config=config)[0][2] == tokens


@pytest.mark.parametrize(
    ("version", "algorithm", "tokens"),
    [
        ("0.4.3", "EAGLE", 5), ("0.4.3.post3", "EAGLE", 5 * 4 + 8), ("0.5.6", "EAGLE", 5 * 4 + 8),
        ("0.5.6", "STANDALONE", 3 + 4), ("0.5.7", "EAGLE", None), ("0.5.4", "NGRAM", None),
    ],
)  # fmt: skip
def test_tokens_a_drafting_request_adds_to_the_pool(
    version: str, algorithm: str, tokens: int | None
):
    assert drafted(version, algorithm)[1].get("draft_tokens_per_request") == tokens


@pytest.mark.parametrize(
    ("version", "fact", "requests"),
    [
        ("0.4.3", "", 0), ("0.4.3.post3", "max_running_requests_cap", 32),
        ("0.4.4", "max_running_requests_cap", 32), ("0.4.4.post4", "max_running_requests_cap", 48),
        ("0.5.14", "max_running_requests_cap", 48), ("0.5.15", "requests_under_speculation", 48),
    ],
)  # fmt: skip
def test_requests_of_a_drafting_server(version: str, fact: str, requests: int):
    rows = [row for row in SPECULATION["requests"] if holds(version, row["versions"])]
    assert [(row["fact"], row["value"]) for row in rows] == ([(fact, requests)] if fact else [])
