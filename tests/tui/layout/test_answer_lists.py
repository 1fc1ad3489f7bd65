"""Which lists of the answer stand side by side."""

from __future__ import annotations

from fusetui.text.figures import unit_of
from fusetui.tui.layout.answer import AnswerAt, AnswerList, choose_visible_lists

ONE = AnswerList(title="GPU time by event", unit=unit_of([1]), entries=())


def test_all_lists_are_shown_where_they_fit() -> None:
    assert list(choose_visible_lists([ONE] * 3, 200, None)) == [0, 1, 2]


def test_list_with_the_cursor_is_shown_where_not_all_fit() -> None:
    assert list(choose_visible_lists([ONE] * 3, 80, AnswerAt(column=1, row=0))) == [
        0,
        1,
    ]


def test_cursor_beyond_lists_that_became_fewer_is_in_the_last() -> None:
    assert list(choose_visible_lists([ONE] * 2, 60, AnswerAt(column=2, row=0))) == [1]
