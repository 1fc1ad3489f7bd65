"""What changes would be worth to a job: the trace of each rank is replayed with them,
and each collective ends for all of its ranks when the last of them has arrived, plus
its transfer.

There is an answer only where all ranks are given, every collective was matched and
makes all ranks wait for all, clocks are known well enough, and the same replay without
a change is the recording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import SYNCHRONOUS, collectives_of
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import MAX_REPLAY_ERROR
from fusetui.analysis.ranks.matching import step_keys
from fusetui.analysis.ranks.meeting import Meetings, replayed
from fusetui.analysis.replay.apply import changed, is_range
from fusetui.analysis.replay.build import LATE_NS, graph_of
from fusetui.analysis.replay.changes import (
    Change,
    NothingLikeIt,
    Unsynced,
    WrongChange,
    parse_change,
)
from fusetui.analysis.replay.graph import Graph, Node, Times
from fusetui.analysis.replay.path import residuals_of
from fusetui.analysis.replay.times import StepEnds, bounds_of, step_ends
from fusetui.analysis.replay.whatif import (
    UNKNOWN,
    StepEffect,
    differs,
    is_certain,
    median,
)
from fusetui.trace.layout.steps import labels_of
from fusetui.trace.load import open_trace
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import once

ALL_WAIT = SYNCHRONOUS | {"all_to_all"}
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
    # of much of the time it is not recorded what waits for collectives, or they for
    "not_linked",
    "overlaps",  # or other work of their stream begins before they end
    "not_understood",  # too much of the time of some rank
    "not_replayed",  # without a change, the replay is not the recording
]


OF_ONE_RANK = ("other_ranks_unchanged", "waits_scaled")
"""Notes that do not hold where all ranks are replayed."""


class RankThen(msgspec.Struct, frozen=True):
    """How a rank fares before and after. Waits are from each of its arrivals at a
    collective to the last one, all of them."""

    rank: int
    is_changed: bool
    last_before: int  # at how many collectives it arrives last
    last_after: int
    waits_before_ns: int
    waits_after_ns: int


class JobWhatIf(msgspec.Struct, frozen=True):
    """The answer. A step is from when the last rank has ended the one before to when
    the last one has ended it. `before_ns` and `after_ns` are medians as in WhatIf. No
    answer: see `why_not`."""

    changes: tuple[str, ...]
    of: Literal["step", "span"]
    why_not: Why
    steps: tuple[StepEffect, ...]
    before_ns: int | None
    after_ns: int | None
    collectives: int
    ranks: tuple[RankThen, ...]
    # the largest of those of all ranks, and of the job before and after
    residual_share: float
    inferred_waits: int
    uncertainty_ns: int  # of the step, from that of the clocks
    certainty: Literal["bound", "estimate"]
    notes: tuple[str, ...]  # see Note


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


def job_whatif(
    facts: JobFacts, texts: Sequence[str], *, cached: bool = True
) -> JobWhatIf:
    """What changes are worth. Raises WrongChange, and TraceError for a rank that is
    gone."""
    asked = asked_of(texts, tuple(one.rank for one in facts.matched.ranks))
    of: Literal["step", "span"] = (
        "step" if any(o.steps for o in facts.matched.ranks) else "span"
    )
    texts, count = tuple(texts), len(facts.matched)
    nothing = JobWhatIf(
        texts, of, "", (), None, None, count, (), 0.0, 0, 0, "estimate", ()
    )
    try:
        _check(facts)
        return _answer(facts, asked, nothing, cached)
    except Abstain as reason:
        return msgspec.structs.replace(nothing, why_not=reason.why)


def _check(facts: JobFacts) -> None:
    """Raises Abstain where what summaries say does not settle it."""
    job, matched, clocks = facts.job, facts.matched, facts.clocks
    keys = [step_keys(one) for one in matched.ranks]
    several = len(clocks.hosts.names) > 1
    reasons: tuple[tuple[Why, bool], ...] = (
        ("not_whole", not job.is_whole),
        (
            "unmatched",
            any(one.damage for one in matched.ranks) or bool(matched.unmatched.any()),
        ),
        ("no_collectives", not len(matched)),
        ("unmatched", bool(matched.no_group) or not bool(matched.whole.all())),
        ("not_all_wait", not bool(matched.named(ALL_WAIT).all())),
        ("clocks", bool(clocks.refused)),
        ("steps", any(own != keys[0] for own in keys)),
        ("uncertain", several and not bool(np.isfinite(clocks.half).all())),
    )
    for why, holds in reasons:
        if holds:
            raise Abstain(why)
    if _uncertainty(facts) > MAX_REPLAY_ERROR * facts.steps.length_ns:
        raise Abstain("uncertain")


def _uncertainty(facts: JobFacts) -> float:
    """By how much clocks may shift a step: by two of them at each collective on its
    path."""
    steps = max(len(facts.steps.names), 1)
    return 2 * float(facts.clocks.half.max()) * len(facts.matched) / steps


def _answer(
    facts: JobFacts, asked: Sequence[Asked], nothing: JobWhatIf, cached: bool
) -> JobWhatIf:
    parts, meetings, notes = parts_of(facts, asked, cached)
    recorded = [part.graph.recorded for part in parts]
    same = replayed([part.graph for part in parts], meetings)
    if same is None or not all(map(np.array_equal, same.times, recorded)):
        raise Abstain("not_replayed")
    left = left_of(parts, meetings, any(each.rank is not None for each in asked))
    found = replayed([part.made for part in parts], left)
    if found is None:
        raise Abstain("not_replayed")
    shares = (
        *(part.residual_share for part in parts),
        same.residual_share,
        found.residual_share,
    )
    nothing = msgspec.structs.replace(nothing, residual_share=max(shares))
    if max(shares) > UNKNOWN:
        return msgspec.structs.replace(nothing, why_not="not_understood")
    made = [part.made for part in parts]
    before = _bounds(facts, parts, recorded, [part.graph for part in parts])
    after = _bounds(facts, parts, found.times, made)
    old, new = np.diff(before), np.diff(after)
    latest = new
    if any(len(graph.batches.node) for graph in made):
        late = replayed(made, left, late=True)
        latest = np.diff(_bounds(facts, parts, late.times, made)) if late else new
    names = labels_of(facts.matched.ranks[0].steps)
    counted = [len(old) == 1, *[True] * (len(old) - 1)]  # before the first none ended
    steps = (
        zip(names, old.tolist(), new.tolist(), counted, strict=True) if names else ()
    )
    bounds = all(isinstance(each.change, Unsynced) for each in asked)
    never_waits = "loader_never_waits" in notes
    is_open = not never_waits and differs(median(new[counted]), median(latest[counted]))
    certain = all(part.is_certain for part in parts) and not max(shares)
    uncertainty = round(_uncertainty(facts))
    (was, waited), (then, waits) = (
        _arrivals(facts, *one)
        for one in ((meetings, same.arrived), (left, found.arrived))
    )
    columns = zip(
        *(column.tolist() for column in (was, then, waited, waits)), strict=True
    )
    ranks = [
        RankThen(one.rank, part.is_changed, *told)
        for one, part, told in zip(facts.matched.ranks, parts, columns, strict=True)
    ]
    return msgspec.structs.replace(
        nothing,
        steps=tuple(StepEffect(*one) for one in steps),
        before_ns=median(old[counted]),
        after_ns=median(new[counted]),
        ranks=tuple(ranks),
        inferred_waits=sum(part.graph.inferred_waits for part in parts),
        uncertainty_ns=uncertainty,
        certainty="bound"
        if never_waits or is_open or (bounds and certain and not uncertainty)
        else "estimate",
        notes=(*notes, *["batches_unknown"] * is_open),
    )


def _bounds(
    facts: JobFacts,
    parts: Sequence[RankGraph],
    times: Sequence[Times],
    graphs: Sequence[Graph],
) -> Int64s:
    """When the first rank begins the first step, then when the last one has ended
    each."""
    found = []
    for rank, (part, own, graph) in enumerate(zip(parts, times, graphs, strict=True)):
        recorded = bounds_of(part.graph, part.graph.recorded, part.ends)
        begin = part.graph.origin_ns + part.epoch_ns
        common = facts.clocks.common(np.full(len(recorded), rank), recorded + begin)
        found.append(bounds_of(graph, own, part.ends) + common - recorded)
    bounds = np.stack(found)
    return np.append(bounds[:, 0].min(), bounds[:, 1:].max(axis=0))


def _arrivals(
    facts: JobFacts, meetings: Meetings, arrived: Int64s
) -> tuple[Int64s, Int64s]:
    """How often each rank arrives last, as far as clocks tell, and how long it
    waits."""
    ranks = len(facts.matched.ranks)
    common = arrived + meetings.shift
    waited = summed(meetings.rank, meetings.last(arrived) - common, ranks)
    first = meetings.first
    order = np.lexsort((common, meetings.of_row))
    ends = np.append(first[1:], len(common))[: len(first)] - 1
    last, second = order[ends], order[ends - 1]
    sure = common[last] - common[second] > facts.clocks.resolution_of(
        meetings.rank[last], meetings.rank[second]
    )
    return np.bincount(meetings.rank[last[sure]], minlength=ranks), waited


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
        untold = "What another device would be worth to a job is not told"
        raise WrongChange(f"{untold}: it is a range.")
    return tuple(found)


def parts_of(
    facts: JobFacts, asked: Sequence[Asked], cached: bool = False
) -> tuple[list[RankGraph], Meetings, tuple[str, ...]]:
    """What is kept of each trace; how they meet; and notes. Raises Abstain and
    WrongChange."""
    matched, waits = facts.matched, facts.waits
    shift, node = (
        waits.start - matched.start,
        np.zeros(len(matched.rank), dtype=np.intp),
    )
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
        if _loose_ns(graph, node[rows]) > MAX_REPLAY_ERROR * int(graph.ended.max()):
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
        share = max(
            (device.residual_share for device in residuals_of(trace)), default=0.0
        )
        ends, certain = step_ends(trace, graph), is_certain(trace, share)
        parts.append(
            RankGraph(graph, made, ends, trace.epoch_ns, bool(own), share, certain)
        )
    for text in missing.keys() - known:
        raise missing[text]
    notes = [note for note in dict.fromkeys(notes) if note not in OF_ONE_RANK]
    shift -= shift.min()
    return (
        parts,
        Meetings(matched.of_row, matched.rank, node, shift, transfer),
        tuple(notes),
    )


def _nodes(trace: Trace, graph: Graph, places: Rows) -> Rows:
    """The nodes of collectives of a rank."""
    found: Rows = graph.node_of(trace, Node.ITEM)[collectives_of(trace).rows[places]]
    if not found.all():
        raise Abstain("on_cpu")
    return found


def _loose_ns(graph: Graph, collectives: Rows) -> int:
    """How much later than is understood collectives begin, and what begins as one
    ends."""
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
        kept[own] = (part.made.dur[node] == part.graph.dur[node]) & (
            part.graph.dur[node] > 0
        )
    taken, moved = (
        np.logical_or.reduceat(one, meetings.first)[meetings.of_row]
        for one in (gone, ~kept & (meetings.transfer > 0))
    )
    if (taken & ~gone).any() or (of_one and (moved & kept).any()):
        raise WrongChange("A collective cannot be changed on some of its ranks alone.")
    return Meetings(*(column[~gone] for column in meetings))
