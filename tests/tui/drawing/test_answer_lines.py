"""The answer stands below the lanes while nothing is selected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.hostile import WORST, obeyed
from tests.tui.explainable import GEMM, training
from tests.tui.prepared import after, at, do, drawn, explained, opened

from fusetui.trace import Trace
from fusetui.trace.insights.telling import answer
from fusetui.trace.insights.why import why
from fusetui.tui import whole
from fusetui.tui.layout.answer import AnswerAt
from fusetui.tui.registry import page_of
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
    ("text", "page"), [("540.0   100 %", "kernels"), ("300.0    56 %", "modules")]
)
def test_a_click_on_a_row_leads_to_its_page(trace_of: Make, text: str, page: str) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, text).page == page


def test_a_click_on_a_gap_selects_it(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, "770.0 at").view.gap is not None
    assert clicked(state, "990 us a step").page == "why"


def clicked(state: State, text: str) -> State:
    lines = drawn(state).split("\n")
    y = max(n for n, line in enumerate(lines) if text in line)
    return after(state, lambda now: whole.pointed(now, lines[y].index(text), y))


def test_names_stay_printable(trace_of: Make) -> None:
    events = [{**event, "name": event["name"] + WORST} for event in training()]
    state = after(opened(trace_of(events), size=Size(200, 50)), explained)
    assert obeyed(drawn(state)) == set()


def test_a_row_can_be_reached_and_left_by_keys(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    gap = after(state, *do("into-answer", "answer-right", "answer-right", "answer-show"))
    assert gap.view.gap is not None
    back = after(gap, *do("deselect"))
    assert back.answer_at == AnswerAt(2, 0)
    assert after(back, *do("answer-leave")).answer_at is None


def test_a_module_and_a_kernel_lead_to_their_rows(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained, *do("into-answer"))
    module = after(state, *do("answer-down", "answer-show"))
    assert page_of(module).copied(module).endswith("Attention_*")
    kernel = after(state, *do("answer-right", "answer-show"))
    assert page_of(kernel).copied(kernel) == GEMM


def test_the_verdict_leads_to_why(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    assert after(state, *do("into-answer", "answer-up", "answer-show")).page == "why"


def test_a_list_is_scrolled_to_its_cursor(trace_of: Make) -> None:
    """At 80x24 three of five gaps are seen."""
    state = after(opened(trace_of(training()), size=Size(80, 24)), explained)
    right = do("into-answer", "answer-right", "answer-right")
    last = after(state, *right, *do(*("answer-down",) * 9))
    assert last.answer_at == AnswerAt(2, 4)
    assert "at 2.74 ms" in drawn(last)
    assert "at 2.74 ms" not in drawn(state)


def test_of_two_traces_tab_goes_through_lanes_and_answers(trace_of: Make) -> None:
    trace = trace_of(training())
    state = after(opened(trace, trace), *do("timeline"), explained)
    first = after(state, *do("into-answer"))
    second = after(first, *do("next-pane"))
    assert (second.active, second.answer_at) == (1, None)


def test_a_list_that_does_not_fit_is_counted_and_can_be_reached(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(60, 18)), explained)
    assert "GPU time by module                ▸2" in drawn(state)
    kernels = after(state, *do("into-answer", "answer-right"))
    assert "by kernel" in drawn(kernels)
    assert after(kernels, *do("answer-show")).page == "kernels"


@pytest.mark.parametrize("size", [Size(80, 24), Size(200, 50)], ids=str)
def test_the_verdict_is_not_cut(trace_of: Make, size: Size) -> None:
    trace = trace_of(training())
    state = after(opened(trace, size=size), explained)
    assert answer(why(trace)) in " ".join(drawn(state).split())
