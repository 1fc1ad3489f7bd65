"""What the app marks of the critical path, against replays with longer slices."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.marks import compute_marks
from fusetui.analysis.replay.path import path
from fusetui.analysis.replay.replay import replay
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role


@pytest.fixture(scope="module", params=["mlp-eager", "mlp-compiled"])
def trace(request: pytest.FixtureRequest) -> Trace:
    return open_trace(str(lessons.path(request.param)))


def test_a_kernel_can_take_so_much_longer_and_no_more(trace: Trace) -> None:
    graph, marks = build_graph(trace), compute_marks(trace)
    end = int(graph.ended.max())
    for node in graph.nodes(Node.GPU_TASK)[::4].tolist():
        spare = int(marks.spare_ns[graph.row[node]])
        for longer, late in ((spare, 0), (spare + 1, 1)):
            dur = graph.dur.copy()
            dur[node] += longer
            assert int(replay(replace(graph, dur=dur)).end.max()) - end == late


def test_marks_add_up_to_the_rows(trace: Trace) -> None:
    marks, rows = compute_marks(trace), path(trace).rows
    kernels = trace.rows_of(Role.KERNEL)
    assert marks.ns[kernels].sum() == sum(
        row.ns for row in rows if row.kind == "kernel"
    )
    assert marks.span_ns == sum(row.ns for row in rows)


def test_slice_on_the_critical_path_has_no_slack(trace: Trace) -> None:
    marks = compute_marks(trace)
    on = marks.ns > 0
    assert on.any()
    assert not marks.spare_ns[on].any()
    assert (marks.ns <= trace.dur).all()


def test_stops_are_in_order_and_each_is_one(trace: Trace) -> None:
    marks = compute_marks(trace)
    assert len(np.unique(marks.stops)) == len(marks.stops)
    assert (np.diff(marks.begin) >= 0).all()
    assert (marks.ns[marks.stops] > 0).all()
