"""The stretches of time in which a device runs nothing, and why each of them lasted."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from fusetui.trace.insights.host import Host, Threads
from fusetui.trace.model.columns import Trace

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]
Columns = TypeVar("Columns", "Gaps", "Cuts")

IDLE = (
    "unlinked",  # what launched the event that ends the gap is unknown
    "graph",  # its call launched earlier events too: between the nodes of a CUDA graph
    "host_sync",  # not launched yet: what the launching thread was doing, in the order of Host
    "host_alloc",
    "host_call",
    "host_op",
    "host_python",
    "host_annotation",
    "host_nothing",
    "launch_call",  # the launch call was running
    "launch_latency",  # launched, for no longer than that usually takes
    "queued",  # launched, but not started
    "after",  # after the last event of the device; only in steps and windows
)
"""Why a device is idle; every ns has one of these reasons."""

UNLINKED, GRAPH, HOST = 0, 1, 2
LAUNCH_CALL, LAUNCH_LATENCY, QUEUED, AFTER = 9, 10, 11, 12

FEWEST = 20
"""The fewest gaps from which the usual launch latency is derived."""


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Idle time of one device, in order of time; arrays of shape [gaps], times in ns."""

    begin: Int64s
    end: Int64s
    event: Rows  # the row of the GPU event that ends it
    before: Rows  # the row of the event that ended last before it, -1 for none
    launch: Rows  # the row of the call that launched the event, -1 where it is not known
    in_graph: NDArray[np.bool_]  # the call launched earlier events of the device too

    def __len__(self) -> int:
        return len(self.begin)

    def within(self, which: Rows, begin_ns: int, end_ns: int) -> Gaps:
        """Some of them, by their places, clipped to a window."""
        begin, end = np.maximum(self.begin[which], begin_ns), np.minimum(self.end[which], end_ns)
        rest = (self.event[which], self.before[which], self.launch[which], self.in_graph[which])
        return Gaps(begin, end, *rest)

    @property
    def plain(self) -> NDArray[np.bool_]:
        """Which gaps are neither unlinked nor within a graph."""
        waiting: NDArray[np.bool_] = (self.launch >= 0) & ~self.in_graph
        return waiting


def events_in_order(trace: Trace, rows: Rows) -> Rows:
    """GPU events by start; of those that start together, the longest first."""
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    start = trace.start[rows]
    equal = start[1:] == start[:-1]
    if equal.any():
        among = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
        few = rows[among]
        rows[among] = few[np.lexsort((few, -trace.dur[few], trace.start[few]))]
    return rows


def gaps_between(trace: Trace, events: Rows) -> Gaps:
    """The gaps between the events of one device, which are in order (see events_in_order)."""
    start, end = trace.start[events], trace.end[events]
    latest = np.maximum.accumulate(end) if len(end) else end
    ending = np.flatnonzero(start[1:] > latest[:-1]) + 1
    last = _place_of_latest(latest)[ending - 1]
    return _linked(trace, events, latest[ending - 1], start[ending], events[ending], events[last])


def gap_before(trace: Trace, events: Rows, begin: int) -> Gaps:
    """The time from `begin` until the device starts; none if that is before `begin`."""
    first = events[:1] if begin < trace.start[events[0]] else events[:0]
    begins = np.full(len(first), begin, dtype=np.int64)
    return _linked(trace, events, begins, trace.start[first], first, np.full_like(first, -1))


def _linked(
    trace: Trace, events: Rows, begin: Int64s, end: Int64s, event: Rows, before: Rows
) -> Gaps:
    """Gaps with the calls that ended them. A call that starts after its event does not count: the
    clocks differ."""
    calls = trace.launch[events].astype(np.intp)
    calls[(calls >= 0) & (trace.start[calls] > trace.start[events])] = -1
    launch = trace.launch[event].astype(np.intp)
    launch[(launch >= 0) & (trace.start[launch] > end)] = -1
    known, first = np.unique(calls, return_index=True)  # events are in order: the earliest of each
    began = trace.start[events[first[known.searchsorted(launch)]]] if len(event) else end
    in_graph = (launch >= 0) & (began < end)
    return Gaps(begin, end, event, before, launch, in_graph)


