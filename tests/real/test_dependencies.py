"""Real graphs with flows between their nodes."""

from __future__ import annotations

from tests.real.traces import PFTRACES, each_of, existing
from tests.trace.program.test_dependencies import (
    by_node,
    test_dependencies_are_those_of_the_flows,
)

from fusetui.trace import open_trace
from fusetui.trace.program.backward import dependencies

GRAPH = PFTRACES / "b300_decode_graph_full.json.gz"
SAME_GRAPH_ON_MORE_STREAMS = PFTRACES / "b300_decode_graph_lanes.json.gz"
OTHERS = ("mi300_vllm_decode_graph_full.json.gz", "edge.json.gz")

any_trace = each_of(
    [GRAPH, SAME_GRAPH_ON_MORE_STREAMS, *(PFTRACES / name for name in OTHERS)]
)


def test_lanes_tell_the_same() -> None:
    """With the nodes on more streams, every flow is clear."""
    plain = open_trace(str(existing(GRAPH)))
    lanes = open_trace(str(existing(SAME_GRAPH_ON_MORE_STREAMS)))
    assert len(by_node(lanes)) == 362
    assert by_node(plain) < by_node(lanes)
    assert len(by_node(plain)) + dependencies(plain).unclear == 362
