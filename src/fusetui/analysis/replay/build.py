"""From a trace to its graph, whose lags and residuals explain every time that was
recorded."""

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
    """Where nodes are before they are sorted: the origin, of each thread in turn a HOST
    before each cut, the cut and a HOST at the end; the items; the JOINs."""

    cut: Rows  # the node of each cut; the one before it is that of the HOST before it
    tail: Rows  # of each thread
    item: Rows
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
    """How long what is ready usually takes to start (ns)."""

    switch: Int64s  # after the item before; shape [streams]
    latency: Int64s  # after the begin of the launch call; shape [items]


class GraphDraft:
    """Nodes in the order of NodeOrder, without lags; arrays of shape [nodes] or
    [2, nodes], times in ns after the origin."""

    def __init__(self, size: int) -> None:
        """A draft of `size` JOINs, which are overwritten with what the nodes are."""
        self.kind = np.full(size, Node.JOIN, dtype=np.uint8)
        self.chain = np.full(size, -1, dtype=np.int32)
        self.row = np.full(size, -1, dtype=np.int32)
        self.began = np.zeros(size, dtype=np.int64)
        self.ended = np.zeros(size, dtype=np.int64)
        self.unexplained = np.zeros(size, dtype=np.int64)
        # among nodes that begin and end at the same time
        self.place = np.arange(size, dtype=np.float64)
        self.source = np.zeros((2, size), dtype=np.int32)
        self.explained = np.full((2, size), NEVER)  # lags, if not recorded less

    def connect(
        self, slot: int, target: Rows, source: Rows, explained: Int64s | int = 0
    ) -> None:
        """Has each target wait for its source by the edge `slot`, IN_CHAIN or ACROSS;
        `explained`: the lag (ns)."""
        self.source[slot, target] = source
        self.explained[slot, target] = explained

    def follow_origin(self, target: Rows) -> None:
        """Has each target begin its thread or stream."""
        self.connect(IN_CHAIN, target, np.zeros(len(target), dtype=np.intp))

    def join(self, slot: int, pairs: WaitPairs, explained: Int64s | int = 0) -> None:
        """Has targets, which are in order, also wait for further sources.

        A target without an edge `slot` gets its first source by that edge. All its other
        sources are those of JOINs: of each target a row of them, each of which waits for
        one source and for the JOIN before it. The first JOIN takes over the edge `slot`
        of the target, which then waits for the last JOIN.

        `pairs`: the targets and their sources, `explained`: the lag of each pair (ns).
        """
        lags = np.broadcast_to(explained, len(pairs.target))
        is_first = ordinals(pairs.target) == 0
        is_free = is_first & (self.explained[slot, pairs.target] == NEVER)
        self.connect(slot, pairs.target[is_free], pairs.item[is_free], lags[is_free])
        further = WaitPairs(pairs.target[~is_free], pairs.item[~is_free])
        join = self._new_joins(further.target)
        self.connect(ACROSS, join, further.item, lags[~is_free])
        self._chain_joins(slot, further.target, join)

    def _chain_joins(self, slot: int, target: Rows, join: Rows) -> None:
        """Has the JOINs of each target wait for each other, the first one for what the
        target waited for by its edge `slot`, and the target for the last one."""
        begins_row = ordinals(target) == 0
        follows_join = join[~begins_row]
        self.connect(IN_CHAIN, follows_join, follows_join - 1)
        first_targets = target[begins_row]
        self.connect(
            IN_CHAIN,
            join[begins_row],
            self.source[slot, first_targets],
            self.explained[slot, first_targets],
        )
        ends_row = ends_runs(target)
        self.connect(slot, target[ends_row], join[ends_row])

    def _new_joins(self, target: Rows) -> Rows:
        """Adds a JOIN for each of these targets, which may be repeated, just before it;
        returns their numbers."""
        join = len(self.kind) + np.arange(len(target))
        joins = vars(GraphDraft(len(target)))
        for name, column in vars(self).items():
            setattr(self, name, np.concatenate((column, joins[name]), axis=-1))
        self.began[join] = self.began[target]
        self.ended[join] = self.began[target]
        self.chain[join] = self.chain[target]
        # between the node before the target (target - 1) and the target, in their order
        number = ordinals(target)
        most_joins = number.max(initial=0) + 1
        self.place[join] = target - 0.5 + number / (2 * most_joins)
        return join

    def late(self, nodes: Rows) -> Int64s:
        """How much later than their edges explain nodes begin (ns)."""
        source_ended = self.ended[self.source[:, nodes]]
        recorded_lag = self.began[nodes] - source_ended
        lag = np.minimum(self.explained[:, nodes], recorded_lag)
        explained_begin = (source_ended + lag).max(axis=0)
        late_ns: Int64s = self.began[nodes] - explained_begin
        return late_ns


