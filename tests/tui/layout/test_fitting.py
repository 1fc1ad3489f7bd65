"""Lanes unfold as far as there is room, and go on doing so until a person folds one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from tests.tui.mixed import mixed
from tests.tui.prepared import after, at, do, opened

from fusetui.trace import Trace
from fusetui.trace.cells.counters import curve_of
from fusetui.trace.model.categories import Layer
from fusetui.trace.questions.counters import Counter
from fusetui.tui.layout.division import in_view, thumb
from fusetui.tui.layout.view import places
from fusetui.tui.pages.timeline import lanes_height
from fusetui.tui.state import reading
from fusetui.tui.state.screen import body
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


def shown(state: State) -> dict[Layer, int]:
    """How many lines the lanes of each layer have."""
    found: dict[Layer, int] = {}
    for place in places(state.side, state.view):
        if place.line is not None:
            layer = state.side.lanes[place.lane].layer
            found[layer] = found.get(layer, 0) + 1
    return found


def lines(state: State) -> int:
    return len(places(state.side, state.view))


def resized(width: int, height: int) -> Callable[[State], State]:
    return lambda state: replace(state, size=Size(width, height))


def test_a_tall_screen_shows_all_frames(trace_of: Make) -> None:
    """Below the line that says where the program was."""
    trace = trace_of(mixed())
    assert shown(opened(trace, size=Size(80, 24)))[Layer.PYTHON] == 1
    assert shown(opened(trace, size=Size(200, 50)))[Layer.PYTHON] == 1 + 5


@pytest.mark.parametrize("height", range(25, 40))
def test_no_line_is_hidden_by_unfolding(trace_of: Make, height: int) -> None:
    state = opened(trace_of(mixed()), size=Size(100, height))
    assert lines(state) <= lanes_height(body(state), 1)


def test_another_size_unfolds_anew(trace_of: Make) -> None:
    trace = trace_of(mixed())
    small = opened(trace, size=Size(80, 24))
    large = opened(trace, size=Size(200, 50))
    assert shown(after(small, resized(200, 50))) == shown(large)
    assert shown(after(large, resized(80, 24))) == shown(small)


def test_what_a_person_folded_stays_so(trace_of: Make) -> None:
    state = opened(trace_of(mixed()), size=Size(80, 24))
    folded = after(state, at("aten::op"), *do("fold"))
    assert shown(after(folded, resized(200, 50))) == shown(folded)


def test_lanes_make_room_for_counters(trace_of: Make) -> None:
    state = opened(trace_of(mixed()), size=Size(100, 33))
    times, values = np.array([0, 1000]), np.array([1.0, 2.0])
    curves = tuple(curve_of(Counter("memory", f"c{n}", "bytes", times, values)) for n in range(3))
    now = after(state, lambda s: reading.counted(s, s.side.trace, curves))
    assert lines(now) <= lanes_height(body(now), 1)
    assert shown(now)[Layer.PYTHON] < shown(state)[Layer.PYTHON]


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24)], ids=str)
def test_a_gpu_stream_is_seen_on_small_screens(trace_of: Make, size: Size) -> None:
    """Also below many threads."""
    threads = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": n, "ts": 5, "dur": 9}
        for n in range(1000, 1040)
    ]
    state = opened(trace_of([*mixed(), *threads]), size=size)
    room = lanes_height(body(state), 1)
    in_sight = places(state.side, state.view)[state.tops[0] : state.tops[0] + room]
    layers = {state.side.lanes[place.lane].layer for place in in_sight if place.line}
    assert Layer.STREAM in layers


def test_a_count_says_which_lines_are_on_the_screen(trace_of: Make) -> None:
    state = opened(trace_of(mixed()))
    every = places(state.side, state.view)
    assert in_view(every, 0, len(every)) == ""
    assert in_view(every[:9], 2, 5) == "3-7 of 9"


def test_the_bar_touches_the_ends_only_there(trace_of: Make) -> None:
    every = places(opened(trace_of(mixed())).side, opened(trace_of(mixed())).view)[:9]
    assert thumb(every, 0, 9) == range(0)
    assert [thumb(every, top, 5) for top in (0, 1, 4)] == [range(2), range(1, 3), range(3, 5)]
