"""The op tree page: what a line says, and what its keys open and close."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from tests.tui.prepared import after, do, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.glyphs import UNICODE
from fusetui.tui.layout.call_tree import call_tree
from fusetui.tui.layout.tree import op_tree
from fusetui.tui.pages import tree as page
from fusetui.tui.pages.tree import TREE, format_node
from fusetui.tui.state.reading import prepared


def test_a_node_says_what_it_launched(mlp: Trace) -> None:
    tree = op_tree(mlp)
    cells = format_node(tree, 1, False, UNICODE, 80)
    assert [text.strip() for text, _ in cells] == ["30 us", "8 us", "180 us", "1", "▸ aten::linear"]


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
def test_keys_open_and_close_and_go_in_and_out(mlp: Trace, keys: list[str], row: str) -> None:
    state = after(opened(mlp), *do("tree", *keys))
    assert TREE.copied(state) == row


def test_opening_a_node_shows_what_is_in_it(mlp: Trace) -> None:
    closed = after(opened(mlp), *do("tree", "row-down"))
    state = after(closed, *do("turn"))
    assert TREE.rows(state).count == TREE.rows(closed).count + 1
    assert TREE.rows(after(state, *do("turn"))).count == TREE.rows(closed).count


def test_no_key_makes_the_tree_of_a_large_trace(
    mlp: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made beside the app; until it is there, a sentence says so."""
    monkeypatch.setattr(page, "LARGE", 1)
    state = after(opened(mlp), *do("tree"))
    assert (state.page, state.hint) == ("timeline", page.WORKING)
    made: dict[Hashable, Any] = {call_tree: call_tree(mlp)}
    state = after(state, lambda now: prepared(now, mlp, made), *do("tree"))
    assert state.page == "tree"
    assert after(state, *do("tree-mode")).hint == page.WORKING
