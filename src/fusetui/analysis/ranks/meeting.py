"""The graphs of all ranks of a job as one, in which collectives wait for their last
rank.

A collective is two nodes of each rank: its arrival, which waits for what the kernel
waits for, and its transfer, which begins when all have arrived. All times are on one
clock, to which those of each rank are shifted; where its clock drifts, what goes to
others and comes from them has the rest as a lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.replay.graph import (
    NEVER,
    Batches,
    Graph,
    Node,
    Times,
    in_order,
    reordered,
)
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.route import route_to
from fusetui.trace.model.arrays import Int64s, Rows, ordinals


class Meetings(NamedTuple):
    """The collectives; arrays of shape [rows], those of one collective are
    neighbors."""

    of_row: Rows
    rank: Rows  # the index of a graph
    node: Rows  # in that
    # from the time of that graph, when it arrives, to the clock that all share
    shift: Int64s
    # from the last arrival to its end; below 0 by as much as clocks are wrong
    transfer: Int64s

    @property
    def first(self) -> Rows:
        """Where each collective begins, [collectives]."""
        return np.flatnonzero(np.diff(self.of_row, prepend=-1))

    def last(self, arrived: Int64s) -> Int64s:
        """For each row when the last rank of its collective arrives, on the clock that
        all share; `arrived`: when each does, on its own."""
        if not len(arrived):
            return arrived
        first = self.first
        last = np.maximum.reduceat(arrived + self.shift, first)
        return np.repeat(last, np.diff(np.append(first, len(arrived))))


class ChangedTimes(NamedTuple):
    """When everything would happen; `arrived`: of each row of Meetings, on its rank's
    clock."""

    times: tuple[Times, ...]
    arrived: Int64s
    # of the critical path to the last end: what is not understood
    residual_share: float


class _Places(NamedTuple):
    """Where the nodes of the graphs are among those of all, and those that are
    added."""

    begins: Rows  # of each graph but for its origin; shape [ranks + 1]
    item: Rows  # of each row of Meetings, as the following
    arrival: Rows
    joined: Rows  # the rows but for the first one of each collective
    join: Rows  # of each of these: it and those before it have arrived

    def of(self, rank: int) -> Rows:
        return np.append(0, np.arange(self.begins[rank], self.begins[rank + 1]))


def replayed(
    graphs: Sequence[Graph], meetings: Meetings, *, late: bool = False
) -> ChangedTimes | None:
    """All ranks at once; None if their collectives wait for each other in a circle. The
    graphs are such in which collectives last as long as their transfers. `late`: see
    replay."""
    places, usual = _places(graphs, meetings), np.zeros(len(graphs), dtype=np.int64)
    usual[meetings.rank] = meetings.shift
    whole = _joined(graphs, meetings, places, usual)
    order = in_order(
        whole.began, whole.ended, np.arange(float(len(whole))), whole.source
    )
    rank_of = np.empty(len(order), dtype=np.int32)
    rank_of[order] = np.arange(len(order))
    sorted_ = {
        name: getattr(whole, name)[..., order]
        for name in ("kind", "lag", "residual", "dur", "unexplained", "gone")
    }
    source = rank_of[whole.source[:, order]]
    if (source >= np.arange(len(order)))[:, 1:].any():
        return None
    began, batches = whole.began[order], reordered(whole.batches, rank_of)
    whole = msgspec.structs.replace(
        whole, source=source, began=began, batches=batches, **sorted_
    )
    found = replay(whole, late=late)
    share = route_to(whole, found).unknown_share
    begin, end = found.begin[rank_of], found.end[rank_of]
    begin[places.item] = begin[places.arrival]
    times = []
    for rank in range(len(graphs)):
        own = places.of(rank)
        shift = np.where(own > 0, usual[rank], 0)
        times.append(Times(begin[own] - shift, end[own] - shift))
    return ChangedTimes(tuple(times), end[places.arrival] - usual[meetings.rank], share)


def _places(graphs: Sequence[Graph], meetings: Meetings) -> _Places:
    begins = np.cumsum([1, *(len(graph) - 1 for graph in graphs)])
    rows = np.arange(len(meetings.of_row))
    joined = rows[ordinals(meetings.of_row) > 0]
    return _Places(
        begins=begins,
        item=begins[meetings.rank] + meetings.node - 1,
        arrival=begins[-1] + rows,
        joined=joined,
        join=begins[-1] + len(rows) + np.arange(len(joined)),
    )


def _joined(
    graphs: Sequence[Graph], meetings: Meetings, places: _Places, usual: Int64s
) -> Graph:
    """All nodes, in no order; `usual`: from the time of each graph to the clock that
    all share."""
    _, item, arrival, joined, join = places

    def column(name: str) -> Int64s:
        parts = [getattr(graph, name)[..., 1:] for graph in graphs]
        head = getattr(graphs[0], name)[..., :1]
        rest = np.zeros(
            (*head.shape[:-1], len(arrival) + len(joined)), dtype=head.dtype
        )
        return np.concatenate((head, *parts, rest), axis=-1)

    names = (
        "kind",
        "source",
        "lag",
        "residual",
        "dur",
        "unexplained",
        "gone",
        "began",
        "lasted",
    )
    new = {name: column(name) for name in names}
    source, lag, began, lasted = (
        new[name] for name in ("source", "lag", "began", "lasted")
    )
    for rank, (graph, bounds) in enumerate(
        zip(graphs, pairwise(places.begins), strict=True)
    ):
        own = slice(*bounds)
        source[:, own] = places.of(rank)[graph.source[:, 1:]]
        began[own] += usual[rank]
        lag[:, own] += np.where(
            (source[:, own] == 0) & (lag[:, own] != NEVER), usual[rank], 0
        )
    for name in ("source", "lag", "residual"):
        new[name][:, arrival] = new[name][:, item]
    new["residual"][:, item] = 0
    drift = meetings.shift - usual[meetings.rank]
    last = join[np.searchsorted(meetings.of_row[joined], meetings.of_row)]
    number = ordinals(meetings.of_row[joined])
    last += np.bincount(meetings.of_row[joined])[meetings.of_row] - 1
    source[:, item] = arrival, last
    lag[:, item] = np.zeros(len(item)), np.minimum(meetings.transfer, 0) - drift
    source[:, join] = (
        np.where(number == 0, arrival[joined - 1], join - 1),
        arrival[joined],
    )
    lag[:, join] = np.where(number == 0, drift[joined - 1], 0), drift[joined]
    new["kind"][np.concatenate((arrival, join))] = Node.JOIN
    began[arrival], ends = began[item], began[item] + lasted[item]
    latest = meetings.last(began[arrival] - meetings.shift)
    began[join], began[item] = latest[joined], latest
    lasted[item] = np.maximum(ends - latest, 0)
    return msgspec.structs.replace(graphs[0], batches=_batches(graphs, places), **new)


def _batches(graphs: Sequence[Graph], places: _Places) -> Batches:
    """Those of all ranks; each rank has loaders of its own."""
    every = [graph.batches for graph in graphs]
    most = 1 + max((int(one.loader.max(initial=0)) for one in every), default=0)
    node = [one.node + places.begins[rank] - 1 for rank, one in enumerate(every)]
    loader = [one.loader + rank * most for rank, one in enumerate(every)]
    return Batches(
        node=np.concatenate(node),
        waited=np.concatenate([one.waited for one in every]),
        unsure=np.concatenate([one.unsure for one in every]),
        loader=np.concatenate(loader),
    )
