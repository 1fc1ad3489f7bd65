"""A graph that is being changed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import effective_ns
from fusetui.analysis.replay.graph import (
    ACROSS,
    IN_CHAIN,
    NEVER,
    Batches,
    Graph,
    Node,
)
from fusetui.analysis.replay.select import Covers
from fusetui.trace.model.arrays import Flags, Floats, Rows, distinct
from fusetui.trace.model.columns import Trace


class Draft:
    """The columns of a graph that changes may write to, as copies.

    A change edits them; `finished` then makes a graph of them.
    """

    def __init__(self, trace: Trace, graph: Graph, latest: bool) -> None:
        """Copy the columns of a graph.

        Args:
            trace: The trace.
            graph: Its graph.
            latest: Whether a change whose effect is a range takes the later end.
        """
        self.trace = trace
        self.graph = graph
        self.latest = latest
        self.dur = graph.dur.copy()
        self.unexplained = graph.unexplained.copy()
        self.source = graph.source.copy()
        self.lag = graph.lag.copy()
        self.residual = graph.residual.copy()
        self.gone = graph.gone.copy()
        self.time_scales = list(graph.time_scales)
        self.batches = graph.batches
        self.notes: list[str] = []

    @property
    def items(self) -> Rows:
        """The nodes of kernels, copies and sets."""
        return self.graph.nodes(Node.ITEM)

    def remove_edges(self, slot: int, nodes: Rows) -> None:
        """Make nodes wait for nothing by one of their edges, IN_CHAIN or ACROSS."""
        self.source[slot, nodes] = 0
        self.residual[slot, nodes] = 0
        self.lag[slot, nodes] = NEVER

    def remove_nodes(self, nodes: Rows) -> None:
        """Make nodes take no time and wait only for the one before them.

        Whatever was not understood about their successors is dropped.
        """
        self.gone[nodes] = True
        self.dur[nodes] = 0
        self.unexplained[nodes] = 0
        self.remove_edges(ACROSS, nodes)

        items = nodes[self.graph.kind[nodes] == Node.ITEM]
        follows_another = items[self.lag[IN_CHAIN, items] != NEVER]
        self.lag[IN_CHAIN, follows_another] = 0
        self.residual[IN_CHAIN, follows_another] = 0

        is_edge = (self.lag != NEVER) & (self.source > 0)
        is_from_removed = is_edge & np.isin(self.source, items)
        self.residual[is_from_removed] = 0
        self.lag[is_from_removed] = np.maximum(self.lag[is_from_removed], 0)

    def scale_items(self, nodes: Rows, effective: Callable[[Floats], Floats]) -> None:
        """Change the effective durations of items.

        The time by which an item overlaps the item before stays as it is.

        Args:
            nodes: The items.
            effective: Computes the new durations from the current ones, in ns.
        """
        effective_of_row = np.zeros(len(self.trace), dtype=np.int64)
        effective_of_row[self.trace.gpu_rows] = effective_ns(self.trace)
        recorded_ns = effective_of_row[self.graph.row[nodes]]
        overlap_ns = self.graph.lasted[nodes] - recorded_ns

        current_ns = np.maximum(self.dur[nodes] - overlap_ns, 0).astype(np.float64)
        changed_ns = np.rint(effective(current_ns)).astype(np.int64)
        self.dur[nodes] = overlap_ns + changed_ns

    def scale_threads(self, covers: Covers, factor: float) -> None:
        """Make what threads do within covers take `factor` times as long."""
        for chain, cover in covers.items():
            self.time_scales[chain] = self.time_scales[chain].changed(cover, factor)

    def return_at_once(self, waits: Rows) -> None:
        """Make WAITs wait for nothing."""
        self.remove_edges(ACROSS, waits)
        self.dur[waits] -= self.unexplained[waits]
        self.unexplained[waits] = 0

    def wait_for_no_batch(self, covers: Covers) -> None:
        """Make calls for a batch within covers find it ready."""
        batches = self.batches
        ready = self.graph.began[batches.node]
        still_waits = np.ones(len(ready), dtype=np.bool_)
        for chain, cover in covers.items():
            of_chain = np.flatnonzero(self.graph.chain[batches.node] == chain)
            asked = ready[of_chain] - batches.waited[of_chain]
            interval = cover.place_of(asked)
            is_outside = (interval < 0) | (ready[of_chain] > cover.end[interval])
            still_waits[of_chain] = is_outside
        self.batches = Batches(
            node=batches.node[still_waits],
            waited=batches.waited[still_waits],
            unsure=batches.unsure[still_waits],
            loader=batches.loader[still_waits],
        )

    def finished(self) -> Graph:
        """Return the changed graph.

        What follows from the changes is computed here: how long threads take, which
        launches wait for room in a full queue, and that no item starts before the one
        before it on its stream.
        """
        graph = self.graph
        self._apply_time_scales()
        if (self.gone & ~graph.gone).any():
            self._queue_again()
        overlaps = self._overlaps_the_item_before()
        lag_within_item = np.maximum(self.lag, -self.dur[self.source])
        self.lag = np.where(overlaps, lag_within_item, self.lag)
        return msgspec.structs.replace(
            graph,
            dur=self.dur,
            unexplained=np.minimum(self.unexplained, self.dur),
            source=self.source,
            lag=self.lag,
            residual=self.residual,
            gone=self.gone,
            time_scales=tuple(self.time_scales),
            batches=self.batches,
        )

    def _apply_time_scales(self) -> None:
        """Make the threads' own time take as long as their scales say."""
        graph = self.graph
        hosts = graph.nodes(Node.HOST)
        for chain, scale in enumerate(self.time_scales):
            nodes = hosts[graph.chain[hosts] == chain]
            until_begin = scale.until(graph.began[nodes])
            until_end = scale.until(graph.ended[nodes])
            self.dur[nodes] = until_end - until_begin

    def _overlaps_the_item_before(self) -> Flags:
        """Mark the edges that let a node begin before an item has ended.

        A lag larger than the item itself comes from clocks that differ, and does not
        count.

        Returns:
            Flags of shape [2, nodes].
        """
        is_from_item: Flags = self.graph.kind[self.source] == Node.ITEM
        is_early: Flags = self.lag < 0
        is_within_item: Flags = self.lag >= -self.graph.lasted[self.source]
        return is_early & is_from_item & is_within_item

    def _queue_again(self) -> None:
        """Make launch calls wait for room in queues that were full.

        Items that are gone take no room. Each call waits for the item that is as many
        places before its own as the queue holds.
        """
        graph = self.graph
        items = self.items
        launches = graph.nodes(Node.LAUNCH)
        waited_for = graph.source[ACROSS, launches]
        waited_for = waited_for[graph.kind[waited_for] == Node.ITEM]
        for stream in distinct(graph.chain[waited_for]).tolist():
            self._queue_again_on(stream, items[graph.chain[items] == stream])

    def _queue_again_on(self, stream: int, items: Rows) -> None:
        """Make launch calls wait for room in the queue of one stream.

        Args:
            stream: The stream, a chain of the graph.
            items: All of its items. Some of their launch calls wait for one of them.
        """
        graph = self.graph
        launch_of_row = graph.node_of(self.trace, Node.LAUNCH)
        call = launch_of_row[self.trace.launch[graph.row[items]]]
        has_call = call > 0  # 0 stands for none

        # The queue holds as many items as lie between a call's item and the one that
        # freed its slot.
        frees_a_slot = graph.source[ACROSS, call]
        queue_was_full = has_call & (graph.chain[frees_a_slot] == stream)
        index_of_freeing = np.searchsorted(items, frees_a_slot)
        items_between = np.arange(len(items)) - index_of_freeing
        queue_length = int(items_between[queue_was_full].max())

        self.remove_edges(ACROSS, call[queue_was_full])
        is_left = has_call & ~self.gone[items] & ~self.gone[call]
        waiting = call[is_left][queue_length:]
        self.source[ACROSS, waiting] = items[is_left][: len(waiting)]
        self.lag[ACROSS, waiting] = 0
