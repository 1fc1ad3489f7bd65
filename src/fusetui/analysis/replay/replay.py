"""Replays a graph: computes when each node begins and ends."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times
from fusetui.trace.model.arrays import Int64s

BLOCK_NODES = 1 << 16
"""How many nodes are turned from arrays into Python numbers at a time. Loops over
Python numbers are faster than over arrays, but the numbers of a whole graph would take
much memory."""


def replay(graph: Graph, *, late: bool = False) -> Times:
    """Compute when each node begins and ends, in a single pass over the nodes.

    Each node begins once its two sources have ended, with the delays of its edges.
    Without a change this gives the recording.

    After a change, when workers of a data loader have a batch ready is not known
    exactly, but has bounds (see BatchReadiness). `late` selects which bound is taken.

    Args:
        graph: The graph, whose nodes are in an order in which sources come first.
        late: Whether batches are ready as late as possible instead of as early.
    """
    ends = [0]  # of the origin
    delay = graph.delay
    batches = graph.batches
    readiness = BatchReadiness(late)

    # Replay up to each batch, then correct the end of the node that takes the batch.
    first = 1
    for node, waited, unsure, loader in zip(
        batches.node.tolist(),
        batches.waited.tolist(),
        batches.unsure.tolist(),
        batches.loader.tolist(),
        strict=True,
    ):
        _replay_range(graph, delay, first, node + 1, ends)
        ends[node] = readiness.take_batch(
            asked_at=ends[node],
            recorded_at=int(graph.began[node]),
            waited_ns=waited,
            unsure_ns=unsure,
            loader=loader,
        )
        first = node + 1
    _replay_range(graph, delay, first, len(graph), ends)

    end = np.array(ends, dtype=np.int64)
    return Times(begin=end - graph.dur, end=end)


def replay_late(graph: Graph, early: Times) -> Times:
    """Compute the times if batches are ready as late as possible.

    Args:
        graph: The work as nodes, with what each of them waits for.
        early: The result of `replay` without `late`. It is returned itself if no thread
            takes batches from workers, because then both are the same.
    """
    return replay(graph, late=True) if len(graph.batches.node) else early


def _replay_range(
    graph: Graph, delay: Int64s, first: int, stop: int, ends: list[int]
) -> None:
    """Compute the ends of a range of nodes.

    A node ends at the later one of what its two sources, a and b, allow. This loop
    takes most of the time of a replay, so it is as plain as can be.

    Args:
        graph: The work as nodes, with what each of them waits for.
        delay: The lag plus the residual of each edge, of shape [2, nodes].
        first: The first node of the range.
        stop: The node behind the range.
        ends: The ends of all nodes before the range. Those of the range are appended.
    """
    append = ends.append
    for first_of_block in range(first, stop, BLOCK_NODES):
        block = slice(first_of_block, min(first_of_block + BLOCK_NODES, stop))
        source_a, source_b = graph.source[:, block].tolist()
        delay_a, delay_b = delay[:, block].tolist()
        durations = graph.dur[block].tolist()
        for a, b, after_a, after_b, dur in zip(
            source_a, source_b, delay_a, delay_b, durations, strict=True
        ):
            begin_by_a = ends[a] + after_a
            begin_by_b = ends[b] + after_b
            begin_of_node = begin_by_a if begin_by_a > begin_by_b else begin_by_b
            append(begin_of_node + dur)


class BatchReadiness:
    """Bounds when the batches of data loaders are ready, in the course of a replay.

    A worker begins a batch once it has made the one before and the thread has taken an
    earlier one. So a batch is ready at most as much earlier than recorded as the thread
    ever was earlier at taking a batch before it, and at most as much later.

    In the recording, a batch became ready when the call that waited for it went on. If
    the call returned at once, all that is known is that the batch was ready at the
    latest when the call was made.
    """

    def __init__(self, late: bool) -> None:
        """Begin a replay in which no batch has been taken yet.

        Args:
            late: Whether the later bound is wanted instead of the earlier one.
        """
        self._late = late
        # By the number of the loader: how much earlier, and how much later, than
        # recorded the thread took a batch, at most so far.
        self._most_early_ns: dict[int, int] = {}
        self._most_late_ns: dict[int, int] = {}

    def take_batch(
        self,
        *,
        asked_at: int,
        recorded_at: int,
        waited_ns: int,
        unsure_ns: int,
        loader: int,
    ) -> int:
        """Take the next batch, and return when the thread gets it, in ns after the
        origin.

        E.g. the thread got a batch at 100 ns in the recording, and in the replay was 30
        ns earlier than recorded at taking one before. Then the workers may have had 30
        ns more for this batch: at the earliest it is ready at 70 ns, and the thread
        gets it then, or when it asks for it, if that is later.

        Args:
            asked_at: When the thread asks for the batch in the replay.
            recorded_at: When it got the batch in the recording.
            waited_ns: How long it waited in the recording; see Batches.
            unsure_ns: How much of that may have been its own work; see Batches.
            loader: The number of the data loader.
        """
        # By how much, at most, it was earlier and later at taking a batch so far.
        early_ns = self._most_early_ns.get(loader, 0)
        late_ns = self._most_late_ns.get(loader, 0)
        if self._late:
            taken_at = max(asked_at + unsure_ns, recorded_at + late_ns)
        else:
            ready_at = recorded_at - early_ns
            may_not_have_waited = waited_ns == unsure_ns
            if may_not_have_waited:
                # The batch was ready when the thread asked. It only takes it over.
                ready_at = min(ready_at, asked_at + waited_ns)
            taken_at = max(asked_at, ready_at)

        self._most_early_ns[loader] = max(early_ns, recorded_at - taken_at)
        self._most_late_ns[loader] = max(late_ns, taken_at - recorded_at)
        return taken_at


def find_last_node(graph: Graph, times: Times) -> int:
    """Find the node that ends last in a replay.

    Nodes that a change removed do not count, nor do JOINs, which only wait for others.

    Args:
        graph: The work as nodes, with what each of them waits for.
        times: When its nodes begin and end.
    """
    is_work = ~graph.is_removed & (graph.kind != Node.JOIN)
    return int(np.argmax(np.where(is_work, times.end, NEVER)))
