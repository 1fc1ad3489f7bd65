"""Lanes unfold as far as there is room, and go on doing so until a person folds one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from tests.tui.mixed import mixed
from tests.tui.prepared import after, at, do, opened

from fusetui.trace import Trace
from fusetui.trace.layout.counters import Counter, curve_of
from fusetui.trace.model.categories import Layer
from fusetui.tui.drawing.timeline import count_lines_in_view
from fusetui.tui.layout.frame import find_busy_times, thumb
from fusetui.tui.layout.kinds import compute_kind_shares
from fusetui.tui.layout.places import places
from fusetui.tui.pages.timeline import lanes_height
from fusetui.tui.state import reading
from fusetui.tui.state.screen import page_size
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
    """Below the line that says where the program was; two of the five, which are around
    all others, on one."""
    trace = trace_of(mixed())
    assert shown(opened(trace, size=Size(80, 24)))[Layer.PYTHON] == 1
    assert shown(opened(trace, size=Size(200, 50)))[Layer.PYTHON] == 1 + 4


@pytest.mark.parametrize("height", range(25, 40))
def test_no_line_is_hidden_by_unfolding(trace_of: Make, height: int) -> None:
    state = opened(trace_of(mixed()), size=Size(100, height))
    assert lines(state) <= lanes_height(page_size(state), 1)


def test_another_size_unfolds_anew(trace_of: Make) -> None:
    trace = trace_of(mixed())
    small = opened(trace, size=Size(80, 24))
    large = opened(trace, size=Size(200, 50))
    assert shown(after(small, resized(200, 50))) == shown(large)
    assert shown(after(large, resized(80, 24))) == shown(small)


def test_lanes_folded_by_hand_stay_folded(trace_of: Make) -> None:
    state = opened(trace_of(mixed()), size=Size(80, 24))
    folded = after(state, at("aten::op"), *do("fold"))
    assert shown(after(folded, resized(200, 50))) == shown(folded)


def test_lanes_make_room_for_counters(trace_of: Make) -> None:
    state = opened(trace_of(mixed()), size=Size(100, 33))
    times, values = np.array([0, 1000]), np.array([1.0, 2.0])
    curves = tuple(
        curve_of(Counter("memory", f"c{n}", "bytes", 0, times, values))
        for n in range(3)
    )
    now = after(state, lambda s: reading.accept_answer(s, s.side.trace, curves))
    assert lines(now) <= lanes_height(page_size(now), 1)
    assert shown(now)[Layer.PYTHON] < shown(state)[Layer.PYTHON]


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24)], ids=str)
def test_a_gpu_stream_is_seen_on_small_screens(trace_of: Make, size: Size) -> None:
    """Also below many threads."""
    threads = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "op",
            "pid": 1,
            "tid": n,
            "ts": 5,
            "dur": 9,
        }
        for n in range(1000, 1040)
    ]
    state = opened(trace_of([*mixed(), *threads]), size=size)
    room = lanes_height(page_size(state), 1)
    in_sight = places(state.side, state.view)[state.tops[0] : state.tops[0] + room]
    layers = {state.side.lanes[place.lane].layer for place in in_sight if place.line}
    assert Layer.STREAM in layers


def test_a_count_says_which_lines_are_on_the_screen(trace_of: Make) -> None:
    state = opened(trace_of(mixed()))
    every = places(state.side, state.view)
    assert count_lines_in_view(len(every), 0, len(every), cells=20) == ""
    assert count_lines_in_view(9, 2, 5, cells=20) == "lines 3-7 of 9"


def test_which_lines_are_in_view_is_shorter_in_a_narrow_gutter() -> None:
    assert count_lines_in_view(120, 9, 10, cells=15) == "lines 10-19/120"
    assert count_lines_in_view(1200, 9, 10, cells=14) == "10-19/1200"


def test_the_bar_touches_the_ends_only_there(trace_of: Make) -> None:
    every = places(opened(trace_of(mixed())).side, opened(trace_of(mixed())).view)[:9]
    assert thumb(every, 0, 9) == range(0)
    assert [thumb(every, top, 5) for top in (0, 1, 4)] == [
        range(2),
        range(1, 3),
        range(3, 5),
    ]


def deep(threads: int) -> list[dict[str, object]]:
    """Threads before those of the GPU, each with eight ops in each other."""
    return [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "op",
            "pid": 1,
            "tid": tid,
            "ts": n,
            "dur": 90 - n,
        }
        for tid in range(threads)
        for n in range(8)
    ]


def test_lanes_above_the_stream_are_folded_even_where_that_is_not_enough(
    trace_of: Make,
) -> None:
    """Else the first lines would be the depths of a lane whose name is out of sight."""
    state = opened(trace_of([*deep(9), *mixed()]), size=Size(60, 18))
    assert shown(state)[Layer.OPS] == len(
        [lane for lane in state.side.lanes if lane.layer is Layer.OPS]
    )


def streams(numbers: range) -> list[dict[str, object]]:
    return [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": 0,
            "tid": tid,
            "ts": 400,
            "dur": 5,
        }
        for tid in numbers
    ]


def test_a_larger_screen_begins_at_the_first_line(trace_of: Make) -> None:
    trace = trace_of([*deep(5), *mixed(), *streams(range(20, 60))])
    small = opened(trace, size=Size(60, 18))
    assert small.tops[0] > 0
    assert (
        after(small, resized(100, 45)).tops
        == opened(trace, size=Size(100, 45)).tops
        == (0,)
    )


def test_scroll_position_chosen_by_hand_stays(trace_of: Make) -> None:
    small = opened(trace_of([*mixed(), *deep(30)]), size=Size(60, 18))
    scrolled = after(small, *do("page-down"))
    assert after(scrolled, resized(60, 17)).tops == scrolled.tops > small.tops


def test_a_lane_of_another_device_is_seen_where_there_is_no_stream(
    trace_of: Make,
) -> None:
    device = {"ph": "X", "cat": "mtia_ccp_events", "name": "pe_exe", "pid": 9, "tid": 1}
    state = opened(
        trace_of([*deep(9), {**device, "ts": 5, "dur": 9}]), size=Size(80, 24)
    )
    room = lanes_height(page_size(state), 1)
    in_sight = places(state.side, state.view)[state.tops[0] : state.tops[0] + room]
    assert Layer.DEVICE in {state.side.lanes[p.lane].layer for p in in_sight if p.line}
    assert find_busy_times(state.side.trace).label == "device busy"
    assert {share.of for share in compute_kind_shares(state.side.trace)} == {"device"}


def test_the_stream_with_the_most_time_is_seen(trace_of: Make) -> None:
    """Others come before it."""
    state = opened(trace_of([*mixed(), *streams(range(1, 7))]), size=Size(60, 18))
    room = lanes_height(page_size(state), 1)
    in_sight = places(state.side, state.view)[state.tops[0] : state.tops[0] + room]
    assert " stream 9" in [place.label for place in in_sight]
