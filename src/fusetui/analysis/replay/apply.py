"""A graph with changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import communicates, effective_ns
from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.loaders import loader_rows, worker_rows
from fusetui.analysis.replay import select
from fusetui.analysis.replay.changes import (
    Change,
    FusedKernels,
    Graphed,
    Loaded,
    NothingLikeIt,
    OnDevice,
    Overlapped,
    Scaled,
    Unsynced,
    WrongChange,
)
from fusetui.analysis.replay.graph import NEVER, NO_BATCHES, Batches, Graph, Node
from fusetui.analysis.replay.select import Covers
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rules.fusion import inside_of, runs_of
from fusetui.trace.model.arrays import Floats, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NOTHING, Cover

# what a call that launches a graph is assumed to take where the trace has none
GRAPH_NS = 10_000

COLUMNS = ("dur", "unexplained", "source", "lag", "residual", "gone")
"""Of a graph, those that changes write."""


class Draft:
    """A graph that is being changed: its columns as copies."""

    def __init__(self, trace: Trace, graph: Graph, latest: bool) -> None:
        """`latest`: of a change that gives a range the later end."""
        self.trace, self.graph, self.latest = trace, graph, latest
        columns = (getattr(graph, name).copy() for name in COLUMNS)
        self.dur, self.unexplained, self.source, self.lag, self.residual, self.gone = (
            columns
        )
        self.paces = list(graph.paces)
        self.batches = graph.batches
        self.notes = list[str]()

    @property
    def items(self) -> Rows:
        return self.graph.nodes(Node.ITEM)

    def unlink(self, slot: int, nodes: Rows) -> None:
        self.source[slot, nodes], self.residual[slot, nodes] = 0, 0
        self.lag[slot, nodes] = NEVER

    def remove(self, nodes: Rows) -> None:
        """They take no time, wait for nothing but the one before them, and nothing of
        what was not understood about their successors stays."""
        self.gone[nodes] = True
        self.dur[nodes] = self.unexplained[nodes] = 0
        self.unlink(1, nodes)
        items = nodes[self.graph.kind[nodes] == Node.ITEM]
        real = items[self.lag[0, items] != NEVER]
        self.lag[0, real], self.residual[0, real] = 0, 0
        after = np.isin(self.source, items) & (self.lag != NEVER) & (self.source > 0)
        self.residual[after] = 0
        self.lag[after] = np.maximum(self.lag[after], 0)

    def scale(self, nodes: Rows, effective: Callable[[Floats], Floats]) -> None:
        """The effective durations of items as a function of those that they have; what
        overlaps the item before stays."""
        whole = np.zeros(len(self.trace), dtype=np.int64)
        whole[self.trace.gpu_rows] = effective_ns(self.trace)
        overlap = self.graph.lasted[nodes] - whole[self.graph.row[nodes]]
        own = np.maximum(self.dur[nodes] - overlap, 0).astype(np.float64)
        self.dur[nodes] = overlap + np.rint(effective(own)).astype(np.int64)

    def release(self, waits: Rows) -> None:
        self.unlink(1, waits)
        self.dur[waits] -= self.unexplained[waits]
        self.unexplained[waits] = 0

    def wait_for_no_batch(self, covers: Covers) -> None:
        """Of calls for a batch during covers, whose workers have it ready then."""
        batches, graph = self.batches, self.graph
        ready = graph.began[batches.node]
        kept = np.ones(len(ready), dtype=np.bool_)
        for chain, cover in covers.items():
            own = np.flatnonzero(graph.chain[batches.node] == chain)
            place = cover.place_of(ready[own] - batches.waited[own])
            kept[own] = (place < 0) | (ready[own] > cover.end[place])
        self.batches = Batches(
            node=batches.node[kept],
            waited=batches.waited[kept],
            unsure=batches.unsure[kept],
            loader=batches.loader[kept],
        )

    def hurry(self, covers: Covers, factor: float) -> None:
        """What threads do during covers takes so much of its time."""
        for chain, cover in covers.items():
            self.paces[chain] = self.paces[chain].changed(cover, factor)

    def _queue_again(self) -> None:
        """Where a queue was full: of what is left, each launch call waits for the item
        as many places before its own as the queue holds."""
        graph, items = self.graph, self.items
        calls, node = graph.nodes(Node.LAUNCH), graph.node_of(self.trace, Node.LAUNCH)
        slots = calls[graph.kind[graph.source[1, calls]] == Node.ITEM]
        for chain in distinct(graph.chain[graph.source[1, slots]]).tolist():
            own = items[graph.chain[items] == chain]
            launched = node[self.trace.launch[graph.row[own]]]
            freed = np.searchsorted(own, graph.source[1, launched])
            full = (launched > 0) & (graph.chain[graph.source[1, launched]] == chain)
            most = int((np.arange(len(own)) - freed)[full].max())
            kept = (launched > 0) & ~self.gone[own] & ~self.gone[launched]
            self.unlink(1, launched[full])
            left, call = own[kept], launched[kept]
            self.source[1, call[most:]], self.lag[1, call[most:]] = (
                left[: len(left) - most],
                0,
            )

    def finished(self) -> Graph:
        """With what follows: how long threads take, and that no item starts before the
        one before it on its stream."""
        graph, kind = self.graph, self.graph.kind
        hosts = graph.nodes(Node.HOST)
        for chain, pace in enumerate(self.paces):
            own = hosts[graph.chain[hosts] == chain]
            self.dur[own] = pace.until(graph.ended[own]) - pace.until(graph.began[own])
        if (self.gone & ~graph.gone).any():
            self._queue_again()
        early = (self.lag < 0) & (kind[self.source] == Node.ITEM)
        early &= self.lag >= -graph.lasted[self.source]  # else the clocks differ
        self.lag = np.where(
            early, np.maximum(self.lag, -self.dur[self.source]), self.lag
        )
        self.unexplained = np.minimum(self.unexplained, self.dur)
        changed = {name: getattr(self, name) for name in COLUMNS}
        return msgspec.structs.replace(
            graph, paces=tuple(self.paces), batches=self.batches, **changed
        )


def changed(
    trace: Trace, graph: Graph, changes: Sequence[Change], *, latest: bool = False
) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a trace with changes, one after the other, and what has to be said
    about them: keys of NOTES. Raises WrongChange. `latest`: of changes that give a
    range (see is_range) the later end."""
    draft = Draft(trace, graph, latest)
    for change in changes:
        MAKERS[type(change)](change, draft)
    return draft.finished(), tuple(dict.fromkeys(draft.notes))


