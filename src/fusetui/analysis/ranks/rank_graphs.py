"""The graphs of the traces of a job, with changes and without, and how their
collectives meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import collectives_of
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.meeting import Meetings
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
    """Why there is no answer."""

    def __init__(self, why: Why) -> None:
        """`why`: one of the words of Why."""
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
    """The graphs of all ranks of a job."""

    ranks: tuple[RankGraph, ...]
    meetings: Meetings
    notes: tuple[str, ...]  # see Note

    @property
    def graphs(self) -> list[Graph]:
        """As they were recorded."""
        return [rank.graph for rank in self.ranks]

    @property
    def changed_graphs(self) -> list[Graph]:
        """With the changes."""
        return [rank.changed_graph for rank in self.ranks]


class _Changed(msgspec.Struct, frozen=True, eq=False):
    """The graph of a rank with those changes that have something to change there."""

    graph: Graph
    applied: frozenset[str]  # texts of changes
    notes: tuple[str, ...]


def graphs_of(
    facts: JobFacts, changes: Sequence[RankChange], *, cached: bool = False
) -> JobGraphs:
    """The graphs of all ranks with and without the changes, and how their collectives
    meet. The trace of each rank is read, one after the other. Raises NoAnswerError, and
    WrongChangeError for a change that changes nothing on any rank."""
    matched = facts.matched
    meetings = _unplaced_meetings(facts)
    ranks: list[RankGraph] = []
    notes: list[str] = []
    applied: set[str] = set()
    missing: dict[str, NoMatchError] = {}
    for index, summary in enumerate(matched.ranks):
        trace = open_trace(summary.path, cached=cached)
        recorded = graph_of(trace)
        rows = np.flatnonzero(matched.rank == index)
        _place_meetings(facts, meetings, rows, trace, recorded)
        nodes = meetings.node[rows]
        graph = _with_transfers(recorded, nodes, meetings.transfer[rows])
        _check_links(trace, graph, nodes)
        of_rank = [change for change in changes if change.rank in (None, summary.rank)]
        with_changes = _changed(trace, graph, of_rank, missing)
        applied |= with_changes.applied
        notes += with_changes.notes
        ranks.append(_rank_graph(trace, graph, with_changes))
    for text in missing.keys() - applied:
        raise missing[text]
    shift = meetings.shift - meetings.shift.min()
    notes_of_job = dict.fromkeys(notes)
    return JobGraphs(
        ranks=tuple(ranks),
        meetings=msgspec.structs.replace(meetings, shift=shift),
        notes=tuple(note for note in notes_of_job if note not in NOTES_OF_ONE_RANK),
    )


def _unplaced_meetings(facts: JobFacts) -> Meetings:
    """The meetings of a job before its graphs are known: nodes are 0, and `shift` is
    from the clock of each rank's file to the clock of the job."""
    matched = facts.matched
    start = facts.waits.start
    shift = start - matched.start
    last_start = np.maximum.reduceat(start, matched.first[:-1])
    end = matched.end + shift
    return Meetings(
        of_row=matched.of_row,
        rank=matched.rank,
        node=np.zeros(len(matched.rank), dtype=np.intp),
        shift=shift,
        transfer=end - np.repeat(last_start, matched.counts),
    )


def _place_meetings(
    facts: JobFacts, meetings: Meetings, rows: Rows, trace: Trace, graph: Graph
) -> None:
    """Writes the nodes of a rank into its rows of `meetings`, in place, and makes
    `shift` there count from the time of its graph to ns after the first start of all
    collectives. Raises NoAnswerError if a collective is no kernel, or if the file is
    another one than was summarized."""
    start = facts.waits.start
    first_ns = int(start.min())
    nodes = _nodes_of_collectives(trace, graph, facts.matched.row[rows])
    meetings.node[rows] = nodes
    meetings.shift[rows] += graph.origin_ns + trace.epoch_ns - first_ns
    common_start = graph.began[nodes] + meetings.shift[rows]
    if (common_start != start[rows] - first_ns).any():
        raise NoAnswerError("not_replayed")


