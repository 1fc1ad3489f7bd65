"""What is kept of the trace of each rank of a job for a replay with changes, and the graphs of all
ranks as one, in which collectives wait for their last rank.

A collective is two nodes of each rank: its arrival, which waits for what the kernel waits for, and
its transfer, which begins when all have arrived. All times are on one clock, to which those of each
rank are shifted; where its clock drifts, what goes to others and comes from them has the rest as a
lag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import collectives_of
from fusetui.analysis.ranks.stragglers import CLOSE, JobFacts
from fusetui.analysis.replay.apply import changed, is_range
from fusetui.analysis.replay.build import LATE_NS, graph_of
from fusetui.analysis.replay.changes import Change, NothingLikeIt, WrongChange, parse_change
from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times, in_order
from fusetui.analysis.replay.path import residuals_of
from fusetui.analysis.replay.replay import StepEnds, replay, route_to, step_ends
from fusetui.analysis.replay.whatif import is_certain
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Int64s, Rows, ordinals
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import once


class Meetings(NamedTuple):
    """The collectives; arrays of shape [rows], those of one collective are neighbors."""

    of_row: Rows
    rank: Rows  # the index of a graph
    node: Rows  # in that
    shift: Int64s  # from the time of that graph, when it arrives, to the clock that all share
    transfer: Int64s  # from the last arrival to its end; below 0 by as much as clocks are wrong

    @property
    def first(self) -> Rows:
        """Where each collective begins, [collectives]."""
        return np.flatnonzero(np.diff(self.of_row, prepend=-1))

    def last(self, arrived: Int64s) -> Int64s:
        """For each row when the last rank of its collective arrives, on the clock that all share;
        `arrived`: when each does, on its own."""
        if not len(arrived):
            return arrived
        first = self.first
        last = np.maximum.reduceat(arrived + self.shift, first)
        return np.repeat(last, np.diff(np.append(first, len(arrived))))


class ChangedTimes(NamedTuple):
    """When everything would happen; `arrived`: of each row of Meetings, on its rank's clock."""

    times: tuple[Times, ...]
    arrived: Int64s
    residual_share: float  # of the critical path to the last end: what is not understood


class _Places(NamedTuple):
    """Where the nodes of the graphs are among those of all, and those that are added."""

    begins: Rows  # of each graph but for its origin; shape [ranks + 1]
    item: Rows  # of each row of Meetings, as the following
    arrival: Rows
    joined: Rows  # the rows but for the first one of each collective
    join: Rows  # of each of these: it and those before it have arrived

    def of(self, rank: int) -> Rows:
        return np.append(0, np.arange(self.begins[rank], self.begins[rank + 1]))


def replayed(graphs: Sequence[Graph], meetings: Meetings) -> ChangedTimes | None:
    """All ranks at once; None if their collectives wait for each other in a circle. The graphs are
    such in which collectives last as long as their transfers."""
    places, usual = _places(graphs, meetings), np.zeros(len(graphs), dtype=np.int64)
    usual[meetings.rank] = meetings.shift
    whole = _joined(graphs, meetings, places, usual)
    order = in_order(whole.began, whole.ended, np.arange(float(len(whole))), whole.source)
    rank_of = np.empty(len(order), dtype=np.int32)
    rank_of[order] = np.arange(len(order))
    sorted_ = {
        name: getattr(whole, name)[..., order]
        for name in ("kind", "lag", "residual", "dur", "unexplained", "gone")
    }
    source = rank_of[whole.source[:, order]]
    if (source >= np.arange(len(order)))[:, 1:].any():
        return None
    whole = msgspec.structs.replace(whole, source=source, **sorted_)
    found = replay(whole)
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