def is_range(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, OnDevice) for change in changes)


def _scaled(change: Scaled, draft: Draft) -> None:
    if change.what in ("op", "module", "python"):
        _hosts(change, draft)
        return
    if change.what == "comm":
        nodes = _communication(draft)
    else:
        nodes = select.items_like(draft.trace, draft.graph, change.what, change.pattern)
    if change.factor is not None:
        draft.scale(nodes, lambda own: own * (change.factor or 0.0))
    elif change.ns is not None:
        draft.scale(nodes, lambda own: np.full(len(own), float(change.ns or 0)))
    else:
        _bound(draft, nodes, change.pattern)


def _hosts(change: Scaled, draft: Draft) -> None:
    trace, graph, factor = draft.trace, draft.graph, change.factor or 0.0
    if change.what == "python" and not change.pattern:
        if not (trace.role == Role.PYTHON).any():
            draft.notes.append("python_is_all_but_ops")
        draft.hurry(select.in_python(trace, graph), factor)
        return
    rows = select.slices_like(trace, graph, change.what, change.pattern)
    covers = select.covers(trace, graph, rows)
    draft.hurry(covers, factor)
    if not factor:
        draft.remove(select.called_in(trace, graph, covers))
        draft.wait_for_no_batch(covers)
    own = graph.nodes(Node.LAUNCH, Node.WAIT, rows=rows)
    draft.dur[own] = np.rint(draft.dur[own] * factor).astype(np.int64)


def _bound(draft: Draft, nodes: Rows, pattern: str) -> None:
    trace = draft.trace
    bounds = np.full(len(trace), -1)
    bounds[trace.gpu_rows] = kernels_of(trace).bounded.bound_ns
    known = nodes[bounds[draft.graph.row[nodes]] >= 0]
    if not len(known):
        raise WrongChange(f"The least time of no kernel like {pattern} is known.")
    if len(known) < len(nodes):
        draft.notes.append("some_bounds_unknown")
    bound = bounds[draft.graph.row[known]].astype(np.float64)
    draft.scale(known, lambda own: np.minimum(own, bound))


def kernels_of(trace: Trace) -> Kernels:
    return Kernels(trace, trace.gpu_rows, trace.begin_ns, trace.end_ns)


