"""The op tree page: what a line says, and what its keys open and close."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.finding import find
from tests.tui.conftest import mlp_events
from tests.tui.driving import named
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, opened

from fusetui.text.figures import count, duration, percent
from fusetui.trace import Trace
from fusetui.tui.layout.op_tree import (
    MEASURES,
    MODES,
    OpTree,
    build_call_tree,
    build_op_tree,
)
from fusetui.tui.layout.view import make_sides
from fusetui.tui.pages import tree as page
from fusetui.tui.pages.tree import TREE
from fusetui.tui.state.reading import accept_answer
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


def cells(state: State, index: int) -> list[str]:
    """The texts of a row, without the bar."""
    return [
        text.strip()
        for n, (text, _) in enumerate(TREE.rows(state).format(index, 100))
        if n != 2
    ]


def test_a_node_says_what_it_launched(mlp: Trace) -> None:
    state = after(opened(mlp), *do("tree", "tree-mode", "tree-mode"))
    first = "180.00", "16 %", "30.00", "8.00", "1", "0.010", "▸ aten::linear"
    assert cells(state, 1) == [*first]


SORTED = [
    (mode, sort)
    for mode in MODES
    for sort in MEASURES
    if (mode, sort) != ("each", "count")
]


@pytest.mark.parametrize(("mode", "sort"), SORTED)
def test_shares_are_of_what_the_heading_says(mlp: Trace, mode: str, sort: str) -> None:
    keys = ["tree-mode"] * MODES.index(mode)
    state = after(opened(mlp, size=Size(120, 40)), *do("tree", *keys))
    tree = page.shown_tree(state)
    while state.tree.sort_of(tree) != sort:
        state = after(state, *do("tree-sort-right"))
    whole = tree.whole(sort)
    lines = drawn(state).split("\n")
    text = duration(whole) if sort in tree.units else count(whole)
    assert f"share of the {text} " in lines[2]
    assert re.search(rf"{sort}( \w+)?\*", lines[3])
    node = int(TREE.opened(state).shown[1])
    figure = int(tree.figures[sort][node])
    share = percent(figure, whole) if figure else ""
    assert share in lines[5]


@pytest.mark.parametrize("make", [build_call_tree, build_op_tree])
def test_a_thread_adds_up_its_ops(
    trace_of: Make, make: Callable[[Trace], OpTree]
) -> None:
    tree = make(trace_of(training()))
    parent = tree.parent
    threads = np.flatnonzero(tree.is_thread)
    assert len(threads) > 0
    for measure in set(tree.figures) - {"self"}:
        for thread in threads:
            inner = tree.figures[measure][parent == thread]
            assert int(tree.figures[measure][thread]) == int(inner.sum())
    assert int(tree.figures["self"].sum()) == tree.whole("total")


@pytest.mark.parametrize("sort", ["GPU", "total", "self", "kernels", "start", "name"])
def test_ops_one_by_one_are_sorted_too(trace_of: Make, sort: str) -> None:
    tree = build_op_tree(trace_of(training()))
    order = tree.preorder(sort)
    parents = tree.parent
    assert sorted(order.nodes.tolist()) == list(range(len(tree)))
    assert order.place[order.nodes].tolist() == list(range(len(tree)))
    for parent in range(-1, len(tree)):
        children = [n for n in order.nodes.tolist() if parents[n] == parent]
        assert all(
            order.place[n] < order.end[order.place[parent]]
            for n in children
            if parent >= 0
        )
        if sort in tree.figures:
            figures = [-int(tree.figures[sort][n]) for n in children]
        elif sort == "start":
            figures = children
        else:
            continue
        assert figures == sorted(figures)


def test_opening_to_a_node_opens_all_around_it(mlp: Trace) -> None:
    state = after(opened(mlp), *do("tree", "tree-mode", "tree-mode"))
    tree = page.shown_tree(state)
    closed = TREE.with_nodes(state, np.zeros(len(tree), np.bool_))
    there = TREE.led_to(closed, TREE.node_of(state, find(mlp, "cudaLaunchKernel")[0]))
    rows = tree.row[TREE.opened(there).shown[:4]].tolist()
    assert rows[0] < 0
    assert [mlp.name_of(row) for row in rows[1:]] == [
        "aten::linear",
        "aten::mm",
        "cudaLaunchKernel",
    ]


def test_open_nodes_and_the_cursor_stay_when_more_is_read(
    mlp: Trace, trace_of: Make
) -> None:
    """In any order."""
    state = after(opened(mlp), *do("tree", "tree-mode", "tree-mode", "tree-sort-right"))
    state = after(state, *do("first", "row-down", "turn"))
    sides = make_sides([trace_of(mlp_events(3))], ["first"])
    now = TREE.follow(
        state, replace(state, session=replace(state.session, sides=sides))
    )
    assert named(TREE, now) == named(TREE, state) == "aten::gelu"
    assert TREE.opened(now).nodes.sum() == TREE.opened(state).nodes.sum() > 1


def test_a_trace_without_a_gpu_shows_shares_of_its_time(trace_of: Make) -> None:
    on_cpu = [
        event for event in mlp_events() if event["cat"] in ("cpu_op", "user_annotation")
    ]
    state = after(opened(trace_of(on_cpu), size=Size(120, 30)), *do("tree"))
    text = drawn(state)
    assert "share of the 240 us of total time" in text
    assert "GPU" not in text.split("\n")[3]
    assert "50 %" in text


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        (["row-down", "turn", "unfold"], "aten::mm"),
        (["row-down", "unfold", "unfold"], "aten::mm"),
        (["row-down", "unfold", "unfold", "fold-node"], "aten::linear"),
        (["row-down", "fold-node"], "thread 1"),
    ],
    ids=" ".join,
)
def test_keys_open_and_close_and_go_in_and_out(
    mlp: Trace, keys: list[str], row: str
) -> None:
    state = after(opened(mlp), *do("tree", *keys))
    assert named(TREE, state) == row


def test_opening_a_node_shows_what_is_in_it(mlp: Trace) -> None:
    closed = after(opened(mlp), *do("tree", "row-down"))
    state = after(closed, *do("turn"))
    assert TREE.rows(state).count == TREE.rows(closed).count + 1
    assert TREE.rows(after(state, *do("turn"))).count == TREE.rows(closed).count


def test_no_key_makes_the_tree_of_a_large_trace(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made beside the app; until it is there, a sentence says so."""
    monkeypatch.setattr(page, "MAX_SLICES_AT_ONCE", 1)
    state = after(opened(mlp), *do("tree"))
    assert (state.page, state.hint) == ("timeline", page.WORKING)
    made: dict[Hashable, Any] = {build_call_tree: build_call_tree(mlp)}
    state = after(state, lambda now: accept_answer(now, mlp, made), *do("tree"))
    assert state.page == "tree"
    assert after(state, *do("tree-mode")).hint == page.WORKING


def test_open_nodes_of_the_tree_stay_open_in_another_order(mlp: Trace) -> None:
    state = after(opened(mlp), *do("tree", "row-down", "turn", "row-down"))
    now = after(state, *do("tree-sort-right", "tree-sort-right"))
    assert named(TREE, now) == named(TREE, state) == "aten::mm"
    assert TREE.rows(now).count == TREE.rows(state).count
