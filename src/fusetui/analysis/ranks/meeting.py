"""The graphs of all ranks of a job as one, in which collectives wait for their last
rank.

A collective is two nodes of each rank: its arrival, which waits for what the kernel
waits for, and its transfer, which begins when all have arrived. All times are on one
clock, to which those of each rank are shifted; where its clock drifts, what goes to
others and comes from them has the rest as a lag.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, ordinals

ORIGIN = 0
"""The node at which the time of every graph begins."""
NODE_COLUMNS = ("kind", "began", "lasted", "dur", "unexplained", "gone")
EDGE_COLUMNS = ("source", "lag", "residual")  # of shape [2, nodes]


class Meetings(msgspec.Struct, frozen=True, eq=False):
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

    def take(self, rows: Flags) -> Meetings:
        """Those of these rows; whole collectives."""
        return Meetings(
            of_row=self.of_row[rows],
            rank=self.rank[rows],
            node=self.node[rows],
            shift=self.shift[rows],
            transfer=self.transfer[rows],
        )


class ChangedTimes(msgspec.Struct, frozen=True, eq=False):
    """When everything would happen; `arrived`: of each row of Meetings, on its rank's
    clock."""

    times: tuple[Times, ...]
    arrived: Int64s
    # of the critical path to the last end: what is not understood
    residual_share: float


class _Places(msgspec.Struct, frozen=True, eq=False):
    """Where the nodes of the graphs are among those of all, and those that are
    added."""

    begins: Rows  # of each graph but for its origin; shape [ranks + 1]
    item: Rows  # of each row of Meetings: the node of the transfer
    arrival: Rows  # likewise
    joined: Rows  # the rows but for the first one of each collective
    join: Rows  # of each of these: it and those before it have arrived

    def of(self, rank: int) -> Rows:
        """Of each node of the graph of a rank."""
        return np.append(ORIGIN, np.arange(self.begins[rank], self.begins[rank + 1]))


def replayed(
    graphs: Sequence[Graph], meetings: Meetings, *, late: bool = False
) -> ChangedTimes | None:
    """All ranks at once; None if their collectives wait for each other in a circle. The
    graphs are such in which collectives last as long as their transfers. `late`: see
    replay."""
    places = _places(graphs, meetings)
    shift_of_rank = np.zeros(len(graphs), dtype=np.int64)
    shift_of_rank[meetings.rank] = meetings.shift
    whole = _joined(graphs, meetings, places, shift_of_rank)
    file_order = np.arange(float(len(whole)))
    order = in_order(whole.began, whole.ended, file_order, whole.source)
    new_place = np.empty(len(order), dtype=np.int32)
    new_place[order] = np.arange(len(order))
    sources = new_place[whole.source[:, order]]
    is_circular = sources >= np.arange(len(order))
    if is_circular[:, 1:].any():
        return None
    ordered = msgspec.structs.replace(
        whole,
        kind=whole.kind[order],
        source=sources,
        lag=whole.lag[:, order],
        residual=whole.residual[:, order],
        began=whole.began[order],
        dur=whole.dur[order],
        unexplained=whole.unexplained[order],
        gone=whole.gone[order],
        batches=reordered(whole.batches, new_place),
    )
    replayed_times = replay(ordered, late=late)
    residual_share = route_to(ordered, replayed_times).unknown_share
    begin = replayed_times.begin[new_place]
    end = replayed_times.end[new_place]
    begin[places.item] = begin[places.arrival]
    times: list[Times] = []
    for rank in range(len(graphs)):
        nodes = places.of(rank)
        shift = np.where(nodes != ORIGIN, shift_of_rank[rank], 0)
        times.append(Times(begin=begin[nodes] - shift, end=end[nodes] - shift))
    return ChangedTimes(
        times=tuple(times),
        arrived=end[places.arrival] - shift_of_rank[meetings.rank],
        residual_share=residual_share,
    )


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
    graphs: Sequence[Graph], meetings: Meetings, places: _Places, shift_of_rank: Int64s
) -> Graph:
    """All nodes, in no order; `shift_of_rank`: from the time of each graph to the clock
    that all share."""
    added = len(places.arrival) + len(places.join)
    columns = {
        name: _column(graphs, name, added) for name in (*NODE_COLUMNS, *EDGE_COLUMNS)
    }
    whole = msgspec.structs.replace(
        graphs[0], batches=_batches(graphs, places), **columns
    )
    _place_ranks(whole, graphs, places, shift_of_rank)
    _place_meetings(whole, meetings, places, shift_of_rank)
    return whole


def _column(graphs: Sequence[Graph], name: str, added: int) -> Int64s:
    """The column of all graphs with one origin, and of so many nodes more."""
    origin = getattr(graphs[0], name)[..., :1]
    own = [getattr(graph, name)[..., 1:] for graph in graphs]
    more = np.zeros((*origin.shape[:-1], added), dtype=origin.dtype)
    return np.concatenate((origin, *own, more), axis=-1)


def _place_ranks(
    whole: Graph, graphs: Sequence[Graph], places: _Places, shift_of_rank: Int64s
) -> None:
    """Sources and times of the nodes of each rank in the graph of all, in place."""
    for rank, graph in enumerate(graphs):
        nodes = slice(places.begins[rank], places.begins[rank + 1])
        whole.source[:, nodes] = places.of(rank)[graph.source[:, 1:]]
        whole.began[nodes] += shift_of_rank[rank]
        is_from_origin = whole.source[:, nodes] == ORIGIN
        is_edge = whole.lag[:, nodes] != NEVER
        whole.lag[:, nodes] += np.where(
            is_from_origin & is_edge, shift_of_rank[rank], 0
        )


def _place_meetings(
    whole: Graph, meetings: Meetings, places: _Places, shift_of_rank: Int64s
) -> None:
    """The nodes that are added, in place. An arrival has the sources of the kernel;
    each JOIN waits for the one before it and for one more arrival; the kernel for its
    own arrival and for the last JOIN."""
    item = places.item
    arrival = places.arrival
    join = places.join
    joined = places.joined
    for edges in (whole.source, whole.lag, whole.residual):
        edges[:, arrival] = edges[:, item]
    whole.residual[:, item] = 0

    drift = meetings.shift - shift_of_rank[meetings.rank]
    collective = meetings.of_row[joined]
    first_join = join[np.searchsorted(collective, meetings.of_row)]
    joins = np.bincount(collective)[meetings.of_row]
    last_join = first_join + joins - 1
    whole.source[0, item] = arrival
    whole.source[1, item] = last_join
    whole.lag[0, item] = 0
    whole.lag[1, item] = np.minimum(meetings.transfer, 0) - drift

    is_first = ordinals(collective) == 0
    whole.source[0, join] = np.where(is_first, arrival[joined - 1], join - 1)
    whole.source[1, join] = arrival[joined]
    whole.lag[0, join] = np.where(is_first, drift[joined - 1], 0)
    whole.lag[1, join] = drift[joined]
    whole.kind[arrival] = Node.JOIN
    whole.kind[join] = Node.JOIN

    whole.began[arrival] = whole.began[item]
    ends = whole.began[item] + whole.lasted[item]
    latest = meetings.last(whole.began[arrival] - meetings.shift)
    whole.began[join] = latest[joined]
    whole.began[item] = latest
    whole.lasted[item] = np.maximum(ends - latest, 0)


def _batches(graphs: Sequence[Graph], places: _Places) -> Batches:
    """Those of all ranks; each rank has loaders of its own."""
    batches = [graph.batches for graph in graphs]
    highest = max((int(own.loader.max(initial=0)) for own in batches), default=0)
    loaders_of_rank = 1 + highest
    nodes: list[Rows] = []
    loaders: list[Int32s] = []
    for rank, own in enumerate(batches):
        nodes.append(own.node + places.begins[rank] - 1)
        loaders.append(own.loader + rank * loaders_of_rank)
    return Batches(
        node=np.concatenate(nodes),
        waited=np.concatenate([own.waited for own in batches]),
        unsure=np.concatenate([own.unsure for own in batches]),
        loader=np.concatenate(loaders),
    )
