"""The lines of a timeline, as text."""

from __future__ import annotations

from tests.tui.prepared import line as line_of

from fusetui.tui.drawing.lane_lines import draw_lane_line
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.drawing.timeline import TimelinePicture, draw_window_bar
from fusetui.tui.layout.frame import columns, find_row_at
from fusetui.tui.layout.moves import select, select_launched_kernel, zoom
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.state import Size


def line(side: Side, view: View, label: str, width: int = 70) -> str:
    place = next(p for p in places(side, view) if p.line and p.label.strip() == label)
    return "".join(
        text for text, _ in draw_lane_line(side, view, place, width, UNICODE)
    )


def test_a_stream_shows_short_kernel_names(side: Side, view: View) -> None:
    assert "gemm bf16" in line(side, zoom(side, view, 1, 2), "GPU 0 stream 7")


def test_every_line_is_exactly_as_wide_as_asked(side: Side, view: View) -> None:
    for width in (1, 2, 7, 33, 200):
        for place in places(side, view):
            runs = draw_lane_line(side, view, place, width, UNICODE)
            assert place.line is None or sum(len(text) for text, _ in runs) == width


def test_the_minimap_is_empty_where_the_gpu_idles(side: Side, view: View) -> None:
    shown = line_of(TimelinePicture(side, view, UNICODE), 0, Size(158, 20))[18:]
    assert shown.startswith("      ")
    assert set(shown[10:50]) == {"▄", "█"}  # a gap of 5 us is half of a cell


def test_the_bar_shows_where_the_window_lies() -> None:
    assert draw_window_bar(5, UNICODE) == "├───┤"
    assert draw_window_bar(1, UNICODE) == "─"


def test_a_click_on_a_drawn_slice_finds_its_row(side: Side, view: View) -> None:
    chosen = select_launched_kernel(side, select(side, view, 2))
    cell = columns(side, chosen, chosen.selected, 100)
    place = next(p for p in places(side, chosen) if p.label == "GPU 0 stream 7")
    assert (
        find_row_at(side, chosen, place, 100, cell[len(cell) // 2]) == chosen.selected
    )
