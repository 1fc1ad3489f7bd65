"""Joins the graphs of all ranks of a job into one graph, and replays it.

The graph of a rank has a node for each op, launch and kernel, and an edge for each
dependency (replay/graph.py). In the joined graph collectives wait for their last rank:
a collective is two nodes of each rank. Its *arrival* waits for what the kernel waits
for. The collective itself, whose length is the transfer, begins when all ranks have
arrived; nodes of the kind JOIN bring the arrivals together.

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
    renumber_batches,
    sort_nodes,
)
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.route import find_critical_path
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    begins_runs,
    equal_ranges,
    group_numbers,
    ordinals,
    prefix_sums,
    rank_of_each,
    reduce_groups,
)

ORIGIN = 0
"""The node at which the time of every graph begins, and that of the joined graph."""
NODE_COLUMNS = ("kind", "began", "lasted", "dur", "unexplained", "is_removed")
EDGE_COLUMNS = ("source", "lag", "residual")  # of shape [2, nodes]


class CollectiveArrivals(msgspec.Struct, frozen=True, eq=False):
    """The collectives of a job: one row for each rank that arrives at one.

    The rows of one collective are neighbors. Arrays have one entry per row.
    """

    collective_of_row: Rows  # the index of the collective
    rank: Rows  # the index of the rank, and of its graph
    node: Rows  # the node of the collective in that graph
    # what has to be added to times of that graph, in ns, to have them on the clock that
    # all ranks share; if the clock of the rank drifts, it is that of this moment
    to_common_ns: Int64s
    # from the last arrival to the end on this rank; below 0 if the end was recorded
    # earlier, because the clocks are wrong by so much
    transfer_ns: Int64s

    @property
    def first_rows(self) -> Rows:
        """The first row of each collective."""
        return np.flatnonzero(np.diff(self.collective_of_row, prepend=-1))

    def find_last_arrivals(self, arrival_ns: Int64s) -> Int64s:
        """Return for each row when the last rank arrives at its collective.

        Args:
            arrival_ns: When the rank of each row arrives, in ns on the clock of its
                graph.

        Returns:
            ns for each row, on the clock that all ranks share.
        """
        common_ns = arrival_ns + self.to_common_ns
        begins_collective = begins_runs(self.collective_of_row)
        last_ns = reduce_groups(
            np.maximum, common_ns, np.flatnonzero(begins_collective)
        )
        return last_ns[group_numbers(begins_collective)]

    def take(self, rows: Flags) -> CollectiveArrivals:
        """Return the arrivals at the collectives whose rows are flagged.

        Args:
            rows: One flag per row. Those of one collective must be equal.
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

    times: tuple[Times, ...]  # the begins and ends of the nodes of each rank
    arrived: Int64s  # when the rank of each row of CollectiveArrivals arrives
    # which share of the critical path to the last end is not understood
    residual_share: float


class _NodeLayout(msgspec.Struct, frozen=True, eq=False):
    """Which nodes of the joined graph stand for what.

    The nodes are, in this order: the origin, the nodes of each rank but its origin, an
    arrival for each row of CollectiveArrivals, and the JOINs.
    """

    begins: Rows  # the first node of each rank but its origin; and the end of the last
    kernel: Rows  # for each row of CollectiveArrivals the node of the collective itself
    arrival: Rows  # for each row of CollectiveArrivals the node of the arrival
    # the rows that have a JOIN: all but the first one of each collective
    joined: Rows
    # for each of these rows the node at which its rank and those of the rows before it
    # have arrived
    join: Rows

    def nodes_of_rank(self, rank: int) -> Rows:
        """Return for each node of a rank's graph its node in the joined graph."""
        first = self.begins[rank]
        end = self.begins[rank + 1]
        return np.append(ORIGIN, np.arange(first, end))