def _joined(graphs: Sequence[Graph], meetings: Meetings, places: _Places, usual: Int64s) -> Graph:
    """All nodes, in no order; `usual`: from the time of each graph to the clock that all share."""
    _, item, arrival, joined, join = places

    def column(name: str) -> Int64s:
        parts = [getattr(graph, name)[..., 1:] for graph in graphs]
        head = getattr(graphs[0], name)[..., :1]
        rest = np.zeros((*head.shape[:-1], len(arrival) + len(joined)), dtype=head.dtype)
        return np.concatenate((head, *parts, rest), axis=-1)

    names = ("kind", "source", "lag", "residual", "dur", "unexplained", "gone", "began", "lasted")
    new = {name: column(name) for name in names}
    source, lag, began, lasted = (new[name] for name in ("source", "lag", "began", "lasted"))
    for rank, (graph, bounds) in enumerate(zip(graphs, pairwise(places.begins), strict=True)):
        own = slice(*bounds)
        source[:, own] = places.of(rank)[graph.source[:, 1:]]
        began[own] += usual[rank]
        lag[:, own] += np.where((source[:, own] == 0) & (lag[:, own] != NEVER), usual[rank], 0)
    for name in ("source", "lag", "residual"):
        new[name][:, arrival] = new[name][:, item]
    new["residual"][:, item] = 0
    drift = meetings.shift - usual[meetings.rank]
    last = join[np.searchsorted(meetings.of_row[joined], meetings.of_row)]
    number = ordinals(meetings.of_row[joined])
    last += np.bincount(meetings.of_row[joined])[meetings.of_row] - 1
    source[:, item] = arrival, last
    lag[:, item] = np.zeros(len(item)), np.minimum(meetings.transfer, 0) - drift
    source[:, join] = np.where(number == 0, arrival[joined - 1], join - 1), arrival[joined]
    lag[:, join] = np.where(number == 0, drift[joined - 1], 0), drift[joined]
    new["kind"][np.concatenate((arrival, join))] = Node.JOIN
    began[arrival], ends = began[item], began[item] + lasted[item]
    latest = meetings.last(began[arrival] - meetings.shift)
    began[join], began[item] = latest[joined], latest
    lasted[item] = np.maximum(ends - latest, 0)
    return msgspec.structs.replace(graphs[0], **new)


OF_ONE = re.compile(r"\s*(\d+)\s*:(.+)", re.DOTALL)

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
    "not_linked",  # of much of the time it is not recorded what waits for collectives, or they for
    "overlaps",  # or other work of their stream begins before they end
    "not_understood",  # too much of the time of some rank
    "not_replayed",  # without a change, the replay is not the recording
]


class Asked(NamedTuple):
    """A change of one rank, or of all (None)."""

    rank: int | None
    text: str
    change: Change


class RankGraph(NamedTuple):
    """What is kept of the trace of a rank."""

    graph: Graph  # whose collectives last as long as their transfers
    made: Graph  # with changes
    ends: StepEnds
    epoch_ns: int
    is_changed: bool
    residual_share: float
    is_certain: bool  # nothing in it was inferred, or is not understood


class Abstain(Exception):  # noqa: N818
    """Why there is no answer."""

    def __init__(self, why: Why) -> None:
        self.why: Why = why


def asked_of(texts: Sequence[str], ranks: Sequence[int]) -> tuple[Asked, ...]:
    """`2:loader` is of rank 2 alone. Raises WrongChange."""
    found = []
    for text in texts:
        one = OF_ONE.fullmatch(text)
        rank = int(one[1]) if one else None
        if rank is not None and rank not in ranks:
            raise NothingLikeIt(f"There is no rank {rank}.")
        found.append(Asked(rank, text, parse_change(one[2] if one else text)))
    if is_range([each.change for each in found]):
        raise WrongChange("What another device would be worth to a job is not told: it is a range.")
    return tuple(found)


