"""The replays of graphs in a trace, each with its nodes in the order of their capture.

The order is that of `graph node id` where the profiler wrote it (Kineto since 2026), as CUDA
numbers nodes in the order in which they were added; else that of the starts on the device (see also
join.py).
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.spread import grouped
from fusetui.analysis.serving.graphs import graph_calls
from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id

NODE = ("graph node id",)
AMD = {"roctracer_version", "hip_runtime_version"}
"""Keys of files whose nodes have no ids, as HIP's have not."""


class Nodes(msgspec.Struct, frozen=True, eq=False):
    """The nodes of one graph launch on one device."""

    call: int  # row of the launch
    device: Id
    rows: Rows  # GPU rows, in the order in which they were captured
    numbered: bool = False  # that order is recorded

    def __len__(self) -> int:
        return len(self.rows)


def replays(trace: Trace) -> tuple[Nodes, ...]:
    """All graph launches with recorded events, in order of their calls."""
    rows = trace.gpu_rows
    launch = trace.launch[rows]
    graph = graph_calls(trace)
    rows = rows[(launch >= 0) & graph[launch]]
    if not len(rows):
        return ()
    device = trace.process_of_track[trace.track[rows]]
    key = trace.launch[rows].astype(np.int64) * (len(trace.tracks) + 1) + device
    groups = grouped(key, trace.start[rows])
    ids = _node_ids(trace, rows)
    found = []
    for places in map(groups.places, range(len(groups))):
        if ids is not None:
            places = places[np.argsort(ids[places], kind="stable")]
        own = rows[places]
        pid = trace.track_of(int(own[0])).pid
        found.append(Nodes(int(trace.launch[own[0]]), pid, own, numbered=ids is not None))
    return tuple(sorted(found, key=lambda nodes: int(trace.start[nodes.call])))


def bare_launches(trace: Trace) -> int:
    """How many graph launches have no event: the profiler did not record the nodes of graphs."""
    launch = trace.launch[trace.gpu_rows]
    events = np.bincount(launch[launch >= 0], minlength=len(trace))
    return int((graph_calls(trace) & (events == 0)).sum())


def _node_ids(trace: Trace, rows: Rows) -> Int64s | None:
    """The ids of all nodes; None unless every one has an id of its own in its replay."""
    first = int(rows[0])
    if AMD & trace.keys.keys() or trace.name_of(int(trace.launch[first])).startswith("hip"):
        return None
    if not trace.args_of(first).get(NODE[0]):
        return None
    found = arguments(trace.elements, trace.order[rows], NODE, keep_as="nodes")
    values = [parsed(texts[0]) for texts in found.distinct]
    ids = [v if isinstance(v, int) and 0 < v < 1 << 62 else 0 for v in values]
    each = np.array([*ids, 0], dtype=np.int64)[found.number]
    return each if (each > 0).all() else None
