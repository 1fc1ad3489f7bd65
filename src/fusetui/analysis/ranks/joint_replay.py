"""Joins the graphs of all ranks of a job into one, in which collectives wait for their
last rank.

A collective is two nodes of each rank. Its *arrival* waits for what the kernel waits
for. Its *transfer* begins when all ranks have arrived.

All times are on one clock, to which the times of each rank are shifted. If a clock
drifts, edges to and from other ranks have the drift as a lag.
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


class CollectiveArrivals(msgspec.Struct, frozen=True, eq=False):
    """The collectives of a job, with one row for each rank of each collective.

    The rows of one collective are neighbors.
    """

    collective_of_row: Rows  # the collective of each row
    rank: Rows  # the index of the graph of its rank
    node: Rows  # its node in that graph
    # from the time of that graph, when it arrives, to the clock that all share
    to_common_ns: Int64s
    # from the last arrival to its end; below 0 by as much as clocks are wrong
    transfer_ns: Int64s

    @property
    def first_rows(self) -> Rows:
        """The first row of each collective."""
        return np.flatnonzero(np.diff(self.collective_of_row, prepend=-1))

    def last_arrival_ns(self, arrived: Int64s) -> Int64s:
        """Return when the last rank of each row's collective arrives.

        Args:
            arrived: When each row arrives, in ns on the clock of its graph.

        Returns:
            ns for each row, on the clock that all share.
        """
        if not len(arrived):
            return arrived
        first = self.first_rows
        last_arrival = np.maximum.reduceat(arrived + self.to_common_ns, first)
        rows_of_collective = np.diff(np.append(first, len(arrived)))
        return np.repeat(last_arrival, rows_of_collective)

    def take(self, rows: Flags) -> CollectiveArrivals:
        """Return the arrivals at the rows that are flagged.

        Either all rows of a collective must be flagged or none.
        """
        return CollectiveArrivals(
            collective_of_row=self.collective_of_row[rows],
            rank=self.rank[rows],
            node=self.node[rows],
            to_common_ns=self.to_common_ns[rows],
            transfer_ns=self.transfer_ns[rows],
        )


class ChangedTimes(msgspec.Struct, frozen=True, eq=False):
    """When everything happens in a replay, in ns on the clock of each rank's graph."""

    times: tuple[Times, ...]  # of each rank
    arrived: Int64s  # of each row of CollectiveArrivals
    # of the critical path to the last end: what is not understood
    residual_share: float


class _NodeLayout(msgspec.Struct, frozen=True, eq=False):
    """Which nodes of the joined graph stand for what."""

    begins: Rows  # the first node of each rank but its origin; and the end of the last
    item: Rows  # of each row of CollectiveArrivals: the node of the transfer
    arrival: Rows  # of each row of CollectiveArrivals: the node of the arrival
    joined: Rows  # the rows but for the first one of each collective
    join: Rows  # for each of these: the node at which it and those before have arrived

    def nodes_of_rank(self, rank: int) -> Rows:
        """Return for each node of a rank's graph its node in the joined graph."""
        return np.append(ORIGIN, np.arange(self.begins[rank], self.begins[rank + 1]))


def replay_job(
    graphs: Sequence[Graph], arrivals: CollectiveArrivals, *, late: bool = False
) -> ChangedTimes | None:
    """Replay all ranks of a job at once.

    Args:
        graphs: The graph of each rank, in which collectives last as long as their
            transfers.
        arrivals: The collectives in which the ranks meet.
        late: Whether batches of data loaders are ready as late as possible; see
            `replay`.

    Returns:
        When everything would happen; None if the collectives wait for each other in a
        circle.
    """
    layout = _lay_out_nodes(graphs, arrivals)
    shift_of_rank = np.zeros(len(graphs), dtype=np.int64)
    shift_of_rank[arrivals.rank] = arrivals.to_common_ns
    ordered = _sources_first(_join_graphs(graphs, arrivals, layout, shift_of_rank))
    if ordered is None:
        return None

    times = replay(ordered.graph, late=late)
    begin = times.begin[ordered.new_node]
    end = times.end[ordered.new_node]
    # For its rank, a collective begins when the rank arrives.
    begin[layout.item] = begin[layout.arrival]

    times_of_ranks: list[Times] = []
    for rank in range(len(graphs)):
        nodes = layout.nodes_of_rank(rank)
        shift = np.where(nodes != ORIGIN, shift_of_rank[rank], 0)
        times_of_ranks.append(Times(begin=begin[nodes] - shift, end=end[nodes] - shift))
    return ChangedTimes(
        times=tuple(times_of_ranks),
        arrived=end[layout.arrival] - shift_of_rank[arrivals.rank],
        residual_share=route_to(ordered.graph, times).unknown_share,
    )


