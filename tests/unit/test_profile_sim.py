"""The phase machine on simulated devices: identity, instability, out of memory, policies, replay."""

import json

import pytest

from kvbudget.errors import InputError
from kvbudget.model.config import load_model
from kvbudget.profile.backends.sim import SimBackend
from kvbudget.profile.device import BUNDLED
from kvbudget.profile.judge import judge
from kvbudget.profile.measure import measure
from kvbudget.profile.phases import run_phases
from kvbudget.profile.policy import load_policy
from kvbudget.profile.split import split
from kvbudget.profile.types import PHASES, Failure, Job, Record

MODEL = load_model(BUNDLED / "tiny")
GIB, MIB = 2**30, 2**20
POLICIES = ("vllm@0.10.2", "vllm@0.11.2", "vllm@0.20.2", "vllm@0.33.0", "sglang@0.5.23")


def take(backend, policy="vllm@0.33.0", **job):
    scene = backend.scene()
    rank = run_phases(backend, "TP0")
    return Record(Job("tiny", device="cuda", policy=policy, **job), scene, [rank])


def budget(record, policy):
    return split(record.ranks[0], record.scene, record.job, load_policy(policy), MODEL)


def test_a_thousand_devices_add_up():
    """To the byte, each through an engine's own formula files."""
    done = dict.fromkeys(POLICIES, 0)
    for seed in range(1000):
        policy = POLICIES[seed % len(POLICIES)]
        record = take(SimBackend.seeded(seed), policy)
        if record.ranks[0].failure:
            assert record.ranks[0].failure.kind == "oom"
            continue
        rank = budget(record, policy)
        assert rank.lhs == rank.rhs
        assert rank.lhs is not None
        assert rank.stable
        done[policy] += 1
        if policy == "vllm@0.33.0":
            found = measure(record.ranks[0], load_policy(policy))
            consumed = found.weights + found.slack + found.persistent + found.non_torch
            after = record.ranks[0].at("after")
            assert consumed == found.free_at_baseline - after.driver_free
    assert min(done.values()) > 140


def test_sglang_is_a_fraction_of_what_is_free():
    record = take(SimBackend.seeded(4), "sglang@0.5.23")
    rank = budget(record, "sglang@0.5.23")
    assert rank.lhs == rank.rhs
    assert "peak_activation_memory" not in rank.counted


def test_four_policies_on_one_record():
    """By hand: total 80 GiB, u 0.9; context 450, NCCL 500, handles 72, profile 100 MiB outside."""
    record = take(SimBackend(
        nccl=500 * MIB, handles=72 * MIB, profile_non_torch=100 * MIB, persistent=3 * MIB,
        weights=(GIB + 1, 5), forward=800 * MIB, sampler=1600 * MIB, graphs=400 * MIB,
    ))  # fmt: skip
    total = 80 * GIB
    weights, slack = GIB + 6, (GIB + 2 * MIB) + 2 * MIB - (GIB + 6)
    peak = 1603 * MIB  # the sampler and the 3 MiB that stay
    parts = weights + slack + peak + 100 * MIB + 72 * MIB
    # One driver reading counts the 1 MiB the persistent buffer's segment leaves unused.
    driver = weights + slack + MIB + peak + 100 * MIB
    graphs = 400 * MIB
    floor, ceil = total * 9 // 10, -(-total * 9 // 10)
    expected = {
        "vllm@0.10.2": floor - parts - 500 * MIB,
        "vllm@0.11.2": floor - parts,
        "vllm@0.20.2": ceil - parts - graphs,
        "vllm@0.33.0": ceil - driver - graphs,
    }
    for policy, kv in expected.items():
        assert budget(record, policy).result["kv_cache_memory"] == kv, policy
    assert len(set(expected.values())) == 4
    assert budget(record, "vllm@0.17.1").result["kv_cache_memory"] >= ceil - parts - 1


def test_workspaces_of_libraries_are_no_weights():
    """Activations that stay where the engine's snapshot precedes them, outside where it follows."""
    plain, more = (take(SimBackend(workspaces=size)) for size in (0, 8 * MIB))
    for policy in POLICIES[:4]:
        without, beside = budget(plain, policy), budget(more, policy)
        grown = {
            name: beside.term(name) - without.term(name)
            for name in ("weights_memory", "peak_activation_memory", "uncounted_memory")
        }
        late = policy == "vllm@0.33.0"
        assert grown == {
            "weights_memory": 0,
            "peak_activation_memory": 0 if late else 8 * MIB,
            "uncounted_memory": 8 * MIB if late else 0,
        }, policy
        assert beside.lhs == beside.rhs


def test_what_is_not_given_back_is_said():
    kept = budget(take(SimBackend(profile_non_torch=100 * MIB)), "vllm@0.33.0")
    assert any("104,857,600 B more than at the baseline" in note for note in kept.notes)
    assert not budget(take(SimBackend()), "vllm@0.33.0").notes


def test_a_neighbour_that_leaves_is_unstable():
    backend = SimBackend(other=30 * GIB, neighbour={"forward": -20 * GIB})
    outcome = judge(take(backend), MODEL, load_policy("vllm@0.33.0"))
    assert (outcome.document["stable"], outcome.code) == (False, 4)


def test_a_neighbour_that_moves_a_little_is_seen_at_the_exit():
    outcome = judge(take(SimBackend(neighbour={"graphs": GIB})), MODEL, load_policy("vllm@0.33.0"))
    assert (outcome.document["stable"], outcome.code) == (False, 4)


@pytest.mark.parametrize("phase", PHASES)
def test_out_of_memory_is_a_result(phase):
    outcome = judge(take(SimBackend(fail_in=phase)), MODEL, load_policy("vllm@0.33.0"))
    failure = outcome.document["failure"]
    assert (failure["phase"], failure["kind"], outcome.code) == (phase, "oom", 1)
    assert failure["requested"] == failure["free"] + 1


def test_a_rank_that_dies_is_not_out_of_memory():
    record = take(SimBackend())
    record.ranks[0].failure = Failure("forward", "timeout", message="no answer within 1 s")
    assert judge(record, MODEL, load_policy("vllm@0.33.0")).code == 4


def test_replay_is_identical():
    record = take(SimBackend.seeded(11))
    again = Record.from_json(json.loads(json.dumps(record.to_json())))
    policy = load_policy("vllm@0.33.0")
    assert judge(record, MODEL, policy).document == judge(again, MODEL, policy).document


def test_other_schemas_are_refused():
    with pytest.raises(InputError, match="schema"):
        Record.from_json({"schema": "kvbudget.profile-record/9"})
    with pytest.raises(InputError, match="broken"):
        Record.from_json({"schema": "kvbudget.profile-record/1", "job": {}})


def test_an_unknown_policy_names_the_known():
    with pytest.raises(InputError, match="no profile policy"):
        load_policy("llamafile@1")