def replay_job(
    graphs: Sequence[Graph], arrivals: CollectiveArrivals, *, late: bool = False
) -> ChangedTimes | None:
    """Replay all ranks of a job at once.

    Every collective ends on all of its ranks when the last of them has arrived, plus
    the transfer.

    Args:
        graphs: The graph of each rank, in which collectives last as long as their
            transfers.
        arrivals: The collectives, with the nodes of each rank that takes part.
        late: Whether batches of data loaders are ready as late as possible; see
            `replay`.

    Returns:
        When everything would happen; None if the collectives wait for each other in a
        circle.
    """
    # Join the graphs of the ranks on the clock that they share.
    layout = _lay_out_nodes(graphs, arrivals)
    shift_of_rank = np.zeros(len(graphs), dtype=np.int64)
    shift_of_rank[arrivals.rank] = arrivals.to_common_ns
    joined_graph = _join_graphs(graphs, arrivals, layout, shift_of_rank)
    ordered = _sort_sources_first(joined_graph)
    if ordered is None:
        return None

    times = replay(ordered.graph, late=late)
    begin = times.begin[ordered.new_node]
    end = times.end[ordered.new_node]
    # For its rank, a collective begins when the rank arrives.
    begin[layout.kernel] = begin[layout.arrival]

    # Take the times of each rank apart again, on its own clock.
    times_of_ranks: list[Times] = []
    for rank in range(len(graphs)):
        nodes = layout.nodes_of_rank(rank)
        is_origin = nodes == ORIGIN  # whose time is 0 on every clock
        shift = np.where(is_origin, 0, shift_of_rank[rank])
        times_of_ranks.append(Times(begin=begin[nodes] - shift, end=end[nodes] - shift))
    return ChangedTimes(
        times=tuple(times_of_ranks),
        arrived=end[layout.arrival] - shift_of_rank[arrivals.rank],
        residual_share=find_critical_path(ordered.graph, times).unknown_share,
    )


class _SourcesFirst(msgspec.Struct, frozen=True, eq=False):
    """A graph whose nodes are in an order in which sources come before their
    targets."""

    graph: Graph
    new_node: Int32s  # the new index of each node, by its old one


def _sort_sources_first(unsorted: Graph) -> _SourcesFirst | None:
    """Put the nodes of a graph into an order in which sources come first.

    A replay computes node after node, so it needs the times of the sources of a node
    before those of the node. The nodes are sorted by their recorded times.

    Returns:
        The sorted graph; None if there is no such order, because nodes wait for each
        other in a circle.
    """
    file_order = np.arange(len(unsorted), dtype=np.float64)
    order = sort_nodes(unsorted.began, unsorted.ended, file_order, unsorted.source)
    new_node = rank_of_each(order).astype(np.int32)

    new_source = new_node[unsorted.source[:, order]]
    comes_before = new_source < np.arange(len(order))
    comes_before[:, ORIGIN] = True  # the origin is its own source
    if not comes_before.all():
        return None

    graph = msgspec.structs.replace(
        unsorted,
        kind=unsorted.kind[order],
        source=new_source,
        lag=unsorted.lag[:, order],
        residual=unsorted.residual[:, order],
        began=unsorted.began[order],
        dur=unsorted.dur[order],
        unexplained=unsorted.unexplained[order],
        is_removed=unsorted.is_removed[order],
        batches=renumber_batches(unsorted.batches, new_node),
    )
    return _SourcesFirst(graph=graph, new_node=new_node)


def _lay_out_nodes(
    graphs: Sequence[Graph], arrivals: CollectiveArrivals
) -> _NodeLayout:
    """Decide which node of the joined graph stands for what.

    The nodes are, in this order: the one origin, those of each rank without its origin,
    an arrival for each rank's part in a collective, and the JOINs. A collective of n
    ranks has n - 1 JOINs, one for each rank but the first.

    Args:
        graphs: The graph of each rank.
        arrivals: The collectives, with the nodes of each rank that takes part.
    """
    node_counts = [len(graph) - 1 for graph in graphs]  # without their origins
    begins = 1 + prefix_sums(np.array(node_counts, dtype=np.int64))
    arrival_count = len(arrivals.collective_of_row)
    first_arrival = begins[-1]
    first_join = first_arrival + arrival_count

    is_first_of_collective = ordinals(arrivals.collective_of_row) == 0
    joined = np.flatnonzero(~is_first_of_collective)
    return _NodeLayout(
        begins=begins,
        kernel=begins[arrivals.rank] + arrivals.node - 1,
        arrival=first_arrival + np.arange(arrival_count),
        joined=joined,
        join=first_join + np.arange(len(joined)),
    )


