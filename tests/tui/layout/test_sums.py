"""Of any trace: parents are the sums of what is in them, and every figure is that of
the command line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fusetui.analysis.graphs.opening import with_captures
from fusetui.analysis.questions.groups import group_ops
from fusetui.analysis.questions.totals import sum_kernels_by_name
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role
from fusetui.trace.program.modules import module_times
from fusetui.trace.program.origin import origins
from fusetui.tui.layout.figure_trees import build_module_tree
from fusetui.tui.layout.flame import Flame, build_flame
from fusetui.tui.layout.kernel_table import (
    KernelTable,
    KernelView,
    build_table,
    keys_of,
)
from fusetui.tui.layout.op_tree import (
    build_call_tree,
    build_callers_tree,
    build_frame_tree,
    build_op_tree,
)

Int64s = NDArray[np.int64]


@pytest.fixture(scope="module")
def trace(any_trace: Path) -> Trace:
    """As the app and the commands open it: joined with the capture of its graphs."""
    return opened(any_trace)


@lru_cache(maxsize=1)
def opened(path: Path) -> Trace:
    return with_captures(open_trace(str(path)), (), open_trace)[0]


def inside(parent: Int64s, amount: Int64s) -> Int64s:
    """For each node, the sum of its children."""
    found = np.zeros(len(parent), dtype=np.int64)
    inner = np.flatnonzero(parent >= 0)
    np.add.at(found, parent[inner], amount[inner])
    return found


def test_op_trees_of_traces_add_up(trace: Trace) -> None:
    for tree in (build_call_tree(trace), build_op_tree(trace)):
        parent, level, figures = tree.parent, tree.level, tree.figures
        rest = figures["total"] - inside(parent, figures["total"])
        assert (rest == figures["self"]).all()  # of a thread both are 0
        for measure in ("GPU", "kernels"):
            assert (inside(parent, figures[measure]) <= figures[measure]).all()
            assert tree.whole(measure) == int(figures[measure][level == 0].sum())
        linked = (trace.launch[trace.gpu_rows] >= 0) | (trace.op[trace.gpu_rows] >= 0)
        assert tree.whole("GPU") <= int(trace.dur[trace.gpu_rows[linked]].sum())


def test_callers_trees_of_traces_equal_ops(trace: Trace) -> None:
    """As `fusetui ops`; each tree has the same GPU time."""
    tree = build_callers_tree(trace)
    names = {
        trace.names[n]: i for i, n in enumerate(tree.name.tolist()) if not tree.level[i]
    }
    recorded = [op for op in group_ops(trace) if not op.captured]
    calls = set(trace.name[trace.rows_of(Role.CALL)].tolist())
    for op in recorded:
        node = names[op.name]
        if int(tree.name[node]) not in calls:
            figures = [tree.figures[name][node] for name in ("count", "total", "self")]
            assert tuple(figures) == (op.count, op.total_ns, op.self_ns)
    for values in tree.figures.values():
        assert (inside(tree.parent, values) <= values).all()
    assert (
        tree.whole("GPU")
        == build_call_tree(trace).whole("GPU")
        == build_op_tree(trace).whole("GPU")
    )


def test_kernel_tables_of_traces_equal_kernels(trace: Trace) -> None:
    """As `fusetui kernels`; in whatever groups, all of them once."""
    keys = keys_of(trace)
    if not keys:
        return
    table = build_table(trace, keys, KernelView())
    assert figures_of(table) == {
        one.name: (len(one.rows), one.total_ns, one.min_ns, one.median_ns, one.max_ns)
        for one in sum_kernels_by_name(trace)
    }
    for by in keys:
        other = build_table(trace, keys, KernelView(by=by))
        assert (other.whole_ns, sum(one.count for one in other.spreads)) == (
            table.whole_ns,
            len(table.rows),
        )


def figures_of(table: KernelTable) -> Mapping[str, tuple[int, ...]]:
    return {
        table.full_name(n): (one.count, total, one.min_ns, one.median_ns, one.max_ns)
        for n, (one, total) in enumerate(
            zip(table.spreads, table.totals.tolist(), strict=True)
        )
    }


def test_module_trees_of_traces_equal_modules(trace: Trace) -> None:
    """As `fusetui modules`."""
    found = origins(trace)
    modules = module_times(found)
    tree = build_module_tree(modules, found)
    for whole, own in (("gpu_ns", "gpu_self_ns"), ("kernels", "kernels_self")):
        amounts = np.array([getattr(t, whole) for t in tree.times], dtype=np.int64)
        rest = amounts - inside(tree.parent[: len(amounts)], amounts)
        assert rest.tolist() == [getattr(t, own) for t in tree.times]
    assert int(tree.figures["GPU"][tree.parent < 0].sum()) == tree.whole("GPU")
    for time in ("GPU", "CPU"):
        for flame in (
            build_flame(tree, time),
            build_flame(build_frame_tree(trace, found), time),
        ):
            assert fits(flame)


def fits(flame: Flame) -> bool:
    return bool((inside(flame.tree.parent, flame.amount) <= flame.amount).all())
