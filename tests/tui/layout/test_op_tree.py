from __future__ import annotations

import numpy as np
from tests.finding import find

from fusetui.trace import Trace
from fusetui.tui.layout.figure_trees import open_to, visible
from fusetui.tui.layout.op_tree import node_of, op_tree


def names(trace: Trace, rows: list[int]) -> list[str]:
    return [trace.name_of(row) if row >= 0 else "thread" for row in rows]


def test_a_closed_tree_shows_its_threads(mlp: Trace) -> None:
    tree = op_tree(mlp)
    assert names(mlp, tree.row[visible(tree.end, np.zeros(len(tree.row), np.bool_))].tolist()) == [
        "thread"
    ]


def test_an_open_thread_shows_its_outer_ops(mlp: Trace) -> None:
    tree = op_tree(mlp)
    shown = visible(tree.end, tree.row < 0)
    assert names(mlp, tree.row[shown].tolist())[:3] == ["thread", "aten::linear", "aten::linear"]


def test_opening_to_a_node_opens_all_around_it(mlp: Trace) -> None:
    tree = op_tree(mlp)
    node = node_of(tree, int(find(mlp, "cudaLaunchKernel")[0]))
    shown = visible(tree.end, open_to(tree.end, np.zeros(len(tree.row), np.bool_), node))
    assert names(mlp, tree.row[shown].tolist())[:4] == [
        "thread",
        "aten::linear",
        "aten::mm",
        "cudaLaunchKernel",
    ]
