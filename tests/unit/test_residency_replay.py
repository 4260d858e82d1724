"""Replay kernels against slow reference simulators, and the theorems of tiered LRU caches."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.residency.curve import curve
from kvbudget.residency.replay import Policy, Setup, replay
from kvbudget.residency.trace import build, column

_SPEC = importlib.util.spec_from_file_location(
    "residency_reference", Path(__file__).parent.parent / "reference" / "residency.py"
)
ref = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(ref)

BT = 16
LAW = settings(max_examples=50, deadline=None)


@st.composite
def requests(draw, longest=8, most=24):
    """Random walks down a random trie; a chain is a path from a root, ids name the whole path."""
    numbers: dict[tuple, int] = {}
    rows = []
    for _ in range(draw(st.integers(1, most))):
        path = tuple(draw(st.lists(st.integers(0, 2), min_size=0, max_size=longest)))
        chain = [numbers.setdefault(path[: k + 1], len(numbers)) for k in range(len(path))]
        short = draw(st.integers(0, BT - 1)) if chain else 0
        rows.append((chain, max(0, BT * len(chain) - short)))
    return rows


def trace_of(rows, bt=BT):
    flat = [b for chain, _ in rows for b in chain]
    starts = [0]
    for chain, _ in rows:
        starts.append(starts[-1] + len(chain))
    return build(
        column(flat, "i8"), column(starts, "i8"), column([n for _, n in rows], "i8"),
        column(range(0, 1000 * len(rows), 1000), "i8"), block_tokens=bt, name="t",
    )  # fmt: skip


caps = st.integers(1, 14)


def run(rows, policy, c1, c2=0, c3=0, bt=BT, **rest):
    return replay(trace_of(rows, bt), Setup(Policy(policy), c1, c2, c3, **rest)).counters


@LAW
@given(requests(), caps)
def test_lru_is_the_list(rows, c1):
    assert run(rows, "lru", c1) == ref.lru(rows, BT, c1)


@LAW
@given(requests(), caps, caps)
def test_eager_is_two_lists(rows, c1, c2):
    assert run(rows, "vllm_eager", c1, c2) == ref.eager(rows, BT, c1, c2)


@LAW
@given(requests(), caps, st.integers(0, 14))
def test_exclusive_is_two_lists(rows, c1, c2):
    assert run(rows, "exclusive", c1, c2) == ref.exclusive(rows, BT, c1, c2)


@LAW
@given(
    requests(), caps, st.integers(0, 14), st.integers(1, 4), st.integers(0, 8),
    st.sampled_from(["tail_first", "head_first"]), st.booleans(),
)  # fmt: skip
def test_lazy_is_the_free_queue(rows, c1, c2, step, ahead, load, reinsert):
    got = run(
        rows, "vllm_lazy", c1, c2,
        step_blocks=step, target_free=ahead, load_order=load, reinsert=reinsert,
    )  # fmt: skip
    assert got == ref.lazy(rows, BT, c1, c2, step, ahead, load == "head_first", reinsert)


@settings(max_examples=150, deadline=None)
@given(
    requests(), caps, caps, st.sampled_from([0, 1, 2, 3, 5, 8, 99]),
    st.sampled_from(["write_through", "write_through_selective", "write_back"]),
    st.sampled_from(["repair", "refuse"]), st.sampled_from([1, 2]),
    st.sampled_from([0, 1, 16, 20, 40]), st.sampled_from([BT, 4]),
)  # fmt: skip
def test_tree_is_the_radix_tree(rows, c1, c2, c3, policy, invariant, inserts, probe, bt):
    got = run(
        rows, policy, c1, c2, c3, bt,
        backup_invariant=invariant, inserts_per_request=inserts, prefetch_threshold=probe,
    )  # fmt: skip
    assert got == ref.tree(rows, bt, c1, c2, c3, policy, invariant, inserts, probe)


@LAW
@given(requests())
def test_curve_is_the_stack(rows):
    """Theorem 4: a block hits iff its stack depth is below the capacity."""
    found = curve(trace_of(rows))
    depths = [d for row in ref.stack_depths(rows) for d in row if d is not None]
    for capacity in range(1, len(found.hit_blocks) + 2):
        blocks, tokens = found.at(capacity)
        single = ref.lru(rows, BT, capacity)
        assert blocks == sum(d < capacity for d in depths) == single["l1_hit_blocks"]
        assert tokens == single["hit_tokens"]


def hits(counters):
    return counters["l1_hit_blocks"] + counters["l2_hit_blocks"] + counters["l3_hit_blocks"]


@LAW
@given(requests(), caps, caps)
def test_theorem_1_l1_hits_do_not_depend_on_the_policy(rows, c1, c2):
    single = run(rows, "lru", c1)["l1_hit_blocks"]
    for policy in set(Policy) - {Policy.lru}:
        assert run(rows, policy, c1, c2)["l1_hit_blocks"] == single


@LAW
@given(requests(), caps, st.integers(0, 14))
def test_theorem_2_inclusive_reaches_the_larger_pool(rows, c1, more):
    wide = run(rows, "lru", c1 + more)["l1_hit_blocks"] if _fit(rows, c1) else None
    if wide is not None:
        for policy in ("write_through", "vllm_eager"):
            assert hits(run(rows, policy, c1, c1 + more)) == wide


def _fit(rows, c1):
    """A chain cut at C1 cannot be compared with a larger pool that runs it whole."""
    return all(len(chain) <= c1 for chain, _ in rows)


@LAW
@given(requests(), caps, caps)
def test_theorem_3_exclusive_reaches_the_sum(rows, c1, c2):
    both = hits(run(rows, "exclusive", c1, c2))
    assert hits(run(rows, "write_back", c1, c2)) <= both
    if _fit(rows, c1):
        assert both == run(rows, "lru", c1 + c2)["l1_hit_blocks"]


@LAW
@given(requests(), st.integers(8, 14), st.integers(8, 14))
def test_theorem_4_one_pass_answers_the_plane(rows, c1, c2):
    found = curve(trace_of(rows))
    assert found.surface([c1], [c2], exclusive=True) == [[hits(run(rows, "exclusive", c1, c2))]]
    assert found.surface([c1], [c2], exclusive=False) == [
        [hits(run(rows, "write_through", c1, c2))]
    ]


@LAW
@given(requests(), st.integers(8, 14), st.integers(0, 6))
def test_theorem_5_unlimited_storage_is_the_infinite_cache(rows, c1, more):
    longest = max(len(chain) for chain, _ in rows)
    got = run(rows, "write_through", c1, c1 + longest + more, None, prefetch_threshold=1)
    assert hits(got) == ref.infinite_hits(rows)


@LAW
@given(requests(), caps, caps)
def test_theorem_6_two_counts_make_selective_write_through(rows, c1, c2):
    twice = run(rows, "write_through_selective", c1, c2, inserts_per_request=2)
    plain = run(rows, "write_through", c1, c2)
    assert twice.pop("backup_refused_blocks") >= plain.pop("backup_refused_blocks")
    assert twice == plain


@LAW
@given(requests(), caps, caps)
def test_theorem_7_a_small_inclusive_host_pool_yields_nothing(rows, c1, c2):
    for policy in ("write_through", "vllm_eager"):
        assert run(rows, policy, c1, min(c1, c2))["l2_hit_blocks"] == 0


def test_every_policy_balances_its_host_copies():
    rows = [([0, 1, 2], 48), ([0, 3], 32), ([0, 1, 4], 48), ([5], 10), ([0, 1, 2], 48)]
    for policy in set(Policy) - {Policy.lru, Policy.vllm_lazy}:
        got = run(rows, policy, 3, 4)
        moved = got["h2d_blocks"] if policy is Policy.exclusive else 0
        assert 0 <= got["d2h_blocks"] + got["s2h_blocks"] - got["l2_evicted_blocks"] - moved <= 4


@pytest.mark.parametrize("policy", list(Policy))
def test_traffic_bins_add_up(policy):
    rows = [([0, 1, 2], 48), ([0, 3], 32), ([4, 5], 32), ([0, 1, 2], 48)]
    setup = Setup(policy, 3, 0 if policy is Policy.lru else 4)
    result = replay(trace_of(rows), setup, bin_s=0.001)
    for name, row in result.traffic.items():
        assert sum(row) == result.counters[name]
