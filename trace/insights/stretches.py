"""The idle time of one device as stretches of one reason each, so that how much of each reason any
window of time holds takes a few binary searches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.account import Device
from fusetui.trace.insights.gaps import (
    AFTER,
    GRAPH,
    HOST,
    IDLE,
    LAUNCH_CALL,
    LAUNCH_LATENCY,
    QUEUED,
    UNLINKED,
    Cuts,
    Gaps,
    cuts_of,
    gap_before,
)
from fusetui.trace.insights.host import Host, Threads
from fusetui.trace.insights.longest import LONGEST, gaps_of
from fusetui.trace.insights.model import Gap
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]
Pieces = tuple[Int64s, Int64s]
"""Starts and ends in ns of the file."""
NEVER: Int64s = np.empty(0, dtype=np.int64)


class Reason(msgspec.Struct, frozen=True, eq=False):
    """When a device was idle for one reason; sorted, disjoint, ns of the file, shape [n]. `before`:
    how much lies before each, then the total; shape [n + 1]."""

    name: str  # one of gaps.IDLE
    start: Int64s
    end: Int64s
    before: Int64s

    def until(self, times: Int64s) -> Int64s:
        """How much lies before each time (ns)."""
        place = np.searchsorted(self.start, times, side="right") - 1
        inside = np.maximum(place, 0)
        part = np.minimum(times, self.end[inside]) - self.start[inside]
        return np.where(place < 0, 0, self.before[inside] + part)


class IdleTime(msgspec.Struct, frozen=True, eq=False):
    """The idle time of one device, from the beginning of the trace to its end.

    `begin` and `end` are its gaps in order of time; `longest` are indices among them, the longest
    first, and `told` is what is known about each of these.
    """

    device: Id
    reasons: tuple[Reason, ...]
    begin: Int64s
    end: Int64s
    longest: Rows
    told: tuple[Gap, ...]

    def within(self, edges: Int64s) -> Int64s:
        """How long it was idle for each of `reasons` between successive edges (ns of the file);
        shape [reasons, edges - 1]."""
        found = [np.diff(reason.until(edges)) for reason in self.reasons]
        return np.array(found, dtype=np.int64).reshape(len(found), len(edges) - 1)

    def over(self, begin: int, end: int) -> dict[str, int]:
        """The same for one window, by name."""
        amounts = self.within(np.array([begin, end]))[:, 0].tolist()
        return {reason.name: ns for reason, ns in zip(self.reasons, amounts, strict=True) if ns}

    def gap_at(self, time: int) -> int:
        """The index of the gap at a time (ns of the file), -1 for none."""
        place = int(np.searchsorted(self.begin, time, side="right")) - 1
        return place if place >= 0 and time < int(self.end[place]) else -1


def idle_time(device: Device, most: int = LONGEST) -> IdleTime:
    """`most`: how many of the longest gaps are described."""
    gaps = device.gaps
    longest = np.argsort(gaps.begin - gaps.end, kind="stable")[:most]
    told = tuple(gaps_of(device, longest))
    return IdleTime(device.pid, _reasons(device), gaps.begin, gaps.end, longest, told)


def _reasons(device: Device) -> tuple[Reason, ...]:
    """The reasons that occur, in the order of IDLE."""
    trace = device.trace
    found: list[list[Pieces]] = [[(NEVER, NEVER)] for _ in IDLE]
    lead = gap_before(trace, device.events, trace.begin_ns)
    for gaps, cuts in (
        (lead, cuts_of(trace, lead, device.latency_ns)),
        (device.gaps, device.cuts),
    ):
        _collect(found, device, gaps, cuts)
    found[AFTER].append((np.array([device.end_ns]), np.array([trace.end_ns])))
    reasons = (_reason(name, pieces) for name, pieces in zip(IDLE, found, strict=True))
    return tuple(reason for reason in reasons if len(reason.start))


def _collect(found: list[list[Pieces]], device: Device, gaps: Gaps, cuts: Cuts) -> None:
    unlinked, plain = gaps.launch < 0, gaps.plain
    found[UNLINKED].append((gaps.begin[unlinked], gaps.end[unlinked]))
    found[GRAPH].append((gaps.begin[gaps.in_graph], gaps.end[gaps.in_graph]))
    found[LAUNCH_CALL].append((cuts.called[plain], cuts.returned[plain]))
    found[LAUNCH_LATENCY].append((cuts.returned[plain], cuts.due[plain]))
    found[QUEUED].append((cuts.due[plain], gaps.end[plain]))
    waits = np.flatnonzero(plain & (cuts.called > gaps.begin))
    track = device.trace.track[gaps.launch[waits]]
    for line in device.accounts.threads:
        own = waits[line.tracks[track]]
        pieces = _of_host(device.trace, line, gaps, cuts, own)
        for kind, (start, end) in zip(Host, pieces, strict=True):
            found[HOST + kind].append((start, end))


def _of_host(trace: Trace, line: Threads, gaps: Gaps, cuts: Cuts, which: Rows) -> Sequence[Pieces]:
    """The host part of some gaps, divided by what the launching thread did."""
    track = trace.track[gaps.launch[which]]
    begin = line.on_line(track, gaps.begin[which])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], line.on_line(track, cuts.called[which])[order]
    shift = (begin - gaps.begin[which[order]]) if len(which) else begin
    covers = line.covers
    changes = [_inside(begin, end, times) for cover in covers for times in cover]
    edges = np.unique(np.concatenate((begin, end, *changes)))
    place = np.searchsorted(begin, edges, side="right") - 1
    inside = (place >= 0) & (edges < end[place]) if len(begin) else np.zeros(len(edges), np.bool_)
    kind = np.full(len(edges), int(Host.NOTHING))
    for number in range(len(covers) - 1, -1, -1):
        kind[covers[number].place_of(edges) >= 0] = number
    here = np.flatnonzero(inside)
    start, until, back = edges[here], edges[np.minimum(here + 1, len(edges) - 1)], place[here]
    start, until, kind = start - shift[back], until - shift[back], kind[here]
    return [(start[kind == number], until[kind == number]) for number in Host]


def _inside(begin: Int64s, end: Int64s, times: Int64s) -> Int64s:
    """The times that lie in one of some sorted, disjoint stretches."""
    if not len(begin):
        return times[:0]
    place = np.searchsorted(begin, times, side="right") - 1
    return times[(place >= 0) & (times < end[place])]


def _reason(name: str, pieces: Sequence[Pieces]) -> Reason:
    """Stretches from pieces in any order; adjacent pieces become one."""
    start, end = (np.concatenate(column) for column in zip(*pieces, strict=True))
    kept = np.flatnonzero(start < end)
    kept = kept[np.argsort(start[kept], kind="stable")]
    start, end = start[kept], end[kept]
    if len(start):
        new = start[1:] != end[:-1]
        start, end = start[np.append(True, new)], end[np.append(new, True)]
    return Reason(name, start, end, np.concatenate(([0], np.cumsum(end - start))))