def _join_graphs(
    graphs: Sequence[Graph],
    arrivals: CollectiveArrivals,
    layout: _NodeLayout,
    shift_of_rank: Int64s,
) -> Graph:
    """Join the graphs of all ranks into one.

    Args:
        graphs: The graph of each rank.
        arrivals: The collectives, with the nodes of each rank that takes part.
        layout: Which nodes of the joined graph stand for what.
        shift_of_rank: What has to be added to times of each rank's graph, in ns, to
            have them on the clock that all ranks share.

    Returns:
        The joined graph. Its nodes are laid out as `layout` says, and not yet in the
        order that a replay needs.
    """
    added_nodes = len(layout.arrival) + len(layout.join)
    columns = {}
    for name in (*NODE_COLUMNS, *EDGE_COLUMNS):
        columns[name] = _join_columns(graphs, name, added_nodes)
    batches = _join_batches(graphs, layout)
    joined_graph = msgspec.structs.replace(graphs[0], batches=batches, **columns)

    # The columns are new arrays, so the following may change them in place.
    _fill_in_rank_nodes(joined_graph, graphs, layout, shift_of_rank)
    drift_ns = arrivals.to_common_ns - shift_of_rank[arrivals.rank]
    _connect_collectives(joined_graph, arrivals, layout, drift_ns)
    _time_collectives(joined_graph, arrivals, layout)
    return joined_graph


def _join_columns(graphs: Sequence[Graph], name: str, added: int) -> Int64s:
    """Concatenate a column of the graphs of all ranks, for the joined graph.

    Node 0 of each graph is its origin. E.g. (0, 5, 6) and (0, 7) with 2 added nodes
    become (0, 5, 6, 7, 0, 0): the origin stands only once.

    Args:
        graphs: The graph of each rank.
        name: The name of the column.
        added: How many nodes the joined graph has besides those of the ranks.

    Returns:
        The value of the origin once, those of all other nodes, and 0 for each of the
        added nodes.
    """
    # The last axis of a column is that of the nodes; columns of edges have another one.
    columns = [getattr(graph, name) for graph in graphs]
    origin = columns[0][..., :1]
    without_origins = [column[..., 1:] for column in columns]
    added_nodes = np.zeros((*origin.shape[:-1], added), dtype=origin.dtype)
    return np.concatenate((origin, *without_origins, added_nodes), axis=-1)


def _fill_in_rank_nodes(
    joined_graph: Graph,
    graphs: Sequence[Graph],
    layout: _NodeLayout,
    shift_of_rank: Int64s,
) -> None:
    """Fill in the sources and times of the nodes of each rank, in place.

    Edges within a rank keep their lags, because both of their ends are on the same
    clock. Only an edge from the origin leads from the common clock to that of a rank;
    the shift between the two is added to its lag.

    Args:
        joined_graph: The joined graph.
        graphs: The graph of each rank.
        layout: Which nodes of the joined graph stand for what.
        shift_of_rank: The ns from the time of each rank's graph to the common clock.
    """
    for rank, graph in enumerate(graphs):
        shift = shift_of_rank[rank]
        nodes = slice(layout.begins[rank], layout.begins[rank + 1])
        source_without_origin = graph.source[:, 1:]
        source = layout.nodes_of_rank(rank)[source_without_origin]
        joined_graph.source[:, nodes] = source
        joined_graph.began[nodes] += shift

        lag = joined_graph.lag[:, nodes]
        is_from_origin = (source == ORIGIN) & (lag != NEVER)  # NEVER: there is no edge
        joined_graph.lag[:, nodes] = np.where(is_from_origin, lag + shift, lag)


