"""Builds the graphs of all ranks of a job, with changes and without.

The graph of a rank has a node for each op, launch and kernel, and an edge for each
dependency (replay/graph.py). This module also finds the nodes of the collectives, at
which the graphs of the ranks are connected (joint_replay.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import find_collectives
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.joint_replay import CollectiveArrivals
from fusetui.analysis.replay.apply import apply_changes
from fusetui.analysis.replay.build import LATE_NS, build_graph
from fusetui.analysis.replay.changes import Change, NoMatchError, WrongChangeError
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import measure_residuals
from fusetui.analysis.replay.times import StepEnds, find_step_ends
from fusetui.analysis.replay.whatif import is_certain
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    last_at_or_before,
    reduce_groups,
)
from fusetui.trace.model.columns import Trace

Why = Literal[
    "",
    "not_whole",  # not all ranks are given
    "no_collectives",
    "unmatched",  # not every collective of every rank was matched
    "clocks",  # times of ranks are not compared
    "uncertain",  # clocks are not known well enough
    "steps",  # the ranks do not have the same ones
    "not_all_wait",  # some collectives do not make all of their ranks wait for all
    "on_cpu",  # or are not kernels
    # of much of the time it is not recorded what waits for collectives, or they for
    "not_linked",
    "overlaps",  # or other work of their stream begins before they end
    "not_understood",  # too much of the time of some rank
    "not_replayed",  # without a change, the replay is not the recording
]

NOTES_OF_ONE_RANK = ("other_ranks_unchanged", "waits_scaled")
"""Notes of a replay of one rank alone. They do not hold where all ranks are replayed."""
NO_NODE = 0
"""What `Graph.node_of` has for a row of the trace that has no node."""


class NoAnswerError(Exception):
    """Raised where a job cannot be replayed; `why` has the reason, for users."""

    def __init__(self, why: Why) -> None:
        """Take the reason, one of the words of Why."""
        self.why: Why = why


class RankChange(msgspec.Struct, frozen=True):
    """A change that a user asks about, of one rank or of all."""

    rank: int | None  # None: of all ranks
    text: str  # as the user wrote it
    change: Change


class RankGraph(msgspec.Struct, frozen=True, eq=False):
    """What is needed of the trace of a rank once its graph is built."""

    graph: Graph  # as recorded, but collectives last as long as their transfers
    changed_graph: Graph  # the same with the changes
    ends: StepEnds
    epoch_ns: int  # what has to be added to times of the trace to have ns since 1970
    is_changed: bool  # whether some change applies to this rank
    residual_share: float  # which share of the time of its device is not understood
    is_certain: bool  # nothing in it was inferred, and everything is understood


class JobGraphs(msgspec.Struct, frozen=True, eq=False):
    """The graphs of all ranks of a job, and the collectives that connect them."""

    ranks: tuple[RankGraph, ...]
    arrivals: CollectiveArrivals
    notes: tuple[str, ...]  # see Note

    @property
    def graphs(self) -> list[Graph]:
        """The graph of each rank as it was recorded."""
        return [rank.graph for rank in self.ranks]

    @property
    def changed_graphs(self) -> list[Graph]:
        """The graph of each rank with the changes."""
        return [rank.changed_graph for rank in self.ranks]


class _Changed(msgspec.Struct, frozen=True, eq=False):
    """The graph of a rank with the changes that apply to it."""

    graph: Graph
    applied: frozenset[str]  # the texts of the changes that apply
    notes: tuple[str, ...]  # see Note


def build_graphs(
    facts: JobFacts, changes: Sequence[RankChange], *, cached: bool = False
) -> JobGraphs:
    """Build the graphs of all ranks, with and without changes.

    The trace of each rank is opened, one after the other, so that only one of them is
    in memory.

    Args:
        facts: The facts of the job.
        changes: The changes, of one rank or of all.
        cached: Whether to open traces through the cache.

    Raises:
        NoAnswerError: If the collectives of a trace cannot be replayed.
        WrongChangeError: For a change that changes nothing on any rank.
    """
    arrivals = _prepare_arrivals(facts)
    ranks: list[RankGraph] = []
    notes: list[str] = []
    applied: set[str] = set()
    not_applied: dict[str, NoMatchError] = {}
    for index, summary in enumerate(facts.matched.ranks):
        trace = open_trace(summary.path, cached=cached)
        graph = _build_rank_graph(facts, arrivals, index, trace)
        changes_of_rank = [
            change for change in changes if change.rank in (None, summary.rank)
        ]
        with_changes = _apply_changes(trace, graph, changes_of_rank, not_applied)
        applied |= with_changes.applied
        notes += with_changes.notes
        ranks.append(_collect_rank_graph(trace, graph, with_changes))

    # A change of all ranks has to apply to one of them at least.
    for text in not_applied.keys() - applied:
        raise not_applied[text]

    # Shifts are made small, so that no time of a replay is below 0.
    shift = arrivals.to_common_ns - arrivals.to_common_ns.min()
    distinct_notes = dict.fromkeys(notes)
    return JobGraphs(
        ranks=tuple(ranks),
        arrivals=msgspec.structs.replace(arrivals, to_common_ns=shift),
        notes=tuple(note for note in distinct_notes if note not in NOTES_OF_ONE_RANK),
    )


def _build_rank_graph(
    facts: JobFacts, arrivals: CollectiveArrivals, rank: int, trace: Trace
) -> Graph:
    """Build the graph of a rank, in which collectives take only their transfers.

    Args:
        facts: The facts of the job.
        arrivals: The collectives of all ranks; those of this rank get their nodes, in
            place.
        rank: The index of the rank.
        trace: Its trace.

    Raises:
        NoAnswerError: If the collectives of the rank cannot be replayed.
    """
    recorded = build_graph(trace)
    rows = np.flatnonzero(facts.matched.rank == rank)
    _fill_in_nodes(facts, arrivals, rows, trace, recorded)
    nodes = arrivals.node[rows]
    graph = _keep_only_transfers(recorded, nodes, arrivals.transfer_ns[rows])
    _check_links(trace, graph, nodes)
    return graph


def _prepare_arrivals(facts: JobFacts) -> CollectiveArrivals:
    """Prepare the table of the collectives of a job, before the graphs of its ranks are
    built.

    `_fill_in_nodes` completes them rank by rank. Until then all nodes are NO_NODE, and
    `to_common_ns` leads from the clock of each rank's file to the clock of the job.
    """
    matched = facts.matched
    start = facts.waits.start
    shift_ns = start - matched.start
    last_start = matched.over_ranks(np.maximum, start)
    end = matched.end + shift_ns
    return CollectiveArrivals(
        collective_of_row=matched.collective_of_row,
        rank=matched.rank,
        node=np.full(len(matched.rank), NO_NODE, dtype=np.intp),
        to_common_ns=shift_ns,
        transfer_ns=end - matched.for_each_row(last_start),
    )


def _fill_in_nodes(
    facts: JobFacts,
    arrivals: CollectiveArrivals,
    rows: Rows,
    trace: Trace,
    graph: Graph,
) -> None:
    """Fill in the nodes of the collectives of one rank, in place.

    `to_common_ns` of these rows is changed too: it then leads from the time of the graph
    to ns after the first start of all collectives.

    Args:
        facts: The facts of the job.
        arrivals: The collectives of all ranks, some of whose nodes are not known yet.
        rows: The rows of `arrivals` that are of this rank.
        trace: The trace of the rank.
        graph: Its graph.

    Raises:
        NoAnswerError: If a collective is no kernel, or if the file is not the one that
            was summarized.
    """
    start = facts.waits.start
    first_ns = int(start.min())
    nodes = _find_nodes(trace, graph, facts.matched.row[rows])
    arrivals.node[rows] = nodes
    arrivals.to_common_ns[rows] += graph.origin_ns + trace.epoch_ns - first_ns

    # The graph has to give the starts that the summary has.
    start_by_graph = graph.began[nodes] + arrivals.to_common_ns[rows]
    if (start_by_graph != start[rows] - first_ns).any():
        raise NoAnswerError("not_replayed")


def _keep_only_transfers(graph: Graph, collectives: Rows, transfer_ns: Int64s) -> Graph:
    """Shorten the collectives in the graph of a rank to their transfers.

    As recorded, a collective lasts from the arrival of its own rank on. The wait for
    the other ranks follows from the replay, so only the transfer is kept.

    Args:
        graph: The graph as recorded.
        collectives: The nodes of the collectives.
        transfer_ns: The transfer of each. Below 0 (clocks are wrong) it counts as 0.
    """
    dur = graph.dur.copy()
    dur[collectives] = np.maximum(transfer_ns, 0)
    return msgspec.structs.replace(graph, dur=dur)


def _check_links(trace: Trace, graph: Graph, collectives: Rows) -> None:
    """Check that the replay of the collectives of a rank can be believed.

    Args:
        trace: The trace of the rank.
        graph: Its graph, whose collectives last as long as their transfers.
        collectives: The nodes of the collectives.

    Raises:
        NoAnswerError: If it was not recorded what waits for the collectives, or if
            other work of their stream begins before they end.
    """
    unexplained_ns = _unexplained_ns(graph, collectives)
    if unexplained_ns > MAX_REPLAY_ERROR * int(graph.ended.max()):
        raise NoAnswerError("not_linked")

    # Even without a change, `changed` corrects the edges of overlapping work.
    unchanged, _ = apply_changes(trace, graph, ())
    if not np.array_equal(unchanged.lag, graph.lag):
        raise NoAnswerError("overlaps")


def _apply_changes(
    trace: Trace,
    graph: Graph,
    changes: Sequence[RankChange],
    not_applied: dict[str, NoMatchError],
) -> _Changed:
    """Apply those changes to the graph of a rank that have something to change in it.

    Args:
        trace: The trace of the rank.
        graph: Its graph.
        changes: The changes of this rank, and those of all ranks.
        not_applied: The errors of changes that have nothing to change, by their texts.
            Those of this rank are added in place.
    """
    applied: list[Change] = []
    applied_texts: list[str] = []
    for change_of_rank in changes:
        try:
            apply_changes(trace, graph, [change_of_rank.change])
        except NoMatchError as reason:
            not_applied[change_of_rank.text] = reason
        else:
            applied.append(change_of_rank.change)
            applied_texts.append(change_of_rank.text)
    changed_graph, notes = apply_changes(trace, graph, applied)
    return _Changed(graph=changed_graph, applied=frozenset(applied_texts), notes=notes)


def _collect_rank_graph(
    trace: Trace, graph: Graph, with_changes: _Changed
) -> RankGraph:
    """Collect what is needed of the trace of a rank after it is closed.

    Args:
        trace: The trace.
        graph: Its graph without changes.
        with_changes: Its graph with the changes.
    """
    shares = [device.residual_share for device in measure_residuals(trace)]
    residual_share = max(shares, default=0.0)
    return RankGraph(
        graph=graph,
        changed_graph=with_changes.graph,
        ends=find_step_ends(trace, graph),
        epoch_ns=trace.epoch_ns,
        is_changed=bool(with_changes.applied),
        residual_share=residual_share,
        is_certain=is_certain(trace, residual_share),
    )


def _find_nodes(trace: Trace, graph: Graph, collectives: Rows) -> Rows:
    """Find the nodes of the graph of a rank that stand for some of its collectives.

    Args:
        trace: The trace of the rank.
        graph: Its graph.
        collectives: The indices of the collectives, in the order of issue.

    Raises:
        NoAnswerError: If one of them is no kernel, so that it has no node.
    """
    rows = find_collectives(trace).rows[collectives]
    nodes: Rows = graph.node_of(trace, Node.GPU_TASK)[rows]
    if (nodes == NO_NODE).any():
        raise NoAnswerError("on_cpu")
    return nodes


def _unexplained_ns(graph: Graph, collectives: Rows) -> int:
    """Measure how much of the time around the collectives of a rank is not explained.

    The unexplained delay of a node is by how many ns it began later than the graph
    says. If it was not recorded what a collective waits for, or what waits for it, such
    delays occur there. So two sums are added: the delays of the collectives, and the
    delays of other nodes that begin within LATE_NS after a collective has ended.

    Args:
        graph: The graph of a rank.
        collectives: The nodes of its collectives.

    Returns:
        The sum, in ns.
    """
    delay_ns = graph.residual.max(axis=0)
    nodes = graph.nodes(Node.GPU_TASK, Node.LAUNCH, Node.WAIT)
    late_nodes = nodes[delay_ns[nodes] > LATE_NS]
    others = np.setdiff1d(late_nodes, collectives)

    # The last end of a collective before each of the others begins. A time before all
    # stands for none, so early that nothing follows it.
    before_all = -LATE_NS - 1
    ends = np.append(before_all, np.sort(graph.ended[collectives]))
    began = graph.began[others]
    last_end = ends[last_at_or_before(ends, began)]
    follows_collective = began - last_end <= LATE_NS

    delay_of_collectives = delay_ns[collectives].sum()
    delay_of_others = delay_ns[others[follows_collective]].sum()
    return int(delay_of_collectives + delay_of_others)


def drop_removed_collectives(
    graphs: JobGraphs, *, has_changes_of_one: bool
) -> CollectiveArrivals:
    """Return the collectives that are left after the changes.

    A collective runs on all of its ranks or on none, and its transfer has one length.
    So a change has to remove it on all of its ranks, or to lengthen or shorten it on
    all of them.

    Args:
        graphs: The graphs of all ranks.
        has_changes_of_one: Whether some changes are of one rank only.

    Raises:
        WrongChangeError: For a change of a collective on some of its ranks only.
    """
    arrivals = graphs.arrivals
    is_removed = np.zeros(len(arrivals.node), dtype=np.bool_)
    keeps_length = np.zeros(len(arrivals.node), dtype=np.bool_)
    for index, rank in enumerate(graphs.ranks):
        is_of_rank = arrivals.rank == index
        node = arrivals.node[is_of_rank]
        is_removed[is_of_rank] = rank.changed_graph.is_removed[node]

        # A transfer of 0 ns is as long after every change, which says nothing.
        recorded_ns = rank.graph.dur[node]
        is_as_long = rank.changed_graph.dur[node] == recorded_ns
        keeps_length[is_of_rank] = is_as_long & (recorded_ns > 0)

    has_new_length = ~keeps_length & (arrivals.transfer_ns > 0)
    is_removed_elsewhere = _flag_whole_collectives(arrivals, is_removed)
    has_new_length_elsewhere = _flag_whole_collectives(arrivals, has_new_length)
    is_partly_removed = (is_removed_elsewhere & ~is_removed).any()
    is_partly_changed = (has_new_length_elsewhere & keeps_length).any()

    # A change of all ranks may match the names of a collective on some ranks only. Its
    # transfer is then changed there, as it was asked for.
    if is_partly_removed or (has_changes_of_one and is_partly_changed):
        raise WrongChangeError(
            "A collective cannot be changed on only some of its ranks."
        )
    return arrivals.take(~is_removed)


def _flag_whole_collectives(arrivals: CollectiveArrivals, flags: Flags) -> Flags:
    """Mark the rows of each collective of which some row is flagged.

    E.g. if the flag of one rank is set, the result has those of all ranks that take
    part in the same collective.

    Args:
        arrivals: The collectives, one row for each rank that takes part.
        flags: One flag per row.
    """
    flag_of_collective = reduce_groups(np.logical_or, flags, arrivals.first_rows)
    return np.asarray(flag_of_collective[arrivals.collective_of_row])