def _fused(change: FusedKernels, draft: Draft) -> None:
    trace, graph = draft.trace, draft.graph
    kernels = kernels_of(trace)
    runs, rows = runs_of(kernels), kernels.rows[kernels.in_order]
    chosen = np.arange(len(runs.ns))
    if change.place is not None:
        wanted = np.flatnonzero(trace.order[rows] == change.place)
        chosen = np.flatnonzero((runs.begin <= wanted[:1]) & (wanted[:1] < runs.end))
    if not len(chosen):
        which = "" if change.place is None else f" with event {change.place}"
        raise NothingLikeIt(f"The trace has no fusable run of kernels{which}.")
    node, call = graph.node_of(trace, Node.ITEM), graph.node_of(trace, Node.LAUNCH)
    moved = runs.moved[chosen]
    if np.isnan(moved).any():
        draft.notes.append("some_runs_keep_their_time")
    fused = np.where(np.isnan(moved), 1.0, moved) * runs.ns[chosen].astype(np.float64)
    draft.scale(node[rows[runs.begin[chosen]]], lambda own: fused)
    others = rows[inside_of(runs.begin[chosen] + 1, runs.end[chosen], len(rows))]
    calls = trace.launch[others]
    alone = (
        np.bincount(trace.launch[trace.gpu_rows] + 1, minlength=len(trace) + 1)[1:] == 1
    )
    draft.remove(node[others])
    calls = call[calls[(calls >= 0) & alone[calls]]]
    draft.remove(calls[calls > 0])


def _graphed(change: Graphed, draft: Draft) -> None:
    trace, graph = draft.trace, draft.graph
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    start, end = (times[graph.row[calls]] for times in (trace.start, trace.end))
    usual = trace.dur[graph_calls(trace)]
    cost = int(np.median(usual)) if len(usual) else GRAPH_NS
    if not len(usual):
        draft.notes.append("graph_launch_assumed")
    item, number = draft.items, 0
    launch = trace.launch[graph.row[item]]
    for begin, stop, chains in select.ranges_of(trace, graph, change.pattern):
        own = np.flatnonzero(
            (start >= begin) & (end <= stop) & np.isin(graph.chain[calls], chains)
        )
        own = own[np.argsort(start[own], kind="stable")]
        launches = own[graph.kind[calls[own]] == Node.LAUNCH]
        if len(launches) < 2:
            continue
        number += 1
        first, since, until = launches[0], begin, stop
        # of a step what lies between launches
        if not change.pattern or change.pattern.isdecimal():
            since, until = start[first], end[launches].max()
        among = own[(start[own] >= since) & (end[own] <= until)]
        waits = among[graph.kind[calls[among]] == Node.WAIT]
        if len(waits):
            name = trace.name_of(int(graph.row[calls[waits[0]]]))
            why = f"{name} lies between its launches"
            raise WrongChange(f"A graph cannot wait for the device: {why}.")
        stretch = Cover(*np.array([[since], [until]]) - graph.origin_ns)
        draft.hurry(dict.fromkeys(chains.tolist(), stretch), 0.0)
        nodes = calls[launches]
        draft.dur[nodes], draft.dur[calls[first]] = 0, cost
        draft.unlink(1, nodes[1:])
        mine = item[np.isin(launch, graph.row[nodes])]
        draft.source[1, mine] = draft.source[0, calls[first]]
        draft.residual[1, mine] = 0
    if not number:
        raise NothingLikeIt("The trace has no such range with several launches.")


def _unsynced(change: Unsynced, draft: Draft) -> None:
    trace, graph = draft.trace, draft.graph
    rows = select.slices_like(trace, graph, "wait", change.pattern)
    nodes = select.called_in(trace, graph, select.covers(trace, graph, rows))
    waits = nodes[(graph.kind[nodes] == Node.WAIT) & (graph.lag[1, nodes] != NEVER)]
    if not len(waits):
        raise NothingLikeIt(
            f"No call like {change.pattern} is known to wait for the device."
        )
    draft.release(waits)


def _loaded(change: Loaded, draft: Draft) -> None:
    """Where workers load batches already, no call waits for one. Else a worker fetches
    every nth batch, one after the other, from the first one on."""
    trace, graph = draft.trace, draft.graph
    found = select.covers(trace, graph, loader_rows(trace))
    if not found:
        raise NothingLikeIt("No thread that launches work loads data.")
    with_workers = select.covers(trace, graph, worker_rows(trace))
    if with_workers:
        draft.batches = NO_BATCHES
        draft.notes.append("loader_never_waits")
        found = _without(found, with_workers)
        if not found:
            return
    if all(len(cover.start) < 2 for cover in found.values()):
        unknown = "when a worker would have begun it is not known"
        raise WrongChange(f"Only one batch is loaded: {unknown}.")
    draft.hurry(found, 0.0)
    draft.notes.append("loader_beside")
    for chain, cover in found.items():
        lasted = cover.end - cover.start
        ready = cover.start[0] + np.zeros(len(lasted), dtype=np.int64)
        for worker in range(min(change.workers, len(lasted))):
            own = slice(worker, None, change.workers)
            ready[own] += np.cumsum(lasted[own])
        nodes = np.flatnonzero(graph.chain == chain)
        ends = nodes[np.searchsorted(graph.began[nodes], cover.end)]
        free = graph.lag[1, ends] == NEVER
        draft.source[1, ends[free]], draft.lag[1, ends[free]] = 0, ready[free]


