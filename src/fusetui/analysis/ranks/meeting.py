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
    """The collectives of a job. Arrays of shape [rows], a row for each rank of each
    collective; the rows of one collective are neighbors."""

    of_row: Rows  # the collective of each row
    rank: Rows  # the index of the graph of its rank
    node: Rows  # its node in that graph
    # from the time of that graph, when it arrives, to the clock that all share
    shift: Int64s
    # from the last arrival to its end; below 0 by as much as clocks are wrong
    transfer: Int64s

    @property
    def first(self) -> Rows:
        """Where each collective begins, [collectives]."""
        return np.flatnonzero(np.diff(self.of_row, prepend=-1))

    def last(self, arrived: Int64s) -> Int64s:
        """For each row when the last rank of its collective arrives, in ns on the clock
        that all share. `arrived`: when each row does, on the clock of its graph."""
        if not len(arrived):
            return arrived
        first = self.first
        last = np.maximum.reduceat(arrived + self.shift, first)
        return np.repeat(last, np.diff(np.append(first, len(arrived))))

    def take(self, rows: Flags) -> Meetings:
        """The meetings at the rows where the flag is set, which must be all rows of a
        collective or none."""
        return Meetings(
            of_row=self.of_row[rows],
            rank=self.rank[rows],
            node=self.node[rows],
            shift=self.shift[rows],
            transfer=self.transfer[rows],
        )


class ChangedTimes(msgspec.Struct, frozen=True, eq=False):
    """When everything would happen, in ns on the clock of each rank's graph."""

    times: tuple[Times, ...]  # of each rank
    arrived: Int64s  # of each row of Meetings
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
        """For each node of the graph of a rank its place in the graph of all."""
        return np.append(ORIGIN, np.arange(self.begins[rank], self.begins[rank + 1]))


def replayed(
    graphs: Sequence[Graph], meetings: Meetings, *, late: bool = False
) -> ChangedTimes | None:
    """When everything would happen if all ranks were replayed at once; None if their
    collectives wait for each other in a circle. In `graphs`, one for each rank,
    collectives last as long as their transfers. `late`: see replay."""
    places = _places(graphs, meetings)
    shift_of_rank = np.zeros(len(graphs), dtype=np.int64)
    shift_of_rank[meetings.rank] = meetings.shift
    ordered = _ordered(_joined(graphs, meetings, places, shift_of_rank))
    if ordered is None:
        return None
    times = replay(ordered.graph, late=late)
    begin = times.begin[ordered.new_place]
    end = times.end[ordered.new_place]
    begin[places.item] = begin[places.arrival]
    times_of_ranks: list[Times] = []
    for rank in range(len(graphs)):
        nodes = places.of(rank)
        shift = np.where(nodes != ORIGIN, shift_of_rank[rank], 0)
        times_of_ranks.append(Times(begin=begin[nodes] - shift, end=end[nodes] - shift))
    return ChangedTimes(
        times=tuple(times_of_ranks),
        arrived=end[places.arrival] - shift_of_rank[meetings.rank],
        residual_share=route_to(ordered.graph, times).unknown_share,
    )


class _Ordered(msgspec.Struct, frozen=True, eq=False):
    """A graph whose nodes are in an order in which sources come first."""

    graph: Graph
    new_place: Int32s  # of each node as it was before


