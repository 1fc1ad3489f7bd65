"""Computes how much of each slice lies on the critical path, and its time to spare."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import host_parts
from fusetui.analysis.replay.route import LATE, OWN, Route, route_to, slack_of
from fusetui.timeline.cells import DepthRow
from fusetui.trace.model.arrays import Flags, Int64s, Rows, at
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import memo

UNKNOWN = -1
MAX_KEPT_LANES = 500
"""Lanes whose sums are kept."""


class Marks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The critical path as recorded, in each slice of the trace.

    The path goes through `stops`, each of them once, in order of time.
    """

    ns: Int64s  # of each slice: how much of it is on the critical path
    # of each slice: how much longer it alone could take and not move the end; UNKNOWN
    spare_ns: Int64s
    is_on: Flags  # of each slice: at least half of it is on the critical path
    stops: Rows  # GPU events, calls, and what else is innermost
    begin: Int64s  # of each stop, ns of the file
    span_ns: int
    residual_share: float

    @memo(MAX_KEPT_LANES)
    def before(self, line: DepthRow) -> Int64s:
        """Return how much of the slices before each slice of a line is on the path.

        The last entry is that of all slices of the line.
        """
        return np.concatenate(([0], np.cumsum(self.ns[line.rows])))


def marks_of(trace: Trace) -> Marks:
    """Compute the critical path as recorded, in each slice of a trace."""
    graph = graph_of(trace)
    route = route_to(graph, graph.recorded)
    slack_ns = np.maximum(slack_of(graph, graph.recorded), 0)
    on_path_ns = np.zeros(len(trace), dtype=np.int64)
    spare_ns = np.full(len(trace), UNKNOWN)

    # Items are slices themselves.
    items = graph.nodes(Node.ITEM)
    spare_ns[graph.row[items]] = slack_ns[items]
    is_of_item = _is_of_nodes(route) & (graph.kind[route.node] == Node.ITEM)
    row_of_stretch = graph.row[route.node[is_of_item]]
    np.add.at(on_path_ns, row_of_stretch, route.ns[is_of_item])

    # Slices of threads lie in nodes of their thread.
    for index, chain in enumerate(graph.chains):
        nodes = np.flatnonzero((graph.chain == index) & (graph.kind != Node.JOIN))
        if chain.is_stream or not len(nodes):
            continue
        path = _path_of_thread(graph, route, index)
        for track in _tracks_of(trace, chain.thread):
            start = trace.start[track.rows] - graph.origin_ns
            end = trace.end[track.rows] - graph.origin_ns
            on_path_ns[track.rows] += path.before(end) - path.before(start)
            spare_ns[track.rows] = _least_slack(graph, nodes, slack_ns, start, end)

    stops = _stops(trace, graph, route)
    return Marks(
        ns=on_path_ns,
        spare_ns=spare_ns,
        is_on=(on_path_ns > 0) & (2 * on_path_ns >= trace.dur),
        stops=stops.row,
        begin=stops.begin,
        span_ns=route.span_ns,
        residual_share=route.unknown_share,
    )


def _is_of_nodes(route: Route) -> Flags:
    """Mark the stretches of a path that its nodes do, not what comes before them."""
    return np.isin(route.part, (OWN, LATE))


class _PathOfThread(NamedTuple):
    """The stretches of the critical path in which a thread does something.

    They are in order of time, in ns after the origin.
    """

    begin: Int64s
    ns: Int64s

    def before(self, times: Int64s) -> Int64s:
        """Return how much of the stretches lies before each time, in ns."""
        ns_of_earlier = np.concatenate(([0], np.cumsum(self.ns)))
        last = np.searchsorted(self.begin, times, side="right") - 1
        since_begin = times - at(self.begin, last, missing=0)
        ns_of_last = np.minimum(since_begin, at(self.ns, last, missing=0))
        ns_before: Int64s = ns_of_earlier[last] + ns_of_last
        return np.where(last >= 0, ns_before, 0)


def _path_of_thread(graph: Graph, route: Route, chain: int) -> _PathOfThread:
    """Return the part of a path in which a thread, a chain of the graph, works."""
    is_of_thread = _is_of_nodes(route) & (graph.chain[route.node] == chain)
    stretches = np.flatnonzero(is_of_thread & (route.ns > 0))
    return _PathOfThread(begin=route.begin[stretches], ns=route.ns[stretches])


def _tracks_of(trace: Trace, thread: int) -> list[Track]:
    """Return the tracks of a CPU thread."""
    tracks = []
    for index, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if index == thread and track.layer in CPU_LAYERS:
            tracks.append(track)
    return tracks


def _least_slack(
    graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """Return the least slack of the nodes in which each slice lies.

    Args:
        graph: The graph.
        nodes: The nodes of the thread of the slices.
        slack: The slack of every node, in ns.
        start: The start of each slice, in ns after the origin.
        end: The end of each slice.

    Returns:
        ns per slice, UNKNOWN for a slice that lies in no node.
    """
    first = np.searchsorted(graph.ended[nodes], start, side="right")
    stop = np.searchsorted(graph.began[nodes], end, side="left")
    has_nodes = np.flatnonzero(first < stop)
    least = np.full(len(start), UNKNOWN)
    if len(has_nodes):
        # Between two of the ranges [first, stop), reduceat also gives a result for what
        # lies between them: every other one is to be skipped.
        edges = np.stack((first[has_nodes], stop[has_nodes]), axis=1).reshape(-1)
        slack_or_end = np.append(slack[nodes], 0)
        least_of_ranges = np.minimum.reduceat(slack_or_end, edges)
        least[has_nodes] = least_of_ranges[::2]
    return least


class _Stops(NamedTuple):
    """Slices that the critical path goes through."""

    row: Rows
    begin: Int64s  # when it first does, ns of the file


def _stops(trace: Trace, graph: Graph, route: Route) -> _Stops:
    """Return the slices that a path goes through, each once, in order of time."""
    stretches = np.flatnonzero((route.part == OWN) & (route.ns > 0))
    node = route.node[stretches]
    is_slice = np.isin(graph.kind[node], (Node.ITEM, Node.LAUNCH, Node.WAIT))
    rows_of_nodes = graph.row[node[is_slice]]
    begin_of_nodes = route.begin[stretches[is_slice]] + graph.origin_ns
    innermost = _innermost_slices(trace, graph, node[~is_slice])

    row = np.append(rows_of_nodes, innermost.row).astype(np.intp)
    begin = np.append(begin_of_nodes, innermost.begin)
    by_begin = np.argsort(begin, kind="stable")
    _, first_indices = np.unique(row[by_begin], return_index=True)
    first = by_begin[np.sort(first_indices)]
    return _Stops(row=row[first], begin=begin[first])


def _innermost_slices(trace: Trace, graph: Graph, nodes: Rows) -> _Stops:
    """Return the slices that are innermost during some nodes of threads."""
    parts = host_parts(trace, graph, nodes)
    is_recorded = parts.row >= 0
    row = parts.row[is_recorded]
    node_began = graph.began[parts.node[is_recorded]] + graph.origin_ns
    return _Stops(row=row, begin=np.maximum(trace.start[row], node_began))
