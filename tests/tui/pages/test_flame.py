"""The flame page: wide is what took long, and every block leads to its longest call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.text.figures import percent
from fusetui.trace import Trace
from fusetui.tui.layout.flame import WHOLE, build_flame
from fusetui.tui.layout.op_tree import build_call_tree
from fusetui.tui.pages.flame import FlamePage, here
from fusetui.tui.state.state import TIMELINE, Size, State

Make = Callable[..., Trace]
PAGE = FlamePage()
SMALL = Size(80, 24)


def shown(trace: Trace, *names: str, size: Size = SMALL) -> State:
    return after(opened(trace, size=size), explained, *do("flame", *names))


def name_at(state: State) -> str:
    flame, at = here(state)
    assert flame is not None
    return flame.tree.label(at)


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_flame_page_looks_as_kept(
    trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]
) -> None:
    state = shown(trace_of(training()), "flame-tree", "flame-tree", size=size)
    matches_screen(f"flame-{size.width}x{size.height}", drawn(state))


def test_a_block_lies_within_the_one_around_it_and_the_largest_is_left(
    mlp: Trace,
) -> None:
    for time in ("GPU", "CPU"):
        flame = build_flame(build_call_tree(mlp), time)
        for node in range(len(flame.tree.parent)):
            begin, width = flame.interval(node)
            around, whole = flame.interval(int(flame.tree.parent[node]))
            assert around <= begin
            assert begin + width <= around + whole or not flame.amount[node]
            sizes = [int(flame.amount[child]) for child in flame.children(node)]
            assert sizes == sorted(sizes, reverse=True)


def test_blocks_fill_the_screen_as_their_time_does(mlp: Trace) -> None:
    flame = build_flame(build_call_tree(mlp), "GPU")
    widths = {
        flame.tree.label(node): b - a for node, a, b in flame.in_sight(WHOLE, 1, 100)
    }
    assert widths == {"aten::linear": 65, "aten::gelu": 19, "aten::mul": 16}


def test_flame_key_turns_through_ops_modules_and_frames(trace_of: Make) -> None:
    state = shown(trace_of(training()))
    assert "GPU time launched by ops" in drawn(state)
    modules = after(state, *do("flame-tree"))
    assert "Attention_*" in drawn(modules)
    frames = after(modules, *do("flame-tree"))
    assert "forward my_model.py:41" in drawn(frames)
    assert drawn(after(frames, *do("flame-tree"))) == drawn(state)


def test_the_cursor_begins_where_the_time_divides(trace_of: Make) -> None:
    state = shown(trace_of(training()), "flame-tree", "flame-tree")
    assert name_at(state) == "Net_0"
    assert name_at(after(state, *do("flame-in", "flame-right"))) == "Attention_0"


def test_flame_zoom_and_back_keep_the_cursor(mlp: Trace) -> None:
    state = shown(mlp, "flame-in")
    inside = after(state, *do("flame-zoom"))
    assert inside.flame.root == here(state)[1]
    assert name_at(inside) == "aten::linear"
    outside = after(inside, *do("flame-back"))
    assert outside.flame.root == WHOLE
    assert name_at(outside) == "aten::linear"


def test_the_longest_call_is_shown_in_the_timeline(mlp: Trace) -> None:
    state = shown(mlp, "flame-in", "flame-right", "flame-show")
    assert state.page == TIMELINE
    assert state.side.trace.name_of(state.view.selected) == "aten::gelu"


def test_y_copies_the_path_of_a_flame_block(mlp: Trace) -> None:
    assert PAGE.copied(shown(mlp, "flame-in", "flame-in")).endswith(
        "> aten::linear > aten::mm"
    )


def test_frames_that_are_not_known_yet(mlp: Trace) -> None:
    state = after(
        opened(mlp), *do("flame", "flame-tree", "flame-tree", "flame-in", "flame-show")
    )
    assert "Computing the Python frames..." in drawn(state)


def test_a_trace_without_frames_says_so(mlp: Trace) -> None:
    state = shown(mlp, "flame-tree", "flame-tree")
    assert "GPU time launched by Python frames by call path: none" in drawn(state)


def test_shares_stand_on_the_blocks_that_have_room(trace_of: Make) -> None:
    narrow = Size(40, 24)
    state = shown(trace_of(training()), "flame-tree", "flame-tree", size=narrow)
    flame, _ = here(state)
    assert flame is not None
    graph = drawn(state).split("\n")[3:]
    rooms = {True: 0, False: 0}
    for level in range(len(flame.levels)):
        for cells in flame.in_sight(WHOLE, level, narrow.width):
            block = graph[level][cells.first : cells.stop]
            share = percent(int(flame.amount[cells.node]), flame.whole_ns)
            text = f"{flame.tree.label(cells.node)}  {share}"
            has_room = len(text) + 2 <= cells.stop - cells.first
            rooms[has_room] += 1
            assert (text in block) == has_room
    assert rooms[True]
    assert rooms[False]
