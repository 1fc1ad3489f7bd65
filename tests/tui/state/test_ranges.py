"""A range of time: from press to press, on the ruler and in words."""

from __future__ import annotations

from collections.abc import Callable

from tests.finding import find
from tests.tui.driving import opened, screen, selected

from fusetui.trace import Trace
from fusetui.tui.drawing.range_lines import describe_range, list_range_figures
from fusetui.tui.drawing.schemes import ASCII, UNICODE
from fusetui.tui.drawing.timeline import draw_ruler
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.view import Side, View, make_sides
from fusetui.tui.state.session import Range, extend_range, start

LINES = 20  # for the lanes of each side

US = 1000


def at(side: Side, view: View, name: str) -> View:
    return select(side, view, int(find(side.trace, name)[0]))


def test_range_between_two_slices_is_the_same_in_either_direction(
    side: Side, view: View
) -> None:
    # 60..240 us, 432..542 us
    early, late = at(side, view, "gemm"), at(side, view, "Gelu")
    there = extend_range(extend_range(None, 0, side, early), 0, side, late)
    back = extend_range(extend_range(None, 0, side, late), 0, side, early)
    assert there == back == Range(0, 60 * US, 542 * US, ended=True)


def test_with_nothing_selected_it_is_the_window(side: Side) -> None:
    window = View(100, 200)
    once = extend_range(None, 0, side, window)
    assert extend_range(once, 0, side, window) == Range(0, 100, 200, ended=True)


def test_a_third_press_starts_anew(side: Side) -> None:
    whole = Range(0, 0, 10, ended=True)
    assert extend_range(whole, 0, side, View(100, 200)) == Range(0, 100, 200)


def test_until_it_is_ended_it_reaches_to_the_selection(side: Side) -> None:
    begun = (
        start((side,), LINES).selected(0, int(find(side.trace, "gemm")[0])).ranged(0)
    )
    assert begun.interval(0) == (60 * US, 240 * US)
    there = begun.selected(0, int(find(side.trace, "Gelu")[0]))
    assert there.interval(0) == (60 * US, 542 * US)


def test_clearing_takes_the_range_first_and_the_selection_then(
    side: Side, view: View
) -> None:
    session = start((side,), LINES).selected(0, 3).ranged(0)
    assert session.cleared().time_range is None
    assert session.cleared().views[0].selected == 3
    assert session.cleared().cleared().views[0].selected == -1


def test_the_range_stays_with_its_trace_when_sides_are_swapped(mlp: Trace) -> None:
    session = start(make_sides([mlp, mlp], ["a", "b"]), LINES).ranged(1)
    assert session.swapped().interval(0) == session.interval(1)


def test_the_ruler_shows_the_range_between_its_ticks() -> None:
    text, cells = draw_ruler(View(0, 1000), 44, (200, 700), UNICODE)
    assert text == "0 ns    ├─────────────500 ns──┤             "
    assert cells == range(8, 31)


def test_the_ruler_says_where_the_range_goes_on() -> None:
    assert draw_ruler(View(0, 1000), 20, (-5, 500), ASCII)[0].startswith("---")
    assert draw_ruler(View(0, 1000), 20, (500, 2000), ASCII)[0].endswith("---")


def test_no_range_in_sight_is_no_bar() -> None:
    assert draw_ruler(View(0, 1000), 44, (2000, 3000), UNICODE) == draw_ruler(
        View(0, 1000), 44, None, UNICODE
    )


def test_lines_of_a_range_tell_its_length_busy_time_and_kernels(side: Side) -> None:
    texts = [
        " ".join(line.text.split())
        for line in describe_range(side, Range(0, 150 * US, 350 * US), 100, 6, UNICODE)
    ]
    assert texts[:2] == [
        "range 200 us GPU busy 195 us, 98 % of the range 1 kernel starts in it 150 us to 350 us",
        "GPU 0 stream 7: busy 195 us, 98 %",
    ]
    assert texts[3:] == ["195 us 98 % 2 gemm bf16 128x128x32 tn sm80 s5"]


def test_streams_that_do_not_fit_are_counted(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, object]]
) -> None:
    kernels = [
        event("k", 0, 5, cat="kernel", pid=0, tid=stream) for stream in (7, 8, 9)
    ]
    side = make_sides([trace_of(kernels)], ["streams"])[0]
    texts = [
        line.text for line in describe_range(side, Range(0, 0, 10 * US), 50, 6, UNICODE)
    ]
    assert texts[1] == "GPU 0 stream 7: busy 5 us, 50 %   2 more"


def test_the_page_is_exact(side: Side) -> None:
    texts = [
        line.text for line in list_range_figures(side, Range(0, 150 * US, 350 * US), 90)
    ]
    assert "  from 150,000 ns to 350,000 ns: 200,000 ns" in texts
    assert "  GPU busy 195,000 ns, idle 5,000 ns: 200,000 ns" in texts


def test_a_trace_without_a_gpu_shows_its_ops(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, object]]
) -> None:
    side = make_sides([trace_of([event("aten::a", 0, 5)])], ["cpu"])[0]
    texts = [
        line.text for line in describe_range(side, Range(0, 0, 2 * US), 100, 6, UNICODE)
    ]
    assert "no GPU events in this trace" in texts[0]
    assert "CPU op" in texts[1]
    assert "aten::a" in texts[2]


async def test_range_by_keys_looks_as_kept(
    path: str, matches_screen: Callable[[str, str], None]
) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gemm", "enter", "v")
        assert "v end it" in screen(app)
        await pilot.press("full_stop", "full_stop", "v")
        await pilot.pause()
        matches_screen("range-100x30", screen(app))
        await pilot.press("i")
        await pilot.pause()
        matches_screen("range-page-100x30", screen(app))
        await pilot.press("escape", "escape")
        assert "GeluCUDAKernelImpl" in selected(app)
        assert "range" not in screen(app).replace("v range", "")


def test_the_title_of_the_page_fits_a_small_terminal(side: Side) -> None:
    """The number of kernels may be of any length, and has a line of its own."""
    texts = [
        line.text for line in list_range_figures(side, Range(0, 150 * US, 350 * US), 66)
    ]
    assert texts[0] == "range 200 us  GPU busy 195 us, 98 % of the range"
    assert "  1 kernel starts in it" in texts
