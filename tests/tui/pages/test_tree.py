"""The op tree page: what a line says, and what its keys open and close."""

from __future__ import annotations

from fusetui.trace import Trace
from fusetui.tui.drawing.glyphs import UNICODE
from fusetui.tui.layout.tree import op_tree
from fusetui.tui.pages.tree import format_node


def test_a_node_says_what_it_launched(mlp: Trace) -> None:
    tree = op_tree(mlp)
    cells = format_node(tree, 1, False, UNICODE, 80)
    assert [text.strip() for text, _ in cells] == ["30 us", "8 us", "180 us", "1", "▸ aten::linear"]
