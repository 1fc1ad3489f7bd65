"""What is kept of the trace of each rank of a job for a replay with changes, and how they meet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import collectives_of
from fusetui.analysis.ranks.stragglers import CLOSE, JobFacts
from fusetui.analysis.ranks.together import Meetings
from fusetui.analysis.replay.apply import changed, is_range
from fusetui.analysis.replay.build import LATE_NS, graph_of
from fusetui.analysis.replay.changes import Change, NothingLikeIt, Refused, parse_change
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import residuals_of
from fusetui.analysis.replay.replay import StepEnds, step_ends
from fusetui.analysis.replay.whatif import is_certain
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import once

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
        raise Refused("What another device would be worth to a job is not told: it is a range.")
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
        raise Refused("A collective cannot be changed on some of its ranks alone.")
    return Meetings(*(column[~gone] for column in meetings))
