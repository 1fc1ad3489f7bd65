"""When each node of a graph begins and ends."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times
from fusetui.trace.model.arrays import Int64s

BLOCK_NODES = 1 << 16
"""That are objects of Python at a time."""


def replay(graph: Graph, *, late: bool = False) -> Times:
    """The times of all nodes: a single pass, in which each waits for its two sources.

    When a batch is ready after a change is not known, but for its bounds, see Ready.
    `late`: as late as may be, not as early. Without a change both are the recording."""
    ends = [0]
    lag = graph.lag + graph.residual
    batches = graph.batches
    ready = Ready(late)
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
    """As `replay` with `late`, where `early` is what it says without: the same times,
    not worked out again, unless threads ask workers for batches."""
    return replay(graph, late=True) if len(graph.batches.node) else early


def _replay_some(
    graph: Graph, lag: Int64s, first: int, stop: int, ends: list[int]
) -> None:
    """Adds the ends of the nodes from `first` to `stop` to those of all before."""
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
    """When batches are ready, in the course of a replay.

    A worker begins a batch when it has made the one before and the thread has taken an
    earlier one. So a batch is ready at most as much earlier than recorded as the thread
    was ever earlier at taking one before, and at most as much later. It had become
    ready when a call that waited went on; or at the latest when a call that returned at
    once was made."""

    def __init__(self, late: bool) -> None:
        self._late = late
        self._most_early_ns: dict[int, int] = {}  # by loader
        self._most_late_ns: dict[int, int] = {}

    def handed_over(
        self, *, asked: int, recorded: int, waited: int, unsure: int, loader: int
    ) -> int:
        """When the thread has a batch for which it asks at `asked` (ns after the
        origin). `recorded`: when it had it in the recording; for the rest see
        Batches."""
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
    """The node that ends last, of those that no change took out."""
    counts = ~graph.gone & (graph.kind != Node.JOIN)
    return int(np.argmax(np.where(counts, times.end, NEVER)))
