"""What does not fit is cut so that one sees that there is more."""

from __future__ import annotations

import re

import pytest
from tests.tui.conftest import GEMM
from tests.tui.prepared import after, at, do, laid_over, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.picture import ListPicture, Rows, Said, cut_lines_to_width
from fusetui.tui.state.state import Size

LINES = [Said("a stack:"), Said("  train.py:12 step"), Said("  train.py:30 main")]


@pytest.mark.parametrize(
    ("width", "last"),
    [
        (40, "  train.py:12 step …"),
        (20, "  train.py:12 step …"),
        (19, "  train.py:12 step…"),
        (12, "  train.py:…"),
    ],
)
def test_the_last_line_keeps_its_indent_and_says_that_there_are_more(
    width: int, last: str
) -> None:
    shown = cut_lines_to_width(LINES, width, 2, "…")
    assert [line.text for line in shown] == ["a stack:", last]
    assert cut_lines_to_width(LINES, width, 3, "…") == LINES


def test_long_details_say_which_of_their_lines_are_in_sight(mlp: Trace) -> None:
    small = after(opened(mlp, size=Size(80, 12)), at(GEMM), *do("details"))
    heading, *others = laid_over(small).strip().split("\n")
    place = re.search(r"slice   lines 1-([0-9]+) of ([0-9]+)   ", heading)
    assert place
    last, count = map(int, place.groups())
    assert last < count
    assert last <= len(others)
    end = laid_over(after(small, *do("last"))).strip().split("\n")[0]
    assert f"-{count} of {count}   " in end
    large = after(opened(mlp, size=Size(120, 90)), at(GEMM), *do("details"))
    assert "lines 1-" not in laid_over(large)


def numbered(count: int, title: str = "name", are_counted: bool = True) -> Rows:
    """A list whose rows are numbers."""
    return Rows(
        identity=count,
        count=count,
        titles=lambda width: title,
        format=lambda index, width: [(str(index), "plain")],
        are_counted=are_counted,
    )


def titles_of(rows: Rows, top: int, width: int, height: int) -> str:
    picture = ListPicture(rows, cursor=top, top=top, ellipsis="…")
    return "".join(text for text, _ in picture.line(0, width, height))


def test_a_list_says_which_rows_are_in_sight() -> None:
    assert titles_of(numbered(54), 0, 40, 13) == "name" + "1-12 of 54".rjust(35)
    assert titles_of(numbered(54), 42, 40, 13).endswith(" 43-54 of 54")
    assert titles_of(numbered(12), 0, 40, 13) == "name"


def test_titles_make_room_for_the_rows_in_sight() -> None:
    shown = titles_of(numbered(54, "a name that is long"), 0, 24, 13)
    assert shown == "a name that… 1-12 of 54"


def test_a_list_that_is_counted_elsewhere_does_not_say_it_twice() -> None:
    assert titles_of(numbered(54, are_counted=False), 0, 40, 13) == "name"


def test_the_titles_are_drawn_again_when_the_list_scrolls() -> None:
    keys = set()
    for top in (0, 1):
        picture = ListPicture(numbered(54), cursor=1, top=top, ellipsis="…")
        keys.add(picture.key(0, 40, 13))
    assert len(keys) == 2
