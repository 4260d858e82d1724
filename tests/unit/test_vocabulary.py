"""The vocabulary of facts and the units that carry it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.budget import Amount, Budget, Provenance, Term
from kvbudget.errors import InputError
from kvbudget.facts import FACTS
from kvbudget.units import format_size, parse_count, parse_size

FACT_UNITS = {
    "B",
    "tok",
    "blk",
    "req",
    "x",
    "ratio",
    "s",
    "n",
    "slot",
    "dev",
    "code",
    "tok/s",
    "B/s",
}
"""Units the documents may give a fact; memory is always bytes."""


def test_every_fact_has_a_known_unit_and_a_meaning():
    for spec in FACTS.values():
        assert spec.unit is None or spec.unit in FACT_UNITS, spec.name
        assert spec.doc, spec.name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("79.6GiB", int(79.6 * 2**30)),
        ("80GB", 80 * 10**9),
        ("81559MiB", 81559 * 2**20),
        ("85899345920", 85899345920),
        ("1_000 kB", 10**6),
        ("16Gi", 16 * 2**30),
    ],
)
def test_sizes_are_read_in_the_unit_they_are_written(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "GiB", "12 parsecs", "1.2.3GiB", "0x10", "79.6"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError):
        parse_size(text)


def test_counts_refuse_another_unit():
    assert parse_count("445,632tok", "tok") == 445632
    with pytest.raises(InputError):
        parse_count("27852blk", "tok")


@given(st.integers(min_value=0, max_value=2**50))
def test_a_formatted_size_parses_back_to_within_its_digits(size):
    assert abs(parse_size(format_size(size)) - size) <= max(1, size) * 0.005 + 1


amounts = st.tuples(*[st.integers(-(2**40), 2**40)] * 3).map(
    lambda t: Amount(sorted(t)[1], sorted(t)[0], sorted(t)[2], "B")
)


@given(amounts, st.lists(amounts, max_size=6))
def test_terms_and_remainder_sum_to_the_capacity(capacity, terms):
    said = Provenance("assumed", "test")
    budget = Budget(
        None, Term("c", capacity, said), tuple(Term(str(i), a, said) for i, a in enumerate(terms))
    )
    rest = budget.remainder
    assert rest.value + sum(a.value for a in terms) == capacity.value
    assert rest.low <= rest.value <= rest.high
