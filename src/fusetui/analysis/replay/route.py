"""The critical path of a replay: what its end waits for, and what has time to spare."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.build import LATE_NS
from fusetui.analysis.replay.graph import ACROSS, IN_CHAIN, Graph, Node, Times
from fusetui.analysis.replay.replay import BLOCK_NODES, last_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.ids import Id

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
        """How long each stretch takes; shape [stretches]."""
        return np.diff(self.begin)

    @property
    def span_ns(self) -> int:
        """How long the path is."""
        return int(self.ns.sum())

    @property
    def unknown_share(self) -> float:
        """How much of it is not understood."""
        return self.share_of(np.isin(self.part, (RESIDUAL, LATE)))

    def share_of(self, stretches: Flags) -> float:
        """How much of the path some stretches take."""
        return float(self.ns[stretches].sum() / max(self.span_ns, 1))

    def since(self, begin: int) -> Route:
        """What is left of it from a time on."""
        return self._replace(begin=np.maximum(self.begin, begin))


def route_to(graph: Graph, times: Times, last: int | None = None) -> Route:
    """The critical path from the origin to the end of a node: back from it by the edge
    of each node that ends last. `last`: the node; if None, the one that ends last."""
    if last is None:
        last = last_of(graph, times)
    edges_end = times.end[graph.source] + graph.lag + graph.residual
    last_edge = np.argmax(edges_end, axis=0)
    nodes = _nodes_to(graph, last_edge, last)
    begins = _begins_of_parts(graph, times, nodes, last_edge[nodes])
    begin = np.append(begins.reshape(-1), times.end[last])
    # the next may begin before one has ended
    begin = np.minimum.accumulate(begin[::-1])[::-1]
    begin[0] = 0
    return Route(
        node=np.repeat(nodes, len(PARTS)),
        part=np.tile(PARTS, len(nodes)),
        begin=np.maximum(begin, 0),
    )


def _begins_of_parts(graph: Graph, times: Times, nodes: Rows, edge: Rows) -> Int64s:
    """When each part of each node begins (ns after the origin); shape [nodes, PARTS].
    `edge`: that by which each node waits."""
    source_ended = times.end[graph.source[edge, nodes]]
    lag_is_over = source_ended + graph.lag[edge, nodes]
    is_batch = np.isin(nodes, graph.batches.node)
    # a thread that waits for a batch waits for the loader
    lag_is_over[is_batch] = times.begin[nodes[is_batch]]
    unexplained = np.minimum(graph.unexplained, graph.dur)[nodes]
    begins = {
        LAG: source_ended,
        RESIDUAL: lag_is_over,
        OWN: times.begin[nodes],
        LATE: times.end[nodes] - unexplained,
    }
    return np.stack([begins[part] for part in PARTS], axis=1)


def _nodes_to(graph: Graph, last_edge: Rows, last: int) -> Rows:
    """The nodes from the origin, which is left out, to the last one."""
    before = graph.source[last_edge, np.arange(len(graph))].tolist()
    backward: list[int] = []
    node = last
    while node:
        backward.append(node)
        node = before[node]
    return np.array(backward[::-1], dtype=np.intp)


def residual_share(graph: Graph, times: Times, device: Id) -> float:
    """How much of the time from the first launch for a device to its last end is not
    understood, on the critical path to that."""
    is_of_device = []
    for chain in graph.chains:
        is_of_device.append(chain.is_stream and chain.device == device)
    is_of_device.append(False)  # chain -1: none
    on_device = np.array(is_of_device)[graph.chain]
    items = np.flatnonzero(on_device & ~graph.gone)
    if not len(items):
        return 0.0
    launch = graph.source[ACROSS, items]
    has_launch = launch > 0
    launched = np.where(has_launch, times.end[launch], times.begin[items])
    last = int(items[np.argmax(times.end[items])])
    return route_to(graph, times, last).since(int(launched.min())).unknown_share


def late_share(graph: Graph, route: Route) -> float:
    """How much of a route is lateness of items, but the first of their streams, that
    nothing recorded explains: what they wait for may be missing."""
    is_late = (route.part == RESIDUAL) & (route.ns > LATE_NS)
    is_item = graph.kind[route.node] == Node.ITEM
    follows_another = graph.source[IN_CHAIN, route.node] > 0
    return route.share_of(is_late & is_item & follows_another)


def slack_of(graph: Graph, times: Times) -> Int64s:
    """How much longer each node could take without moving the last end of the replay
    (ns); shape [nodes]. A pass from the end to the beginning."""
    latest_end = [int(times.end.max())] * len(graph)
    lag = graph.lag + graph.residual
    lag[IN_CHAIN, graph.batches.node] += graph.batches.unsure
    for last in range(len(graph) - 1, 0, -BLOCK_NODES):
        first = max(1, last - BLOCK_NODES + 1)
        _limit_sources(graph, lag, first, last + 1, latest_end)
    return np.array(latest_end, dtype=np.int64) - times.end


def _limit_sources(
    graph: Graph, lag: Int64s, first: int, stop: int, latest_end: list[int]
) -> None:
    """Lowers the latest end of the sources of the nodes from `first` to `stop`, the
    last node first, so that these end no later than theirs; changes `latest_end`."""
    block = slice(first, stop)
    source_a, source_b = graph.source[:, block].tolist()
    lag_a, lag_b = lag[:, block].tolist()
    durations = graph.dur[block].tolist()
    nodes = range(first, stop)
    in_order = zip(nodes, source_a, source_b, lag_a, lag_b, durations, strict=True)
    for node, a, b, after_a, after_b, dur in reversed(list(in_order)):
        begin = latest_end[node] - dur
        if begin - after_a < latest_end[a]:
            latest_end[a] = begin - after_a
        if begin - after_b < latest_end[b]:
            latest_end[b] = begin - after_b
