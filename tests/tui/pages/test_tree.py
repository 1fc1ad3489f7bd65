"""The op tree page: what a line says, and what its keys open and close."""

from __future__ import annotations

import pytest
from tests.tui.prepared import after, do, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.glyphs import UNICODE
from fusetui.tui.layout.tree import op_tree
from fusetui.tui.pages.tree import TREE, format_node


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