def parts_of(
    facts: JobFacts, asked: Sequence[Asked], cached: bool = False, *, loose: bool = False
) -> tuple[list[RankGraph], Meetings, tuple[str, ...]]:
    """Of each rank in turn, of whose trace no more is kept; how they meet; and notes. `loose`: also
    where it is not recorded what waits for what. Raises Abstain and WrongChange."""
    matched, waits = facts.matched, facts.waits
    shift, node = waits.start - matched.start, np.zeros(len(matched.rank), dtype=np.intp)
    zero = int(waits.start.min())
    last = np.maximum.reduceat(waits.start, matched.first[:-1])
    transfer = matched.end + shift - np.repeat(last, matched.counts)
    parts, notes, known = [], list[str](), set[str]()
    missing: dict[str, NothingLikeIt] = {}
    for place, one in enumerate(matched.ranks):
        trace = open_trace(one.path, cached=cached)
        graph = once(trace, graph_of)
        rows = np.flatnonzero(matched.rank == place)
        node[rows] = _nodes(trace, graph, matched.row[rows])
        shift[rows] += graph.origin_ns + trace.epoch_ns - zero
        if (graph.began[node[rows]] + shift[rows] != waits.start[rows] - zero).any():
            raise Abstain("not_replayed")  # the file is another one now
        dur = graph.dur.copy()
        dur[node[rows]] = np.maximum(transfer[rows], 0)
        graph = msgspec.structs.replace(graph, dur=dur)
        if not loose and _loose_ns(graph, node[rows]) > CLOSE * int(graph.ended.max()):
            raise Abstain("not_linked")
        if not np.array_equal(changed(trace, graph, ())[0].lag, graph.lag):
            raise Abstain("overlaps")
        own = []
        for each in asked:
            if each.rank in (None, one.rank):
                try:
                    changed(trace, graph, [each.change])
                except NothingLikeIt as reason:
                    missing[each.text] = reason
                else:
                    own.append(each)
        made, told = changed(trace, graph, [each.change for each in own])
        known |= {each.text for each in own}
        notes += told
        share = max((device.residual_share for device in residuals_of(trace)), default=0.0)
        parts.append(
            RankGraph(
                graph,
                made,
                ends=step_ends(trace, graph),
                epoch_ns=trace.epoch_ns,
                is_changed=bool(own),
                residual_share=share,
                is_certain=is_certain(trace, share),
            )
        )
    for text in missing.keys() - known:
        raise missing[text]
    notes = [note for note in dict.fromkeys(notes) if note != "other_ranks_unchanged"]
    shift -= shift.min()
    meetings = Meetings(matched.of_row, matched.rank, node, shift, transfer)
    return parts, meetings, tuple(notes)


def _nodes(trace: Trace, graph: Graph, places: Rows) -> Rows:
    """The nodes of collectives of a rank."""
    found: Rows = graph.node_of(trace, Node.ITEM)[collectives_of(trace).rows[places]]
    if not found.all():
        raise Abstain("on_cpu")
    return found


def _loose_ns(graph: Graph, collectives: Rows) -> int:
    """How much later than is understood collectives begin, and what begins as one ends."""
    late = graph.residual.max(axis=0)
    others = graph.nodes(Node.ITEM, Node.LAUNCH, Node.WAIT)
    others = np.setdiff1d(others[late[others] > LATE_NS], collectives)
    ends = np.append(-LATE_NS - 1, np.sort(graph.ended[collectives]))
    began = graph.began[others]
    since = began - ends[np.searchsorted(ends, began, side="right") - 1]
    return int(late[collectives].sum() + late[others[since <= LATE_NS]].sum())


def left_of(parts: Sequence[RankGraph], meetings: Meetings, of_one: bool) -> Meetings:
    """Those that changes do not take out; `of_one`: some are of one rank."""
    gone, kept = np.zeros((2, len(meetings.node)), dtype=np.bool_)
    for rank, part in enumerate(parts):
        own = meetings.rank == rank
        node = meetings.node[own]
        gone[own] = part.made.gone[node]
        kept[own] = (part.made.dur[node] == part.graph.dur[node]) & (part.graph.dur[node] > 0)
    taken, moved = (
        np.logical_or.reduceat(one, meetings.first)[meetings.of_row]
        for one in (gone, ~kept & (meetings.transfer > 0))
    )
    if (taken & ~gone).any() or (of_one and (moved & kept).any()):
        raise WrongChange("A collective cannot be changed on some of its ranks alone.")
    return Meetings(*(column[~gone] for column in meetings))