def _connect_collectives(
    joined_graph: Graph,
    arrivals: CollectiveArrivals,
    layout: _NodeLayout,
    drift_ns: Int64s,
) -> None:
    """Connect the nodes that were added to the joined graph, in place.

    A node has at most two sources. So a collective waits for all of its ranks through a
    row of JOIN nodes: the first JOIN waits for the arrivals of the first two ranks, and
    each further JOIN for the one before it and for one more arrival. The kernel of each
    rank waits for its own arrival and for the last JOIN. An arrival waits for what the
    kernel waited for as recorded.

    Args:
        joined_graph: The joined graph.
        arrivals: The collectives, with the nodes of each rank that takes part.
        layout: Which nodes of the joined graph stand for what.
        drift_ns: For each row of `arrivals` how many ns the clock of its rank is from
            the shift of that rank at this moment.
    """
    kernel = layout.kernel
    arrival = layout.arrival
    join = layout.join

    # Arrivals take over the sources of the kernels.
    for edges in (joined_graph.source, joined_graph.lag, joined_graph.residual):
        edges[:, arrival] = edges[:, kernel]
    joined_graph.residual[:, kernel] = 0

    # Kernels wait for their arrival and for the last JOIN of their collective.
    collective_of_join = arrivals.collective_of_row[layout.joined]
    joins_of_collective = equal_ranges(collective_of_join, arrivals.collective_of_row)
    last_join = join[joins_of_collective.end - 1]
    joined_graph.source[0, kernel] = arrival
    joined_graph.source[1, kernel] = last_join
    joined_graph.lag[0, kernel] = 0
    joined_graph.lag[1, kernel] = np.minimum(arrivals.transfer_ns, 0) - drift_ns

    # Each JOIN waits for the JOIN before it, the first one for the first arrival.
    is_first_join = ordinals(collective_of_join) == 0
    row_before = layout.joined - 1  # of a first JOIN: the first row of its collective
    joined_graph.source[0, join] = np.where(
        is_first_join, arrival[row_before], join - 1
    )
    joined_graph.source[1, join] = arrival[layout.joined]
    joined_graph.lag[0, join] = np.where(is_first_join, drift_ns[row_before], 0)
    joined_graph.lag[1, join] = drift_ns[layout.joined]

    joined_graph.kind[arrival] = Node.JOIN
    joined_graph.kind[join] = Node.JOIN


def _time_collectives(
    joined_graph: Graph, arrivals: CollectiveArrivals, layout: _NodeLayout
) -> None:
    """Fill in the recorded times of collectives and of their added nodes, in place.

    A rank arrives when its kernel was recorded to begin. In the joined graph the kernel
    begins when the last rank arrives, and it ends as recorded.

    Args:
        joined_graph: The joined graph.
        arrivals: The collectives, with the nodes of each rank that takes part.
        layout: Which nodes of the joined graph stand for what.
    """
    arrived = joined_graph.began[layout.kernel]
    ended = arrived + joined_graph.lasted[layout.kernel]
    last_arrived = arrivals.find_last_arrivals(arrived - arrivals.to_common_ns)

    joined_graph.began[layout.arrival] = arrived
    joined_graph.began[layout.join] = last_arrived[layout.joined]
    joined_graph.began[layout.kernel] = last_arrived
    joined_graph.lasted[layout.kernel] = np.maximum(ended - last_arrived, 0)


def _join_batches(graphs: Sequence[Graph], layout: _NodeLayout) -> Batches:
    """Concatenate the batches that the data loaders of all ranks load.

    Each rank numbers its loaders from 0, so those of each rank are counted on from the
    ranks before: if no rank has more than 2 loaders, those of rank 1 are 2 and 3.

    Args:
        graphs: The graph of each rank, which has its batches.
        layout: Which nodes of the joined graph stand for what.
    """
    batches_of_ranks = [graph.batches for graph in graphs]
    max_loaders = 1
    for batches in batches_of_ranks:
        loaders = 1 + int(batches.loader.max(initial=0))
        max_loaders = max(max_loaders, loaders)

    nodes: list[Rows] = []
    loader_numbers: list[Int32s] = []
    for rank, batches in enumerate(batches_of_ranks):
        joined_node = layout.nodes_of_rank(rank)
        nodes.append(joined_node[batches.node])
        loader_numbers.append(batches.loader + rank * max_loaders)
    return Batches(
        node=np.concatenate(nodes),
        waited=np.concatenate([batches.waited for batches in batches_of_ranks]),
        unsure=np.concatenate([batches.unsure for batches in batches_of_ranks]),
        loader=np.concatenate(loader_numbers),
    )
