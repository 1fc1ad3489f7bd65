"""The first line of the diff page: colored only where there is a verdict."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.tui.prepared import after, do, drawn, laid_over, opened

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Diff, Verdict
from fusetui.report.diff_lines import REGION
from fusetui.trace import Trace
from fusetui.trace.model.categories import Role
from fusetui.tui.layout.view import times
from fusetui.tui.pages.diff import (
    DiffPage,
    _make_verdict_pane,
    columns_of,
    draw_line,
    verdict,
)
from fusetui.tui.registry import show_source
from fusetui.tui.state.comparison import Comparison, make_diff_lines
from fusetui.tui.state.screen import page_size
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import ReadSource, Size, State

PAGE = DiffPage()


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        (Answer.FASTER, "good"),
        (Answer.SLOWER, "bad"),
        (Answer.NO_DIFFERENCE, "title"),
        (Answer.CANNOT_TELL, "title"),
    ],
)
def test_the_color_is_that_of_the_verdict(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
    answer: Answer,
    token: str,
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = msgspec.structs.replace(diff(trace, trace), verdict=Verdict(answer))
    assert verdict(found, 100)[0].token == token


def test_inconclusive_diff_says_why(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    text = " ".join(line.text for line in verdict(diff(trace, trace), 100))
    assert "Inconclusive: needs at least 5 steps per trace (A 1, B 1)" in text


def test_the_story_stands_before_a_line_for_each_side(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    found = diff(trace_of(launched(1, 0, 10, 500)), trace_of(launched(1, 0, 10, 900)))
    lines = [line.text for line in verdict(found, 200)]
    assert lines[1].startswith("B takes 400 us more per step")
    assert [line.split("   ")[0] for line in lines[2:4]] == [
        f"A {found.a}",
        f"B {found.b}",
    ]
    a, b = (line.split() for line in lines[2:4])
    assert [word for word in a if word.isalpha()] == [
        "A" if word == "B" else word for word in b if word.isalpha()
    ]


def above(both: Diff, width: int, height: int) -> list[str]:
    """The lines above the timelines of the page."""
    pane = _make_verdict_pane(make_diff_lines(both), width, height)
    return [
        "".join(text for text, _ in pane.picture.line(y, width, pane.height)).rstrip()
        for y in range(pane.height)
    ]


def test_answer_and_story_are_whole_however_little_room_there_is(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = diff(trace, trace)
    lines = above(found, 70, 2)
    assert lines[0].startswith("Inconclusive: needs at least 5 steps per trace")
    assert lines[-1] == "B takes the same time per step"


def test_a_story_that_is_too_long_says_that_there_is_more(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    long = replace(
        diff(trace, trace), story="a step takes 5 us more: " + "+1 us, " * 99
    )
    assert above(long, 70, 3)[-1].endswith("…")
    assert len(above(long, 70, 3)) == 2 + 3


def test_rows_that_close_the_sum_stay_in_sight(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = make_diff_lines(diff(trace, trace))
    assert [line.kind for line in found.pinned] == ["idle", "", "step"]
    assert not {line.kind for line in found.lines} & {"idle", "step"}


def test_work_across_the_borders_of_a_step_is_in_sight_too(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    """Where there is little room, as one line, so that the lines still add up."""
    trace = trace_of(launched(1, 0, 10))
    found = diff(trace, trace)
    side = replace(found.side_b, earlier_ns=2000, later_ns=500, overlap_ns=1000)
    sums = replace(found.accounting, earlier_ns=2000, later_ns=-500, overlap_ns=-1000)
    shown = make_diff_lines(replace(found, side_b=side, accounting=sums))
    kinds = [line.kind for line in shown.pinned]
    assert kinds == ["idle", "earlier", "later", "overlap", "", "step"]
    assert [line.kind for line in shown.closing] == ["idle", "boundary", "", "step"]
    assert shown.closing[1].what == "earlier +2.0   later -0.5   overlap -1.0"
    assert shown.closing[1].change_ns == 500
    assert not {line.kind for line in shown.lines} & set(kinds)


def test_no_number_is_cut(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    slow = trace_of(launched(1, 0, 10, 454_700_123.4))
    found = make_diff_lines(diff(trace_of(launched(1, 0, 10, 1)), slow))
    columns = columns_of(found)
    assert [column.title for column in columns[:4]] == ["", "change us", "A us", "B us"]
    texts = [text.strip() for text, _ in draw_line(columns, found.lines, 0, 80)]
    assert texts[1] == "+454,700,122.4"
    assert texts[3] == "454,700,123.4"


def test_at_80_columns_a_row_tells_its_kernel_and_not_its_place(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = make_diff_lines(diff(trace, trace))
    place, kernel = (
        "execute_32_context_8(512)_generation_24(24)",
        "gemm bf16 128x128x64",
    )
    what = f"{place}  aten::mm  {kernel}"
    row = replace(found.lines[0], what=what, parts=(place, "aten::mm", kernel))
    shown = draw_line(columns_of(found), [row], 0, 79)
    assert kernel in shown[-1][0]
    assert draw_line(columns_of(found), [row], 0, 159)[-1][0].rstrip() == what


def test_a_region_opens_and_closes_where_the_cursor_is(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = make_diff_lines(diff(trace, trace))
    inner = (
        replace(found.lines[0], what="  one"),
        replace(found.lines[0], what="  two"),
    )
    closed = Comparison(found=replace(found, inner={0: inner}))
    opened, cursor = closed.turned(0)
    assert [line.what for line in opened.lines[1:3]] == ["  one", "  two"]
    assert (cursor, len(opened.lines)) == (0, len(closed.lines) + 2)
    again, cursor = opened.turned(2)
    assert (cursor, again.lines) == (0, closed.lines)
    last = len(found.lines) - 1
    assert closed.turned(last) == (closed, last) or last == 0


Launched = Callable[..., list[dict[str, Any]]]


def compared(
    trace_of: Callable[..., Trace], launched: Launched, last_of_b: int
) -> State:
    """Two traces of two kernels each, of which the second runs at 5 ms in A and at
    `last_of_b` (us) in B. Both windows show the first 100 us."""
    a = trace_of(
        [*launched(1, 0, 10, 20, "first"), *launched(2, 4990, 5000, 30, "second")]
    )
    b = trace_of(
        [
            *launched(1, 0, 10, 40, "first"),
            *launched(2, last_of_b - 10, last_of_b, 90, "second"),
        ]
    )
    state = opened(a, b)
    session = state.session.windowed(0, 0, 100_000)
    return after(replace(state, session=session), *do("diff"))


def in_sight(state: State, index: int, row: int) -> bool:
    """Whether a slice of a side is in its window of the timeline."""
    side, view = state.sides[index], state.session.views[index]
    begin, end = times(side, row)
    return begin < view.end and end > view.begin


@pytest.mark.parametrize("last_of_b", [5000, 90_000])
def test_enter_shows_the_work_of_both_sides(
    trace_of: Callable[..., Trace], launched: Launched, last_of_b: int
) -> None:
    """Also where the two sides are far apart and their windows move together."""
    state = compared(trace_of, launched, last_of_b)
    assert state.session.together
    assert state.comparison
    names = [line.rows[0].a for line in state.comparison.lines]
    cursor = names.index(("second",))
    state = after(state, lambda now: PAGE.at_row(now, cursor), *do("show"))
    for index in (0, 1):
        row = state.session.views[index].selected
        assert state.sides[index].trace.name_of(row) == "second"
        assert in_sight(state, index, row)
    assert len(state.session.past) == 1 + 1  # one movement, after that of `compared`


def with_region(state: State) -> State:
    """The first line stands for all rows of the diff, as a region."""
    assert state.comparison
    assert state.comparison.found
    found = state.comparison.found
    rows = tuple(row for line in found.lines for row in line.rows)
    region = replace(found.lines[0], kind=REGION, what="forward: 2 kernels", rows=rows)
    with_inner = replace(found, lines=(region,), inner={0: found.lines})
    return replace(state, comparison=replace(state.comparison, found=with_inner))


def test_enter_on_a_region_shows_all_of_it(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = after(with_region(compared(trace_of, launched, 90_000)), *do("show"))
    for index in (0, 1):
        trace = state.sides[index].trace
        kernels = trace.rows_of(Role.KERNEL).tolist()
        assert state.session.marked[index] == {*kernels}
        assert all(in_sight(state, index, row) for row in kernels)
        assert state.session.views[index].selected == -1
    a_view, b_view = state.session.views
    assert a_view.span == b_view.span
    assert state.time_range == Range(0, 10_000, 5_030_000, ended=True)


def test_the_source_key_on_a_region_asks_for_its_first_slice(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = with_region(compared(trace_of, launched, 90_000))
    line = PAGE.line(state)
    assert line is not None
    first_row = line.rows[0].a_rows[0]
    outcome = show_source(state)
    assert isinstance(outcome, tuple)
    asked_for = outcome[1]
    assert isinstance(asked_for, ReadSource)
    assert asked_for.side is state.sides[0]
    assert asked_for.row == first_row


def test_all_about_a_region_are_its_lines(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = with_region(compared(trace_of, launched, 90_000))
    lines = [
        line.strip() for line in laid_over(after(state, *do("details"))).splitlines()
    ]
    text = "\n".join(lines)
    assert "forward: 2 kernels" in text
    assert re.search(r"\+60\.0 +30\.0 +90\.0 may be noise +second", text)
    assert re.search(r"\+20\.0 +20\.0 +40\.0 may be noise +first", text)


LONG_STORY = "a step takes 5 us more: " + ", ".join(f"+{us} us" for us in range(99))
LONG_REASON = "the same kernel; " + " ".join(f"reason{number}" for number in range(99))


def with_long_texts(state: State, kind: str = "") -> State:
    """The page cuts the story of this diff, and the reason of its first line. Its lines
    are of another kind if one is given, and those have no slices."""
    assert state.comparison
    assert state.comparison.found
    found = state.comparison.found
    line = replace(found.lines[0], why=LONG_REASON)
    if kind:
        line = replace(line, kind=kind, rows=())
    long = replace(found, lines=(line,), diff=replace(found.diff, story=LONG_STORY))
    comparison = replace(state.comparison, found=long)
    return replace(state, comparison=comparison, size=Size(80, 24))


def all_about(state: State) -> str:
    """The whole text that `i` shows on a high screen, without its line breaks."""
    there = after(state, *do("details"))
    return " ".join(laid_over(replace(there, size=Size(80, 400))).split())


def test_the_details_of_a_line_begin_with_all_that_the_page_cuts(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = with_long_texts(compared(trace_of, launched, 90_000))
    assert "reason98" not in drawn(state)
    assert "+98 us" not in drawn(state)
    text = all_about(state)
    places = [text.index(part) for part in (LONG_REASON, LONG_STORY, "launched 10 us")]
    assert places == sorted(places)


def test_a_line_without_slices_has_its_reason_and_the_verdict(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = compared(trace_of, launched, 90_000)
    text = all_about(with_long_texts(state, "not explained"))
    assert text.index(LONG_REASON) < text.index(LONG_STORY)


def test_the_details_of_a_region_end_with_the_verdict(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    state = with_region(with_long_texts(compared(trace_of, launched, 90_000)))
    assert LONG_STORY in all_about(state)


def test_enter_shows_side_b_where_only_it_has_the_work(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    a = trace_of(launched(1, 0, 10, 20, "first"))
    b = trace_of([*launched(1, 0, 10, 20, "first"), *launched(2, 40, 50, 30, "only_b")])
    state = after(opened(a, b), *do("diff"))
    assert state.comparison
    cursor = [line.kind for line in state.comparison.lines].index("added")
    state = after(state, lambda now: PAGE.at_row(now, cursor), *do("show"))
    assert state.active == 1
    assert state.side.trace.name_of(state.view.selected) == "only_b"


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24)], ids=str)
def test_the_keys_of_a_region_stand_below_the_list(
    trace_of: Callable[..., Trace], launched: Launched, size: Size
) -> None:
    """Also on a low page, whose last line has no room for them."""
    state = with_region(compared(trace_of, launched, 90_000))
    shown = drawn(replace(state, size=size))
    assert "Space opens and closes the region   Enter shows all" in shown


def test_on_a_low_page_the_rows_come_before_the_story(
    trace_of: Callable[..., Trace], launched: Launched
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = replace(
        diff(trace, trace), story="a step takes 5 us more: " + "+1 us, " * 99
    )
    state = after(opened(trace, trace, size=Size(60, 18)), *do("diff"))
    assert state.comparison
    state = replace(
        state, comparison=replace(state.comparison, found=make_diff_lines(found))
    )
    lines = drawn(state).splitlines()
    story = [line for line in lines if "+1 us" in line]
    assert len(story) == 1
    assert story[0].rstrip().endswith("…")
    assert PAGE.room(state, page_size(state)) >= 4
