"""Python frames that span the whole window are named on one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.tui.prepared import opened

from fusetui.trace import Trace
from fusetui.trace.model.categories import Layer
from fusetui.tui.drawing.lane_lines import draw_lane_line
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.layout.lanes import ALL
from fusetui.tui.layout.moves import fold, select, select_on_next_line
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place, Side, View

FRAMES = (
    *(
        ("<string>(1): <module>", 0, 1000),
        ("run.py(9): launch_main", 1, 998),
        ("a.py(3): train", 2, 997),
    ),
    *(("a.py(5): step", 10, 400), ("a.py(5): step", 500, 400)),
    *(("a.py(7): forward", 20, 300), ("a.py(8): backward", 520, 300)),
)


@pytest.fixture
def side(trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]) -> Side:
    """Three frames around all others, which step and do more."""
    frames = [event(name, at, dur, cat="python_function") for name, at, dur in FRAMES]
    return opened(trace_of(frames)).side


@pytest.fixture
def view(side: Side) -> View:
    """All lines of it are shown, the whole trace is."""
    return View(side.begin, side.end, folds=(ALL,) * len(side.lanes))


def shown(side: Side, view: View) -> list[Place]:
    return [p for p in places(side, view) if p.line and not p.where]


def names(side: Side, view: View, width: int = 60) -> list[str]:
    """What stands on the lines."""
    lines = [
        draw_lane_line(side, view, place, width, UNICODE) for place in shown(side, view)
    ]
    return ["".join(text for text, _ in runs).strip() for runs in lines]


def test_frames_that_span_the_window_fold_into_one_line(side: Side, view: View) -> None:
    found = names(side, view)
    assert found[0] == "<module> > launch_main > train"
    assert found[1].startswith("step a.py:5")
    assert found[2].split()[0] == "forward"
    assert [place.more for place in shown(side, view)] == [0, 0, 0]


def test_the_outermost_and_the_innermost_stay_where_there_is_little_room(
    side: Side, view: View
) -> None:
    assert names(side, view, 24)[0] == "<module> > ... > train"


def test_more_frames_fold_in_a_smaller_window(side: Side, view: View) -> None:
    inside = replace(view, begin=side.begin + 520_000, end=side.begin + 800_000)
    assert names(side, inside) == ["<module> > launch_main > train > step > backward"]


def test_where_nothing_spans_the_window_nothing_folds(side: Side, view: View) -> None:
    wide = replace(view, begin=side.begin - 50_000, end=side.end + 50_000)
    assert [name.split()[0] for name in names(side, wide)] == [
        *("<module>", "launch_main", "train", "step", "forward")
    ]


def test_as_many_lines_are_there_as_without_it(side: Side, view: View) -> None:
    few = replace(view, folds=(3,) * len(side.lanes))
    assert [place.depth for place in shown(side, few)] == [2, 3]
    assert shown(side, few)[-1].more == 1


def test_each_frame_can_be_selected(side: Side, view: View) -> None:
    """Upwards from the innermost, the line of the selected one comes out of the
    fold."""
    trace = side.trace
    row = next(n for n in range(len(trace)) if trace.name_of(n).endswith("forward"))
    view, selected = select(side, view, row), []
    for _ in range(5):
        selected.append(trace.name_of(view.selected).split(": ")[1])
        assert any(place.holds(view.selected) for place in shown(side, view))
        view = select_on_next_line(side, view, -1)
    assert selected == ["forward", "step", "train", "launch_main", "<module>"]


def test_folding_the_lane_keeps_the_selection_in_sight(side: Side, view: View) -> None:
    trace = side.trace
    row = next(n for n in range(len(trace)) if trace.name_of(n).endswith("forward"))
    # to one line, then to some
    folded = fold(side, fold(side, select(side, view, row)))
    assert any(place.holds(folded.selected) for place in shown(side, folded))
    assert folded.selected == row


def test_ops_do_not_fold(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    side = opened(
        trace_of([event("a", 0, 100), event("b", 0, 100), event("c", 0, 100)])
    ).side
    view = View(side.begin, side.end, folds=(ALL,) * len(side.lanes))
    assert side.lanes[0].layer is Layer.OPS
    assert names(side, view) == ["a", "b", "c"]
