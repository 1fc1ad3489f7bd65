"""Where two traces are open, each timeline has the letter of its trace, and the one that
the keys act on is marked."""

from __future__ import annotations

from msgspec.structs import replace
from tests.tui.prepared import after, do, drawn, opened

from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.state.state import Size, State

SCREENS = (Size(60, 18), Size(80, 24), Size(200, 50))


def marks(state: State) -> list[str]:
    """What stands before the first line of each timeline."""
    firsts = [line for line in drawn(state).splitlines() if "GPU busy  " in line]
    return [line.partition("GPU busy")[0] for line in firsts]


def test_both_timelines_are_marked_and_the_active_one_differs(mlp: Trace) -> None:
    for size in SCREENS:
        state = after(opened(mlp, mlp, size=size), *do("timeline"))
        assert marks(state) == [">A ", " B "], size
        state = after(state, *do("other-side"))
        assert marks(state) == [" A ", ">B "], size


def test_the_line_is_drawn_again_when_the_other_side_is_active(mlp: Trace) -> None:
    """Not a line of before, whose key would be the same."""
    state = after(opened(mlp, mlp), *do("timeline"))
    other = after(state, *do("other-side"))
    size = state.size
    keys = []
    for now in (state, other):
        picture = screen_layout.stack(screen_layout.panes(now))
        keys.append([picture.key(y, *_cells(size)) for y in range(size.height)])
    changed = [a != b for a, b in zip(*keys, strict=True)]
    firsts = [
        y for y, line in enumerate(drawn(state).splitlines()) if "GPU busy  " in line
    ]
    assert all(changed[y] for y in firsts)


def test_the_diff_marks_both_and_a_side_that_moves_alone(mlp: Trace) -> None:
    state = opened(mlp, mlp, size=Size(120, 40))
    assert state.page == "diff"
    assert marks(state) == [" A ", " B "]
    assert marks(after(state, *do("link"))) == [">A ", " B "]


def test_one_trace_has_no_letter(mlp: Trace) -> None:
    assert marks(opened(mlp)) == [""]
    assert marks(replace(opened(mlp), ascii_only=True)) == [""]


def _cells(size: Size) -> tuple[int, int]:
    return size.width, size.height