@memo()
def graph_of(trace: Trace) -> Graph:
    """The graph of all threads that launch work, of those that run backward for them,
    and of all GPU work; without a GPU, of the busiest thread."""
    cuts = thread_cuts_of(trace)
    items = items_of(trace, cuts)
    syncs = syncs_of(trace, items)
    awaited = awaited_by_calls(trace, cuts, items, syncs)
    waits_of_calls = _waits_of_calls(trace, cuts, items, awaited.pairs)
    origin = _origin(cuts, items)
    delays = _usual_delays(trace, items)

    layout = _layout(cuts, items)
    draft = GraphDraft(layout.size)
    _lay_threads(draft, layout, cuts, origin)
    _end_waits(draft, layout, cuts, items, waits_of_calls, origin)
    _lay_items(draft, layout, cuts, items, origin)
    _connect_items(draft, layout, cuts, items, delays)
    waiting_cuts = layout.cut[waits_of_calls.target]
    draft.join(ACROSS, WaitPairs(waiting_cuts, layout.item[waits_of_calls.item]))
    _hand_over(draft, layout, cuts)

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
    """When the first thread or stream begins (ns, in the time of the file); 0 if there
    is none."""
    first_items = items.start[items.bounds[:-1]]
    return min([*cuts.first.tolist(), *first_items.tolist()], default=0)


def _waits_of_calls(
    trace: Trace, cuts: ThreadCuts, items: Items, awaited: list[WaitPairs]
) -> WaitPairs:
    """All items that calls wait for, in the order of the calls: those in `awaited`,
    communication before these, and what makes room in full queues."""
    further = behind_communication(trace, items, by_target(awaited))
    return by_target([*awaited, further.of_targets, *freeing(cuts, items)])


def _waits_of_items(trace: Trace, items: Items, events: list[WaitPairs]) -> WaitPairs:
    """All items that items of other streams wait for, in the order of those that wait:
    those of these events, and communication before these. Without pairs whose item
    starts after what is said to wait for it."""
    pairs = by_target(events)
    further = behind_communication(trace, items, pairs)
    pairs = by_target([pairs, further.of_targets, further.of_communication])
    starts_first = items.start[pairs.item] <= items.start[pairs.target]
    is_possible = starts_first & (pairs.item != pairs.target)
    return WaitPairs(pairs.target[is_possible], pairs.item[is_possible])


def _mark_unexplained_waits(trace: Trace, draft: GraphDraft) -> None:
    """Writes into the draft how much later than MAX_RETURN_NS synchronizations return
    after the end of what they wait for."""
    waits = np.flatnonzero(draft.kind == Node.WAIT)
    rows = draft.row[waits].astype(np.intp)
    synchronizations = waits[trace.matching(rows, SYNCHRONIZES.search)]
    returned_after = draft.ended[synchronizations] - draft.began[synchronizations]
    draft.unexplained[synchronizations] = np.maximum(returned_after - MAX_RETURN_NS, 0)


def _chains(trace: Trace, cuts: ThreadCuts, items: Items) -> tuple[Chain, ...]:
    """The threads, then the streams."""
    tracks = zip(trace.thread_of_track.tolist(), trace.tracks, strict=True)
    device_of_stream = {
        number: track.pid for number, track in tracks if track.layer is Layer.STREAM
    }
    threads = [Chain(thread) for thread in cuts.threads.tolist()]
    streams = [
        Chain(number, is_stream=True, device=device_of_stream[number])
        for number in items.streams.tolist()
    ]
    return (*threads, *streams)


