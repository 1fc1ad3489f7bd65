"""Replays of a CUDA graph whose nodes have numbers and annotations, and flows from each
node to those that wait for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.analysis.servers import Event, call, gpu

GRAPH = 11
LAYERS = 4
REPLAYS = 3
APART_US = 500
GAP_US = 0.5
SIDE_STREAM = 21
FIRST_FLOW = 1 << 41
"""Flows of nodes have numbers above those of launches."""
KERNELS = (
    ("norm", "my_rms_norm", 2.0),
    ("attn", "my_attention", 5.5),
    ("mlp", "gemm", 8),
)
"""Of each layer: the part, its kernel, and how many us that takes."""


def annotated_replays() -> dict[str, Any]:
    """The document. The norms run on a stream of their own; a node waits for the one
    before it, and every attention for the first node, too."""
    events: list[Event] = []
    for number in range(1, REPLAYS + 1):
        nodes = _nodes(APART_US * number, number)
        events.append(call("cudaGraphLaunch", APART_US * number - 20, 6, number))
        events += nodes
        events += _flows(nodes, FIRST_FLOW + 1000 * number)
    return {"traceEvents": events}


def _nodes(at: float, number: int) -> list[Event]:
    nodes: list[Event] = []
    for layer in range(LAYERS):
        for part, kernel, us in KERNELS:
            node = len(nodes) + 1
            name = json.dumps([{"name": f"layer.{layer}.{part}"}])
            event = gpu(kernel, at, us, number)
            event["args"] |= {
                "graph id": GRAPH,
                "graph node id": node,
                "annotation": name,
            }
            if part == "norm":
                event["tid"] = SIDE_STREAM
            nodes.append(event)
            at += us + GAP_US
    return nodes


def _flows(nodes: Sequence[Event], first_number: int) -> list[Event]:
    waits = [(n, n + 1) for n in range(len(nodes) - 1)]
    waits += [(0, n) for n in range(4, len(nodes), len(KERNELS))]
    flows = []
    for number, (before, after) in enumerate(waits, first_number):
        common = {"cat": "ac2g", "name": "ac2g", "id": number, "pid": 0}
        source, target = nodes[before], nodes[after]
        left = source["ts"] + source["dur"]
        flows += [
            {**common, "ph": "s", "tid": source["tid"], "ts": left},
            {**common, "ph": "f", "tid": target["tid"], "ts": target["ts"], "bp": "e"},
        ]
    return flows
