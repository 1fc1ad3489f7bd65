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
from fusetui.analysis.ranks.matching import Matched
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
        facts: The ranks of the job, and what was computed from them.
        changes: The changes, of one rank or of all.
        cached: Whether to open traces through the cache.

    Raises:
        NoAnswerError: If the collectives of a trace cannot be replayed.
        WrongChangeError: For a change that changes nothing on any rank.
    """
    arrivals = _prepare_arrivals(facts.matched, facts.waits.start)
    rank_graphs: list[RankGraph] = []
    notes: dict[str, None] = {}  # an ordered set
    applied: set[str] = set()
    error_of_change: dict[str, NoMatchError] = {}
    for index, summary in enumerate(facts.matched.ranks):
        trace = open_trace(summary.path, cached=cached)
        graph = _build_rank_graph(facts, arrivals, index, trace)
        # Those without a rank are of all ranks.
        changes_of_rank = [
            change for change in changes if change.rank in (None, summary.rank)
        ]
        with_changes = _apply_changes(trace, graph, changes_of_rank, error_of_change)
        applied |= with_changes.applied
        notes |= dict.fromkeys(with_changes.notes)
        rank_graphs.append(_collect_rank_graph(trace, graph, with_changes))

    # A change of all ranks has to apply to one of them at least.
    for change_text, error in error_of_change.items():
        if change_text not in applied:
            raise error

    # Shifts are made small, so that no time of a replay is below 0.
    shift = arrivals.to_common_ns - arrivals.to_common_ns.min()
    return JobGraphs(
        ranks=tuple(rank_graphs),
        arrivals=msgspec.structs.replace(arrivals, to_common_ns=shift),
        notes=tuple(note for note in notes if note not in NOTES_OF_ONE_RANK),
    )


def _build_rank_graph(
    facts: JobFacts, arrivals: CollectiveArrivals, rank: int, trace: Trace
) -> Graph:
    """Build the graph of a rank, in which collectives take only their transfers.

    Args:
        facts: The ranks of the job, and what was computed from them.
        arrivals: The collectives of all ranks; those of this rank get their nodes, in
            place.
        rank: The index of the rank.
        trace: Its trace.

    Raises:
        NoAnswerError: If the collectives of the rank cannot be replayed.
    """
    recorded = build_graph(trace)
    rows = np.flatnonzero(facts.matched.rank == rank)
    nodes = _find_nodes(trace, recorded, facts.matched.row[rows])
    arrivals.node[rows] = nodes

    # Times are counted from the first start of all. Those of a graph count from its
    # origin, and those of a trace from its epoch.
    common_start = facts.waits.start
    first_start = int(common_start.min())
    arrivals.to_common_ns[rows] += recorded.origin_ns + trace.epoch_ns - first_start

    # If the file is the one that was summarized, both give the same starts.
    start_by_graph = recorded.began[nodes] + arrivals.to_common_ns[rows]
    start_by_summary = common_start[rows] - first_start
    if not np.array_equal(start_by_graph, start_by_summary):
        raise NoAnswerError("not_replayed")

    graph = _keep_only_transfers(recorded, nodes, arrivals.transfer_ns[rows])
    _check_links(trace, graph, nodes)
    return graph


def _prepare_arrivals(matched: Matched, common_start: Int64s) -> CollectiveArrivals:
    """Prepare the table of the collectives of a job, before the graphs of its ranks are
    built.

    `_build_rank_graph` completes them rank by rank. Until then all nodes are NO_NODE,
    and `to_common_ns` leads from the clock of each rank's file to the clock of the job.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        common_start: The start of each row on the clock of the job.
    """
    shift_ns = common_start - matched.start
    common_end = matched.end + shift_ns
    last_start_of_collective = matched.over_ranks(np.maximum, common_start)
    last_start = matched.for_each_row(last_start_of_collective)
    return CollectiveArrivals(
        collective_of_row=matched.collective_of_row,
        rank=matched.rank,
        node=np.full(len(matched.rank), NO_NODE, dtype=np.intp),
        to_common_ns=shift_ns,
        transfer_ns=common_end - last_start,
    )


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
    recording_ns = int(graph.ended.max())
    if _measure_unexplained_ns(graph, collectives) > MAX_REPLAY_ERROR * recording_ns:
        raise NoAnswerError("not_linked")

    # Even without a change, `apply_changes` corrects the edges of overlapping work.
    unchanged, _ = apply_changes(trace, graph, ())
    if not np.array_equal(unchanged.lag, graph.lag):
        raise NoAnswerError("overlaps")


def _apply_changes(
    trace: Trace,
    graph: Graph,
    changes: Sequence[RankChange],
    error_of_change: dict[str, NoMatchError],
) -> _Changed:
    """Apply those changes to the graph of a rank that have something to change in it.

    Args:
        trace: The trace of the rank.
        graph: Its graph.
        changes: The changes of this rank, and those of all ranks.
        error_of_change: The errors of changes that have nothing to change, by their
            texts. Those of this rank are added in place.
    """
    applied: list[RankChange] = []
    for change in changes:
        try:
            apply_changes(trace, graph, [change.change])
        except NoMatchError as error:
            error_of_change[change.text] = error
        else:
            applied.append(change)

    changed_graph, notes = apply_changes(
        trace, graph, [change.change for change in applied]
    )
    return _Changed(
        graph=changed_graph,
        applied=frozenset(change.text for change in applied),
        notes=notes,
    )


def _collect_rank_graph(
    trace: Trace, graph: Graph, with_changes: _Changed
) -> RankGraph:
    """Collect what is needed of the trace of a rank after it is closed.

    Args:
        trace: The trace.
        graph: Its graph without changes.
        with_changes: Its graph with the changes.
    """
    residuals = measure_residuals(trace)
    residual_share = max((device.residual_share for device in residuals), default=0.0)
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

    Returns:
        A node for each of `collectives`.

    Raises:
        NoAnswerError: If one of them is no kernel, so that it has no node.
    """
    trace_rows = find_collectives(trace).rows[collectives]
    node_of_trace_row = graph.node_of(trace, Node.GPU_TASK)
    nodes: Rows = node_of_trace_row[trace_rows]
    if (nodes == NO_NODE).any():
        raise NoAnswerError("on_cpu")
    return nodes


