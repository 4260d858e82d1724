"""What a profile takes where nothing is stated, and the margin of a device without a context."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kvbudget.derive.assemble import settled
from kvbudget.derive.catalogue import find_gpu
from kvbudget.derive.request import Request
from kvbudget.model.config import load_model
from kvbudget.profile.defaults import engine_defaults
from kvbudget.profile.device import bundled_model
from kvbudget.profile.policy import load_policy

FAKE = ["--model", "tiny", "--device", "fake", "--gpu", "h100-80gb", "--format", "json"]
MODEL = load_model(bundled_model("tiny"))


def profile(*words):
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", "profile", *FAKE, *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def defaults(policy, card=None, **more):
    places = {"capacity": None, "device": "fake", "index": 0, "ranks": (1, 1), **more}
    return engine_defaults(load_policy(policy), MODEL, card=card, **places)


@pytest.mark.parametrize(
    ("policy", "card", "tokens", "requests", "fraction"),
    [
        ("vllm@0.17.1", None, 2048, 256, 0.9),
        ("vllm@0.33.0", None, 2048, 256, 0.92),
        ("vllm@0.33.0", "h100-80gb", 8192, 1024, 0.92),
        ("sglang@0.5.23", "h100-80gb", 8192, 256, 0.83),
        ("sglang@0.5.2", "h100-80gb", 8192, 160, 0.874),
        ("sglang@0.5.23", None, 4096, 160, 0.95),
        ("sglang@0.4.1", None, 8192, 160, 0.88),
    ],
)
def test_the_releases_own_values(policy, card, tokens, requests, fraction):
    found = defaults(policy, card)
    assert (found.tokens, found.requests, found.fraction) == (tokens, requests, fraction)


def test_they_are_those_of_derive_and_follow_the_ranks():
    card = "h100-80gb"
    four = defaults("sglang@0.5.23", card, ranks=(4, 1))
    same = settled(Request("sglang", "0.5.23", MODEL, find_gpu(card), flags={"tp_size": 4}))
    assert four.fraction == same["mem_fraction_static"].value < defaults("sglang", card).fraction
    assert four.requests == same["cuda_graph_max_bs"].value == 512


def test_a_capacity_counts_as_the_card():
    assert defaults("vllm@0.33.0", capacity=80 * 2**30).tokens == 8192
    assert defaults("vllm@0.33.0", capacity=24 * 2**30).tokens == 2048


def test_what_was_left_to_the_engine_is_said_and_what_was_stated_is_not():
    left = profile()
    assert any("not set, so as vllm@" in n and "batched-tokens 8192" in n for n in left["notes"])
    assert left["settings"]["max_num_seqs"] == 1024
    stated = ("--max-num-batched-tokens", "64", "--max-num-seqs", "4")
    said = profile(*stated, "--gpu-memory-utilization", "0.5")
    assert not any("not set, so as" in note for note in said["notes"])


@pytest.mark.parametrize("policy", ["vllm@0.33.0", "vllm@0.10.2", "sglang@0.5.23"])
def test_a_device_without_a_context_of_its_own_takes_the_modelled_one_off_the_margin(policy):
    found = profile("--policy", policy, "--no-graphs")
    total, budget = found["device"]["total_memory"], found["identity"]["lhs"]
    context = next(row for row in found["modelled"] if row["name"] == "context_memory")
    assert context["value"] > 0
    assert found["result"]["margin_memory"] == total - context["value"] - budget
    assert any("no context is measured here" in note for note in found["notes"])
    assert found["identity"]["difference"] == 0
