"""The order in which the nodes of a tree are shown."""

from __future__ import annotations

import tracemalloc

from fusetui.tui.layout.figure_trees import by_name


def test_each_name_has_its_place_among_all() -> None:
    assert by_name(["mm", "add", "mul"]).tolist() == [1, 0, 2]
    assert by_name([]).tolist() == []


def test_one_long_name_makes_the_others_no_larger() -> None:
    names = ["x" * 1_000_000, *(f"op {n}" for n in range(200))]
    tracemalloc.start()
    try:
        by_name(names)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
