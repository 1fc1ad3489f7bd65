from __future__ import annotations

import numpy as np

from fusetui.trace import Trace
from fusetui.tui.layout.op_tree import build_op_tree


def names(trace: Trace, rows: list[int]) -> list[str]:
    return [trace.name_of(row) if row >= 0 else "thread" for row in rows]


def test_a_closed_tree_shows_its_threads(mlp: Trace) -> None:
    tree = build_op_tree(mlp)
    shown = tree.visible("start", np.zeros(len(tree), np.bool_))
    assert names(mlp, tree.row[shown].tolist()) == ["thread"]


def test_an_open_thread_shows_its_outer_ops(mlp: Trace) -> None:
    tree = build_op_tree(mlp)
    shown = tree.visible("start", tree.is_thread)
    assert names(mlp, tree.row[shown].tolist())[:3] == [
        "thread",
        "aten::linear",
        "aten::linear",
    ]
