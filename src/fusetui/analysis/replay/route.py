"""Finds the critical path of a replay, and the slack of nodes.

The *critical path* is the chain of work that decides when the replay ends: each node
of it begins as soon as the one before has ended, with the delay of the edge between
them. The *slack* of a node is how much longer it could take without delaying the end;
nodes of the path have none.

The words node, edge, lag and residual are defined in graph.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.build import LATE_NS
from fusetui.analysis.replay.graph import (
    ORIGIN_NODE,
    OTHER_LANE,
    SAME_LANE,
    Graph,
    Node,
    Times,
)
from fusetui.analysis.replay.replay import BLOCK_NODES, find_last_node
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.ids import Id


class StretchKind(IntEnum):
    """The four stretches of the critical path at each of its nodes, in order of time."""

    KNOWN_DELAY = 0  # the lag of the edge to the node
    UNEXPLAINED_DELAY = 1  # the residual of that edge
    WORK = 2  # the node's own work
    # The end of that by which it takes unexplainedly long (Graph.unexplained).
    LATE_RETURN = 3


class CriticalPath(NamedTuple):
    """The critical path up to a node, as *stretches* without gaps between them.

    Each node of the path has four stretches, one of each StretchKind; some have no
    length. A stretch reaches from its begin to the begin of the next one.
    """

    node: Rows  # per stretch: its node
    stretch_kind: Rows  # per stretch: its StretchKind
    # Per stretch: when it begins, in ns after the origin; and when the last one ends.
    begin: Int64s

    @property
    def ns(self) -> Int64s:
        """The length of each stretch of the path, in ns."""
        return np.diff(self.begin)

    @property
    def span_ns(self) -> int:
        """The length of the path."""
        return int(self.ns.sum())

    @property
    def is_unexplained(self) -> Flags:
        """For each stretch, whether its reason is not known."""
        return np.isin(
            self.stretch_kind, (StretchKind.UNEXPLAINED_DELAY, StretchKind.LATE_RETURN)
        )

    @property
    def unknown_share(self) -> float:
        """The share of the path, from 0 to 1, whose reason is not known."""
        return self.share_of(self.is_unexplained)

    def share_of(self, stretches: Flags) -> float:
        """Return the share of the path, from 0 to 1, that some stretches take.

        Args:
            stretches: True for the stretches that count; one flag per stretch.
        """
        return float(self.ns[stretches].sum() / max(self.span_ns, 1))

    def cut_before(self, begin: int) -> CriticalPath:
        """Cut off the part of the path before a time, and return the rest.

        Earlier stretches remain, but have no length.

        Args:
            begin: The time, in ns after the origin.
        """
        return self._replace(begin=np.maximum(self.begin, begin))


def find_critical_path(
    graph: Graph, times: Times, last: int | None = None
) -> CriticalPath:
    """Find the critical path from the origin to the end of a node.

    It is followed backward from that node. At each node, the edge that ends last is the
    one that the node waited for, so the path leads to the source of that edge.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: When its nodes begin and end in the replay.
        last: The node at which the path ends; by default the one that ends last.
    """
    if last is None:
        last = find_last_node(graph, times)
    edges_end = times.end[graph.source] + graph.delay
    last_edge = np.argmax(edges_end, axis=0)  # per node: SAME_LANE or OTHER_LANE
    nodes = _find_nodes_to(graph, last_edge, last)

    begins = _find_begins_of_stretches(graph, times, nodes, last_edge[nodes])
    begin = np.append(begins.reshape(-1), times.end[last])
    # A negative lag lets a stretch begin before the one before it has ended. It then
    # cuts that one short: each begin becomes the least of itself and all later ones.
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    begin[0] = 0
    return CriticalPath(
        node=np.repeat(nodes, len(StretchKind)),
        stretch_kind=np.tile(np.array(list(StretchKind)), len(nodes)),
        begin=np.maximum(begin, 0),
    )


def _find_begins_of_stretches(
    graph: Graph, times: Times, nodes: Rows, edge: Rows
) -> Int64s:
    """Find when each of the four stretches of each node on a critical path begins.

    E.g. (10, 15, 18, 30) for a kernel that was launched at 10 us and could start 5 us
    later, but started 3 us after that and ran until 30 us, none of it unexplained.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: When its nodes begin and end in the replay.
        nodes: The nodes of the path.
        edge: For each of them the edge by which it waited, SAME_LANE or OTHER_LANE.

    Returns:
        ns after the origin, of shape [nodes, 4], in the order of StretchKind.
    """
    source_ended = times.end[graph.source[edge, nodes]]
    lag_is_over = source_ended + graph.lag[edge, nodes]
    # A thread that takes a batch waited for the data loader. That is understood, though
    # no edge has it, so all of the delay counts as lag.
    takes_batch = np.isin(nodes, graph.batches.node)
    nodes_with_batch = nodes[takes_batch]
    lag_is_over[takes_batch] = times.begin[nodes_with_batch]

    unexplained_ns = np.minimum(graph.unexplained[nodes], graph.dur[nodes])
    begins = {
        StretchKind.KNOWN_DELAY: source_ended,
        StretchKind.UNEXPLAINED_DELAY: lag_is_over,
        StretchKind.WORK: times.begin[nodes],
        StretchKind.LATE_RETURN: times.end[nodes] - unexplained_ns,
    }
    return np.stack([begins[kind] for kind in StretchKind], axis=1)


def _find_nodes_to(graph: Graph, last_edge: Rows, last: int) -> Rows:
    """Find the nodes of the critical path in order of time, without the origin.

    E.g. if node 5 waited for 3, and 3 for 1, and 1 for the origin: 1, 3, 5.

    Args:
        graph: The work as nodes, with what each of them waits for.
        last_edge: For each node of the graph, which of its edges ends last.
        last: The node at which the path ends.
    """
    node_before = graph.source[last_edge, np.arange(len(graph))].tolist()
    backward: list[int] = []
    node = last
    while node != ORIGIN_NODE:
        backward.append(node)
        node = node_before[node]
    return np.array(backward[::-1], dtype=np.intp)


def measure_residual_share(graph: Graph, times: Times, device: Id) -> float:
    """Measure how much of the critical path of a device is not understood.

    This path leads to the last end of a GPU task of the device. It counts from the
    first launch for the device on, because what a program does before says nothing
    about it.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: When its nodes begin and end in the replay.
        device: The device, as in Lane.device.

    Returns:
        A share from 0 to 1; 0 if nothing runs on the device.
    """
    streams = []
    for index, lane in enumerate(graph.lanes):
        if lane.is_stream and lane.device == device:
            streams.append(index)
    runs_on_device = np.isin(graph.lane, streams)
    nodes = np.flatnonzero(runs_on_device & ~graph.is_removed)
    if not len(nodes):
        return 0.0

    launch = graph.source[OTHER_LANE, nodes]
    has_launch = launch != ORIGIN_NODE
    launched_at = np.where(has_launch, times.end[launch], times.begin[nodes])
    first_launch = int(launched_at.min())

    index_of_last = np.argmax(times.end[nodes])
    last_node = int(nodes[index_of_last])
    critical_path = find_critical_path(graph, times, last_node)
    return critical_path.cut_before(first_launch).unknown_share


def measure_late_share(graph: Graph, critical_path: CriticalPath) -> float:
    """Measure the share of a path in which GPU tasks are late for no recorded reason.

    A late task (kernel, copy or set) may wait for something that was not recorded,
    which a change could remove or not: so an answer mentions it. The first task of a
    stream does not count, because nothing says when it could have started.

    Args:
        graph: The work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.

    Returns:
        A share from 0 to 1.
    """
    is_unexplained_delay = critical_path.stretch_kind == StretchKind.UNEXPLAINED_DELAY
    is_late = is_unexplained_delay & (critical_path.ns > LATE_NS)
    is_of_task = graph.kind[critical_path.node] == Node.GPU_TASK
    follows_another = graph.source[SAME_LANE, critical_path.node] != ORIGIN_NODE
    return critical_path.share_of(is_late & is_of_task & follows_another)


def measure_slack(graph: Graph, times: Times) -> Int64s:
    """Compute how much longer each node alone could take without delaying the end.

    E.g. a kernel ends at 6 ns, and what waits for it begins only at 10 ns because of
    something else: its slack is 4 ns, plus the slack of what waits. It is computed in
    one pass from the end of the replay to its begin, because each node must end early
    enough for all that wait for it.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: When its nodes begin and end in the replay.

    Returns:
        ns per node; 0 for nodes of the critical path.
    """
    latest_end = [int(times.end.max())] * len(graph)
    delay = graph.delay
    # A thread takes over a batch only after the time that it works for it in any case.
    delay[SAME_LANE, graph.batches.node] += graph.batches.unsure
    for last in range(len(graph) - 1, 0, -BLOCK_NODES):
        first = max(1, last - BLOCK_NODES + 1)
        _limit_sources(graph, delay, first, last + 1, latest_end)
    return np.array(latest_end, dtype=np.int64) - times.end


def _limit_sources(
    graph: Graph, delay: Int64s, first: int, stop: int, latest_end: list[int]
) -> None:
    """Lower the latest ends of the sources of a range of nodes, the last node first.

    A source must end early enough for the node that waits for it not to be delayed:
    before a node that takes 4 ns, may end at 20 ns at the latest, and begins 1 ns after
    its source, that source must end at 15 ns.

    Args:
        graph: The work as nodes, with what each of them waits for.
        delay: The lag plus the residual of each edge, of shape [2, nodes].
        first: The first node of the range.
        stop: The node behind the range.
        latest_end: The latest end of each node of the graph, which is changed in place.
            Those of nodes behind the range are final.
    """
    last_first = np.arange(first, stop)[::-1]
    source_a, source_b = graph.source[:, last_first].tolist()
    delay_a, delay_b = delay[:, last_first].tolist()
    durations = graph.dur[last_first].tolist()
    for node, a, b, after_a, after_b, dur in zip(
        last_first.tolist(),
        source_a,
        source_b,
        delay_a,
        delay_b,
        durations,
        strict=True,
    ):
        latest_begin = latest_end[node] - dur
        if latest_begin - after_a < latest_end[a]:
            latest_end[a] = latest_begin - after_a
        if latest_begin - after_b < latest_end[b]:
            latest_end[b] = latest_begin - after_b
