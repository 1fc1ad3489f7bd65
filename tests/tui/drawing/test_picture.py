"""What does not fit is cut so that one sees that there is more."""

from __future__ import annotations

import re

import pytest
from tests.tui.conftest import GEMM
from tests.tui.prepared import after, at, do, laid_over, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.picture import Said, cut_lines_to_width
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
