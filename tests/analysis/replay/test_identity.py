"""A graph without a change replays the recording, to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from tests.places import TRACES
from tests.trace.test_corpus import ROWS

from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.replay import replay
from fusetui.trace import Trace, open_trace


def assert_identical(trace: Trace) -> None:
    graph = graph_of(trace)
    times = replay(graph)
    calls, items = graph.nodes(Node.LAUNCH, Node.WAIT), graph.nodes(Node.ITEM)
    assert sorted(graph.row[items]) == trace.gpu_rows.tolist()
    rows = graph.row[items]
    assert (times.begin[items] + graph.origin_ns == trace.start[rows]).all()
    assert (times.end[items] + graph.origin_ns == trace.end[rows]).all()
    assert (times.end[calls] + graph.origin_ns >= trace.end[graph.row[calls]]).all()
    assert (times.begin == graph.began).all()
    assert (times.end == graph.ended).all()
    assert (graph.dur >= 0).all()
    assert (graph.residual >= 0).all()
    assert (graph.source[:, 1:] < np.arange(1, len(graph))).all()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_every_real_trace(row: dict[str, str]) -> None:
    assert_identical(open_trace(str(TRACES / row["file"])))
