"""The ops merged by call path: figures as if each op was added to its path by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tests.tui.explainable import training

from fusetui.analysis.questions.totals import (
    measure_self_ns,
    sum_gpu_work_under_rows,
    sum_ops_by_name,
)
from fusetui.trace import Trace
from fusetui.trace.model.categories import Layer, Role
from fusetui.tui.layout.op_tree import (
    MEASURES,
    OpTree,
    build_call_tree,
    build_callers_tree,
)

Path = tuple[str, ...]
Opener = Callable[..., Trace]


@pytest.fixture(params=["mlp", "training", "nothing"])
def trace(request: pytest.FixtureRequest, trace_of: object, mlp: Trace) -> Trace:
    if request.param == "mlp":
        return mlp
    found: Trace = trace_of(training() if request.param == "training" else [])  # type: ignore[operator]
    return found


def path(trace: Trace, row: int) -> Path:
    above = int(trace.parent[row])
    return (*(path(trace, above) if above >= 0 else ()), trace.name_of(row))


def ops(trace: Trace) -> list[int]:
    return [row for row in range(len(trace)) if trace.track_of(row).layer is Layer.OPS]


def paths_of(tree: OpTree) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for node in range(len(tree)):
        parent, name = int(tree.parent[node]), int(tree.name[node])
        own = (tree.trace.names[name],) if name >= 0 else ()
        found[node] = (*found.get(parent, ()), *own)
    return found


def test_figures_of_a_call_path_equal_adding_each_op(trace: Trace) -> None:
    own, (gpu, _) = measure_self_ns(trace), sum_gpu_work_under_rows(trace)
    count, total, self_time, on_gpu = (Counter[Path]() for _ in range(4))
    for row in ops(trace):
        key = path(trace, row)
        count[key] += 1
        total[key] += int(trace.dur[row])
        self_time[key] += int(own[row])
        on_gpu[key] += int(gpu[row])
    tree = build_call_tree(trace)
    found = {p: n for n, p in paths_of(tree).items() if p}
    assert set(found) == set(count)
    for key, node in found.items():
        figures = [
            int(tree.figures[name][node]) for name in ("count", "total", "self", "GPU")
        ]
        assert figures == [count[key], total[key], self_time[key], on_gpu[key]]


def test_self_times_of_callers_equal_adding_each_op(trace: Trace) -> None:
    own = measure_self_ns(trace)
    expected = Counter[Path]()
    for row in ops(trace):
        whole = path(trace, row)[::-1]
        for length in range(1, len(whole) + 1):
            expected[whole[:length]] += int(own[row])
    tree = build_callers_tree(trace)
    found = {p: int(tree.figures["self"][n]) for n, p in paths_of(tree).items()}
    assert found == expected


@pytest.mark.parametrize("make", [build_call_tree, build_callers_tree])
@pytest.mark.parametrize("sort", [*MEASURES, "name"])
def test_preorder_of_any_sort_keeps_subtrees_together(
    trace: Trace, make: object, sort: str
) -> None:
    tree = make(trace)  # type: ignore[operator]
    order = tree.preorder(sort)
    assert sorted(order.nodes.tolist()) == list(range(len(tree)))
    for n, node in enumerate(order.nodes.tolist()):
        inside = set(order.nodes[n + 1 : order.end[n]].tolist())
        children = set(np.flatnonzero(tree.parent == node).tolist())
        assert children <= inside
        assert all(int(tree.parent[one]) in inside | {node} for one in inside)
        shown = [
            one for one in order.nodes[n + 1 : order.end[n]].tolist() if one in children
        ]
        if sort != "name":
            figures = [int(tree.figures[sort][one]) for one in shown]
            assert figures == sorted(figures, reverse=True)


def test_gpu_time_from_the_ops_up_is_that_of_ops_and_not_of_their_launch_calls(
    mlp: Trace,
) -> None:
    tree, calls = build_callers_tree(mlp), mlp.rows_of(Role.CALL)
    each = zip(paths_of(tree).values(), tree.figures["GPU"].tolist(), strict=True)
    gpu = {path[0]: ns for path, ns in each if len(path) == 1}
    own = Counter[str]()
    for row in mlp.gpu_rows.tolist():
        own[mlp.name_of(int(mlp.op[row]))] += int(mlp.dur[row])
    assert {name: ns for name, ns in gpu.items() if ns} == own
    assert not any(gpu[mlp.name_of(row)] for row in calls.tolist())


def test_an_op_inside_one_of_its_name_adds_nothing_to_the_total(
    trace_of: Opener,
) -> None:
    """As in `fusetui ops`."""
    spans = (("sum", 0, 100), ("sum", 10, 80), ("to", 20, 30), ("sum", 200, 7))
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": n,
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "dur": dur,
        }
        for n, ts, dur in spans
    ]
    trace = trace_of(events)
    tree = build_callers_tree(trace)
    found = {p[0]: n for n, p in paths_of(tree).items() if len(p) == 1}
    for op in sum_ops_by_name(trace):
        node = found[op.name]
        assert int(tree.figures["total"][node]) == op.total_ns
        assert int(tree.figures["self"][node]) == op.self_ns
        assert int(tree.figures["count"][node]) == op.count
    sums = [
        int(tree.figures["total"][tree.parent == node].sum())
        for node in range(len(tree))
    ]
    assert all(
        inner <= int(whole)
        for inner, whole in zip(sums, tree.figures["total"], strict=True)
    )


def test_a_column_of_small_times_beside_one_of_large_ones_has_figures(
    trace_of: Opener, event: Callable[..., dict[str, object]]
) -> None:
    """A step of minutes is longer than what a column of us has room for."""
    second = 1_000_000
    events = [event("step", 0, 200 * second)]
    for number in range(40):
        begin = number * 5 * second
        waits = {"name": f"wait{number}", "dur": 5 * second - 3}
        events += [event(ts=begin, **waits), event(f"aten::op{number}", begin, 2)]
    events += [event(f"aten::after{n}", 200 * second + n * 3, 1) for n in range(90)]
    tree = build_call_tree(trace_of(events))
    assert tree.units["total"].name == "s"
    assert tree.units["self"].name == "ms"
    assert tree.units["self"].text(2_000) == "0.002"


def test_columns_that_are_not_hidden_share_a_unit(mlp: Trace) -> None:
    units = build_call_tree(mlp).units
    assert len(set(units.values())) == 1
