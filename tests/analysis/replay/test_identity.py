"""A graph without a change replays the recording, to the nanosecond."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from tests.analysis.replay.events import call, host, kernel

from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import WrongChangeError
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.path import path as critical_path
from fusetui.analysis.replay.predicted import predict_slices
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.times import compute_slice_times
from fusetui.analysis.replay.whatif import whatif
from fusetui.trace import Trace, open_trace


def assert_identical(trace: Trace) -> None:
    graph = build_graph(trace)
    times = replay(graph)
    calls, items = graph.nodes(Node.LAUNCH, Node.WAIT), graph.nodes(Node.GPU_TASK)
    assert sorted(graph.row[items]) == trace.gpu_rows.tolist()
    rows = graph.row[items]
    assert (times.begin[items] + graph.origin_ns == trace.start[rows]).all()
    assert (times.end[items] + graph.origin_ns == trace.end[rows]).all()
    assert (times.end[calls] + graph.origin_ns >= trace.end[graph.row[calls]]).all()
    assert (times.begin == graph.began).all()
    assert (times.end == graph.ended).all()
    start, end = compute_slice_times(trace, graph, times)
    assert (start == trace.start).all()
    assert (end == trace.end).all()
    second = predict_slices(trace, [])
    drawn = second.make_trace(trace)
    assert (np.diff(second.rows) > 0).all()
    assert (drawn.start == trace.start[second.rows]).all()
    assert (drawn.end == trace.end[second.rows]).all()
    assert (drawn.depth == trace.depth[second.rows]).all()
    assert set(trace.gpu_rows) <= set(second.rows)
    assert not np.diff(second.bounds, axis=0).any()
    assert (graph.dur >= 0).all()
    assert (graph.residual >= 0).all()
    assert (graph.source[:, 1:] < np.arange(1, len(graph))).all()


def test_replay_without_a_change_equals_every_trace_of_a_file(any_trace: Path) -> None:
    assert_identical(open_trace(str(any_trace)))


NAMES = (
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
)
OTHERS = ("aten::mm", "autograd::engine::evaluate_function: MmBackward0", "aten::item")
TIMES = st.integers(0, 30)


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events of any order and nesting, however impossible: kernels before their
    launches, calls that overlap, times that tie, waits for events of streams that wait
    for each other."""
    events = [host("aten::mm", 0, 1)]
    for number in range(draw(st.integers(0, 12))):
        name, tid = draw(st.sampled_from(NAMES)), draw(st.integers(1, 2))
        events.append(call(name, draw(TIMES), draw(TIMES), number, tid=tid))
        for _ in range(draw(st.integers(0, 2))):
            stream = {"tid": draw(st.integers(7, 9))}
            events.append(kernel(draw(TIMES), draw(TIMES), number) | stream)
    for name in draw(st.lists(st.sampled_from(OTHERS), max_size=6)):
        events.append(host(name, draw(TIMES), draw(TIMES), tid=draw(st.integers(1, 2))))
    for number in range(20, 20 + draw(st.integers(0, 4))):
        events.append(call("cudaEventRecord", draw(TIMES), 1, number))
        events.append(call("cudaStreamWaitEvent", draw(TIMES), 1, number + 20))
        args = {
            "correlation": number + 20,
            "wait_on_stream": draw(st.integers(7, 9)),
            "wait_on_cuda_event_record_corr_id": number,
        }
        sync = host("Stream Wait Event", draw(TIMES), 1, "cuda_sync", pid=0, args=args)
        events.append(sync | {"tid": draw(st.integers(7, 9))})
    return events


def an_engine_whose_op_takes_no_time() -> list[dict[str, Any]]:
    backward = "autograd::engine::evaluate_function: MmBackward0"
    return [host("aten::mm", 0, 1), host(backward, 0, 0, tid=2)]


@given(programs())
@example(an_engine_whose_op_takes_no_time())
def test_replay_without_a_change_equals_any_trace(events: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}))
        trace = open_trace(str(path), cached=False)
        assert_identical(trace)
        found = critical_path(trace)
        assert sum(row.ns for row in found.rows) == found.span_ns
        for change in ("kernel:k x0", "op:aten::mm x0.5", "python x0", "op:item x0"):
            with suppress(WrongChangeError):
                whatif(trace, [change])
