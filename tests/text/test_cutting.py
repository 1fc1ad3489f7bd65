"""Text by its width in a terminal."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.text import cutting
from fusetui.text.cutting import clip, joined, pad, width
from fusetui.text.printable import printable

Text = st.text(max_size=30).map(printable)


def test_the_examples_hold() -> None:
    assert doctest.testmod(cutting).failed == 0


@pytest.mark.parametrize(
    ("most", "shown"), [(6, "abcdef"), (4, "abc…"), (1, "…"), (0, ""), (-1, "")]
)
def test_clip_shortens_text_with_an_ellipsis(most: int, shown: str) -> None:
    assert clip("abcdef", most) == shown


@pytest.mark.parametrize(
    ("most", "shown"),
    [(9, "日本語の"), (8, "日本語の"), (7, "日本..."), (3, "..."), (2, "..")],
)
def test_clip_counts_cells_of_wide_characters(most: int, shown: str) -> None:
    assert clip("日本語の", most, "...") == shown


def test_a_mark_stays_on_its_letter() -> None:
    assert clip("e\u0301" * 4, 3) == "e\u0301" * 2 + "…"


def test_marks_take_no_cells() -> None:
    assert clip("abe\u0301", 3) == "abe\u0301"


@given(Text, st.integers(0, 40))
def test_clipped_text_fits_and_is_whole_where_it_fits(text: str, most: int) -> None:
    shown = clip(text, most)
    assert width(shown) <= most
    assert (shown == text) == (width(text) <= most)


@given(Text, st.integers(0, 40), st.booleans())
def test_padded_text_is_as_wide_as_asked(text: str, cells: int, left: bool) -> None:
    shown = pad(text, cells, left)
    assert width(shown) == max(cells, width(text))
    assert shown.strip(" ") == text.strip(" ")


def test_joined_leaves_out_parts_that_do_not_fit() -> None:
    assert joined(["日本", "bc", "d"], 9) == "日本   bc"
    assert joined(["too long", "b"], 3) == "too long"
