"""Replays a graph: computes when each node begins and ends."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times
from fusetui.trace.model.arrays import Int64s

BLOCK_NODES = 1 << 16
"""That are objects of Python at a time."""


def replay(graph: Graph, *, late: bool = False) -> Times:
    """Compute the times of all nodes in a single pass.

    Each node waits for its two sources. When a batch of a data loader is ready after a
    change can only be bounded (see Ready). Without a change both bounds give the
    recording.

    Args:
        graph: The graph, whose nodes are in an order in which sources come first.
        late: Whether batches are ready as late as possible instead of as early.
    """
    ends = [0]
    lag = graph.lag + graph.residual
    batches = graph.batches
    ready = Ready(late)

    # Replay up to each batch, then correct the end of its node.
    first = 1
    for node, waited, unsure, loader in zip(
        batches.node.tolist(),
        batches.waited.tolist(),
        batches.unsure.tolist(),
        batches.loader.tolist(),
        strict=True,
    ):
        _replay_some(graph, lag, first, node + 1, ends)
        ends[node] = ready.handed_over(
            asked=ends[node],
            recorded=int(graph.began[node]),
            waited=waited,
            unsure=unsure,
            loader=loader,
        )
        first = node + 1
    _replay_some(graph, lag, first, len(graph), ends)

    end = np.array(ends, dtype=np.int64)
    return Times(begin=end - graph.dur, end=end)


def replay_late(graph: Graph, early: Times) -> Times:
    """Compute the times with batches that are ready as late as possible.

    Args:
        graph: The graph.
        early: The result of `replay` without `late`. It is returned if no thread asks
            workers for batches, because then both are the same.
    """
    return replay(graph, late=True) if len(graph.batches.node) else early


def _replay_some(
    graph: Graph, lag: Int64s, first: int, stop: int, ends: list[int]
) -> None:
    """Replay a range of nodes.

    Args:
        graph: The graph.
        lag: The lag plus the residual of each edge, of shape [2, nodes].
        first: The first node of the range.
        stop: The node behind the range.
        ends: The ends of all nodes before the range. Those of the range are appended.
    """
    append = ends.append
    for begin in range(first, stop, BLOCK_NODES):
        block = slice(begin, min(begin + BLOCK_NODES, stop))
        source_a, source_b = graph.source[:, block].tolist()
        lag_a, lag_b = lag[:, block].tolist()
        durations = graph.dur[block].tolist()
        for a, b, after_a, after_b, dur in zip(
            source_a, source_b, lag_a, lag_b, durations, strict=True
        ):
            end_a = ends[a] + after_a
            end_b = ends[b] + after_b
            append((end_a if end_a > end_b else end_b) + dur)


class Ready:
    """Bounds when the batches of data loaders are ready, in the course of a replay.

    A worker begins a batch once it has made the one before and the thread has taken an
    earlier one. So a batch is ready at most as much earlier than recorded as the thread
    ever was earlier at taking a batch before it, and at most as much later.

    In the recording, a batch had become ready when a call that waited went on. If the
    call returned at once, the batch was ready at the latest when the call was made.
    """

    def __init__(self, late: bool) -> None:
        self._late = late
        self._most_early_ns: dict[int, int] = {}  # by loader
        self._most_late_ns: dict[int, int] = {}

    def handed_over(
        self, *, asked: int, recorded: int, waited: int, unsure: int, loader: int
    ) -> int:
        """Return when the thread has a batch, in ns after the origin.

        Args:
            asked: When the thread asks for the batch in the replay.
            recorded: When it had the batch in the recording.
            waited: See Batches.
            unsure: See Batches.
            loader: See Batches.
        """
        early_ns = self._most_early_ns.get(loader, 0)
        late_ns = self._most_late_ns.get(loader, 0)
        if self._late:
            begin = max(asked + unsure, recorded + late_ns)
        else:
            ready = recorded - early_ns
            may_not_have_waited = waited == unsure
            if may_not_have_waited:
                ready = min(ready, asked + waited)
            begin = max(asked, ready)

        self._most_early_ns[loader] = max(early_ns, recorded - begin)
        self._most_late_ns[loader] = max(late_ns, begin - recorded)
        return begin


def last_of(graph: Graph, times: Times) -> int:
    """Return the node that ends last, of those that no change took out."""
    counts = ~graph.gone & (graph.kind != Node.JOIN)
    return int(np.argmax(np.where(counts, times.end, NEVER)))