def _batches(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> Batches:
    """The HANDOFFs of batches, by their nodes in the draft."""
    node = layout.cut[cuts.batches]
    waited = cuts.end[cuts.batches] - cuts.begin[cuts.batches]
    return Batches(
        node=node,
        waited=waited,
        unsure=np.minimum(waited, HANDING_NS),
        loader=draft.chain[node],
    )


def _layout(cuts: ThreadCuts, items: Items) -> NodeOrder:
    """Where the nodes of a trace are."""
    threads = len(cuts.threads)
    number = np.arange(len(cuts.kind))
    # before a cut: the origin, two nodes for each earlier cut, the HOST before this
    # one, and a tail of each earlier thread
    cut = 1 + 2 * number + 1 + _thread_of_cut(cuts)
    tail = 1 + 2 * cuts.bounds[1:] + np.arange(threads)
    first_item = 1 + 2 * len(cut) + threads
    return NodeOrder(
        cut=cut,
        tail=tail,
        item=first_item + np.arange(len(items.rows)),
        size=first_item + len(items.rows),
    )


def _thread_of_cut(cuts: ThreadCuts) -> Rows:
    """The place of the thread of each cut among the threads; shape [cuts]."""
    places = np.arange(len(cuts.kind))
    return np.searchsorted(cuts.bounds, places, side="right") - 1


def _lay_threads(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, origin: int
) -> None:
    """Writes the nodes of threads into the draft. What is between two cuts is a
    thread's own time."""
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

    own_time = np.concatenate((layout.before_cut, layout.tail))
    of_threads = np.concatenate((layout.cut, own_time))
    draft.connect(IN_CHAIN, of_threads, of_threads - 1)
    draft.follow_origin(layout.first_of_thread)
    draft.began[own_time] = draft.ended[own_time - 1]
    draft.began[layout.first_of_thread] = cuts.first - origin


def _end_waits(
    draft: GraphDraft,
    layout: NodeOrder,
    cuts: ThreadCuts,
    items: Items,
    waits: WaitPairs,
    origin: int,
) -> None:
    """Writes into the draft when each cut begins: once the last item that its call
    waits for has ended, but no later than the call ends. A handoff is at its end."""
    wait_is_over = cuts.begin.copy()
    np.maximum.at(wait_is_over, waits.target, items.end[waits.item])
    wait_is_over = np.minimum(wait_is_over, cuts.end)
    is_handoff = cuts.kind == Node.HANDOFF
    began = np.where(is_handoff, cuts.end, wait_is_over)
    draft.began[layout.cut] = began - origin


def _hand_over(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> None:
    """Connects threads: what a thread does for another one begins when that waits, and
    that goes on once it has ended. A thread that begins with it begins when it is
    asked."""
    waiting, asked, done = layout.cut[cuts.handoffs]
    before_waiting = waiting - 1
    before_asked = asked - 1
    draft.connect(ACROSS, asked, before_waiting)
    follows_origin = draft.source[IN_CHAIN, before_asked] == 0
    has_no_time = draft.began[before_asked] == draft.ended[asked]
    begins_with_it = follows_origin & has_no_time
    begins_when_asked = before_asked[begins_with_it]
    draft.connect(IN_CHAIN, begins_when_asked, before_waiting[begins_with_it])
    order = np.argsort(waiting, kind="stable")
    draft.join(ACROSS, WaitPairs(waiting[order], done[order]))


def _lay_items(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, items: Items, origin: int
) -> None:
    """Writes the nodes of items into the draft, without edges."""
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
    """Has each item wait for the one before it on its stream, and for its launch."""
    node = layout.item
    is_first = np.zeros(len(node), dtype=np.bool_)
    is_first[items.bounds[:-1]] = True
    places = np.arange(len(node))
    follows = node[~is_first]
    switch_ns = delays.switch[items.stream_of(places[~is_first])]
    draft.connect(IN_CHAIN, follows, follows - 1, switch_ns)

    has_launch = items.cut >= 0
    launch = items.cut[has_launch]
    # the call may be inside another one, which is the cut
    since_cut = items.given[has_launch] - cuts.begin[launch]
    lag = delays.latency[has_launch] + since_cut
    draft.connect(ACROSS, node[has_launch], layout.before_cut[launch], lag)
    draft.follow_origin(node[is_first & ~has_launch])


def _usual_delays(trace: Trace, items: Items) -> _Delays:
    """The usual delays of the streams and of the items."""
    process_of_item = trace.process_of_track[trace.track[items.rows]]
    latency = _latency(trace)[process_of_item]
    return _Delays(switch=_switches(items, latency), latency=latency)


def _switches(items: Items, latency: Int64s) -> Int64s:
    """The usual switch of each stream (ns): the upper median from the end of an item to the
    start of the next one, of those that had been launched long enough before and start
    soon."""
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
    """The usual launch latency (ns) by the number of the device's process; where there
    are too few gaps for one, that of those few, and of the first items, unless it is
    too long for a latency."""
    latency_of_process = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
    for line in Accounts(trace).lines:
        of_few_gaps = line.latency_of(line.with_lead(trace.begin_ns - 1), 1)
        of_few_gaps = np.where(of_few_gaps <= MAX_LATENCY_NS, of_few_gaps, 0)
        usual = np.where(line.latency_ns > 0, line.latency_ns, of_few_gaps)
        process = trace.process_of_track[trace.track[line.events]]
        latency_of_process[process] = usual[line.device_index(line.events)]
    return latency_of_process


def _finished(
    draft: GraphDraft,
    *,
    origin: int,
    chains: tuple[Chain, ...],
    batches: Batches,
    inferred: int,
) -> Graph:
    """The graph of a draft: its nodes in an order in which sources come first, with the
    lags and residuals of all edges."""
    size = len(draft.kind)
    order = in_order(draft.began, draft.ended, draft.place, draft.source)
    rank = np.empty(size, dtype=np.int32)
    rank[order] = np.arange(size)
    kind = draft.kind[order]
    began = draft.began[order]
    ended = draft.ended[order]
    source, lag = _edges(draft, order, rank)
    _time_joins(kind, began, ended, source, lag)
    residual = _residuals(kind, began, ended, source, lag)
    batches = reordered(batches, rank)
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


def _edges(draft: GraphDraft, order: Rows, rank: Int32s) -> _Edges:
    """The edges of the draft between nodes in this order: each lag as explained, or
    less where the recording shows it. `rank`: the new place of each node."""
    began = draft.began[order]
    ended = draft.ended[order]
    source = rank[draft.source[:, order]]
    explained = draft.explained[:, order]
    # edges to the origin of itself, and what is left of circles
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
    """Changes the times of the JOINs in `began` and `ended` to when both of their
    sources are done. One after the other, as each may need the one before."""
    for join in np.flatnonzero(kind == Node.JOIN).tolist():
        sources_done = (ended[source[:, join]] + lag[:, join]).max()
        began[join] = sources_done
        ended[join] = sources_done


def _residuals(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> Int64s:
    """How much later each node begins than its edges explain (ns), [2, nodes], at its
    edge that ends last; 0 at the other edge.

    If that edge comes from a JOIN, the JOIN is made so much later instead: its times in
    `began` and `ended` change, and the residual is at the edge of it that ends last.
    """
    residual = np.zeros_like(lag)
    nodes = np.flatnonzero((kind != Node.JOIN) & (kind != Node.ORIGIN))
    while len(nodes):
        edges_end = ended[source[:, nodes]] + lag[:, nodes]
        last_edge = np.argmax(edges_end, axis=0)
        late_ns = began[nodes] - edges_end.max(axis=0)
        residual[last_edge, nodes] = late_ns
        behind = source[last_edge, nodes]
        passes_it_on = (late_ns > 0) & (kind[behind] == Node.JOIN)
        joins = behind[passes_it_on]
        began[joins] += late_ns[passes_it_on]
        ended[joins] = began[joins]
        residual[last_edge[passes_it_on], nodes[passes_it_on]] = 0
        nodes = joins
    residual[:, 0] = 0
    return residual
