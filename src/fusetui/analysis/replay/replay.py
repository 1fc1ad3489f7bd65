"""When each node of a graph begins and ends, what the end waits for, and what has time
to spare."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.build import LATE_NS
from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times
from fusetui.trace.layout.steps import by_launch_time, steps_of
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id

BLOCK = 1 << 16  # nodes that are objects of Python at a time


def replay(graph: Graph, *, late: bool = False) -> Times:
    """The times of all nodes: a single pass, in which each waits for its two sources.

    When a batch is ready after a change is not known, but for its bounds, see Ready.
    `late`: as late as may be, not as early. Without a change both are the recording."""
    ends = [0]
    lag = graph.lag + graph.residual
    ready, batches, begin = Ready(late), graph.batches, 1
    columns = (batches.node, batches.waited, batches.unsure, batches.loader)
    for node, waited, unsure, loader in zip(
        *(c.tolist() for c in columns), strict=True
    ):
        _replay_some(graph, lag, begin, node + 1, ends)
        recorded = int(graph.began[node])
        ends[node] = ready.handed_over(ends[node], recorded, waited, unsure, loader)
        begin = node + 1
    _replay_some(graph, lag, begin, len(graph), ends)
    end = np.array(ends, dtype=np.int64)
    return Times(end - graph.dur, end)


def replay_late(graph: Graph, early: Times) -> Times:
    """As `replay` with `late`, where `early` is what it says without: the same times,
    not worked out again, unless threads ask workers for batches."""
    return replay(graph, late=True) if len(graph.batches.node) else early


def _replay_some(
    graph: Graph, lag: Int64s, begin: int, stop: int, ends: list[int]
) -> None:
    """Adds the ends of the nodes from `begin` to `stop` to those of all before."""
    append = ends.append
    for at in range(begin, stop, BLOCK):
        own = slice(at, min(at + BLOCK, stop))
        columns = (*graph.source[:, own], *lag[:, own], graph.dur[own])
        for a, b, after_a, after_b, dur in zip(
            *(c.tolist() for c in columns), strict=True
        ):
            first, second = ends[a] + after_a, ends[b] + after_b
            append((first if first > second else second) + dur)


class Ready:
    """When batches are ready, in the course of a replay.

    A worker begins a batch when it has made the one before and the thread has taken an
    earlier one. So a batch is ready at most as much earlier than recorded as the thread
    was ever earlier at taking one before, and at most as much later. It had become
    ready when a call that waited went on; or at the latest when a call that returned at
    once was made."""

    def __init__(self, late: bool) -> None:
        self._late = late
        self._most_early: dict[int, int] = {}  # ns by loader
        self._most_late: dict[int, int] = {}

    def handed_over(
        self, asked: int, recorded: int, waited: int, unsure: int, loader: int
    ) -> int:
        """When the thread has a batch for which it asks at `asked` (ns after the
        origin). `recorded`: when it had it in the recording; for the rest see
        Batches."""
        if self._late:
            begin = max(asked + unsure, recorded + self._most_late.get(loader, 0))
        else:
            ready = recorded - self._most_early.get(loader, 0)
            if waited == unsure:  # it may not have waited at all
                ready = min(ready, asked + waited)
            begin = max(asked, ready)
        self._most_early[loader] = max(
            self._most_early.get(loader, 0), recorded - begin
        )
        self._most_late[loader] = max(self._most_late.get(loader, 0), begin - recorded)
        return begin


def last_of(graph: Graph, times: Times) -> int:
    ends = np.where(graph.gone | (graph.kind == Node.JOIN), NEVER, times.end)
    return int(np.argmax(ends))


def times_at(graph: Graph, times: Times, chain: int, recorded: Int64s) -> Int64s:
    """When a thread gets where it was at some times as recorded (ns after the
    origin)."""
    nodes = np.flatnonzero((graph.chain == chain) & (graph.kind != Node.JOIN))
    began = graph.began[nodes]
    first = np.searchsorted(began, recorded)
    exact = np.append(began, -1)[first] == recorded
    place = np.where(exact, first, np.maximum(first - 1, 0))
    node, scale = nodes[place], graph.time_scales[chain]
    until = np.clip(recorded, began[place], graph.ended[node])
    own = scale.until(until) - scale.until(began[place])
    share = graph.dur[node] / np.maximum(graph.lasted[node], 1)
    called = np.rint((until - began[place]) * share).astype(np.int64)
    inside = np.where(graph.kind[node] == Node.HOST, own, called)
    following = np.minimum(place + 1, len(nodes) - 1)
    # inside a wait, or before the thread begins, or after it has ended
    waited = recorded - until
    length = began[following] - graph.ended[node]
    longer = times.begin[nodes[following]] - times.end[node]
    share = np.where((waited > 0) & (length > 0), longer / np.maximum(length, 1), 1.0)
    inside += np.rint(waited * share).astype(np.int64)
    return times.begin[node] + inside


def slices_of(trace: Trace, graph: Graph, times: Times) -> tuple[Int64s, Int64s]:
    """When each slice of the trace would start and end (ns of the file), shape
    [slices]; as recorded where it is on no thread or stream of the graph. What a change
    takes out starts and ends where it was."""
    start, end = trace.start.copy(), trace.end.copy()
    items = graph.nodes(Node.ITEM)
    start[graph.row[items]] = times.begin[items] + graph.origin_ns
    end[graph.row[items]] = times.end[items] + graph.origin_ns
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        for chain in range(len(graph.time_scales)):
            if graph.chains[chain].thread == number and track.layer in CPU_LAYERS:
                for column in (start, end):
                    recorded = column[track.rows] - graph.origin_ns
                    column[track.rows] = (
                        times_at(graph, times, chain, recorded) + graph.origin_ns
                    )
    return start, end


class StepEnds(NamedTuple):
    chain: int  # their thread, -1: none of the graph
    # as recorded, after the origin: when the first begins, and the thread ends each
    edges: Int64s
    item: Rows  # what they launched
    number: Rows  # and the place among the edges of the step that launched it


def step_ends(trace: Trace, graph: Graph, by: str | None = None) -> StepEnds:
    """Of the steps of a trace; `by`: see steps_of."""
    steps, none = steps_of(trace, by), np.empty(0, dtype=np.intp)
    if not len(steps):
        return StepEnds(-1, none.astype(np.int64), none, none)
    thread = int(trace.thread_of_track[trace.track[steps.rows[0]]])
    chains = [
        n for n in range(len(graph.time_scales)) if graph.chains[n].thread == thread
    ]
    rows, called = by_launch_time(trace)
    places = np.arange(len(rows))
    groups = [places[own] for own in steps.slices_of(called)]
    number = np.repeat(np.arange(1, len(groups) + 1), [len(own) for own in groups])
    edges = np.append(steps.start[:1], steps.end) - graph.origin_ns
    launched = graph.node_of(trace, Node.ITEM)[rows[np.concatenate([none, *groups])]]
    return StepEnds((*chains, -1)[0], edges, launched, number)


def bounds_of(graph: Graph, times: Times, ends: StepEnds) -> Int64s:
    """When the first step begins, then when each ends: the later of its thread and of
    what it launched, and not before the one before it; without steps, the begin and the
    end of all."""
    if not len(ends.edges):
        return np.array([0, times.end[last_of(graph, times)]])
    edges = ends.edges.copy()
    if ends.chain >= 0:
        edges = times_at(graph, times, ends.chain, edges)
    left = ~graph.gone[ends.item]
    np.maximum.at(edges, ends.number[left], times.end[ends.item[left]])
    return np.maximum.accumulate(edges)


PARTS = LAG, RESIDUAL, OWN, LATE = range(4)
"""What a stretch of the critical path is: the lag before a node, what is not understood
of that, what the node does, and what is not understood of that."""


class Route(NamedTuple):
    """The critical path up to a node, as stretches from each begin to the next one,
    without a gap; arrays of shape [stretches], the last begin is the end."""

    node: Rows
    part: Rows
    begin: Int64s  # ns after the origin; shape [stretches + 1]

    @property
    def ns(self) -> Int64s:
        return np.diff(self.begin)

    @property
    def unknown_share(self) -> float:
        """How much of it is not understood."""
        unknown = self.ns[np.isin(self.part, (RESIDUAL, LATE))].sum()
        return float(unknown / max(int(self.ns.sum()), 1))

    def since(self, begin: int) -> Route:
        return Route(self.node, self.part, np.maximum(self.begin, begin))


def route_to(graph: Graph, times: Times, last: int | None = None) -> Route:
    """From the origin to the end of a node, if not given the last, by the edge that
    ends last of each."""
    last = last_of(graph, times) if last is None else last
    slot = np.argmax(times.end[graph.source] + graph.lag + graph.residual, axis=0)
    before = graph.source[slot, np.arange(len(graph))].tolist()
    found, node = list[int](), last
    while node:
        found.append(node)
        node = before[node]
    nodes = np.array(found[::-1], dtype=np.intp)
    own = slot[nodes]
    since = times.end[graph.source[own, nodes]]
    understood = since + graph.lag[own, nodes]
    batches = np.isin(nodes, graph.batches.node)
    understood[batches] = times.begin[nodes[batches]]  # the thread waits for the loader
    late = times.end[nodes] - np.minimum(graph.unexplained, graph.dur)[nodes]
    begins = (since, understood, times.begin[nodes], late)
    begin = np.append(np.stack(begins, axis=1).reshape(-1), times.end[last])
    # the next may begin before one has ended
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    begin[0] = 0
    return Route(
        np.repeat(nodes, len(PARTS)), np.tile(PARTS, len(nodes)), np.maximum(begin, 0)
    )


def residual_share(graph: Graph, times: Times, device: Id) -> float:
    """How much of the time from the first launch for a device to its last end is not
    understood, on the critical path to that."""
    is_of = [chain.is_stream and chain.device == device for chain in graph.chains]
    items = np.flatnonzero(np.append(is_of, False)[graph.chain] & ~graph.gone)
    if not len(items):
        return 0.0
    source = graph.source[1, items]
    launched = np.where(source > 0, times.end[source], times.begin[items])
    begin = int(launched.min())
    last = int(items[np.argmax(times.end[items])])
    return route_to(graph, times, last).since(begin).unknown_share


def late_share(graph: Graph, route: Route) -> float:
    """How much of a route is lateness of items, but the first of their streams, that
    nothing recorded explains: what they wait for may be missing."""
    late = (
        (route.part == RESIDUAL)
        & (route.ns > LATE_NS)
        & (graph.source[0, route.node] > 0)
    )
    late &= graph.kind[route.node] == Node.ITEM
    return float(route.ns[late].sum() / max(int(route.ns.sum()), 1))


def slack_of(graph: Graph, times: Times) -> Int64s:
    """How much longer each node could take without moving the last end of the replay
    (ns); shape [nodes]. A pass from the end to the beginning."""
    latest = [int(times.end.max())] * len(graph)
    lag = graph.lag + graph.residual
    lag[0, graph.batches.node] += graph.batches.unsure
    for at in range(len(graph) - 1, 0, -BLOCK):
        own = slice(max(1, at - BLOCK + 1), at + 1)
        columns = (*graph.source[:, own], *lag[:, own], graph.dur[own])
        nodes = range(own.start, own.stop)
        each = zip(nodes, *(column.tolist() for column in columns), strict=True)
        for node, a, b, after_a, after_b, dur in reversed(list(each)):
            begin = latest[node] - dur
            if begin - after_a < latest[a]:
                latest[a] = begin - after_a
            if begin - after_b < latest[b]:
                latest[b] = begin - after_b
    return np.array(latest, dtype=np.int64) - times.end
