"""Computes how much of each slice lies on the critical path, and its slack.

The timeline of the app marks slices with it. The words node, GPU task and lane are
defined in graph.py, those of a path and its stretches in route.py.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import NOTHING_RECORDED, divide_thread_time
from fusetui.analysis.replay.route import (
    CriticalPath,
    StretchKind,
    find_critical_path,
    measure_slack,
)
from fusetui.timeline.cells import DepthRow
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    ordinals,
    prefix_sums,
    reduce_ranges,
)
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.intervals import Cover
from fusetui.trace.model.memo import memo

UNKNOWN = -1
"""As the slack of a slice: the slice is not replayed, so its slack is not known."""
MAX_KEPT_LANES = 500
"""For how many lanes the sums over their slices are kept, which are needed each time
that a lane is drawn."""


class Marks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The critical path as recorded, in each slice of the trace.

    A *stop* is a slice that the path goes through: a GPU event, a call, or an op or
    Python frame while nothing else runs inside it.
    """

    ns: Int64s  # per slice: how much of it lies on the critical path
    # Per slice, its slack: how much longer it alone could take without delaying the end
    # of the recording; UNKNOWN for slices that are not replayed.
    spare_ns: Int64s
    is_on: Flags  # per slice: whether at least half of it lies on the critical path
    stops: Rows  # the rows of all stops, each once, in order of time
    begin: Int64s  # per stop: when the path gets there first, in ns of the file
    span_ns: int  # the length of the path
    residual_share: float  # the share of the path that is not understood

    @memo(MAX_KEPT_LANES)
    def before(self, line: DepthRow) -> Int64s:
        """Sum up how much of the critical path lies in the slices before each slice of
        a line.

        The time in slices i to j of the line is then the difference of two entries.

        Returns:
            ns; one entry per slice of the line, and a last one for all of them.
        """
        return prefix_sums(self.ns[line.rows])


def compute_marks(trace: Trace) -> Marks:
    """Compute how much of each slice of a trace lies on the critical path as recorded.

    E.g. of an op from 0 to 10 ns in which the critical path runs from 2 to 6 ns, 4 ns.
    """
    graph = build_graph(trace)
    critical_path = find_critical_path(graph, graph.recorded)
    times = _TimesOfSlices(
        on_path_ns=np.zeros(len(trace), dtype=np.int64),
        slack_ns=np.full(len(trace), UNKNOWN),
    )
    slack_of_node = np.maximum(measure_slack(graph, graph.recorded), 0)
    _add_gpu_work(times, graph, critical_path, slack_of_node)
    _add_threads(times, trace, graph, critical_path, slack_of_node)

    on_path_ns = times.on_path_ns
    stops = _find_slices_on_path(trace, graph, critical_path)
    return Marks(
        ns=on_path_ns,
        spare_ns=times.slack_ns,
        is_on=(on_path_ns > 0) & (2 * on_path_ns >= trace.dur),
        stops=stops.row,
        begin=stops.begin,
        span_ns=critical_path.span_ns,
        residual_share=critical_path.unknown_share,
    )


def _is_work(critical_path: CriticalPath) -> Flags:
    """Return which stretches of a path are work of nodes, not delays before them."""
    return np.isin(
        critical_path.stretch_kind, (StretchKind.WORK, StretchKind.LATE_RETURN)
    )


class _TimesOfSlices(NamedTuple):
    """What is computed for each slice of a trace; the arrays are filled in place."""

    on_path_ns: Int64s  # how much of it lies on the critical path
    slack_ns: Int64s  # see Marks.spare_ns


def _add_gpu_work(
    times: _TimesOfSlices,
    graph: Graph,
    critical_path: CriticalPath,
    slack_of_node: Int64s,
) -> None:
    """Fill in, in place, the times of kernels, copies and sets, each of which is one
    node.

    Args:
        times: The times of all slices.
        graph: The work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
        slack_of_node: The slack of each node, in ns.
    """
    tasks = graph.gpu_tasks
    times.slack_ns[graph.row[tasks]] = slack_of_node[tasks]

    # A task may have two stretches of work on the path, so its row may occur twice.
    node = critical_path.node
    is_of_task = _is_work(critical_path) & (graph.kind[node] == Node.GPU_TASK)
    row_of_stretch = graph.row[node[is_of_task]]
    np.add.at(times.on_path_ns, row_of_stretch, critical_path.ns[is_of_task])