def usual_latency_ns(trace: Trace, gaps: Gaps) -> int:
    """From the start of a launch call to that of its event, when the queue was empty: the lower
    quartile over the gaps during which the launch call began; 0 if there are too few."""
    plain = gaps.plain
    called = trace.start[gaps.launch[plain]]
    delays = (gaps.end[plain] - called)[called > gaps.begin[plain]]
    if len(delays) < FEWEST:
        return 0
    at = len(delays) // 4
    return int(np.partition(delays, at)[at])


class Cuts(msgspec.Struct, frozen=True, eq=False):
    """Where the reason of each plain gap changes, in ns; begin <= each <= end, shape [gaps]."""

    called: Int64s  # the launch call begins
    returned: Int64s  # it has ended
    due: Int64s  # the event should have started

    def within(self, which: Rows, gaps: Gaps) -> Cuts:
        """Those of some of the gaps, by their places, which have been clipped."""
        called, returned, due = (np.clip(t[which], gaps.begin, gaps.end) for t in astuple(self))
        return Cuts(called, returned, due)


def cuts_of(trace: Trace, gaps: Gaps, latency_ns: int) -> Cuts:
    """The cuts of gaps; those of gaps that are not plain are meaningless."""
    call = np.maximum(gaps.launch, 0)
    called = np.clip(trace.start[call], gaps.begin, gaps.end)
    returned = np.clip(trace.end[call], called, gaps.end)
    due = np.clip(trace.start[call] + latency_ns, returned, gaps.end)
    return Cuts(called, returned, due)


def one_after_another(first: Columns, second: Columns) -> Columns:
    """Two records of columns as one."""
    pairs = zip(astuple(first), astuple(second), strict=True)
    return type(first)(*(np.concatenate(pair) for pair in pairs))


def reasons(
    trace: Trace, threads: tuple[Threads, ...], gaps: Gaps, cuts: Cuts, which: Rows, until: Int64s
) -> Int64s:
    """How long the device was idle for which reason, in some gaps, each up to some time.

    `which`: places in `gaps`, `until`: ns, both of shape [stretches] -> [IDLE, stretches]; each
    column adds up to until - begin.
    """
    begin = gaps.begin[which]
    plain, unlinked = gaps.plain[which], gaps.launch[which] < 0
    called, returned = (
        np.minimum(cuts.called[which], until),
        np.minimum(cuts.returned[which], until),
    )
    due = np.minimum(cuts.due[which], until)
    found = np.zeros((len(IDLE), len(which)), dtype=np.int64)
    found[UNLINKED] = np.where(unlinked, until - begin, 0)
    found[GRAPH] = np.where(gaps.in_graph[which], until - begin, 0)
    found[LAUNCH_CALL] = np.where(plain, returned - called, 0)
    found[LAUNCH_LATENCY] = np.where(plain, due - returned, 0)
    found[QUEUED] = np.where(plain, until - due, 0)
    waits = np.flatnonzero(plain & (called > begin))
    track = trace.track[gaps.launch[which[waits]]]
    for line in threads:
        own = line.tracks[track]
        here, on = waits[own], track[own]
        first, last = line.on_line(on, begin[here]), line.on_line(on, called[here])
        split = line.split(first, last)
        split[Host.NOTHING] += called[here] - begin[here] - (last - first)  # outside the trace
        found[HOST : HOST + len(Host), here] = split
    return found


def _place_of_latest(latest: Int64s) -> Rows:
    """For each event, the index of the one that ends last among it and those before."""
    grows = np.concatenate(([True], latest[1:] > latest[:-1])) if len(latest) else latest > 0
    places: Rows = np.maximum.accumulate(np.where(grows, np.arange(len(latest)), 0))
    return places
