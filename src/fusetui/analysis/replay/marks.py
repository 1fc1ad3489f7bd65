"""Of each slice, how much of it lies on the critical path as recorded, and its time to spare."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.critical import LATE, OWN, Route, last_route, slack_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import host_parts
from fusetui.trace.cells.raster import Line
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo, once

UNKNOWN = -1
MOST_LINES = 500


class Marks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`ns` and `spare_ns` have the shape [slices]; the critical path goes through `stops`, each of
    them once, in order of time."""

    ns: Int64s  # on the critical path
    spare_ns: Int64s  # how much longer it alone could take and not move the end; UNKNOWN
    is_on: Flags  # at least half of it is on the critical path
    stops: Rows  # GPU events, calls, and what else is innermost
    begin: Int64s  # ns of the file; shape [stops]
    span_ns: int
    residual_share: float

    @memo(MOST_LINES)
    def before(self, line: Line) -> Int64s:
        """How much of the slices before each of a line, and of all, is on the path."""
        return np.concatenate(([0], np.cumsum(self.ns[line.rows])))


def marks_of(trace: Trace) -> Marks:
    graph = once(trace, graph_of)
    route = last_route(graph, graph.recorded)
    route_ns, own = route.ns, np.isin(route.part, (OWN, LATE))
    ns, spare = np.zeros(len(trace), dtype=np.int64), np.full(len(trace), UNKNOWN)
    items, slack = graph.nodes(Node.ITEM), np.maximum(slack_of(graph, graph.recorded), 0)
    spare[graph.row[items]] = slack[items]
    worked = own & (graph.kind[route.node] == Node.ITEM)
    np.add.at(ns, graph.row[route.node[worked]], route_ns[worked])
    for chain, one in enumerate(graph.chains):
        nodes = np.flatnonzero((graph.chain == chain) & (graph.kind != Node.JOIN))
        if one.is_stream or not len(nodes):
            continue
        here = np.flatnonzero(own & (graph.chain[route.node] == chain) & (route_ns > 0))
        for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
            if number == one.thread and track.layer in CPU_LAYERS:
                start = trace.start[track.rows] - graph.origin_ns
                end = trace.end[track.rows] - graph.origin_ns
                begin = route.begin[here]
                ns[track.rows] += _until(begin, route_ns[here], end)
                ns[track.rows] -= _until(begin, route_ns[here], start)
                spare[track.rows] = _least(graph, nodes, slack, start, end)
    span = int(route_ns.sum())
    is_on = (ns > 0) & (2 * ns >= trace.dur)
    stops, begin = _stops(trace, graph, route)
    return Marks(ns, spare, is_on, stops, begin, span, route.unknown_share)


def _until(begin: Int64s, ns: Int64s, times: Int64s) -> Int64s:
    """How much of some stretches lies before each time."""
    before = np.concatenate(([0], np.cumsum(ns)))
    last = np.searchsorted(begin, times, side="right") - 1
    lengths, begins = np.append(ns, 0), np.append(begin, 0)  # -1: before the first
    found: Int64s = before[last] + np.minimum(times - begins[last], lengths[last])
    return np.where(last >= 0, found, 0)


def _least(graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """The least time to spare of the nodes in which a slice lies; UNKNOWN without one."""
    first = np.searchsorted(graph.ended[nodes], start, side="right")
    last = np.searchsorted(graph.began[nodes], end, side="left")
    known = np.flatnonzero(first < last)
    found = np.full(len(start), UNKNOWN)
    if len(known):
        cuts = np.stack((first[known], last[known]), axis=1).reshape(-1)
        found[known] = np.minimum.reduceat(np.append(slack[nodes], 0), cuts)[::2]
    return found


def _stops(trace: Trace, graph: Graph, route: Route) -> tuple[Rows, Int64s]:
    """The slices that the route goes through, and when it first does."""
    real = np.flatnonzero((route.part == OWN) & (route.ns > 0))
    node = route.node[real]
    called = np.isin(graph.kind[node], (Node.ITEM, Node.LAUNCH, Node.WAIT))
    parts = host_parts(trace, graph, node[~called])
    known = parts.row >= 0
    inside = parts.row[known]
    begins = graph.began[parts.node[known]] + graph.origin_ns
    rows = np.concatenate((graph.row[node[called]].astype(np.intp), inside.astype(np.intp)))
    at = route.begin[real[called]] + graph.origin_ns
    at = np.concatenate((at, np.maximum(trace.start[inside], begins)))
    order = np.argsort(at, kind="stable")
    first = order[np.sort(np.unique(rows[order], return_index=True)[1])]
    return rows[first], at[first]
