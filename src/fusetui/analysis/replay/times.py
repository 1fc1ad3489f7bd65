"""Turns the times of a replay into times of the slices and steps of the trace.

A replay gives the times of nodes (see graph.py). A slice of a thread may begin and end
anywhere within its nodes, and a step ends when all work that it launched has ended.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.graph import Graph, Node, Times
from fusetui.analysis.replay.replay import find_last_node
from fusetui.trace.layout.steps import (
    by_launch_time,
    launched_bounds,
    step_launched,
    steps_of,
)
from fusetui.trace.model.arrays import Floats, Int64s, Rows, at, numbers_of_sized_groups
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace

NO_LANE = -1
"""A thread is not replayed, so no lane of the graph stands for it."""
NO_NODE_BEGINS = -1
"""Stands for the begin of a node behind the last one; no time that is so late equals it."""


def translate_times(graph: Graph, times: Times, lane: int, recorded: Int64s) -> Int64s:
    """Translate recorded times of a thread: when it gets to the same places in a
    replay.

    E.g. if a thread takes half of its time in the replay, it is after 5 ns where it was
    recorded after 10 ns.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: The times of its nodes in the replay.
        lane: The thread, an index in Graph.lanes.
        recorded: The recorded times, in ns after the origin.

    Returns:
        ns after the origin, in the shape of `recorded`.
    """
    nodes = np.flatnonzero((graph.lane == lane) & (graph.kind != Node.JOIN))
    index = _find_nodes_at(graph.began[nodes], recorded)
    node = nodes[index]
    inside_until = np.clip(recorded, graph.began[node], graph.ended[node])
    inside_ns = _measure_time_inside(graph, lane, node, inside_until)

    # A time that lies behind the end of its node lies in a wait, or after the thread
    # has ended. (One before the begin of its node lies before the thread begins; like
    # the time after the end, it is not stretched.)
    next_node = nodes[np.minimum(index + 1, len(nodes) - 1)]
    wait_factor = _compute_wait_factors(graph, times, node, next_node)
    outside_ns = recorded - inside_until
    factor = np.where(outside_ns > 0, wait_factor, 1.0)
    replayed_outside_ns = np.rint(outside_ns * factor).astype(np.int64)
    replayed: Int64s = times.begin[node] + inside_ns + replayed_outside_ns
    return replayed


def _find_nodes_at(began: Int64s, recorded: Int64s) -> Rows:
    """Find the node (call, or stretch between calls) in which a thread is at each of
    some times.

    It is the first node that begins at the very time, or else the last one that begins
    before it. Before all nodes it is the first of all. E.g. of nodes that begin at 0,
    10, 10 and 20 ns: at 5 ns the first, at 10 ns the second, and at 25 ns the last.

    Args:
        began: When the nodes of the thread begin, ascending.
        recorded: The times.

    Returns:
        Indices into `began`, one per time.
    """
    not_before = np.searchsorted(began, recorded)
    begins_then = at(began, not_before, missing=NO_NODE_BEGINS) == recorded
    last_before = np.maximum(not_before - 1, 0)
    return np.where(begins_then, not_before, last_before)


def _measure_time_inside(
    graph: Graph, lane: int, node: Rows, inside_until: Int64s
) -> Int64s:
    """Measure how long a thread takes in a replay to get to a time inside each node.

    A thread's own time is stretched by its time scale. A call is stretched evenly: if a
    call from 10 to 20 ns takes 5 ns in the replay, 2 ns until the recorded time 14.

    Args:
        graph: The work as nodes, with what each of them waits for.
        lane: The thread, an index in Graph.lanes.
        node: The nodes.
        inside_until: For each of them a recorded time within the node.

    Returns:
        ns of the replay, for each of `node`.
    """
    began = graph.began[node]
    scale = graph.time_scales[lane]
    own_ns = scale.elapsed_until(inside_until) - scale.elapsed_until(began)

    recorded_call_ns = np.maximum(graph.lasted[node], 1)  # never divide by 0
    call_factor = graph.dur[node] / recorded_call_ns
    call_ns = np.rint((inside_until - began) * call_factor).astype(np.int64)
    return np.where(graph.kind[node] == Node.CPU_WORK, own_ns, call_ns)


def _compute_wait_factors(
    graph: Graph, times: Times, node: Rows, next_node: Rows
) -> Floats:
    """Compute how many times as long as recorded the wait after each node takes.

    A wait lies between the end of a node and the begin of the next one of its thread.
    E.g. 0.5 for a wait that was recorded from 10 to 14 ns, and that lasts from 8 to 10
    ns in the replay.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: The times of its nodes in the replay.
        node: The nodes.
        next_node: For each of them the next one.

    Returns:
        The factor of each wait; 1 where no wait was recorded that could be stretched.
    """
    recorded_wait = graph.began[next_node] - graph.ended[node]
    replayed_wait = times.begin[next_node] - times.end[node]
    factor = replayed_wait / np.maximum(recorded_wait, 1)  # never divide by 0
    return np.where(recorded_wait > 0, factor, 1.0)


class SliceTimes(NamedTuple):
    """When slices start and end in a replay, in ns of the file; one entry per slice."""

    start: Int64s
    end: Int64s


def compute_slice_times(trace: Trace, graph: Graph, times: Times) -> SliceTimes:
    """Compute when each slice of the trace starts and ends in a replay.

    Slices on threads and streams that are not replayed keep their recorded times.

    Args:
        trace: The trace.
        graph: The replayed work as nodes, with what each of them waits for.
        times: The times of its nodes in the replay.

    Returns:
        The times of all slices, in the order of the trace.
    """
    start = trace.start.copy()
    end = trace.end.copy()

    # A kernel, copy or set is one node.
    tasks = graph.gpu_tasks
    rows_of_tasks = graph.row[tasks]
    start[rows_of_tasks] = times.begin[tasks] + graph.origin_ns
    end[rows_of_tasks] = times.end[tasks] + graph.origin_ns

    # The slices of a thread reach over any number of nodes, or parts of them.
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        lane = _find_lane(graph, thread)
        if track.layer not in CPU_LAYERS or lane == NO_LANE:
            continue
        for column in (start, end):
            recorded = column[track.rows] - graph.origin_ns
            replayed = translate_times(graph, times, lane, recorded)
            column[track.rows] = replayed + graph.origin_ns
    return SliceTimes(start=start, end=end)


def _find_lane(graph: Graph, thread: int) -> int:
    """Find the index of a thread in Graph.lanes; NO_LANE if it is not replayed.

    Args:
        graph: The work as nodes, with what each of them waits for.
        thread: The number of the thread, as in Trace.thread_of_track.
    """
    for index, lane in enumerate(graph.lanes):
        if lane.thread == thread and not lane.is_stream:
            return index
    return NO_LANE


class StepEnds(NamedTuple):
    """What decides when steps end: their thread, and the work that they launched.

    A step ends when the thread has ended it and all GPU tasks (kernels, copies and
    sets) that it launched have ended.
    """

    lane: int  # the thread, an index in Graph.lanes; NO_LANE: it is not replayed
    # Recorded, in ns after the origin: when the first step begins, and when the thread
    # ends each step. Empty in a trace without steps.
    edges: Int64s
    task: Rows  # the GPU tasks that steps launched, as nodes of the graph
    step: Rows  # for each of them the index of its step

    @property
    def has_steps(self) -> bool:
        """Whether the trace has steps."""
        return len(self.edges) > 0


def find_step_ends(trace: Trace, graph: Graph, by: str | None = None) -> StepEnds:
    """Collect what decides when the steps of a trace end.

    A step ends when its thread has ended it, and all kernels, copies and sets that were
    launched in it have ended. So in a replay, whose times these are looked up in, a
    step may end later than its annotation.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        by: What counts as a step; see `steps_of`.
    """
    steps = steps_of(trace, by)
    no_rows = np.empty(0, dtype=np.intp)
    if not len(steps):
        no_times = np.empty(0, dtype=np.int64)
        return StepEnds(lane=NO_LANE, edges=no_times, task=no_rows, step=no_rows)

    # A step launches what is launched between its begin and its end.
    rows, launched_at = by_launch_time(trace)
    rows_of_steps = [rows[of_step] for of_step in steps.slices_of(launched_at)]
    launches_of_steps = [len(rows_of_step) for rows_of_step in rows_of_steps]
    launched_rows = np.concatenate([no_rows, *rows_of_steps])
    task_of_row = graph.node_of(trace, Node.GPU_TASK)

    # All steps are on one thread.
    track_of_first_step = trace.track[steps.rows[0]]
    thread = int(trace.thread_of_track[track_of_first_step])
    return StepEnds(
        lane=_find_lane(graph, thread),
        edges=np.append(steps.start[:1], steps.end) - graph.origin_ns,
        task=task_of_row[launched_rows],
        step=numbers_of_sized_groups(np.array(launches_of_steps)),
    )


def measure_step_bounds(graph: Graph, times: Times, ends: StepEnds) -> Int64s:
    """Measure when the first step begins in a replay, and when each step has ended.

    Step n lasts from the n-th bound to the next one; see `steps.launched_bounds`.
    Without steps, the two bounds are those of the whole replay.

    Args:
        graph: The replayed work as nodes, with what each of them waits for.
        times: The times of its nodes in the replay.
        ends: What decides when the steps end.

    Returns:
        One time more than steps, in ns after the origin.
    """
    if not ends.has_steps:
        last_node = find_last_node(graph, times)
        return np.array([0, times.end[last_node]])

    wall_bounds = ends.edges
    if ends.lane != NO_LANE:
        wall_bounds = translate_times(graph, times, ends.lane, wall_bounds)

    is_left = ~graph.is_removed[ends.task]
    remaining_tasks = ends.task[is_left]
    return launched_bounds(
        wall_bounds=wall_bounds,
        work_end=times.end[remaining_tasks],
        step_of_work=ends.step[is_left],
    )


def measure_lengths(
    trace: Trace, graph: Graph, times: Times, by: str | None = None
) -> Int64s:
    """Measure how long each step takes in a replay, in ns.

    A step lasts until all work that it launched has ended. Without steps the only
    length is that of the whole replay.

    Args:
        trace: The trace.
        graph: The replayed work as nodes, with what each of them waits for.
        times: The times of its nodes in the replay.
        by: What counts as a step; see `steps_of`.
    """
    ends = find_step_ends(trace, graph, by)
    return step_launched(measure_step_bounds(graph, times, ends))