def _without(covers: Covers, others: Covers) -> Covers:
    """Those intervals of covers in which nothing of others lies."""
    found: Covers = {}
    for chain, cover in covers.items():
        within = others.get(chain, NOTHING).within(cover.start, cover.end)
        if not within.all():
            found[chain] = Cover(cover.start[within == 0], cover.end[within == 0])
    return found


def _communication(draft: Draft) -> Rows:
    items = draft.items
    found = items[communicates(draft.trace, draft.graph.row[items])]
    if not len(found):
        raise NothingLikeIt("The trace has no communication between devices.")
    draft.notes.append("other_ranks_unchanged")
    return found


def _overlapped(change: Overlapped, draft: Draft) -> None:
    """What follows communication on a stream follows what is before that instead."""
    graph, nodes, source = draft.graph, _communication(draft), draft.source
    draft.notes.append("unrecorded_consumers")
    moves = np.zeros(len(graph), dtype=np.bool_)
    moves[nodes] = True
    before = np.arange(len(graph))
    for node in nodes.tolist():  # in order: the source of each is before it
        last, chain = int(source[0, node]), graph.chain[node]
        while graph.kind[last] == Node.JOIN and moves[source[1, last]]:
            if graph.chain[source[1, last]] != chain:
                break
            # from the communication before, which others need not
            last = int(source[0, last])
        before[node] = (
            before[last] if moves[last] and graph.chain[last] == chain else last
        )
    others = graph.nodes(Node.ITEM, Node.JOIN)
    others = others[moves[source[0, others]]]
    others = others[graph.chain[source[0, others]] == graph.chain[others]]
    place = graph.chain.astype(np.int64) * len(graph) + np.arange(len(graph))
    items = draft.items[np.argsort(place[draft.items])]
    follows = items[np.searchsorted(place[items], place[others])]  # a JOIN
    behind = others[~moves[follows]]
    before_it = before[source[0, behind]]
    kept = (before_it > 0) & (graph.chain[before_it] == graph.chain[behind])
    source[0, behind], draft.residual[0, behind] = before_it, 0
    draft.unlink(0, behind[~kept])


class Scalable(NamedTuple):
    """The kernels whose least time is known on both devices; arrays of shape
    [kernels]."""

    nodes: Rows
    ratio: Floats  # how many times as long the least time is on the other device
    least: Floats  # see select.on_device


def scalable(trace: Trace, graph: Graph, device: str) -> Scalable:
    """What another device would scale. Raises WrongChange."""
    items = graph.nodes(Node.ITEM)
    every = np.full((2, len(trace)), np.nan)
    every[:, trace.gpu_rows] = select.on_device(kernels_of(trace), device)
    ratio, least = every[:, graph.row[items]]
    known = ~np.isnan(ratio)
    if not known.any():
        raise WrongChange(
            f"The least time of no kernel is known both here and on {device}."
        )
    return Scalable(nodes=items[known], ratio=ratio[known], least=least[known])


def _on_device(change: OnDevice, draft: Draft) -> None:
    """Each kernel keeps how many times as long as its least time it takes, or how much
    longer."""
    found = scalable(draft.trace, draft.graph, change.name)
    draft.notes.append("host_unchanged")
    if len(found.nodes) < len(draft.items):
        draft.notes.append("unscaled")
    ratio, least = found.ratio, found.least
    limit = np.maximum if draft.latest else np.minimum
    draft.scale(
        found.nodes,
        lambda own: limit(own * ratio, own + (ratio - 1) * np.minimum(least, own)),
    )


MAKERS: dict[type[Change], Callable[[Any, Draft], None]] = {
    Scaled: _scaled,
    FusedKernels: _fused,
    Graphed: _graphed,
    Unsynced: _unsynced,
    Loaded: _loaded,
    Overlapped: _overlapped,
    OnDevice: _on_device,
}
