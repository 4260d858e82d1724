"""The ladder of captured batch sizes and the two-sample rule."""

from hypothesis import given
from hypothesis import strategies as st

from kvbudget.profile.graphs import estimate, ladder

MIB = 2**20


def test_ladder():
    assert ladder(4) == [1, 2, 4, 8]
    assert ladder(256)[:5] == [1, 2, 4, 8, 16]
    assert ladder(256)[-2:] == [496, 512]
    assert len(ladder(1024)) == 3 + 31 + 17
    assert ladder(1024, largest=1024)[-1] == 1024


def test_estimate():
    assert estimate([100 * MIB, 3 * MIB], 11) == 130 * MIB
    assert estimate([100 * MIB, 5], 11) == 110 * MIB
    assert estimate([7], 1) == 7
    assert estimate([], 5) == 0


@given(st.integers(1, 2048))
def test_more_requests_never_mean_fewer_graphs(requests):
    sizes = ladder(requests)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= min(2 * requests, 512)
    assert len(ladder(requests + 1)) >= len(sizes)
