"""On every page, i shows what the panel describes and what Enter goes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.tui.explainable import training
from tests.tui.prepared import after, at, do, explained, opened

from fusetui.trace import Trace
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.view import GapAt
from fusetui.tui.state.state import TIMELINE, Details, State

Make = Callable[..., Trace]
PAGES = ("tree", "kernels", "why", "modules", "flame")
MOST_ROWS = 12


def shown_by_enter(state: State, enter: str) -> int | GapAt | None:
    """The slice or gap; None where Enter says why there is none, or opens a row."""
    there = after(state, *do(enter))
    if there.page != TIMELINE:
        return None
    return there.view.gap or there.view.selected


def shown_by_i(state: State) -> int | GapAt | None:
    """The slice or gap; None for a sentence, or the text of what has no slice."""
    state = after(state, *do("details"))
    match state.overlay:
        case Details(_, int() | GapAt() as about):
            return about
        case OverlayLines(lines=lines):
            assert lines
            return None
    assert state.hint
    return None


def rows_of(state: State, page: str) -> Iterator[tuple[State, str]]:
    """The cursor on each row, and the action of Enter."""
    state = after(state, *do(page))
    enter, down = (
        ("flame-show", "flame-in") if page == "flame" else ("show", "row-down")
    )
    for _ in range(MOST_ROWS):
        yield state, enter
        state = after(state, *do(down))


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("page", PAGES)
def test_i_and_enter_agree(trace_of: Make, page: str, selected: bool) -> None:
    """Whatever is selected in the timeline."""
    state = explained(opened(trace_of(training())))
    state = after(state, *[at("cudaLaunchKernel")] * selected)
    found = [shown_by_i(one) for one, _ in rows_of(state, page)]
    assert found == [shown_by_enter(one, enter) for one, enter in rows_of(state, page)]
    assert any(one is not None for one in found)


def test_i_and_enter_agree_in_the_answer(trace_of: Make) -> None:
    state = after(explained(opened(trace_of(training()))), *do("into-answer"))
    for column in range(3):
        there = after(state, *do(*["answer-right"] * column))
        kept = after(there, *do("details"))
        assert (kept.page, kept.answer_at) == (there.page, there.answer_at)
        assert kept.session is there.session
        leads = after(there, *do("answer-show"))
        enters = (
            leads.view.gap if leads.page == TIMELINE else shown_by_enter(leads, "show")
        )
        assert enters is not None
        assert shown_by_i(there) == enters


def test_i_and_enter_agree_on_a_line_of_the_diff(mlp: Trace, trace_of: Make) -> None:
    state = after(opened(mlp, trace_of(training())), *do("diff"))
    both = after(state, *do("show")).session.views
    assert shown_by_i(state) in {view.selected for view in both}
