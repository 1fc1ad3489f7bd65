"""From a trace to its graph, whose lags and residuals explain every time that was
recorded."""

from __future__ import annotations

from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.replay.graph import (
    AS_RECORDED,
    NEVER,
    Batches,
    Chain,
    Graph,
    Node,
    in_order,
    reordered,
)
from fusetui.analysis.replay.hosts import HANDING_NS, Hosts, hosts_of
from fusetui.analysis.replay.items import (
    SHORT_NS,
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
from fusetui.analysis.why.account import Accounts
from fusetui.trace.model.arrays import Int32s, Int64s, Rows, distinct, ordinals
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace

LATE_NS = 5_000
"""An item that starts so much later than is understood may wait for what was not
recorded."""
LATENCY_NS = 100_000  # no launch usually takes longer than this to start its item
RETURN_NS = 100_000
"""A synchronization that returns later than this after what it waited for waits for
more."""


class NodeOrder(NamedTuple):
    """Where nodes are before they are sorted: the origin, of each thread in turn a HOST
    before each cut, the cut and a HOST at the end; the items; the JOINs."""

    cut: Rows  # the node of each cut; the one before it is that of the HOST before it
    tail: Rows  # of each thread
    item: Rows
    size: int  # without JOINs


class GraphDraft:
    def __init__(self, size: int) -> None:
        self.kind = np.full(size, Node.JOIN, dtype=np.uint8)
        self.chain = np.full(size, -1, dtype=np.int32)
        self.row = np.full(size, -1, dtype=np.int32)
        self.began, self.ended, self.unexplained = np.zeros((3, size), dtype=np.int64)
        self.place = np.arange(size, dtype=np.float64)
        self.source = np.zeros((2, size), dtype=np.int32)
        self.explained = np.full((2, size), NEVER)  # lags, if not recorded less

    def connect(
        self, slot: int, target: Rows, source: Rows, explained: Int64s | int = 0
    ) -> None:
        self.source[slot, target] = source
        self.explained[slot, target] = explained

    def joined(self, slot: int, pairs: WaitPairs, explained: Int64s | int = 0) -> None:
        """Has targets, in order, also wait for further sources, each with a lag, by
        JOINs."""
        explained = np.broadcast_to(explained, len(pairs.target))
        number = ordinals(pairs.target)
        empty = (number == 0) & (self.explained[slot, pairs.target] == NEVER)
        self.connect(slot, pairs.target[empty], pairs.item[empty], explained[empty])
        target, source, explained = (c[~empty] for c in (*pairs, explained))
        number = ordinals(target)
        join = len(self.kind) + np.arange(len(target))
        more = GraphDraft(len(target))
        for name, column in vars(self).items():
            setattr(self, name, np.concatenate((column, getattr(more, name)), axis=-1))
        first = number == 0
        self.connect(1, join, source, explained)
        self.connect(0, join[~first], join[~first] - 1)
        own = self.source[slot, target[first]], self.explained[slot, target[first]]
        self.connect(0, join[first], *own)
        last = np.append(target[1:] != target[:-1], True)[: len(target)]
        self.connect(slot, target[last], join[last])
        self.began[join] = self.ended[join] = self.began[target]
        self.chain[join] = self.chain[target]
        self.place[join] = target - 0.5 + number / (2 * number.max(initial=0) + 2)

    def late(self, nodes: Rows) -> Int64s:
        source, explained = self.source[:, nodes], self.explained[:, nodes]
        lag = np.minimum(explained, self.began[nodes] - self.ended[source])
        found: Int64s = self.began[nodes] - (self.ended[source] + lag).max(axis=0)
        return found


def graph_of(trace: Trace) -> Graph:
    """The graph of all threads that launch work, of those that run backward for them,
    and of all GPU work; without a GPU, of the busiest thread."""
    hosts = hosts_of(trace)
    items = items_of(trace, hosts)
    syncs = syncs_of(trace, items)
    called, inferred = awaited_by_calls(trace, hosts, items, syncs)
    called.append(behind_communication(trace, items, by_target(called))[0])
    waits = by_target([*called, *freeing(hosts, items)])
    origin = min(
        [*hosts.first.tolist(), *items.start[items.bounds[:-1]].tolist()], default=0
    )
    layout = _layout(hosts, items)
    draft = GraphDraft(layout.size)
    latency = _latency(trace)[trace.process_of_track[trace.track[items.rows]]]
    switch = _switches(items, latency)
    _lay_hosts(draft, layout, hosts, waits, items, origin)
    _lay_items(draft, layout, hosts, items, switch, latency, origin)
    draft.joined(1, WaitPairs(layout.cut[waits.target], layout.item[waits.item]))
    _hand_over(draft, layout, hosts)
    told = by_target([*awaited_by_items(trace, items, syncs)])
    late = np.flatnonzero(draft.late(layout.item) > LATE_NS)
    late = np.setdiff1d(late, distinct(told.target), assume_unique=True)
    untold = awaited_unrecorded(trace, items, late)
    events = by_target([told, untold])
    events = by_target([events, *behind_communication(trace, items, events)])
    is_first = items.start[events.item] <= items.start[events.target]
    is_first &= events.item != events.target
    events = WaitPairs(*(column[is_first] for column in events))
    stream = np.searchsorted(items.bounds, events.target, side="right") - 1
    draft.joined(0, WaitPairs(*(layout.item[one] for one in events)), switch[stream])
    waiting = np.flatnonzero(draft.kind == Node.WAIT)
    waiting = waiting[
        trace.matching(draft.row[waiting].astype(np.intp), SYNCHRONIZES.search)
    ]
    lasted = draft.ended[waiting] - draft.began[waiting]
    draft.unexplained[waiting] = np.maximum(lasted - RETURN_NS, 0)
    tracks = zip(trace.thread_of_track.tolist(), trace.tracks, strict=True)
    device_of = {number: one.pid for number, one in tracks if one.layer is Layer.STREAM}
    chains = [Chain(thread) for thread in hosts.threads.tolist()]
    chains += [
        Chain(number, True, device_of[number]) for number in items.streams.tolist()
    ]
    waited = hosts.end[hosts.batches] - hosts.begin[hosts.batches]
    batches = Batches(
        node=layout.cut[hosts.batches],
        waited=waited,
        unsure=np.minimum(waited, HANDING_NS),
        loader=draft.chain[layout.cut[hosts.batches]],
    )
    return _settled(
        draft, origin, tuple(chains), batches, inferred + len(untold.target)
    )


def _layout(hosts: Hosts, items: Items) -> NodeOrder:
    threads = len(hosts.threads)
    cut = 2 + 2 * np.arange(len(hosts.kind))
    cut += np.searchsorted(hosts.bounds, np.arange(len(cut)), side="right") - 1
    tail = 1 + 2 * hosts.bounds[1:] + np.arange(threads)
    begin = 1 + 2 * len(cut) + threads
    return NodeOrder(
        cut, tail, begin + np.arange(len(items.rows)), begin + len(items.rows)
    )


def _lay_hosts(
    draft: GraphDraft,
    layout: NodeOrder,
    hosts: Hosts,
    waits: WaitPairs,
    items: Items,
    origin: int,
) -> None:
    """Threads: what is recorded between two cuts is a thread's own time."""
    draft.kind[0] = Node.ORIGIN
    threads, cut = len(hosts.threads), layout.cut
    over = hosts.begin.copy()
    np.maximum.at(over, waits.target, items.end[waits.item])
    over = np.minimum(over, hosts.end)
    over = np.where(hosts.kind == Node.HANDOFF, hosts.end, over)
    number = np.searchsorted(hosts.bounds, np.arange(len(cut)), side="right") - 1
    draft.kind[cut], draft.row[cut], draft.chain[cut] = hosts.kind, hosts.row, number
    draft.began[cut], draft.ended[cut] = over - origin, hosts.end - origin
    draft.kind[cut - 1], draft.chain[cut - 1] = Node.HOST, number
    draft.ended[cut - 1] = hosts.begin - origin
    draft.kind[layout.tail], draft.chain[layout.tail] = Node.HOST, np.arange(threads)
    draft.ended[layout.tail] = hosts.last - origin
    inside = np.concatenate((cut, cut - 1, layout.tail))
    draft.connect(0, inside, inside - 1)
    first = np.append(1, layout.tail[:-1] + 1)[:threads]
    draft.connect(0, first, np.zeros(threads, dtype=np.intp))
    segments = np.concatenate((cut - 1, layout.tail))
    draft.began[segments] = draft.ended[segments - 1]
    draft.began[first] = hosts.first - origin


def _hand_over(draft: GraphDraft, layout: NodeOrder, hosts: Hosts) -> None:
    """What a thread does for another one begins when that waits, and that goes on once
    it has ended. A thread that begins with it begins when it is asked."""
    waiting, asked, done = layout.cut[hosts.handoffs]
    draft.connect(1, asked, waiting - 1)
    first = (draft.source[0, asked - 1] == 0) & (
        draft.began[asked - 1] == draft.ended[asked]
    )
    draft.connect(0, asked[first] - 1, waiting[first] - 1)
    order = np.argsort(waiting, kind="stable")
    draft.joined(1, WaitPairs(waiting[order], done[order]))


def _lay_items(
    draft: GraphDraft,
    layout: NodeOrder,
    hosts: Hosts,
    items: Items,
    switch: Int64s,
    latency: Int64s,
    origin: int,
) -> None:
    """Streams: an item waits for the one before it, and for its launch."""
    node = layout.item
    stream = np.searchsorted(items.bounds, np.arange(len(node)), side="right") - 1
    draft.kind[node], draft.row[node] = Node.ITEM, items.rows
    draft.chain[node] = len(hosts.threads) + stream
    draft.began[node], draft.ended[node] = items.start - origin, items.end - origin
    first = np.zeros(len(node), dtype=np.bool_)
    first[items.bounds[:-1]] = True
    draft.connect(0, node[~first], node[~first] - 1, switch[stream[~first]])
    linked = np.flatnonzero(items.cut >= 0)
    call = items.cut[linked]
    since = items.given[linked] - hosts.begin[call]  # of a call inside another one
    draft.connect(1, node[linked], layout.cut[call] - 1, latency[linked] + since)
    alone = node[first & (items.cut < 0)]
    draft.connect(0, alone, np.zeros(len(alone), dtype=np.intp))


def _switches(items: Items, latency: Int64s) -> Int64s:
    """The usual switch of each stream: the median from the end of an item to the start
    of the next one, of those that had been launched long enough before and start
    soon."""
    found = np.zeros(len(items.streams), dtype=np.int64)
    for k, own in enumerate(starmap(slice, pairwise(items.bounds.tolist()))):
        start, end, ready = (
            items.start[own],
            items.end[own],
            (items.given + latency)[own],
        )
        after = (start[1:] - end[:-1])[ready[1:] <= end[:-1]]
        after = np.sort(after[after <= SHORT_NS])
        found[k] = max(0, after[len(after) // 2]) if len(after) else 0
    return found


def _latency(trace: Trace) -> Int64s:
    """The usual launch latency by the number of the device's process; where there are
    too few gaps for one, that of those few, and of the first items, unless it is too
    long for a latency."""
    found = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
    for line in Accounts(trace).lines:
        few = line.latency_of(line.with_lead(trace.begin_ns - 1), 1)
        number = trace.process_of_track[trace.track[line.events]]
        few = np.where(few <= LATENCY_NS, few, 0)
        usual = np.where(line.latency_ns > 0, line.latency_ns, few)
        found[number] = usual[line.number(line.events)]
    return found


def _settled(
    draft: GraphDraft,
    origin: int,
    chains: tuple[Chain, ...],
    batches: Batches,
    inferred: int,
) -> Graph:
    """In an order in which sources come first, with the lags and residuals of all
    edges."""
    size, source, explained = len(draft.kind), draft.source, draft.explained
    order = in_order(draft.began, draft.ended, draft.place, source)
    rank = np.empty(size, dtype=np.int32)
    rank[order] = np.arange(size)
    kind, began, ended = draft.kind[order], draft.began[order], draft.ended[order]
    source, explained = rank[source[:, order]], explained[:, order]
    wrong = source >= np.arange(size)  # the origin, and what is left of circles
    source[wrong], explained[wrong] = 0, NEVER
    lag = np.minimum(explained, began - ended[source])
    lag[0, (lag[0] == NEVER) & (lag[1] == NEVER)] = 0
    # each may need the one before
    for join in np.flatnonzero(kind == Node.JOIN).tolist():
        began[join] = ended[join] = (ended[source[:, join]] + lag[:, join]).max()
    residual = _residuals(kind, began, ended, source, lag)
    batches = reordered(batches, rank)
    residual[:, batches.node] = 0
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
        time_scales=(AS_RECORDED,) * sum(not chain.is_stream for chain in chains),
        inferred_waits=inferred,
        batches=batches,
    )


def _residuals(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> Int64s:
    """What the edge that ends last leaves unexplained of each node; of those behind
    JOINs, which then are as much later, that is the edge that ends last of theirs."""
    residual = np.zeros_like(lag)
    nodes = np.flatnonzero((kind != Node.JOIN) & (kind != Node.ORIGIN))
    while len(nodes):
        ends = ended[source[:, nodes]] + lag[:, nodes]
        slot = np.argmax(ends, axis=0)
        residual[slot, nodes] = began[nodes] - ends.max(axis=0)
        behind = source[slot, nodes]
        late = (residual[slot, nodes] > 0) & (kind[behind] == Node.JOIN)
        slot, nodes, behind = slot[late], nodes[late], behind[late]
        began[behind] += residual[slot, nodes]
        ended[behind] = began[behind]
        residual[slot, nodes] = 0
        nodes = behind
    residual[:, 0] = 0
    return residual
