"""When slices and steps of a trace would begin and end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.graph import Graph, Node, Times
from fusetui.analysis.replay.replay import last_of
from fusetui.trace.layout.steps import (
    by_launch_time,
    launched_bounds,
    step_launched,
    steps_of,
)
from fusetui.trace.model.arrays import Floats, Int64s, Rows, at
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace

NO_CHAIN = -1


def times_at(graph: Graph, times: Times, chain: int, recorded: Int64s) -> Int64s:
    """When a thread, a chain of the graph, gets where it was at some times as recorded;
    both in ns after the origin and of the same shape."""
    nodes = np.flatnonzero((graph.chain == chain) & (graph.kind != Node.JOIN))
    place = _places_at(graph.began[nodes], recorded)
    node = nodes[place]
    inside_until = np.clip(recorded, graph.began[node], graph.ended[node])
    inside_ns = _time_inside(graph, chain, node, inside_until)

    # behind the node: inside a wait, or before the thread begins or after it has ended
    following = nodes[np.minimum(place + 1, len(nodes) - 1)]
    wait_factor = _wait_factors(graph, times, node, following)
    behind_ns = recorded - inside_until
    wait_factor = np.where(behind_ns > 0, wait_factor, 1.0)
    waited_ns = np.rint(behind_ns * wait_factor).astype(np.int64)
    return times.begin[node] + inside_ns + waited_ns


def _places_at(began: Int64s, recorded: Int64s) -> Rows:
    """The place of the node in which a thread is at each of some times: of those that
    begin at the very time the first one, else the last before it; the first of all if
    there is none. `began`: when its nodes begin, ascending."""
    not_before = np.searchsorted(began, recorded)
    begins_then = at(began, not_before, missing=-1) == recorded
    last_before = np.maximum(not_before - 1, 0)
    return np.where(begins_then, not_before, last_before)


def _time_inside(graph: Graph, chain: int, node: Rows, inside_until: Int64s) -> Int64s:
    """How long a thread takes from the begin of each node until it gets where it was at
    a time as recorded within the node (ns): by the scale of the thread, and in a call
    by how much longer or shorter the call takes."""
    began = graph.began[node]
    scale = graph.time_scales[chain]
    of_thread = scale.until(inside_until) - scale.until(began)
    call_factor = graph.dur[node] / np.maximum(graph.lasted[node], 1)
    of_call = np.rint((inside_until - began) * call_factor).astype(np.int64)
    return np.where(graph.kind[node] == Node.HOST, of_thread, of_call)


def _wait_factors(graph: Graph, times: Times, node: Rows, following: Rows) -> Floats:
    """How many times as long as recorded each wait takes, from the end of a node to the
    begin of the one after it; 1 where no wait was recorded."""
    recorded_wait = graph.began[following] - graph.ended[node]
    wait = times.begin[following] - times.end[node]
    factor = wait / np.maximum(recorded_wait, 1)
    return np.where(recorded_wait > 0, factor, 1.0)


def slices_of(trace: Trace, graph: Graph, times: Times) -> tuple[Int64s, Int64s]:
    """When each slice of the trace would start and end (ns of the file), shape
    [slices]; as recorded where it is on no thread or stream of the graph. What a change
    takes out starts and ends where it was."""
    start = trace.start.copy()
    end = trace.end.copy()
    items = graph.nodes(Node.ITEM)
    start[graph.row[items]] = times.begin[items] + graph.origin_ns
    end[graph.row[items]] = times.end[items] + graph.origin_ns
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if track.layer not in CPU_LAYERS:
            continue
        for chain in _chains_of_thread(graph, thread):
            for column in (start, end):
                recorded = column[track.rows] - graph.origin_ns
                replayed = times_at(graph, times, chain, recorded)
                column[track.rows] = replayed + graph.origin_ns
    return start, end


def _chains_of_thread(graph: Graph, thread: int) -> list[int]:
    """The chains of a thread, which has one or none."""
    threads = range(len(graph.time_scales))
    return [chain for chain in threads if graph.chains[chain].thread == thread]


class StepEnds(NamedTuple):
    """What decides when steps end."""

    chain: int  # their thread; NO_CHAIN: none of the graph
    # as recorded, after the origin: when the first begins, and the thread ends each
    edges: Int64s
    item: Rows  # what they launched
    step: Rows  # and the index of the step that launched it


def step_ends(trace: Trace, graph: Graph, by: str | None = None) -> StepEnds:
    """What decides when the steps of a trace end; `by`: see steps_of."""
    steps = steps_of(trace, by)
    no_rows = np.empty(0, dtype=np.intp)
    if not len(steps):
        return StepEnds(
            chain=NO_CHAIN,
            edges=no_rows.astype(np.int64),
            item=no_rows,
            step=no_rows,
        )
    thread = int(trace.thread_of_track[trace.track[steps.rows[0]]])
    chains = _chains_of_thread(graph, thread)
    rows, launched_at = by_launch_time(trace)
    launched = [rows[of_step] for of_step in steps.slices_of(launched_at)]
    launches = [len(rows_of_step) for rows_of_step in launched]
    item_of_row = graph.node_of(trace, Node.ITEM)
    return StepEnds(
        chain=chains[0] if chains else NO_CHAIN,
        edges=np.append(steps.start[:1], steps.end) - graph.origin_ns,
        item=item_of_row[np.concatenate([no_rows, *launched])],
        step=np.repeat(np.arange(len(launched)), launches),
    )


def bounds_of(graph: Graph, times: Times, ends: StepEnds) -> Int64s:
    """When the first step begins and when each has ended, see
    steps.launched_bounds; without steps, the begin and the end of all. Shape
    [steps + 1]."""
    if not len(ends.edges):
        return np.array([0, times.end[last_of(graph, times)]])
    wall_bounds = ends.edges
    if ends.chain != NO_CHAIN:
        wall_bounds = times_at(graph, times, ends.chain, wall_bounds)
    is_left = ~graph.gone[ends.item]
    return launched_bounds(
        wall_bounds=wall_bounds,
        work_end=times.end[ends.item[is_left]],
        step_of_work=ends.step[is_left],
    )


def lengths_of(
    trace: Trace, graph: Graph, times: Times, by: str | None = None
) -> Int64s:
    """The step_launched of each step; without steps, the length of all."""
    return step_launched(bounds_of(graph, times, step_ends(trace, graph, by)))
