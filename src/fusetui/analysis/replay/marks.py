"""How much of each slice lies on the critical path as recorded, and its time to
spare."""

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
    """`ns` and `spare_ns` have the shape [slices]; the critical path goes through
    `stops`, each of them once, in order of time."""

    ns: Int64s  # on the critical path
    # how much longer it alone could take and not move the end; UNKNOWN
    spare_ns: Int64s
    is_on: Flags  # at least half of it is on the critical path
    stops: Rows  # GPU events, calls, and what else is innermost
    begin: Int64s  # ns of the file; shape [stops]
    span_ns: int
    residual_share: float

    @memo(MAX_KEPT_LANES)
    def before(self, line: DepthRow) -> Int64s:
        """How much of the slices before each of a line, and of all, is on the path."""
        return np.concatenate(([0], np.cumsum(self.ns[line.rows])))


def marks_of(trace: Trace) -> Marks:
    """The critical path as recorded, in each slice of the trace."""
    graph = graph_of(trace)
    route = route_to(graph, graph.recorded)
    slack_ns = np.maximum(slack_of(graph, graph.recorded), 0)
    on_path_ns = np.zeros(len(trace), dtype=np.int64)
    spare_ns = np.full(len(trace), UNKNOWN)
    items = graph.nodes(Node.ITEM)
    spare_ns[graph.row[items]] = slack_ns[items]
    of_items = _is_of_nodes(route) & (graph.kind[route.node] == Node.ITEM)
    row_of_stretch = graph.row[route.node[of_items]]
    np.add.at(on_path_ns, row_of_stretch, route.ns[of_items])

    for number, chain in enumerate(graph.chains):
        nodes = np.flatnonzero((graph.chain == number) & (graph.kind != Node.JOIN))
        if chain.is_stream or not len(nodes):
            continue
        path = _path_of_thread(graph, route, number)
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
    """Which stretches of a route are what its nodes do, not what is before these."""
    return np.isin(route.part, (OWN, LATE))


class _PathOfThread(NamedTuple):
    """The stretches of the critical path in which a thread does something, in order of
    time; arrays of shape [stretches], in ns after the origin."""

    begin: Int64s
    ns: Int64s

    def before(self, times: Int64s) -> Int64s:
        """How much of the stretches lies before each time."""
        ns_of_earlier = np.concatenate(([0], np.cumsum(self.ns)))
        last = np.searchsorted(self.begin, times, side="right") - 1
        since_begin = times - at(self.begin, last, missing=0)
        ns_of_last = np.minimum(since_begin, at(self.ns, last, missing=0))
        ns_before: Int64s = ns_of_earlier[last] + ns_of_last
        return np.where(last >= 0, ns_before, 0)


def _path_of_thread(graph: Graph, route: Route, number: int) -> _PathOfThread:
    """What of a route a thread does, the chain of this number in the graph."""
    is_of_thread = _is_of_nodes(route) & (graph.chain[route.node] == number)
    stretches = np.flatnonzero(is_of_thread & (route.ns > 0))
    return _PathOfThread(begin=route.begin[stretches], ns=route.ns[stretches])


def _tracks_of(trace: Trace, thread: int) -> list[Track]:
    """The tracks of a CPU thread."""
    tracks = []
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if number == thread and track.layer in CPU_LAYERS:
            tracks.append(track)
    return tracks


def _least_slack(
    graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """The least time to spare of the nodes in which a slice lies, of shape [slices];
    UNKNOWN without one. `start`, `end`: of the slices; `nodes`: those of their
    thread."""
    first = np.searchsorted(graph.ended[nodes], start, side="right")
    stop = np.searchsorted(graph.began[nodes], end, side="left")
    has_nodes = np.flatnonzero(first < stop)
    least = np.full(len(start), UNKNOWN)
    if len(has_nodes):
        # reduceat also gives what lies between two of these ranges: every other one
        edges = np.stack((first[has_nodes], stop[has_nodes]), axis=1).reshape(-1)
        slack_or_end = np.append(slack[nodes], 0)
        least_of_ranges = np.minimum.reduceat(slack_or_end, edges)
        least[has_nodes] = least_of_ranges[::2]
    return least


class _Stops(NamedTuple):
    """Slices that the critical path goes through; arrays of shape [stops]."""

    row: Rows
    begin: Int64s  # when it first does, ns of the file


def _stops(trace: Trace, graph: Graph, route: Route) -> _Stops:
    """The slices that the route goes through, each once, in order of time."""
    stretches = np.flatnonzero((route.part == OWN) & (route.ns > 0))
    node = route.node[stretches]
    is_slice = np.isin(graph.kind[node], (Node.ITEM, Node.LAUNCH, Node.WAIT))
    rows_of_nodes = graph.row[node[is_slice]]
    begin_of_nodes = route.begin[stretches[is_slice]] + graph.origin_ns
    inside = _innermost_slices(trace, graph, node[~is_slice])

    row = np.append(rows_of_nodes, inside.row).astype(np.intp)
    begin = np.append(begin_of_nodes, inside.begin)
    by_begin = np.argsort(begin, kind="stable")
    _, first_places = np.unique(row[by_begin], return_index=True)
    first = by_begin[np.sort(first_places)]
    return _Stops(row=row[first], begin=begin[first])


def _innermost_slices(trace: Trace, graph: Graph, nodes: Rows) -> _Stops:
    """The slices that are innermost during these nodes of threads."""
    parts = host_parts(trace, graph, nodes)
    is_recorded = parts.row >= 0
    row = parts.row[is_recorded]
    node_began = graph.began[parts.node[is_recorded]] + graph.origin_ns
    return _Stops(row=row, begin=np.maximum(trace.start[row], node_began))
