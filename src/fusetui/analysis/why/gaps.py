"""The stretches of time in which devices run nothing, and why each of them lasted."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import astuple

from fusetui.analysis.why.host import Host, Threads, launching
from fusetui.analysis.why.model import IDLE
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.columns import Trace

Reasons = tuple[Int64s, ...]
"""How long each gap lasted for each reason of IDLE (ns); a reason that does not occur takes no
memory."""

UNLINKED, GRAPH, HOST = 0, 1, 2  # places in IDLE; at HOST the kinds of Host begin
LAUNCH_CALL, LAUNCH_LATENCY, QUEUED, AFTER = 9, 10, 11, 12

FEWEST = 20
"""The fewest gaps from which the usual launch latency is derived."""


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Idle time of devices, in order of device and time; arrays of shape [gaps], times in ns."""

    begin: Int64s
    end: Int64s
    event: Int32s  # the row of the GPU event that ends it
    before: Int32s  # the row of the event that ended last before it, -1 for none
    launch: Int32s  # the row of the call that launched the event, -1 where it is not known
    in_graph: Flags  # the call launched earlier events of the device too

    def __len__(self) -> int:
        return len(self.begin)

    def only(self, which: Rows | slice | Flags) -> Gaps:
        """Some of them, by their places."""
        return Gaps(*(column[which] for column in astuple(self)))

    def within(self, begin_ns: int, end_ns: int) -> Gaps:
        """Those that lie at least partly in a window, clipped to it."""
        some = self.only(np.flatnonzero((self.begin < end_ns) & (self.end > begin_ns)))
        begin, end = np.maximum(some.begin, begin_ns), np.minimum(some.end, end_ns)
        return msgspec.structs.replace(some, begin=begin, end=end)

    @property
    def plain(self) -> Flags:
        """Which gaps are neither unlinked nor within a graph."""
        waiting: Flags = (self.launch >= 0) & ~self.in_graph
        return waiting


def events_in_order(trace: Trace, rows: Int32s, start: Int64s) -> Int32s:
    """GPU events by `start`; of those that start together, the longest first."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        rows, start = rows[order], start[order]
    equal = start[1:] == start[:-1]
    if equal.any():
        among = np.concatenate((equal, [False])) | np.concatenate(([False], equal))
        few = rows[among]
        rows[among] = few[np.lexsort((few, -trace.dur[few], start[among]))]
    return rows


def one_after_another(first: Gaps, second: Gaps) -> Gaps:
    """Two lists of gaps as one."""
    pairs = zip(astuple(first), astuple(second), strict=True)
    return Gaps(*map(np.concatenate, pairs))


class Cuts(msgspec.Struct, frozen=True, eq=False):
    """Where the reason of each plain gap changes, in ns; begin <= each <= end, shape [gaps]. Those
    of other gaps are meaningless."""

    called: Int64s  # the launch call begins
    returned: Int64s  # it has ended
    due: Int64s  # the event should have started


def cuts_of(trace: Trace, gaps: Gaps, latency_ns: Int64s) -> Cuts:
    """The cuts of gaps, and of parts of gaps. `latency_ns`: the usual one of each one's device."""
    call = np.maximum(gaps.launch, 0)
    called = np.clip(trace.start[call], gaps.begin, gaps.end)
    returned = np.clip(trace.end[call], called, gaps.end)
    due = np.clip(trace.start[call] + latency_ns, returned, gaps.end)
    return Cuts(called, returned, due)


def reasons(trace: Trace, threads: tuple[Threads, ...], gaps: Gaps, latency_ns: Int64s) -> Reasons:
    """How long each gap, or part of one, lasted for which reason: they add up to its length."""
    found = [np.broadcast_to(np.int64(0), len(gaps)) for _ in IDLE]
    lasted = gaps.end - gaps.begin
    for reason, which in ((UNLINKED, gaps.launch < 0), (GRAPH, gaps.in_graph)):
        if which.any():
            found[reason] = np.where(which, lasted, 0)
    plain = np.flatnonzero(gaps.plain)
    if not len(plain):
        return tuple(found)
    some = gaps.only(plain)
    cuts = cuts_of(trace, some, latency_ns[plain])
    parts = {
        LAUNCH_CALL: cuts.returned - cuts.called,
        LAUNCH_LATENCY: cuts.due - cuts.returned,
        QUEUED: some.end - cuts.due,
        **dict(enumerate(_by_host(trace, threads, some, cuts.called), HOST)),
    }
    for reason, part in parts.items():
        if part.any():
            found[reason] = np.zeros(len(gaps), dtype=np.int64)
            found[reason][plain] = part
    return tuple(found)


def _by_host(trace: Trace, threads: tuple[Threads, ...], gaps: Gaps, called: Int64s) -> Int64s:
    """What the launching threads did in gaps before they launched; shape [Host, gaps]."""
    found = np.zeros((len(Host), len(gaps)), dtype=np.int64)
    for line, own, placed in launching(trace, threads, gaps.launch, called > gaps.begin):
        first, last = placed(gaps.begin), placed(called)
        split = line.split(first, last)
        split[Host.NOTHING] += (called - gaps.begin)[own] - (last - first)  # outside the trace
        found[:, own] = split
    return found
