"""Tables on a terminal."""

from __future__ import annotations

import pytest

from fusetui.text.cutting import width
from fusetui.text.tables import Column, UncutWidth, table

COLUMNS = (Column("n"), Column("spare", spare=1), Column("name", left=True))
ROWS = [("1", "x" * 20, "a" * 60), ("22", "y", "b")]


def test_table_with_room_aligns_all_columns() -> None:
    assert table(COLUMNS, [("1", "2", "a"), ("22", "3", "bb")], 80).splitlines() == [
        " n  spare  name",
        " 1      2  a",
        "22      3  bb",
    ]


@pytest.mark.parametrize("most", [40, 50, 58, 60, 80, 100])
def test_table_fits_the_width_by_dropping_and_clipping(most: int) -> None:
    lines = table(COLUMNS, ROWS, most).splitlines()
    assert max(map(len, lines)) <= most
    assert ("spare" in lines[0]) == (most >= 60)
    assert ("..." in lines[1]) == (most < 86)


def test_in_a_pipe_the_columns_are_the_same_and_no_name_is_cut() -> None:
    seen, piped = (
        table(COLUMNS, ROWS, most).splitlines() for most in (58, UncutWidth(58))
    )
    assert piped == [" n  name", f" 1  {'a' * 60}", "22  b"]
    assert seen[0] == piped[0]
    assert seen[1].endswith("...")


def test_without_a_limit_nothing_gives_way() -> None:
    lines = table(COLUMNS, ROWS).splitlines()
    assert lines[1] == f" 1  {'x' * 20}  {'a' * 60}"


def test_wide_characters_do_not_shift_a_column() -> None:
    lines = table(
        [Column("name", left=True), Column("n")], [("日本", "1"), ("abc", "22")], 80
    )
    assert [width(line) for line in lines.splitlines()] == [8, 8, 8]