class _SourcesFirst(msgspec.Struct, frozen=True, eq=False):
    """A graph whose nodes are in an order in which sources come first."""

    graph: Graph
    new_node: Int32s  # the new node of each old one


def _sources_first(whole: Graph) -> _SourcesFirst | None:
    """Put the nodes of a graph into an order in which sources come first.

    They are sorted by their times. Returns None if there is no such order.
    """
    file_order = np.arange(float(len(whole)))
    order = in_order(whole.began, whole.ended, file_order, whole.source)
    new_node = np.empty(len(order), dtype=np.int32)
    new_node[order] = np.arange(len(order))

    sources = new_node[whole.source[:, order]]
    follows_itself = sources >= np.arange(len(order))
    is_circular = follows_itself[:, 1:].any()  # the origin is its own source
    if is_circular:
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
        batches=reordered(whole.batches, new_node),
    )
    return _SourcesFirst(graph=graph, new_node=new_node)


def _lay_out_nodes(
    graphs: Sequence[Graph], arrivals: CollectiveArrivals
) -> _NodeLayout:
    """Lay out the nodes of the joined graph.

    They are the origin, the nodes of each rank but its origin, the arrivals, and the
    joins.
    """
    begins = np.cumsum([1, *(len(graph) - 1 for graph in graphs)])
    rows = np.arange(len(arrivals.collective_of_row))
    joined = rows[ordinals(arrivals.collective_of_row) > 0]
    return _NodeLayout(
        begins=begins,
        item=begins[arrivals.rank] + arrivals.node - 1,
        arrival=begins[-1] + rows,
        joined=joined,
        join=begins[-1] + len(rows) + np.arange(len(joined)),
    )


def _join_graphs(
    graphs: Sequence[Graph],
    arrivals: CollectiveArrivals,
    layout: _NodeLayout,
    shift_of_rank: Int64s,
) -> Graph:
    """Join the graphs of all ranks.

    Args:
        graphs: The graph of each rank.
        arrivals: The collectives in which they meet.
        layout: The layout of the joined graph.
        shift_of_rank: The shift from the time of each graph to the shared clock.

    Returns:
        The joined graph. Its nodes are laid out as `layout` says, and not yet in the
        order that a replay needs.
    """
    added = len(layout.arrival) + len(layout.join)
    columns = {}
    for name in (*NODE_COLUMNS, *EDGE_COLUMNS):
        columns[name] = _column(graphs, name, added)
    batches = _batches(graphs, layout)
    whole = msgspec.structs.replace(graphs[0], batches=batches, **columns)

    # The columns are new arrays, so the following may change them in place.
    _fill_in_rank_nodes(whole, graphs, layout, shift_of_rank)
    drift = arrivals.to_common_ns - shift_of_rank[arrivals.rank]
    _connect_collectives(whole, arrivals, layout, drift)
    _time_collectives(whole, arrivals, layout)
    return whole


def _column(graphs: Sequence[Graph], name: str, added: int) -> Int64s:
    """Concatenate a column of all graphs for the joined graph.

    Args:
        graphs: The graph of each rank.
        name: The name of the column.
        added: How many nodes are added.

    Returns:
        The origin once, the values of all other nodes, and 0 for the added nodes.
    """
    origin = getattr(graphs[0], name)[..., :1]
    nodes_of_ranks = [getattr(graph, name)[..., 1:] for graph in graphs]
    added_nodes = np.zeros((*origin.shape[:-1], added), dtype=origin.dtype)
    return np.concatenate((origin, *nodes_of_ranks, added_nodes), axis=-1)


