"""Of each slice where it would be with a change, and how much of it lies on the
critical path as recorded, with its time to spare."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from fusetui.analysis.replay.apply import changed
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import host_parts
from fusetui.analysis.replay.replay import (
    LATE,
    OWN,
    Route,
    bounds_of,
    replay,
    route_to,
    slack_of,
    slices_of,
    step_ends,
)
from fusetui.timeline.cells import Line
from fusetui.trace.layout.nesting import Nesting, arrange, nest_tracks
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import memo, once

WHOLE = ("report", "keys", "names", "categories", "elements")
SAME = ("name", "cat", "role", "correlation", "external_id", "order")


class Predicted(msgspec.Struct, frozen=True, eq=False):
    """Where slices would be; arrays have the shape [slices that are left]. Left out is
    what takes no time any more, and what is on no thread or stream that was
    replayed."""

    rows: Rows  # of the recorded trace
    tracks: tuple[Track, ...]
    start: Int64s
    dur: Int64s
    tree: Nesting
    # of steps, see bounds_of: as recorded, and replayed, ns of the file;
    bounds: Int64s
    # [2, steps + 1], or nothing

    def place_in(self, trace: Trace) -> Int32s:
        """Of each recorded slice, and of none: the row that it has here, -1 for
        none."""
        place = np.full(len(trace) + 1, -1, dtype=np.int32)
        place[self.rows] = np.arange(len(self.rows))
        return place

    def trace_of(self, trace: Trace) -> Trace:
        place = self.place_in(trace)
        sizes = [len(track) for track in self.tracks]
        return Trace(
            tracks=self.tracks,
            start=self.start,
            dur=self.dur,
            track=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            launch=place[trace.launch[self.rows]],
            op=place[trace.op[self.rows]],
            **asdict(self.tree),
            **{field: getattr(trace, field) for field in WHOLE},
            **{column: getattr(trace, column)[self.rows] for column in SAME},
        )

    def earlier_at(self, time: int, until: int) -> int:
        """How much earlier than recorded (ns) the step begins that begins first in
        [time, until), or else the one that `time` is in; times of the recorded
        trace."""
        before, after = self.bounds
        at = int(np.searchsorted(before, time))
        if at == len(before) or before[at] >= until:
            at -= 1
        return int(before[at] - after[at]) if at >= 0 else 0


def predicted(trace: Trace, changes: Sequence[str]) -> Predicted:
    """The trace with some changes. Raises WrongChange."""
    graph = once(trace, graph_of)
    made, _ = changed(trace, graph, [parse_change(text) for text in changes])
    times = replay(made)
    start, end = slices_of(trace, made, times)
    rows, tracks = _laid_out(
        trace, np.flatnonzero(_left(trace, made, start, end)), start, end
    )
    edges = np.array([0, *(track.end_row for track in tracks)])
    ends = step_ends(trace, graph)
    bounds = [bounds_of(graph, graph.recorded, ends), bounds_of(made, times, ends)]
    return Predicted(
        rows,
        tracks,
        start[rows],
        end[rows] - start[rows],
        nest_tracks(edges, start[rows], end[rows]),
        np.stack(bounds)[:, : len(ends.edges)] + graph.origin_ns,
    )


def _left(trace: Trace, graph: Graph, start: Int64s, end: Int64s) -> Flags:
    threads = [chain.thread for chain in graph.chains if not chain.is_stream]
    on_cpu = np.isin([track.layer for track in trace.tracks], CPU_LAYERS)
    left: Flags = (on_cpu & np.isin(trace.thread_of_track, threads))[trace.track]
    left[graph.row[graph.nodes(Node.ITEM)]] = True
    left[graph.row[graph.gone & (graph.row >= 0)]] = False
    left &= (end > start) | (trace.dur == 0)
    return left


def _laid_out(
    trace: Trace, rows: Rows, start: Int64s, end: Int64s
) -> tuple[Rows, tuple[Track, ...]]:
    """Rows by track and time. Slices of a thread nest as they did, because its time
    passes for all of them alike; those of a stream may overlap where they did not."""
    first = dict[object, int]()
    lane_of = [
        first.setdefault((t.pid, t.tid) if t.layer is Layer.STREAM else n, n)
        for n, t in enumerate(trace.tracks)
    ]
    lane = np.array(lane_of, dtype=np.intp)[trace.track[rows]]
    rows = rows[np.lexsort((rows, start[rows] - end[rows], start[rows], lane))]
    lane = np.sort(lane)
    parts, tracks, at = [rows[:0]], list[Track](), 0
    for own in np.split(rows, np.flatnonzero(np.diff(lane)) + 1) if len(rows) else ():
        track = trace.tracks[lane[at]]
        subrow = np.full(len(own), track.subrow)
        if track.layer is Layer.STREAM:
            subrow = arrange(start[own], end[own], own < 0, True)
        for number in distinct(subrow).tolist():
            parts.append(own[subrow == number])
            until = at + len(parts[-1])
            tracks.append(replace(track, subrow=number, first_row=at, end_row=until))
            at = until
    return np.concatenate(parts), tuple(tracks)


UNKNOWN = -1
MOST_LINES = 500


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

    @memo(MOST_LINES)
    def before(self, line: Line) -> Int64s:
        """How much of the slices before each of a line, and of all, is on the path."""
        return np.concatenate(([0], np.cumsum(self.ns[line.rows])))


def marks_of(trace: Trace) -> Marks:
    graph = once(trace, graph_of)
    route = route_to(graph, graph.recorded)
    route_ns, own = route.ns, np.isin(route.part, (OWN, LATE))
    ns, spare = np.zeros(len(trace), dtype=np.int64), np.full(len(trace), UNKNOWN)
    items, slack = (
        graph.nodes(Node.ITEM),
        np.maximum(slack_of(graph, graph.recorded), 0),
    )
    spare[graph.row[items]] = slack[items]
    worked = own & (graph.kind[route.node] == Node.ITEM)
    np.add.at(ns, graph.row[route.node[worked]], route_ns[worked])
    for chain, one in enumerate(graph.chains):
        nodes = np.flatnonzero((graph.chain == chain) & (graph.kind != Node.JOIN))
        if one.is_stream or not len(nodes):
            continue
        here = np.flatnonzero(own & (graph.chain[route.node] == chain) & (route_ns > 0))
        for number, track in zip(
            trace.thread_of_track.tolist(), trace.tracks, strict=True
        ):
            if number == one.thread and track.layer in CPU_LAYERS:
                start = trace.start[track.rows] - graph.origin_ns
                end = trace.end[track.rows] - graph.origin_ns
                spent = route.begin[here], route_ns[here]
                ns[track.rows] += _until(*spent, end) - _until(*spent, start)
                spare[track.rows] = _least(graph, nodes, slack, start, end)
    is_on, stops = (ns > 0) & (2 * ns >= trace.dur), _stops(trace, graph, route)
    return Marks(ns, spare, is_on, *stops, int(route_ns.sum()), route.unknown_share)


def _until(begin: Int64s, ns: Int64s, times: Int64s) -> Int64s:
    """How much of some stretches lies before each time."""
    before = np.concatenate(([0], np.cumsum(ns)))
    last = np.searchsorted(begin, times, side="right") - 1
    lengths, begins = np.append(ns, 0), np.append(begin, 0)  # -1: before the first
    found: Int64s = before[last] + np.minimum(times - begins[last], lengths[last])
    return np.where(last >= 0, found, 0)


def _least(
    graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """The least time to spare of the nodes in which a slice lies; UNKNOWN without
    one."""
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
    inside, begins = parts.row[known], graph.began[parts.node[known]] + graph.origin_ns
    rows = np.append(graph.row[node[called]], inside).astype(np.intp)
    at = route.begin[real[called]] + graph.origin_ns
    at = np.append(at, np.maximum(trace.start[inside], begins))
    order = np.argsort(at, kind="stable")
    first = order[np.sort(np.unique(rows[order], return_index=True)[1])]
    return rows[first], at[first]