def _measure_unexplained_ns(graph: Graph, collectives: Rows) -> int:
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
    is_late = delay_ns[nodes] > LATE_NS
    late_nodes = nodes[is_late]
    late_others = np.setdiff1d(late_nodes, collectives)

    # Count the collectives that ended in the last LATE_NS before each of them begins.
    ends = np.sort(graph.ended[collectives])
    began = graph.began[late_others]
    ended_by_then = np.searchsorted(ends, began, side="right")
    ended_long_before = np.searchsorted(ends, began - LATE_NS, side="left")
    follows_collective = ended_by_then > ended_long_before

    following_nodes = late_others[follows_collective]
    delay_of_collectives = delay_ns[collectives].sum()
    delay_of_others = delay_ns[following_nodes].sum()
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
    # For each rank's part in a collective: whether a change removes it there, and
    # whether it lasts as long as before.
    arrivals = graphs.arrivals
    is_removed = np.zeros(len(arrivals.node), dtype=np.bool_)
    keeps_length = np.zeros(len(arrivals.node), dtype=np.bool_)
    for index, rank in enumerate(graphs.ranks):
        is_of_rank = arrivals.rank == index
        node = arrivals.node[is_of_rank]
        is_removed[is_of_rank] = rank.changed_graph.is_removed[node]
        length_before = rank.graph.dur[node]
        length_after = rank.changed_graph.dur[node]
        # A transfer of 0 ns is as long after every change, which says nothing.
        keeps_length[is_of_rank] = (length_before > 0) & (length_after == length_before)

    has_new_length = (arrivals.transfer_ns > 0) & ~keeps_length
    is_partly_removed = _differs_between_ranks(arrivals, is_removed, ~is_removed)
    is_partly_changed = _differs_between_ranks(arrivals, has_new_length, keeps_length)

    # A change of all ranks may match the names of a collective on some ranks only. Its
    # transfer is then changed there, as it was asked for.
    if is_partly_removed or (has_changes_of_one and is_partly_changed):
        raise WrongChangeError(
            "A collective cannot be changed on only some of its ranks."
        )
    return arrivals.take(~is_removed)


def _differs_between_ranks(
    arrivals: CollectiveArrivals, is_so: Flags, is_not_so: Flags
) -> bool:
    """Return whether something is so on some rank of a collective, but not on another.

    Args:
        arrivals: The collectives, one row for each rank that takes part.
        is_so: One flag per row.
        is_not_so: One flag per row. Neither flag may be set, if it cannot be told.
    """
    first_rows = arrivals.first_rows
    is_so_somewhere = reduce_groups(np.logical_or, is_so, first_rows)
    is_not_so_somewhere = reduce_groups(np.logical_or, is_not_so, first_rows)
    return bool((is_so_somewhere & is_not_so_somewhere).any())
