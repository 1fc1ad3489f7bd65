"""The answer stands below the lanes while nothing is selected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.hostile import WORST, obeyed
from tests.tui.explainable import training
from tests.tui.prepared import after, at, do, drawn, explained, opened

from fusetui.trace import Trace
from fusetui.trace.insights.telling import answer
from fusetui.trace.insights.why import why
from fusetui.tui import whole
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_screen(trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]) -> None:
    state = after(opened(trace_of(training()), size=size), explained)
    matches_screen(f"answer-{size.width}x{size.height}", drawn(state))


def test_the_verdict_is_that_of_why(trace_of: Make) -> None:
    trace = trace_of(training())
    state = after(opened(trace, size=Size(200, 50)), explained)
    assert answer(why(trace)) in drawn(state)


def test_a_selection_takes_its_place(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    assert "longest gaps" in drawn(state)
    assert "longest gaps" not in drawn(after(state, at("aten::mm")))
    assert "longest gaps" in drawn(after(state, at("aten::mm"), *do("deselect")))


@pytest.mark.parametrize(
    ("text", "page"), [("540 us   100 %", "kernels"), ("300 us    56 %", "modules")]
)
def test_a_click_on_a_row_leads_to_its_page(trace_of: Make, text: str, page: str) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, text).page == page


def test_a_click_on_a_gap_selects_it(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, "770 us at").view.gap is not None
    assert clicked(state, "990 us a step").page == "why"


def clicked(state: State, text: str) -> State:
    lines = drawn(state).split("\n")
    y = max(n for n, line in enumerate(lines) if text in line)
    return after(state, lambda now: whole.pointed(now, lines[y].index(text), y))


def test_names_stay_printable(trace_of: Make) -> None:
    events = [{**event, "name": event["name"] + WORST} for event in training()]
    state = after(opened(trace_of(events), size=Size(200, 50)), explained)
    assert obeyed(drawn(state)) == set()