def _fill_in_rank_nodes(
    whole: Graph, graphs: Sequence[Graph], layout: _NodeLayout, shift_of_rank: Int64s
) -> None:
    """Fill in the sources and times of the nodes of each rank, in place.

    The edges from the origin are the only ones that lead to another clock. They get the
    shift of the rank as a lag.

    Args:
        whole: The joined graph.
        graphs: The graph of each rank.
        layout: The layout of the joined graph.
        shift_of_rank: The shift from the time of each graph to the shared clock.
    """
    for rank, graph in enumerate(graphs):
        shift = shift_of_rank[rank]
        nodes = slice(layout.begins[rank], layout.begins[rank + 1])
        joined_node = layout.nodes_of_rank(rank)
        source = joined_node[graph.source[:, 1:]]
        whole.source[:, nodes] = source
        whole.began[nodes] += shift

        lag = whole.lag[:, nodes]  # a view: what is added to it is added to `whole`
        is_from_origin = (lag != NEVER) & (source == ORIGIN)
        lag[is_from_origin] += shift


def _connect_collectives(
    whole: Graph, arrivals: CollectiveArrivals, layout: _NodeLayout, drift: Int64s
) -> None:
    """Connect the nodes that were added to the joined graph, in place.

    An arrival has the sources of the kernel. The first JOIN of a collective waits for
    the arrivals of its first two ranks. Each further JOIN waits for the one before it
    and for one more arrival. The kernel of each rank waits for its own arrival and for
    the last JOIN.

    Args:
        whole: The joined graph.
        arrivals: The collectives.
        layout: The layout of the joined graph.
        drift: For each row how far the clock of its rank is from its usual shift.
    """
    item = layout.item
    arrival = layout.arrival
    join = layout.join

    # Arrivals take over the sources of the kernels.
    for edges in (whole.source, whole.lag, whole.residual):
        edges[:, arrival] = edges[:, item]
    whole.residual[:, item] = 0

    # Kernels wait for their arrival and for the last JOIN of their collective.
    collective_of_join = arrivals.collective_of_row[layout.joined]
    first_join = join[np.searchsorted(collective_of_join, arrivals.collective_of_row)]
    joins_of_collective = np.bincount(collective_of_join)[arrivals.collective_of_row]
    last_join = first_join + joins_of_collective - 1
    whole.source[0, item] = arrival
    whole.source[1, item] = last_join
    whole.lag[0, item] = 0
    whole.lag[1, item] = np.minimum(arrivals.transfer_ns, 0) - drift

    # Each JOIN waits for the JOIN before it, the first one for the first arrival.
    is_first_join = ordinals(collective_of_join) == 0
    row_before = layout.joined - 1  # of a first JOIN: the first row of its collective
    whole.source[0, join] = np.where(is_first_join, arrival[row_before], join - 1)
    whole.source[1, join] = arrival[layout.joined]
    whole.lag[0, join] = np.where(is_first_join, drift[row_before], 0)
    whole.lag[1, join] = drift[layout.joined]

    whole.kind[arrival] = Node.JOIN
    whole.kind[join] = Node.JOIN


def _time_collectives(
    whole: Graph, arrivals: CollectiveArrivals, layout: _NodeLayout
) -> None:
    """Fill in when collectives began as recorded, in place.

    A rank arrives when its kernel was recorded to begin. In the joined graph the kernel
    begins when the last rank arrives.
    """
    item = layout.item
    arrived = whole.began[item]
    ended = arrived + whole.lasted[item]
    last_arrival = arrivals.last_arrival_ns(arrived - arrivals.to_common_ns)
    whole.began[layout.arrival] = arrived
    whole.began[layout.join] = last_arrival[layout.joined]
    whole.began[item] = last_arrival
    whole.lasted[item] = np.maximum(ended - last_arrival, 0)


def _batches(graphs: Sequence[Graph], layout: _NodeLayout) -> Batches:
    """Concatenate the batches of all ranks.

    Each rank has loaders of its own, so the numbers of loaders are made different.
    """
    batches_of_ranks = [graph.batches for graph in graphs]
    loaders_per_rank = 1
    for batches in batches_of_ranks:
        loaders_per_rank = max(loaders_per_rank, 1 + batches.loader.max(initial=0))

    nodes: list[Rows] = []
    loaders: list[Int32s] = []
    for rank, batches in enumerate(batches_of_ranks):
        nodes.append(batches.node + layout.begins[rank] - 1)
        loaders.append(batches.loader + rank * int(loaders_per_rank))
    return Batches(
        node=np.concatenate(nodes),
        waited=np.concatenate([batches.waited for batches in batches_of_ranks]),
        unsure=np.concatenate([batches.unsure for batches in batches_of_ranks]),
        loader=np.concatenate(loaders),
    )
