"""How much of each slice lies on the critical path as recorded, and its time to
spare."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import host_parts
from fusetui.analysis.replay.route import LATE, OWN, Route, route_to, slack_of
from fusetui.timeline.cells import DepthRow
from fusetui.trace.model.arrays import Flags, Int64s, Rows
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
    route_ns = route.ns
    slack_ns = np.maximum(slack_of(graph, graph.recorded), 0)
    on_path_ns = np.zeros(len(trace), dtype=np.int64)
    spare_ns = np.full(len(trace), UNKNOWN)

    items = graph.nodes(Node.ITEM)
    spare_ns[graph.row[items]] = slack_ns[items]
    is_of_node = np.isin(route.part, (OWN, LATE))
    of_items = is_of_node & (graph.kind[route.node] == Node.ITEM)
    np.add.at(on_path_ns, graph.row[route.node[of_items]], route_ns[of_items])

    for number, chain in enumerate(graph.chains):
        nodes = np.flatnonzero((graph.chain == number) & (graph.kind != Node.JOIN))
        if chain.is_stream or not len(nodes):
            continue
        is_of_thread = is_of_node & (graph.chain[route.node] == number)
        stretches = np.flatnonzero(is_of_thread & (route_ns > 0))
        begin = route.begin[stretches]
        ns = route_ns[stretches]
        for track in _tracks_of(trace, chain.thread):
            start = trace.start[track.rows] - graph.origin_ns
            end = trace.end[track.rows] - graph.origin_ns
            until_end = _ns_before(begin, ns, end)
            on_path_ns[track.rows] += until_end - _ns_before(begin, ns, start)
            spare_ns[track.rows] = _least_slack(graph, nodes, slack_ns, start, end)
    rows, stop_begin = _stops(trace, graph, route)
    return Marks(
        ns=on_path_ns,
        spare_ns=spare_ns,
        is_on=(on_path_ns > 0) & (2 * on_path_ns >= trace.dur),
        stops=rows,
        begin=stop_begin,
        span_ns=route.span_ns,
        residual_share=route.unknown_share,
    )


def _tracks_of(trace: Trace, thread: int) -> list[Track]:
    """Of a CPU thread."""
    numbered = zip(trace.thread_of_track.tolist(), trace.tracks, strict=True)
    return [
        track
        for number, track in numbered
        if number == thread and track.layer in CPU_LAYERS
    ]


def _ns_before(begin: Int64s, ns: Int64s, times: Int64s) -> Int64s:
    """How much of some stretches lies before each time."""
    ns_of_earlier = np.concatenate(([0], np.cumsum(ns)))
    last = np.searchsorted(begin, times, side="right") - 1  # -1: before the first
    since_begin = times - np.append(begin, 0)[last]
    of_last = np.minimum(since_begin, np.append(ns, 0)[last])
    ns_before: Int64s = ns_of_earlier[last] + of_last
    return np.where(last >= 0, ns_before, 0)


def _least_slack(
    graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """The least time to spare of the nodes in which a slice lies; UNKNOWN without
    one."""
    first = np.searchsorted(graph.ended[nodes], start, side="right")
    stop = np.searchsorted(graph.began[nodes], end, side="left")
    has_nodes = np.flatnonzero(first < stop)
    least = np.full(len(start), UNKNOWN)
    if len(has_nodes):
        # every other one of these ranges is from one slice to the next
        edges = np.stack((first[has_nodes], stop[has_nodes]), axis=1).reshape(-1)
        of_ranges = np.minimum.reduceat(np.append(slack[nodes], 0), edges)
        least[has_nodes] = of_ranges[::2]
    return least


def _stops(trace: Trace, graph: Graph, route: Route) -> tuple[Rows, Int64s]:
    """The slices that the route goes through, and when it first does (ns of the
    file)."""
    stretches = np.flatnonzero((route.part == OWN) & (route.ns > 0))
    node = route.node[stretches]
    has_row = np.isin(graph.kind[node], (Node.ITEM, Node.LAUNCH, Node.WAIT))
    rows_of_nodes = graph.row[node[has_row]]
    begin_of_nodes = route.begin[stretches[has_row]] + graph.origin_ns

    parts = host_parts(trace, graph, node[~has_row])
    is_recorded = parts.row >= 0
    rows_of_parts = parts.row[is_recorded]
    node_began = graph.began[parts.node[is_recorded]] + graph.origin_ns
    begin_of_parts = np.maximum(trace.start[rows_of_parts], node_began)

    rows = np.append(rows_of_nodes, rows_of_parts).astype(np.intp)
    begin = np.append(begin_of_nodes, begin_of_parts)
    order = np.argsort(begin, kind="stable")
    _, first_places = np.unique(rows[order], return_index=True)
    first = order[np.sort(first_places)]
    return rows[first], begin[first]
