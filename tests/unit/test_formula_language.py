"""The expression language: Python's own result on plain numbers, sound intervals, closed grammar."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvbudget.formula.dimension import parse_dimension
from kvbudget.formula.interval import FormulaError, Interval
from kvbudget.formula.language import parse

NAMES = ("a", "b", "c")
BUILTINS = {
    "min": min, "max": max, "round": round, "ceil": math.ceil, "floor": math.floor,
    "ceil_div": lambda x, y: -(-x // y),
}  # fmt: skip


def _expressions():
    leaf = st.sampled_from(NAMES) | st.integers(0, 999).map(str) | st.sampled_from(["0.5", "0.92"])

    def grow(inner):
        pair = st.tuples(inner, inner)
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            pair.map(lambda t: f"min({t[0]}, {t[1]})"),
            pair.map(lambda t: f"max({t[0]}, {t[1]})"),
            pair.map(lambda t: f"ceil_div({t[0]}, {t[1]})"),
            inner.map(lambda t: f"floor({t})"),
            inner.map(lambda t: f"ceil({t})"),
            inner.map(lambda t: f"(-{t})"),
        )

    return st.recursive(leaf, grow, max_leaves=8)


values = st.integers(1, 10**6) | st.floats(0.1, 1e6)


@given(_expressions(), values, values, values)
@settings(max_examples=60, deadline=None)
def test_exact_operands_give_pythons_own_result(text, a, b, c):
    env = {"a": a, "b": b, "c": c}
    try:
        expected = eval(text, {"__builtins__": {}}, {**BUILTINS, **env})
    except (ZeroDivisionError, OverflowError, ValueError):
        assume(False)
    try:
        found = parse(text).value({k: Interval.exact(v) for k, v in env.items()})
    except FormulaError:
        assume(False)  # a modulo by a negative number, or a text longer than the limit
    assert found.best == expected
    assert found.is_exact


@given(_expressions(), st.integers(1, 500), st.integers(1, 500), st.integers(1, 500),
       st.integers(0, 50), st.integers(0, 50), st.data())  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_an_interval_contains_every_point_of_its_box(text, a, b, c, da, db, data):
    env = {"a": Interval(a, a, a + da), "b": Interval(b, b, b + db), "c": Interval.exact(c)}
    try:
        whole = parse(text).value(env)
        x, y = data.draw(st.integers(a, a + da)), data.draw(st.integers(b, b + db))
        point = parse(text).value(
            {"a": Interval.exact(x), "b": Interval.exact(y), "c": Interval.exact(c)}
        )
    except FormulaError:
        assume(False)
    slack = 1e-9 * max(1.0, abs(point.best))
    assert whole.low <= whole.best <= whole.high
    assert whole.low - slack <= point.best <= whole.high + slack


@pytest.mark.parametrize(
    "text",
    [
        "a.b", "a[0]", "a ** 2", "'x'", "lambda: 1", "a < b < c", "a and b", "not a", "True",
        "None", "min()", "min(a)", "ceil(a, b)", "round(a, b)", "round(a, -1)", "abs(a)",
        "min(a, key=b)", "min(*a)", "sum(1)", "sum(a, b)", "[a for a in b]", "a if b else c",
        "a if b < c else (a if c < b else b)", "a if b < c < a else b", "(a := 1)", "1e999",
        "1j", "a; b", "", " ", "a if a in b else c", "__import__('os')", "_a", "min", "f'{a}'",
        "99999999999999999999999", "a @ b", "a << 2", "~a", "+a", "a" * 301, "é",
    ],
)  # fmt: skip
def test_everything_else_is_refused(text):
    with pytest.raises(FormulaError):
        parse(text)


def test_deep_nesting_never_crashes():
    assert parse("(" * 140 + "a" + ")" * 140).names == ("a",)
    with pytest.raises(FormulaError):
        parse("-" * 290 + "a")


def test_division_by_a_possible_zero_is_an_error():
    with pytest.raises(FormulaError, match="zero"):
        parse("a // b").value({"a": Interval.exact(1), "b": Interval(0, 1, 2)})


def test_an_undecided_condition_covers_both_branches():
    found = parse("10 if a < 5 else 20").value({"a": Interval(4, 4, 6)})
    assert (found.low, found.best, found.high) == (10, 10, 20)


def test_columns_only_inside_sum_and_largest():
    column = [Interval.exact(3), Interval.exact(5)]
    assert parse("sum(a) + largest(a)").value({"a": column}).best == 13
    with pytest.raises(FormulaError, match="column"):
        parse("a + 1").value({"a": column})


def test_units():
    env = {"mem": parse_dimension("B"), "page": parse_dimension("B/blk"),
           "len": parse_dimension("tok"), "u": parse_dimension("ratio")}  # fmt: skip
    assert parse("mem // page").unit(env) == parse_dimension("blk")
    assert parse("max(mem // page, 0)").unit(env) == parse_dimension("blk")
    assert parse("ceil(mem * u)").unit(env) == parse_dimension("B")
    for wrong in (
        "mem + len",
        "mem + 1",
        "min(mem, len)",
        "mem if mem < len else mem",
        "mem + page",
    ):
        with pytest.raises(FormulaError, match="units"):
            parse(wrong).unit(env)


def test_substitution_puts_numbers_in_place_of_names():
    shown = parse("ceil(total * u) - min(a, a)").substituted({"total": "85", "u": "0.92", "a": "3"})
    assert shown == "ceil(85 * 0.92) - min(3, 3)"
