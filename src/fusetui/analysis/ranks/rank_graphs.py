"""Builds the graphs of all ranks of a job, with changes and without.

It also finds the nodes of the collectives in which the ranks meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import collectives_of
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.joint_replay import CollectiveArrivals
from fusetui.analysis.replay.apply import changed
from fusetui.analysis.replay.build import LATE_NS, graph_of
from fusetui.analysis.replay.changes import Change, NoMatchError, WrongChangeError
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import residuals_of
from fusetui.analysis.replay.times import StepEnds, step_ends
from fusetui.analysis.replay.whatif import is_certain
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Flags, Int64s, Rows
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
"""Notes that do not hold where all ranks are replayed."""


class NoAnswerError(Exception):
    """There is no answer, for a reason."""

    def __init__(self, why: Why) -> None:
        """Take the reason, one of the words of Why."""
        self.why: Why = why


class RankChange(msgspec.Struct, frozen=True):
    """A change of one rank, or of all."""

    rank: int | None  # None: of all
    text: str
    change: Change


class RankGraph(msgspec.Struct, frozen=True, eq=False):
    """What is kept of the trace of a rank."""

    graph: Graph  # whose collectives last as long as their transfers
    changed_graph: Graph
    ends: StepEnds
    epoch_ns: int
    is_changed: bool
    residual_share: float
    is_certain: bool  # nothing in it was inferred, or is not understood


class JobGraphs(msgspec.Struct, frozen=True, eq=False):
    """The graphs of all ranks of a job, and the collectives in which they meet."""

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
    applied: frozenset[str]  # texts of changes
    notes: tuple[str, ...]


def graphs_of(
    facts: JobFacts, changes: Sequence[RankChange], *, cached: bool = False
) -> JobGraphs:
    """Build the graphs of all ranks, with and without changes.

    The trace of each rank is opened, one after the other.

    Args:
        facts: The facts of the job.
        changes: The changes.
        cached: Whether to open traces through the cache.

    Raises:
        NoAnswerError: If the collectives of a trace cannot be replayed.
        WrongChangeError: For a change that changes nothing on any rank.
    """
    matched = facts.matched
    arrivals = _arrivals_without_nodes(facts)
    ranks: list[RankGraph] = []
    notes: list[str] = []
    applied: set[str] = set()
    missing: dict[str, NoMatchError] = {}
    for index, summary in enumerate(matched.ranks):
        trace = open_trace(summary.path, cached=cached)
        recorded = graph_of(trace)
        rows = np.flatnonzero(matched.rank == index)
        _fill_in_nodes(facts, arrivals, rows, trace, recorded)
        nodes = arrivals.node[rows]
        graph = _with_transfers(recorded, nodes, arrivals.transfer_ns[rows])
        _check_links(trace, graph, nodes)

        changes_of_rank = [
            change for change in changes if change.rank in (None, summary.rank)
        ]
        with_changes = _changed(trace, graph, changes_of_rank, missing)
        applied |= with_changes.applied
        notes += with_changes.notes
        ranks.append(_rank_graph(trace, graph, with_changes))

    for text in missing.keys() - applied:
        raise missing[text]
    shift = arrivals.to_common_ns - arrivals.to_common_ns.min()
    distinct_notes = dict.fromkeys(notes)
    return JobGraphs(
        ranks=tuple(ranks),
        arrivals=msgspec.structs.replace(arrivals, to_common_ns=shift),
        notes=tuple(note for note in distinct_notes if note not in NOTES_OF_ONE_RANK),
    )


def _arrivals_without_nodes(facts: JobFacts) -> CollectiveArrivals:
    """Return the arrivals of a job before its graphs are known.

    All nodes are 0, and `to_common_ns` leads from the clock of each rank's file to the clock
    of the job.
    """
    matched = facts.matched
    start = facts.waits.start
    shift = start - matched.start
    last_start = np.maximum.reduceat(start, matched.first[:-1])
    end = matched.end + shift
    return CollectiveArrivals(
        collective_of_row=matched.collective_of_row,
        rank=matched.rank,
        node=np.zeros(len(matched.rank), dtype=np.intp),
        to_common_ns=shift,
        transfer_ns=end - np.repeat(last_start, matched.counts),
    )


def _fill_in_nodes(
    facts: JobFacts,
    arrivals: CollectiveArrivals,
    rows: Rows,
    trace: Trace,
    graph: Graph,
) -> None:
    """Fill in the nodes of a rank's collectives, in place.

    Its `to_common_ns` is changed too: it then leads from the time of the graph to ns after the
    first start of all collectives.

    Args:
        facts: The facts of the job.
        arrivals: The arrivals to fill in.
        rows: The rows of `arrivals` that are of this rank.
        trace: The trace of the rank.
        graph: Its graph.

    Raises:
        NoAnswerError: If a collective is no kernel, or if the file is not the one that
            was summarized.
    """
    start = facts.waits.start
    first_ns = int(start.min())
    nodes = _nodes_of_collectives(trace, graph, facts.matched.row[rows])
    arrivals.node[rows] = nodes
    arrivals.to_common_ns[rows] += graph.origin_ns + trace.epoch_ns - first_ns

    common_start = graph.began[nodes] + arrivals.to_common_ns[rows]
    if (common_start != start[rows] - first_ns).any():
        raise NoAnswerError("not_replayed")


def _with_transfers(graph: Graph, collectives: Rows, transfer_ns: Int64s) -> Graph:
    """Return the graph of a rank whose collectives last as long as their transfers.

    Args:
        graph: The graph.
        collectives: The nodes of the collectives.
        transfer_ns: The transfer of each; below 0 counts as 0.
    """
    dur = graph.dur.copy()
    dur[collectives] = np.maximum(transfer_ns, 0)
    return msgspec.structs.replace(graph, dur=dur)


def _check_links(trace: Trace, graph: Graph, collectives: Rows) -> None:
    """Check that the replay of a rank's collectives can be believed.

    Raises:
        NoAnswerError: If it was not recorded what waits for the collectives, or if
            other work of their stream begins before they end.
    """
    unexplained_ns = _unexplained_ns(graph, collectives)
    if unexplained_ns > MAX_REPLAY_ERROR * int(graph.ended.max()):
        raise NoAnswerError("not_linked")
    unchanged, _ = changed(trace, graph, ())
    if not np.array_equal(unchanged.lag, graph.lag):
        raise NoAnswerError("overlaps")


def _changed(
    trace: Trace,
    graph: Graph,
    changes: Sequence[RankChange],
    missing: dict[str, NoMatchError],
) -> _Changed:
    """Apply the changes that have something to change in the graph of a rank.

    Args:
        trace: The trace of the rank.
        graph: Its graph.
        changes: The changes.
        missing: Where changes without a match are noted by their texts, in place.
    """
    applied: list[Change] = []
    applied_texts: list[str] = []
    for change_of_rank in changes:
        try:
            changed(trace, graph, [change_of_rank.change])
        except NoMatchError as reason:
            missing[change_of_rank.text] = reason
        else:
            applied.append(change_of_rank.change)
            applied_texts.append(change_of_rank.text)
    changed_graph, notes = changed(trace, graph, applied)
    return _Changed(graph=changed_graph, applied=frozenset(applied_texts), notes=notes)


def _rank_graph(trace: Trace, graph: Graph, with_changes: _Changed) -> RankGraph:
    """Return what is kept of the trace of a rank; `graph` is without changes."""
    shares = [device.residual_share for device in residuals_of(trace)]
    residual_share = max(shares, default=0.0)
    return RankGraph(
        graph=graph,
        changed_graph=with_changes.graph,
        ends=step_ends(trace, graph),
        epoch_ns=trace.epoch_ns,
        is_changed=bool(with_changes.applied),
        residual_share=residual_share,
        is_certain=is_certain(trace, residual_share),
    )


def _nodes_of_collectives(trace: Trace, graph: Graph, collectives: Rows) -> Rows:
    """Return the nodes of some collectives of a rank.

    Args:
        trace: The trace of the rank.
        graph: Its graph.
        collectives: Their indices in the order of issue.

    Raises:
        NoAnswerError: If one of them is no kernel.
    """
    rows = collectives_of(trace).rows[collectives]
    nodes: Rows = graph.node_of(trace, Node.ITEM)[rows]
    all_have_nodes = nodes.all()  # 0 stands for no node
    if not all_have_nodes:
        raise NoAnswerError("on_cpu")
    return nodes


def _unexplained_ns(graph: Graph, collectives: Rows) -> int:
    """Measure how much of the time around collectives is not explained.

    It is by how many ns in all the collectives begin later than is understood, plus the
    same of everything that begins within LATE_NS after one has ended.

    Args:
        graph: The graph of a rank.
        collectives: The nodes of its collectives.
    """
    late_ns = graph.residual.max(axis=0)
    nodes = graph.nodes(Node.ITEM, Node.LAUNCH, Node.WAIT)
    late_nodes = nodes[late_ns[nodes] > LATE_NS]
    others = np.setdiff1d(late_nodes, collectives)

    # The last end of a collective before each of the others begins. A time before all
    # stands for none, so early that nothing follows it.
    before_all = -LATE_NS - 1
    ends = np.append(before_all, np.sort(graph.ended[collectives]))
    began = graph.began[others]
    last_end = ends[np.searchsorted(ends, began, side="right") - 1]
    follows_collective = began - last_end <= LATE_NS

    late_of_collectives = late_ns[collectives].sum()
    late_of_others = late_ns[others[follows_collective]].sum()
    return int(late_of_collectives + late_of_others)


def arrivals_after_changes(
    graphs: JobGraphs, *, has_changes_of_one: bool
) -> CollectiveArrivals:
    """Return the arrivals that the changes leave.

    Args:
        graphs: The graphs of all ranks.
        has_changes_of_one: Whether some changes are of one rank only.

    Raises:
        WrongChangeError: For a change of a collective on some of its ranks only.
    """
    arrivals = graphs.arrivals
    is_gone = np.zeros(len(arrivals.node), dtype=np.bool_)
    is_same = np.zeros(len(arrivals.node), dtype=np.bool_)
    for index, rank in enumerate(graphs.ranks):
        is_of_rank = arrivals.rank == index
        node = arrivals.node[is_of_rank]
        is_gone[is_of_rank] = rank.changed_graph.gone[node]
        recorded_ns = rank.graph.dur[node]
        is_as_long = rank.changed_graph.dur[node] == recorded_ns
        is_same[is_of_rank] = is_as_long & (recorded_ns > 0)

    is_changed = ~is_same & (arrivals.transfer_ns > 0)
    is_partly_gone = (_on_any_rank(arrivals, is_gone) & ~is_gone).any()
    is_partly_changed = (_on_any_rank(arrivals, is_changed) & is_same).any()
    if is_partly_gone or (has_changes_of_one and is_partly_changed):
        raise WrongChangeError(
            "A collective cannot be changed on some of its ranks alone."
        )
    return arrivals.take(~is_gone)


def _on_any_rank(arrivals: CollectiveArrivals, flags: Flags) -> Flags:
    """Set the flag of each row if it is set on any rank of its collective."""
    flag_of_collective = np.logical_or.reduceat(flags, arrivals.first_rows)
    return np.asarray(flag_of_collective[arrivals.collective_of_row])