def _ordered(whole: Graph) -> _Ordered | None:
    """The same graph with its nodes in the order of their times, in which each comes
    after its sources; None if there is no such order."""
    file_order = np.arange(float(len(whole)))
    order = in_order(whole.began, whole.ended, file_order, whole.source)
    new_place = np.empty(len(order), dtype=np.int32)
    new_place[order] = np.arange(len(order))
    sources = new_place[whole.source[:, order]]
    is_circular = sources >= np.arange(len(order))
    if is_circular[:, 1:].any():
        return None
    graph = msgspec.structs.replace(
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
    return _Ordered(graph=graph, new_place=new_place)


def _places(graphs: Sequence[Graph], meetings: Meetings) -> _Places:
    """The graph of all has the origin, the nodes of each rank but for its origin, the
    arrivals, and the joins."""
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
    """The graph of all, whose nodes are at their `places` and not in the order in which
    a replay needs them. `shift_of_rank`: from the time of each graph to the clock that
    all share."""
    added = len(places.arrival) + len(places.join)
    columns = {}
    for name in (*NODE_COLUMNS, *EDGE_COLUMNS):
        columns[name] = _column(graphs, name, added)
    batches = _batches(graphs, places)
    whole = msgspec.structs.replace(graphs[0], batches=batches, **columns)
    _place_ranks(whole, graphs, places, shift_of_rank)
    drift = meetings.shift - shift_of_rank[meetings.rank]
    _connect_meetings(whole, meetings, places, drift)
    _time_meetings(whole, meetings, places)
    return whole


def _column(graphs: Sequence[Graph], name: str, added: int) -> Int64s:
    """A column of Graph for the graph of all: the values of all nodes, the origin once,
    and 0 for the `added` nodes."""
    origin = getattr(graphs[0], name)[..., :1]
    own = [getattr(graph, name)[..., 1:] for graph in graphs]
    more = np.zeros((*origin.shape[:-1], added), dtype=origin.dtype)
    return np.concatenate((origin, *own, more), axis=-1)


def _place_ranks(
    whole: Graph, graphs: Sequence[Graph], places: _Places, shift_of_rank: Int64s
) -> None:
    """Puts the sources and times of the nodes of each rank into `whole`, in place. An
    edge from the origin has the shift of its rank as a lag; it has no other edge to
    another clock."""
    for rank, graph in enumerate(graphs):
        shift = shift_of_rank[rank]
        nodes = slice(places.begins[rank], places.begins[rank + 1])
        place_of_node = places.of(rank)
        source = place_of_node[graph.source[:, 1:]]
        whole.source[:, nodes] = source
        whole.began[nodes] += shift
        lag = whole.lag[:, nodes]  # a view: what is added to it is added to `whole`
        is_from_origin = (lag != NEVER) & (source == ORIGIN)
        lag[is_from_origin] += shift


def _connect_meetings(
    whole: Graph, meetings: Meetings, places: _Places, drift: Int64s
) -> None:
    """Connects the nodes that are added to `whole`, in place.

    An arrival has the sources of the kernel. The first JOIN of a collective waits for
    the arrivals of its first two ranks, each further one for the JOIN before it and for
    one more arrival, and each kernel for its own arrival and for the last JOIN.
    `drift`: of each row, how far the clock of its rank is from its usual shift.
    """
    item = places.item
    arrival = places.arrival
    join = places.join
    for edges in (whole.source, whole.lag, whole.residual):
        edges[:, arrival] = edges[:, item]
    whole.residual[:, item] = 0

    collective = meetings.of_row[places.joined]  # of each JOIN
    first_join = join[np.searchsorted(collective, meetings.of_row)]
    joins = np.bincount(collective)[meetings.of_row]
    last_join = first_join + joins - 1
    whole.source[0, item] = arrival
    whole.source[1, item] = last_join
    whole.lag[0, item] = 0
    whole.lag[1, item] = np.minimum(meetings.transfer, 0) - drift

    is_first = ordinals(collective) == 0
    row_before = places.joined - 1  # of a first JOIN: the first row of its collective
    whole.source[0, join] = np.where(is_first, arrival[row_before], join - 1)
    whole.source[1, join] = arrival[places.joined]
    whole.lag[0, join] = np.where(is_first, drift[row_before], 0)
    whole.lag[1, join] = drift[places.joined]
    whole.kind[arrival] = Node.JOIN
    whole.kind[join] = Node.JOIN


def _time_meetings(whole: Graph, meetings: Meetings, places: _Places) -> None:
    """Writes into `whole`, in place, when collectives began as recorded: each rank
    arrives when its kernel began, and the kernel begins when the last rank arrives."""
    item = places.item
    arrived = whole.began[item]
    ended = arrived + whole.lasted[item]
    latest = meetings.last(arrived - meetings.shift)
    whole.began[places.arrival] = arrived
    whole.began[places.join] = latest[places.joined]
    whole.began[item] = latest
    whole.lasted[item] = np.maximum(ended - latest, 0)


def _batches(graphs: Sequence[Graph], places: _Places) -> Batches:
    """The batches of all ranks. Each rank has loaders of its own, so the numbers of
    loaders are made different."""
    batches_of_ranks = [graph.batches for graph in graphs]
    loaders_of_a_rank = 1
    for batches in batches_of_ranks:
        loaders_of_a_rank = max(loaders_of_a_rank, 1 + batches.loader.max(initial=0))
    nodes: list[Rows] = []
    loaders: list[Int32s] = []
    for rank, batches in enumerate(batches_of_ranks):
        nodes.append(batches.node + places.begins[rank] - 1)
        loaders.append(batches.loader + rank * int(loaders_of_a_rank))
    return Batches(
        node=np.concatenate(nodes),
        waited=np.concatenate([batches.waited for batches in batches_of_ranks]),
        unsure=np.concatenate([batches.unsure for batches in batches_of_ranks]),
        loader=np.concatenate(loaders),
    )
