"""Tables of figures: whole figures, wrapped words, nothing past the width where it can be helped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvbudget.render.grid import grid


def test_words_of_the_last_column_wrap_under_themselves():
    lines = grid(
        ["link", "tok/s", "rate is"], [["pcie", "488,281", "link rate, one direction"]], 36
    )
    assert lines == [
        "link    tok/s  rate is",
        "pcie  488,281  link rate, one",
        "               direction",
    ]


def test_a_heading_wraps_before_a_figure_is_cut():
    rows = [["L1", "1,234,567"]]
    assert grid(["tier", "hits of blocks"], rows, 80)[0] == "tier  hits of blocks"
    assert grid(["tier", "hits of blocks"], rows, 16) == [
        "        hits of",
        "tier     blocks",
        "L1    1,234,567",
    ]


def test_figures_run_on_rather_than_be_cut():
    row = ["a" * 30, "1,234,567,890", "9,999,999,999"]
    assert all(cell in grid(["name", "x", "y"], [row], 40)[-1] for cell in row)


CELL = st.text("0123456789,.-%", min_size=1, max_size=12)


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=6), st.integers(20, 120))
def test_every_cell_stands_whole(rows, width):
    lines = grid(["a", "b", "c d"], rows, width)
    assert len(lines) >= len(rows) + 1
    assert all(
        cell in line
        for row, line in zip(rows, lines[-len(rows) or None :], strict=False)
        for cell in row[:2]
    )
