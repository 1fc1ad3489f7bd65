"""Builds the graph of a trace. Its lags and residuals explain every recorded time."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.replay.graph import (
    ACROSS,
    AS_RECORDED,
    IN_CHAIN,
    NEVER,
    Batches,
    Chain,
    Graph,
    Node,
    in_order,
    reordered,
)
from fusetui.analysis.replay.items import (
    MAX_SWITCH_NS,
    SYNCHRONIZES,
    Items,
    WaitPairs,
    awaited_by_calls,
    awaited_by_items,
    awaited_unrecorded,
    behind_communication,
    by_target,
    freeing,
    items_of,
    syncs_of,
)
from fusetui.analysis.replay.thread_cuts import HANDING_NS, ThreadCuts, thread_cuts_of
from fusetui.analysis.why.account import Accounts
from fusetui.trace.model.arrays import (
    Int32s,
    Int64s,
    Rows,
    distinct,
    ends_runs,
    ordinals,
)
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import upper_median

LATE_NS = 5_000
"""An item that starts so much later than is understood may wait for what was not
recorded."""
MAX_LATENCY_NS = 100_000
"""No launch usually takes longer than this to start its item."""
MAX_RETURN_NS = 100_000
"""A synchronization that returns later than this after what it waited for waits for
more."""


class NodeOrder(NamedTuple):
    """The layout of the nodes before they are sorted.

    The origin comes first. For each thread, a HOST and a cut for each cut follow, and a
    HOST at the end. Then come the items, and the JOINs.
    """

    cut: Rows  # the node of each cut; the one before it is that of the HOST before it
    tail: Rows  # the last HOST of each thread
    item: Rows  # the node of each item
    size: int  # without JOINs

    @property
    def before_cut(self) -> Rows:
        """The HOST before each cut."""
        return self.cut - 1

    @property
    def first_of_thread(self) -> Rows:
        """The first node of each thread."""
        threads = len(self.tail)
        return np.append(1, self.tail[:-1] + 1)[:threads]


class _Delays(NamedTuple):
    """How long work that is ready usually takes to start, in ns."""

    switch: Int64s  # of each stream: after the item before
    latency: Int64s  # of each item: after the begin of its launch call


class GraphDraft:
    """Nodes in the order of NodeOrder that are being connected.

    Arrays have the shape [nodes], or [2, nodes] for edges. Times are ns after the
    origin. Lags and residuals follow later, from what edges explain.
    """

    def __init__(self, size: int) -> None:
        """Begin with `size` JOINs, which are overwritten with what the nodes are."""
        self.kind = np.full(size, Node.JOIN, dtype=np.uint8)
        self.chain = np.full(size, -1, dtype=np.int32)
        self.row = np.full(size, -1, dtype=np.int32)
        self.began = np.zeros(size, dtype=np.int64)
        self.ended = np.zeros(size, dtype=np.int64)
        self.unexplained = np.zeros(size, dtype=np.int64)
        # decides between nodes that begin and end at the same time
        self.place = np.arange(size, dtype=np.float64)
        self.source = np.zeros((2, size), dtype=np.int32)
        self.explained = np.full((2, size), NEVER)  # lags, if not recorded less

    def connect(
        self, slot: int, target: Rows, source: Rows, explained: Int64s | int = 0
    ) -> None:
        """Make each target wait for its source.

        Args:
            slot: By which edge of the target, IN_CHAIN or ACROSS.
            target: The nodes that wait.
            source: The node that each of them waits for.
            explained: The lag of each edge, in ns.
        """
        self.source[slot, target] = source
        self.explained[slot, target] = explained

    def follow_origin(self, target: Rows) -> None:
        """Make each target the first node of its thread or stream."""
        self.connect(IN_CHAIN, target, np.zeros(len(target), dtype=np.intp))

    def join(self, slot: int, pairs: WaitPairs, explained: Int64s | int = 0) -> None:
        """Make targets wait for any number of further sources.

        A node has two edges only, so more sources need JOINs. If the edge `slot` of a
        target is free, its first source takes it. Each further source gets a JOIN,
        which waits for that source and for the JOIN before it. The first JOIN takes
        over the edge `slot` of the target, and the target waits for the last JOIN.

        Args:
            slot: By which edge of the targets, IN_CHAIN or ACROSS.
            pairs: The targets in ascending order, with their sources.
            explained: The lag of each pair, in ns.
        """
        lags = np.broadcast_to(explained, len(pairs.target))
        is_first = ordinals(pairs.target) == 0
        takes_edge = is_first & (self.explained[slot, pairs.target] == NEVER)
        self.connect(
            slot, pairs.target[takes_edge], pairs.item[takes_edge], lags[takes_edge]
        )

        further = WaitPairs(pairs.target[~takes_edge], pairs.item[~takes_edge])
        join = self._new_joins(further.target)
        self.connect(ACROSS, join, further.item, lags[~takes_edge])
        self._chain_joins(slot, further.target, join)

    def _chain_joins(self, slot: int, target: Rows, join: Rows) -> None:
        """Connect the JOINs of each target in a row.

        Args:
            slot: The edge of the target that its first JOIN takes over, and by which
                the target then waits for its last JOIN.
            target: The target of each JOIN, ascending.
            join: The JOINs.
        """
        is_first = ordinals(target) == 0
        follows_join = join[~is_first]
        self.connect(IN_CHAIN, follows_join, follows_join - 1)

        first_targets = target[is_first]
        self.connect(
            IN_CHAIN,
            join[is_first],
            self.source[slot, first_targets],
            self.explained[slot, first_targets],
        )
        is_last = ends_runs(target)
        self.connect(slot, target[is_last], join[is_last])

    def _new_joins(self, target: Rows) -> Rows:
        """Add a JOIN just before each of some targets, which may repeat.

        Returns:
            The new nodes.
        """
        join = len(self.kind) + np.arange(len(target))
        joins = vars(GraphDraft(len(target)))
        for name, column in vars(self).items():
            setattr(self, name, np.concatenate((column, joins[name]), axis=-1))
        self.began[join] = self.began[target]
        self.ended[join] = self.began[target]
        self.chain[join] = self.chain[target]

        # Place them between the node before the target (target - 1) and the target.
        nth_of_target = ordinals(target)
        most_joins = nth_of_target.max(initial=0) + 1
        self.place[join] = target - 0.5 + nth_of_target / (2 * most_joins)
        return join

    def late(self, nodes: Rows) -> Int64s:
        """Return how many ns later than their edges explain nodes begin."""
        source_ended = self.ended[self.source[:, nodes]]
        recorded_lag = self.began[nodes] - source_ended
        lag = np.minimum(self.explained[:, nodes], recorded_lag)
        explained_begin = (source_ended + lag).max(axis=0)
        late_ns: Int64s = self.began[nodes] - explained_begin
        return late_ns


@memo()
def graph_of(trace: Trace) -> Graph:
    """Build the graph of a trace.

    It has all GPU work, all threads that launch work, and those that run backward for
    them. Without a GPU it has the busiest thread.
    """
    cuts = thread_cuts_of(trace)
    items = items_of(trace, cuts)
    syncs = syncs_of(trace, items)
    awaited = awaited_by_calls(trace, cuts, items, syncs)
    waits_of_calls = _waits_of_calls(trace, cuts, items, awaited.pairs)
    origin = _origin(cuts, items)
    delays = _usual_delays(trace, items)

    # Lay out threads and items, and connect each node with its thread or stream.
    layout = _layout(cuts, items)
    draft = GraphDraft(layout.size)
    _lay_threads(draft, layout, cuts, origin)
    _end_waits(draft, layout, cuts, items, waits_of_calls, origin)
    _lay_items(draft, layout, cuts, items, origin)
    _connect_items(draft, layout, cuts, items, delays)

    # Make calls wait for items, and threads for each other.
    waiting_cuts = layout.cut[waits_of_calls.target]
    draft.join(ACROSS, WaitPairs(waiting_cuts, layout.item[waits_of_calls.item]))
    _hand_over(draft, layout, cuts)

    # Make items wait for items of other streams: as recorded, or as inferred for those
    # that are late without a recorded reason.
    recorded = by_target([*awaited_by_items(trace, items, syncs)])
    late = np.flatnonzero(draft.late(layout.item) > LATE_NS)
    late = np.setdiff1d(late, distinct(recorded.target), assume_unique=True)
    inferred = awaited_unrecorded(trace, items, late)
    events = _waits_of_items(trace, items, [recorded, inferred])
    waiting_items = WaitPairs(layout.item[events.target], layout.item[events.item])
    draft.join(IN_CHAIN, waiting_items, delays.switch[items.stream_of(events.target)])

    _mark_unexplained_waits(trace, draft)
    return _finished(
        draft,
        origin=origin,
        chains=_chains(trace, cuts, items),
        batches=_batches(draft, layout, cuts),
        inferred=awaited.inferred + len(inferred.target),
    )


def _origin(cuts: ThreadCuts, items: Items) -> int:
    """Return when the first thread or stream begins, in ns of the file; 0 for none."""
    first_items = items.start[items.bounds[:-1]]
    return min([*cuts.first.tolist(), *first_items.tolist()], default=0)


def _waits_of_calls(
    trace: Trace, cuts: ThreadCuts, items: Items, awaited: list[WaitPairs]
) -> WaitPairs:
    """Collect all items that calls wait for, in the order of the calls.

    Args:
        trace: The trace.
        cuts: The cuts of its threads.
        items: Its GPU work.
        awaited: The items that synchronizations wait for. Communication before these,
            and the items that make room in full queues, are added.
    """
    further = behind_communication(trace, items, by_target(awaited))
    return by_target([*awaited, further.of_targets, *freeing(cuts, items)])


def _waits_of_items(trace: Trace, items: Items, events: list[WaitPairs]) -> WaitPairs:
    """Collect all items that items of other streams wait for, in their order.

    Pairs are left out whose item starts after what is said to wait for it.

    Args:
        trace: The trace.
        items: Its GPU work.
        events: The waits for events. Communication before these is added.
    """
    pairs = by_target(events)
    further = behind_communication(trace, items, pairs)
    pairs = by_target([pairs, further.of_targets, further.of_communication])

    starts_first = items.start[pairs.item] <= items.start[pairs.target]
    is_possible = starts_first & (pairs.item != pairs.target)
    return WaitPairs(pairs.target[is_possible], pairs.item[is_possible])


def _mark_unexplained_waits(trace: Trace, draft: GraphDraft) -> None:
    """Note how much longer than usual synchronizations take to return, in place.

    They usually return within MAX_RETURN_NS after the end of what they wait for.
    """
    waits = np.flatnonzero(draft.kind == Node.WAIT)
    rows = draft.row[waits].astype(np.intp)
    synchronizations = waits[trace.matching(rows, SYNCHRONIZES.search)]
    returned_after = draft.ended[synchronizations] - draft.began[synchronizations]
    draft.unexplained[synchronizations] = np.maximum(returned_after - MAX_RETURN_NS, 0)


def _chains(trace: Trace, cuts: ThreadCuts, items: Items) -> tuple[Chain, ...]:
    """List the chains of the graph: the threads, then the streams."""
    tracks = zip(trace.thread_of_track.tolist(), trace.tracks, strict=True)
    device_of_stream = {
        thread: track.pid for thread, track in tracks if track.layer is Layer.STREAM
    }
    threads = [Chain(thread) for thread in cuts.threads.tolist()]
    streams = [
        Chain(stream, is_stream=True, device=device_of_stream[stream])
        for stream in items.streams.tolist()
    ]
    return (*threads, *streams)


def _batches(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> Batches:
    """Return the HANDOFFs at which batches are handed over, by their nodes."""
    node = layout.cut[cuts.batches]
    waited = cuts.end[cuts.batches] - cuts.begin[cuts.batches]
    return Batches(
        node=node,
        waited=waited,
        unsure=np.minimum(waited, HANDING_NS),
        loader=draft.chain[node],
    )


def _layout(cuts: ThreadCuts, items: Items) -> NodeOrder:
    """Lay out the nodes of a trace in the order that NodeOrder describes."""
    threads = len(cuts.threads)
    earlier_cuts = np.arange(len(cuts.kind))
    earlier_threads = _thread_of_cut(cuts)

    # A cut comes after the origin, two nodes for each earlier cut, the HOST before this
    # one, and the last HOST of each earlier thread.
    cut = 1 + 2 * earlier_cuts + 1 + earlier_threads
    tail = 1 + 2 * cuts.bounds[1:] + np.arange(threads)
    first_item = 1 + 2 * len(cut) + threads
    return NodeOrder(
        cut=cut,
        tail=tail,
        item=first_item + np.arange(len(items.rows)),
        size=first_item + len(items.rows),
    )


def _thread_of_cut(cuts: ThreadCuts) -> Rows:
    """Return for each cut the index of its thread in `cuts.threads`."""
    cut_indices = np.arange(len(cuts.kind))
    return np.searchsorted(cuts.bounds, cut_indices, side="right") - 1


def _lay_threads(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, origin: int
) -> None:
    """Fill in the nodes of threads, and connect those of each thread in a row.

    The time between two cuts is the thread's own (HOST).

    Args:
        draft: The draft to fill in.
        layout: Where the nodes are.
        cuts: The cuts of the threads.
        origin: The time of the origin, in ns of the file.
    """
    draft.kind[0] = Node.ORIGIN
    thread_of_cut = _thread_of_cut(cuts)
    draft.kind[layout.cut] = cuts.kind
    draft.row[layout.cut] = cuts.row
    draft.chain[layout.cut] = thread_of_cut
    draft.ended[layout.cut] = cuts.end - origin

    draft.kind[layout.before_cut] = Node.HOST
    draft.chain[layout.before_cut] = thread_of_cut
    draft.ended[layout.before_cut] = cuts.begin - origin
    draft.kind[layout.tail] = Node.HOST
    draft.chain[layout.tail] = np.arange(len(cuts.threads))
    draft.ended[layout.tail] = cuts.last - origin

    host = np.concatenate((layout.before_cut, layout.tail))
    nodes_of_threads = np.concatenate((layout.cut, host))
    draft.connect(IN_CHAIN, nodes_of_threads, nodes_of_threads - 1)
    draft.follow_origin(layout.first_of_thread)
    draft.began[host] = draft.ended[host - 1]
    draft.began[layout.first_of_thread] = cuts.first - origin


def _end_waits(
    draft: GraphDraft,
    layout: NodeOrder,
    cuts: ThreadCuts,
    items: Items,
    waits: WaitPairs,
    origin: int,
) -> None:
    """Fill in when each cut begins.

    It begins once the last item that its call waits for has ended, but no later than
    the call ends. A handoff begins at its end.

    Args:
        draft: The draft to fill in.
        layout: Where the nodes are.
        cuts: The cuts of the threads.
        items: The GPU work.
        waits: The items that calls wait for.
        origin: The time of the origin, in ns of the file.
    """
    wait_is_over = cuts.begin.copy()
    np.maximum.at(wait_is_over, waits.target, items.end[waits.item])
    wait_is_over = np.minimum(wait_is_over, cuts.end)
    is_handoff = cuts.kind == Node.HANDOFF
    began = np.where(is_handoff, cuts.end, wait_is_over)
    draft.began[layout.cut] = began - origin


def _hand_over(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> None:
    """Connect threads that do work for each other.

    The work of one thread begins when the other one waits for it, and the other one
    goes on once the work has ended. A thread that has done nothing before begins when
    it is asked.
    """
    waiting, asked, done = layout.cut[cuts.handoffs]
    before_waiting = waiting - 1
    before_asked = asked - 1
    draft.connect(ACROSS, asked, before_waiting)

    follows_origin = draft.source[IN_CHAIN, before_asked] == 0
    has_no_time = draft.began[before_asked] == draft.ended[asked]
    is_first_work = follows_origin & has_no_time
    draft.connect(IN_CHAIN, before_asked[is_first_work], before_waiting[is_first_work])

    order = np.argsort(waiting, kind="stable")
    draft.join(ACROSS, WaitPairs(waiting[order], done[order]))


def _lay_items(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, items: Items, origin: int
) -> None:
    """Fill in the nodes of items, without edges."""
    node = layout.item
    draft.kind[node] = Node.ITEM
    draft.row[node] = items.rows
    draft.chain[node] = len(cuts.threads) + items.stream_of(np.arange(len(node)))
    draft.began[node] = items.start - origin
    draft.ended[node] = items.end - origin


def _connect_items(
    draft: GraphDraft,
    layout: NodeOrder,
    cuts: ThreadCuts,
    items: Items,
    delays: _Delays,
) -> None:
    """Make each item wait for the one before it on its stream, and for its launch."""
    node = layout.item
    is_first = np.zeros(len(node), dtype=np.bool_)
    is_first[items.bounds[:-1]] = True
    item_indices = np.arange(len(node))
    follows = node[~is_first]
    switch_ns = delays.switch[items.stream_of(item_indices[~is_first])]
    draft.connect(IN_CHAIN, follows, follows - 1, switch_ns)

    # The launch call may be inside another call, which is the cut.
    has_launch = items.cut >= 0
    launch = items.cut[has_launch]
    since_cut = items.given[has_launch] - cuts.begin[launch]
    lag = delays.latency[has_launch] + since_cut
    draft.connect(ACROSS, node[has_launch], layout.before_cut[launch], lag)
    draft.follow_origin(node[is_first & ~has_launch])


def _usual_delays(trace: Trace, items: Items) -> _Delays:
    """Measure how long work that is ready usually takes to start."""
    process_of_item = trace.process_of_track[trace.track[items.rows]]
    latency = _latency(trace)[process_of_item]
    return _Delays(switch=_switches(items, latency), latency=latency)


def _switches(items: Items, latency: Int64s) -> Int64s:
    """Measure the usual switch of each stream, in ns.

    It is the upper median from the end of an item to the start of the next one. Only
    items count that had been launched long enough before, and that start soon.

    Args:
        items: The GPU work.
        latency: The usual launch latency of each item, in ns.

    Returns:
        ns per stream.
    """
    switches = np.zeros(len(items.streams), dtype=np.int64)
    ready = items.given + latency
    for stream, (first, stop) in enumerate(pairwise(items.bounds.tolist())):
        end_before = items.end[first:stop][:-1]
        start = items.start[first:stop][1:]
        was_ready = ready[first:stop][1:] <= end_before
        gap_ns = (start - end_before)[was_ready]
        gap_ns = gap_ns[gap_ns <= MAX_SWITCH_NS]
        if len(gap_ns):
            switches[stream] = max(0, upper_median(gap_ns))
    return switches


def _latency(trace: Trace) -> Int64s:
    """Measure the usual launch latency of each device, in ns.

    If a device has too few gaps to measure one, those few and its first items count,
    unless the result is too long for a latency.

    Returns:
        ns by the index of the device's process.
    """
    latency_of_process = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
    for line in Accounts(trace).lines:
        by_few_gaps = line.latency_of(line.with_lead(trace.begin_ns - 1), 1)
        by_few_gaps = np.where(by_few_gaps <= MAX_LATENCY_NS, by_few_gaps, 0)
        latency = np.where(line.latency_ns > 0, line.latency_ns, by_few_gaps)
        process = trace.process_of_track[trace.track[line.events]]
        latency_of_process[process] = latency[line.device_index(line.events)]
    return latency_of_process


def _finished(
    draft: GraphDraft,
    *,
    origin: int,
    chains: tuple[Chain, ...],
    batches: Batches,
    inferred: int,
) -> Graph:
    """Make the graph of a draft.

    Its nodes are put into an order in which sources come first, and its edges get their
    lags and residuals.

    Args:
        draft: The draft with all its edges.
        origin: The time of the origin, in ns of the file.
        chains: The threads and streams.
        batches: The HANDOFFs of batches, by their nodes in the draft.
        inferred: How many waits were inferred.
    """
    size = len(draft.kind)
    order = in_order(draft.began, draft.ended, draft.place, draft.source)
    new_node = np.empty(size, dtype=np.int32)
    new_node[order] = np.arange(size)

    kind = draft.kind[order]
    began = draft.began[order]
    ended = draft.ended[order]
    source, lag = _edges(draft, order, new_node)
    _time_joins(kind, began, ended, source, lag)
    residual = _residuals(kind, began, ended, source, lag)
    batches = reordered(batches, new_node)
    residual[:, batches.node] = 0

    threads = sum(not chain.is_stream for chain in chains)
    return Graph(
        origin_ns=origin,
        chains=chains,
        kind=kind,
        chain=draft.chain[order],
        row=draft.row[order],
        dur=ended - began,
        unexplained=draft.unexplained[order],
        source=source,
        lag=lag,
        residual=residual,
        began=began,
        lasted=ended - began,
        gone=np.zeros(size, dtype=np.bool_),
        time_scales=(AS_RECORDED,) * threads,
        inferred_waits=inferred,
        batches=batches,
    )


class _Edges(NamedTuple):
    """The edges of all nodes; arrays of shape [2, nodes]."""

    source: Int32s
    lag: Int64s  # ns


def _edges(draft: GraphDraft, order: Rows, new_node: Int32s) -> _Edges:
    """Return the edges of a draft after its nodes were sorted.

    The lag of an edge is what explains it, or less where the recording shows it.

    Args:
        draft: The draft.
        order: The nodes of the draft in their new order.
        new_node: The new node of each old one.
    """
    began = draft.began[order]
    ended = draft.ended[order]
    source = new_node[draft.source[:, order]]
    explained = draft.explained[:, order]

    # Edges of the origin to itself, and what is left of circles, are no edges.
    is_backward = source >= np.arange(len(order))
    source[is_backward] = 0
    explained[is_backward] = NEVER

    lag = np.minimum(explained, began - ended[source])
    has_no_source = (lag[IN_CHAIN] == NEVER) & (lag[ACROSS] == NEVER)
    lag[IN_CHAIN, has_no_source] = 0
    return _Edges(source=source, lag=lag)


def _time_joins(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> None:
    """Set the times of JOINs to when both of their sources are done, in place.

    This loops over JOINs, because each may need the one before it.
    """
    for join in np.flatnonzero(kind == Node.JOIN).tolist():
        sources_done = (ended[source[:, join]] + lag[:, join]).max()
        began[join] = sources_done
        ended[join] = sources_done


def _residuals(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> Int64s:
    """Compute how much later each node begins than its edges explain.

    The residual is put on the edge that ends last. If that edge comes from a JOIN, the
    JOIN is delayed instead: its times in `began` and `ended` change, and the residual
    is put on the edge of the JOIN that ends last.

    Returns:
        ns of shape [2, nodes]; 0 on the other edge of each node.
    """
    residual = np.zeros_like(lag)
    nodes = np.flatnonzero((kind != Node.JOIN) & (kind != Node.ORIGIN))
    while len(nodes):
        edges_end = ended[source[:, nodes]] + lag[:, nodes]
        last_edge = np.argmax(edges_end, axis=0)
        late_ns = began[nodes] - edges_end.max(axis=0)
        residual[last_edge, nodes] = late_ns

        # Pass the residuals on to JOINs, and go on with these.
        last_source = source[last_edge, nodes]
        passes_on = (late_ns > 0) & (kind[last_source] == Node.JOIN)
        joins = last_source[passes_on]
        began[joins] += late_ns[passes_on]
        ended[joins] = began[joins]
        residual[last_edge[passes_on], nodes[passes_on]] = 0
        nodes = joins
    residual[:, 0] = 0
    return residual
