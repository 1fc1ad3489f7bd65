"""The first line of the diff page: colored only where there is a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Diff, Verdict
from fusetui.trace import Trace
from fusetui.tui.pages.diff import _make_verdict_pane, columns_of, draw_line, verdict
from fusetui.tui.state.comparison import Comparison, make_diff_lines


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