def _add_threads(
    times: _TimesOfSlices,
    trace: Trace,
    graph: Graph,
    critical_path: CriticalPath,
    slack_of_node: Int64s,
) -> None:
    """Fill in the times of the slices of threads.

    These reach over any number of the nodes of their thread, or parts of nodes.

    Args:
        times: The times of all slices.
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
        slack_of_node: The slack of each node, in ns.
    """
    is_join = graph.kind == Node.JOIN  # no work of its thread, but a wait for others
    for lane_index, lane in enumerate(graph.lanes):
        nodes = np.flatnonzero((graph.lane == lane_index) & ~is_join)
        if lane.is_stream or not len(nodes):
            continue

        path = _find_path_of_thread(graph, critical_path, lane_index)
        for track in _find_tracks(trace, lane.thread):
            start = trace.start[track.rows] - graph.origin_ns
            end = trace.end[track.rows] - graph.origin_ns
            times.on_path_ns[track.rows] += path.within(start, end)
            times.slack_ns[track.rows] = _find_least_slack(
                graph, nodes, slack_of_node, start, end
            )


def _find_path_of_thread(graph: Graph, critical_path: CriticalPath, lane: int) -> Cover:
    """Find when the critical path runs through the work of one thread.

    Args:
        graph: The work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
        lane: The thread, an index in Graph.lanes.

    Returns:
        Intervals in ns after the origin, in order of time, which do not overlap.
    """
    is_of_thread = _is_work(critical_path) & (graph.lane[critical_path.node] == lane)
    stretches_of_thread = np.flatnonzero(is_of_thread & (critical_path.ns > 0))
    begin = critical_path.begin[stretches_of_thread]
    return Cover(begin, begin + critical_path.ns[stretches_of_thread])


def _find_tracks(trace: Trace, thread: int) -> list[Track]:
    """Find the tracks of a CPU thread, on which its slices are, such as ops and calls.

    Args:
        trace: The trace.
        thread: The number of the thread, as in Trace.thread_of_track.
    """
    tracks = []
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if number == thread and track.layer in CPU_LAYERS:
            tracks.append(track)
    return tracks


def _find_least_slack(
    graph: Graph, nodes: Rows, slack: Int64s, start: Int64s, end: Int64s
) -> Int64s:
    """Find how much longer each slice of a thread could take without delaying the end.

    That is the least slack of the nodes that the slice overlaps. E.g. it is 3 ns for an
    op over two nodes that could take 5 and 3 ns longer.

    Args:
        graph: The work as nodes, with what each of them waits for.
        nodes: The nodes of the thread, in order.
        slack: The slack of every node of the graph, in ns.
        start: The start of each slice, in ns after the origin.
        end: The end of each slice.

    Returns:
        ns per slice, UNKNOWN for a slice that overlaps no node.
    """
    first = np.searchsorted(graph.ended[nodes], start, side="right")
    stop = np.searchsorted(graph.began[nodes], end, side="left")
    overlaps_nodes = first < stop
    least = np.full(len(start), UNKNOWN)
    least[overlaps_nodes] = reduce_ranges(
        np.minimum, slack[nodes], first[overlaps_nodes], stop[overlaps_nodes]
    )
    return least


class _Stops(NamedTuple):
    """Slices that the critical path goes through; see Marks."""

    row: Rows
    begin: Int64s  # when the path gets there, in ns of the file


def _find_slices_on_path(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> _Stops:
    """Find the slices that a path goes through, each once, in order of time.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
    """
    is_work = critical_path.stretch_kind == StretchKind.WORK
    stretches = np.flatnonzero(is_work & (critical_path.ns > 0))
    node = critical_path.node[stretches]
    path_begin = critical_path.begin[stretches] + graph.origin_ns

    # Some nodes are slices. The others are a thread's own time, in which any slices may
    # be innermost.
    is_slice = np.isin(graph.kind[node], (Node.GPU_TASK, Node.LAUNCH, Node.WAIT))
    rows_of_nodes = graph.row[node[is_slice]]
    begin_of_nodes = path_begin[is_slice]
    innermost = _find_innermost_slices(trace, graph, node[~is_slice])

    row = np.append(rows_of_nodes, innermost.row).astype(np.intp)
    begin = np.append(begin_of_nodes, innermost.begin)
    by_begin = np.argsort(begin, kind="stable")
    is_first_visit = ordinals(row[by_begin]) == 0
    first_visits = by_begin[is_first_visit]
    return _Stops(row=row[first_visits], begin=begin[first_visits])


def _find_innermost_slices(trace: Trace, graph: Graph, nodes: Rows) -> _Stops:
    """Find the slices that are innermost at some time during some nodes of a thread.

    A slice occurs once for each part of a node in which it is innermost.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        nodes: Nodes of a thread's own time (CPU_WORK).
    """
    parts = divide_thread_time(trace, graph, nodes)
    is_recorded = parts.row != NOTHING_RECORDED
    row = parts.row[is_recorded]
    node = parts.node[is_recorded]
    node_began = graph.began[node] + graph.origin_ns

    # A slice that had begun before the node is entered when the node begins.
    return _Stops(row=row, begin=np.maximum(trace.start[row], node_began))