def _with_transfers(graph: Graph, collectives: Rows, transfer_ns: Int64s) -> Graph:
    """The graph of a rank with collectives (nodes) that last as long as their
    transfers, at least 0."""
    dur = graph.dur.copy()
    dur[collectives] = np.maximum(transfer_ns, 0)
    return msgspec.structs.replace(graph, dur=dur)


def _check_links(trace: Trace, graph: Graph, collectives: Rows) -> None:
    """Raises NoAnswerError where it is not recorded what waits for the collectives of a
    rank, or where other work of their stream begins before they end."""
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
    """The graph of a rank with those of the changes that have something to change
    there. The others are added to `missing`, in place, by their texts."""
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
    """What is kept of the trace of a rank; `graph` is without changes."""
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


def _nodes_of_collectives(trace: Trace, graph: Graph, places: Rows) -> Rows:
    """The nodes of the collectives of a rank at these places in the order of issue.
    Raises NoAnswerError if one is no kernel."""
    rows = collectives_of(trace).rows[places]
    nodes: Rows = graph.node_of(trace, Node.ITEM)[rows]
    if not nodes.all():  # 0: the row has no node
        raise NoAnswerError("on_cpu")
    return nodes


def _unexplained_ns(graph: Graph, collectives: Rows) -> int:
    """By how many ns in all collectives begin later than is understood, and so does
    what begins as one ends, at most LATE_NS after it. `collectives`: nodes."""
    late_ns = graph.residual.max(axis=0)
    nodes = graph.nodes(Node.ITEM, Node.LAUNCH, Node.WAIT)
    late_nodes = nodes[late_ns[nodes] > LATE_NS]
    others = np.setdiff1d(late_nodes, collectives)
    before_all = -LATE_NS - 1  # so long before the begin that nothing follows it
    ends = np.append(before_all, np.sort(graph.ended[collectives]))
    began = graph.began[others]
    last_end = ends[np.searchsorted(ends, began, side="right") - 1]
    follows = began - last_end <= LATE_NS
    of_collectives = late_ns[collectives].sum()
    of_others = late_ns[others[follows]].sum()
    return int(of_collectives + of_others)


def remaining_meetings(graphs: JobGraphs, *, has_changes_of_one: bool) -> Meetings:
    """The meetings that changes do not take out. Raises WrongChangeError for a change
    of a collective on some of its ranks. `has_changes_of_one`: some changes are of one
    rank."""
    meetings = graphs.meetings
    is_gone = np.zeros(len(meetings.node), dtype=np.bool_)
    is_kept = np.zeros(len(meetings.node), dtype=np.bool_)
    for index, rank in enumerate(graphs.ranks):
        of_rank = meetings.rank == index
        node = meetings.node[of_rank]
        is_gone[of_rank] = rank.changed_graph.gone[node]
        recorded_ns = rank.graph.dur[node]
        is_same = rank.changed_graph.dur[node] == recorded_ns
        is_kept[of_rank] = is_same & (recorded_ns > 0)
    gone_somewhere = _on_any_rank(meetings, is_gone)
    is_changed = ~is_kept & (meetings.transfer > 0)
    changed_somewhere = _on_any_rank(meetings, is_changed)
    is_partly_gone = (gone_somewhere & ~is_gone).any()
    is_partly_changed = (changed_somewhere & is_kept).any()
    if is_partly_gone or (has_changes_of_one and is_partly_changed):
        raise WrongChangeError(
            "A collective cannot be changed on some of its ranks alone."
        )
    return meetings.take(~is_gone)


def _on_any_rank(meetings: Meetings, flags: Flags) -> Flags:
    """For each row whether the flag is set on any rank of its collective."""
    of_collective = np.logical_or.reduceat(flags, meetings.first)
    return np.asarray(of_collective[meetings.of_row])
