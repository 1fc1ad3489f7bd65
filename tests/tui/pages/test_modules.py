"""The modules page: what each module cost, and the way to a call of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.driving import named
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.text.figures import percent
from fusetui.trace import Trace
from fusetui.tui.layout.figure_trees import ModuleTree
from fusetui.tui.pages.tree import NO_MODULES, ModulesPage
from fusetui.tui.state.state import TIMELINE, Size, State

Make = Callable[..., Trace]
PAGE = ModulesPage()


def tree_of(state: State) -> ModuleTree:
    answer = state.side.insight.answer
    assert answer is not None
    return answer.modules


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_modules_page_looks_as_kept(
    trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]
) -> None:
    state = after(opened(trace_of(training()), size=size), explained, *do("modules"))
    matches_screen(f"modules-{size.width}x{size.height}", drawn(state))


def test_space_closes_a_module_and_opens_it_again(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    closed = after(state, *do("first", "row-down", "turn"))
    while tree_of(state).size[PAGE.node(state)] == 1:
        state = after(state, *do("row-down"))
    closed = after(state, *do("turn"))
    assert PAGE.rows(closed).count < PAGE.rows(state).count
    assert PAGE.rows(after(closed, *do("turn"))).count == PAGE.rows(state).count


def test_enter_shows_the_longest_call(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    while not named(PAGE, state).endswith("Net_*"):
        state = after(state, *do("row-down"))
    there = after(state, *do("show"))
    assert there.page == TIMELINE
    assert there.side.trace.name_of(there.view.selected) == "nn.Module: Net_0"


def test_work_outside_of_modules_has_a_row(mlp: Trace) -> None:
    """The annotations of steps are no part of the program."""
    state = after(opened(mlp), explained, *do("modules"))
    assert "outside modules" in drawn(state)
    assert named(PAGE, after(state, *do("last"))) == "(outside modules)"
    assert after(state, *do("last", "show")).hint.startswith(
        "This work is outside modules"
    )


def test_modules_page_takes_keys_before_modules_are_known(mlp: Trace) -> None:
    state = after(
        opened(mlp), *do("modules", "turn", "unfold", "fold-node", "row-down", "show")
    )
    assert "Computing" in drawn(state)


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("sort", ["GPU", "self", "kernels", "calls", "CPU", "name"])
def test_sorted_by_any_column(trace_of: Make, sort: str, on_gpu: bool) -> None:
    """The shares are those of what the heading says, and what is open stays open."""
    events = [event for event in training() if on_gpu or event["cat"] != "kernel"]
    state = after(
        opened(trace_of(events), size=Size(120, 35)), explained, *do("modules")
    )
    tree = tree_of(state)
    state = after(state, *do("last", "fold-node", "turn"))
    cursor, rows = named(PAGE, state), PAGE.rows(state).count
    while (state.modules_sort or tree.measure()) != sort:
        state = after(state, *do("modules-sort-right"))
    assert (named(PAGE, state), PAGE.rows(state).count) == (cursor, rows)
    order, measure = tree.preorder(sort), tree.measure(sort)
    assert sorted(order.nodes.tolist()) == list(range(len(tree)))
    outermost = [
        n for n in order.nodes.tolist() if n < len(tree.times) and tree.parent[n] < 0
    ]
    figures = [
        tree.times[n].module.lower() if sort == "name" else -int(tree.figures[sort][n])
        for n in outermost
    ]
    assert figures == sorted(figures)
    assert "share of the " in drawn(state).split("\n")[2]
    figure, whole = int(tree.figures[measure][outermost[0]]), tree.whole(measure)
    assert not figure or f" {percent(figure, whole)} " in drawn(state).split("\n")[4]


def test_every_measure_of_modules_adds_up(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    tree = tree_of(state)
    outermost = tree.parent < 0
    for measure in ("GPU", "kernels", "CPU"):
        assert int(tree.figures[measure][outermost].sum()) == tree.whole(measure)
    assert int(tree.figures["self"].sum()) == tree.whole("self") == tree.gpu_ns


def test_why_there_are_none_is_told_to_the_end(
    trace_of: Make, event: Callable[..., dict[str, object]]
) -> None:
    state = opened(trace_of([event("aten::a", 0, 5)]), size=Size(60, 18))
    text = " ".join(drawn(after(state, explained, *do("modules"))).split())
    assert NO_MODULES.format("with_stack=True") in text
