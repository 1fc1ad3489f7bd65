"""The modules page: what each module cost, and the way to a call of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.trace import Trace
from fusetui.tui.pages.modules import ModulesPage
from fusetui.tui.state.state import TIMELINE, Size

Make = Callable[..., Trace]
PAGE = ModulesPage()


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_screen(trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]) -> None:
    state = after(opened(trace_of(training()), size=size), explained, *do("modules"))
    matches_screen(f"modules-{size.width}x{size.height}", drawn(state))


def test_space_closes_a_module_and_opens_it_again(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    closed = after(state, *do("first", "row-down", "turn"))
    while not PAGE.has_inner(state, PAGE.node(state)):
        state = after(state, *do("row-down"))
    closed = after(state, *do("turn"))
    assert PAGE.rows(closed).count < PAGE.rows(state).count
    assert PAGE.rows(after(closed, *do("turn"))).count == PAGE.rows(state).count


def test_enter_shows_the_longest_call(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    while not PAGE.copied(state).endswith("Net_*"):
        state = after(state, *do("row-down"))
    there = after(state, *do("show"))
    assert there.page == TIMELINE
    assert there.side.trace.name_of(there.view.selected) == "nn.Module: Net_0"


def test_work_outside_of_modules_has_a_row(mlp: Trace) -> None:
    """The annotations of steps are no part of the program."""
    state = after(opened(mlp), explained, *do("modules"))
    assert "in no module or annotation" in drawn(state)
    assert PAGE.copied(after(state, *do("last"))) == ""
    assert after(state, *do("last", "show")).hint.startswith("this belongs to no module")


def test_it_works_before_the_modules_are_known(mlp: Trace) -> None:
    state = after(opened(mlp), *do("modules", "turn", "unfold", "fold-node", "row-down", "show"))
    assert "working" in drawn(state)
