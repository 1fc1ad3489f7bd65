"""Movements are pure functions: no terminal is needed to test them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.finding import find

from fusetui.trace import Trace
from fusetui.tui.layout.lanes import FOLDED
from fusetui.tui.layout.moves import (
    center,
    fit,
    fold,
    go_to_end,
    pan,
    select,
    select_in_next_lane,
    select_launch,
    select_launched_kernel,
    select_next_slice,
    select_on_next_line,
    zoom,
    zoom_to_selection,
)
from fusetui.tui.layout.places import fit_folds, places
from fusetui.tui.layout.view import Side, View, make_first_view, make_sides, times


def name(side: Side, view: View) -> str:
    return side.trace.name_of(view.selected)


def row(side: Side, text: str) -> int:
    return int(find(side.trace, text)[0])


def test_the_first_view_is_the_whole_trace(side: Side, view: View) -> None:
    assert (view.begin, view.end) == (0, side.trace.end_ns - side.trace.begin_ns)


def test_zooming_keeps_the_middle_when_nothing_is_selected(
    side: Side, view: View
) -> None:
    closer = zoom(side, view, 1, 2)
    assert closer.span == view.span // 2
    assert abs((closer.begin + closer.end) - (view.begin + view.end)) <= 2


def test_zooming_keeps_the_selected_slice_in_place(side: Side, view: View) -> None:
    chosen = select(side, view, row(side, "aten::gelu"))
    closer = zoom(side, chosen, 1, 8)
    middle = sum(times(side, chosen.selected)) // 2
    share = (middle - view.begin) / view.span
    assert (middle - closer.begin) / closer.span == pytest.approx(share, abs=1e-3)


def test_zooming_out_ends_at_the_whole_trace(side: Side, view: View) -> None:
    assert zoom(side, view, 2, 1) == view


def test_panning_moves_by_a_share_of_the_window(side: Side, view: View) -> None:
    window = zoom(side, view, 1, 4)
    assert pan(side, window, 10).begin == window.begin + window.span // 10
    assert pan(side, pan(side, window, 10), -10) == window


def test_edges_are_the_start_and_the_end_of_the_trace(side: Side, view: View) -> None:
    window = zoom(side, view, 1, 4)
    assert go_to_end(side, window, -1).begin == side.begin
    assert go_to_end(side, window, 1).end == side.end


def test_fit_shows_everything_again(side: Side, view: View) -> None:
    assert fit(side, zoom(side, view, 1, 4)) == view


def test_next_slice_stays_on_its_line(side: Side, view: View) -> None:
    first = select(side, view, row(side, "aten::linear"))
    assert name(side, select_next_slice(side, first, 1)) == "aten::linear"
    assert (
        name(side, select_next_slice(side, select_next_slice(side, first, 1), 1))
        == "aten::gelu"
    )
    assert select_next_slice(side, first, -1) == first


def test_down_goes_into_the_op_and_on_to_the_gpu(side: Side, view: View) -> None:
    view = select(side, view, row(side, "aten::linear"))
    names = []
    for _ in range(3):
        view = select_on_next_line(side, view, 1)
        names.append(name(side, view))
    assert names[:2] == ["aten::mm", "cudaLaunchKernel"]
    assert "gemm" in names[2]


def test_up_is_the_way_back(side: Side, view: View) -> None:
    start = select(side, view, row(side, "cudaLaunchKernel"))
    assert name(side, select_on_next_line(side, start, -1)) == "aten::mm"


def test_next_lane_jumps_over_the_lines_of_this_one(side: Side, view: View) -> None:
    start = select(side, view, row(side, "aten::linear"))
    assert "gemm" in name(side, select_in_next_lane(side, start, 1))


def test_keys_go_from_op_to_kernel_and_back(side: Side, view: View) -> None:
    on_op = select(side, view, row(side, "aten::gelu"))
    on_kernel = select_launched_kernel(side, on_op)
    assert "GeluCUDAKernelImpl" in name(side, on_kernel)
    on_call = select_launch(side, on_kernel)
    assert name(side, on_call) == "cudaLaunchKernel"
    assert select_launch(side, on_call).selected == on_op.selected


def test_a_slice_out_of_sight_is_brought_into_the_window(
    side: Side, view: View
) -> None:
    window = go_to_end(side, zoom(side, view, 1, 8), -1)
    last = int(find(side.trace, "triton")[-1])
    shown = select(side, window, last)
    begin, end = times(side, last)
    assert shown.begin <= begin < end <= shown.end
    assert shown.span == window.span


def test_zoom_to_gives_the_slice_half_of_the_width(side: Side, view: View) -> None:
    shown = zoom_to_selection(side, select(side, view, row(side, "aten::gelu")))
    begin, end = times(side, shown.selected)
    assert shown.span == 2 * (end - begin)


def test_center_moves_the_slice_to_the_middle(side: Side, view: View) -> None:
    shown = center(side, select(side, zoom(side, view, 1, 8), row(side, "triton")))
    assert abs(shown.begin + shown.end - sum(times(side, shown.selected))) <= 2


def test_folding_a_lane_leaves_the_line_of_the_selection(
    side: Side, view: View
) -> None:
    chosen = select(side, view, row(side, "aten::linear"))
    folded = fold(side, chosen)
    assert FOLDED in folded.folds
    assert len(places(side, folded)) < len(places(side, chosen))


def test_folding_with_nothing_selected_is_about_the_first_lane_in_sight(
    side: Side, view: View
) -> None:
    folded = fold(side, view)
    assert folded.folds != view.folds
    assert folded.folds[0] != view.folds[0]


def test_a_selection_that_folding_hides_goes_to_the_line_that_is_left(
    side: Side, view: View
) -> None:
    deep = select(side, view, row(side, "cudaLaunchKernel"))
    folded = fold(side, deep)
    assert name(side, folded) == "aten::linear"
    lane = side.lane_of_track[int(side.trace.track[folded.selected])]
    assert [p.depth for p in places(side, folded) if p.lane == lane and p.line] == [0]


def test_lanes_without_slices_in_the_window_are_one_line(
    side: Side, view: View
) -> None:
    early = View(0, 5_000, -1, view.folds)  # before the first op
    ops = [place for place in places(side, early) if place.label == " ops"]
    hidden = [p for p in places(side, early) if p.lane == ops[0].lane and p.line]
    assert len(hidden) == 1


MOVES = st.lists(
    st.sampled_from(
        [
            lambda s, v: zoom(s, v, 1, 2),
            lambda s, v: zoom(s, v, 2, 1),
            lambda s, v: pan(s, v, -90),
            lambda s, v: pan(s, v, 10),
            lambda s, v: select_next_slice(s, v, 1),
            lambda s, v: select_on_next_line(s, v, 1),
            lambda s, v: select_on_next_line(s, v, -1),
            lambda s, v: select_in_next_lane(s, v, 1),
            select_launched_kernel,
            select_launch,
            fold,
            zoom_to_selection,
        ]
    ),
    max_size=30,
)


def test_any_walk_keeps_the_window_on_the_trace(side: Side, view: View) -> None:
    @given(MOVES)
    def walk(moves: list[object]) -> None:
        now = view
        for move in moves:
            now = move(side, now)  # type: ignore[operator]
            assert 0 < now.span <= side.end - side.begin
            assert now.begin < side.end
            assert now.end > side.begin
            assert -1 <= now.selected < len(side.trace)

    walk()


def test_lanes_fold_until_the_first_stream_is_seen(side: Side) -> None:
    view = make_first_view(side)
    assert len(places(side, view)) > 5
    assert fit_folds(side, view, 40) == view
    small = fit_folds(side, view, 6)
    streams = [
        n for n, p in enumerate(places(side, small)) if p.line and "stream" in p.label
    ]
    assert streams[0] < 6
    assert fit_folds(side, view, 1) == fit_folds(
        side, view, 3
    )  # as little as there can be


def test_lanes_of_other_programs_open_where_there_is_room(
    trace_of: Callable[..., Trace],
) -> None:
    nested = [
        {"ph": "X", "name": f"f{n}", "ts": n, "dur": 100 - 2 * n} for n in range(8)
    ]
    (side,) = make_sides([trace_of(nested)], ["a"])
    lines = [
        len(places(side, fit_folds(side, make_first_view(side), room)))
        for room in (9, 8, 3, 1)
    ]
    assert lines == [8, 8, 3, 1]
