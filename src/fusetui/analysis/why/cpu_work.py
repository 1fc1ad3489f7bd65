"""What the time of CPU threads goes to, by name: the breakdown of a trace without GPU
events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.account import WAITS, Accounts
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.model import CpuWork, Share
from fusetui.analysis.why.thread_activity import (
    LAYERS,
    ThreadActivity,
    Threads,
    merged_slices,
)
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, union, without

MOST_NAMES = 10  # of each kind
LONGEST_NAME = 200  # characters
NO_CALLER = -1


class OwnTimes(NamedTuple):
    """Slices of CPU threads, and for how long each was the innermost one of its thread
    (ns)."""

    rows: Rows
    ns: Int64s

    def only(self, which: Flags) -> OwnTimes:
        return OwnTimes(self.rows[which], self.ns[which])


def own_times(accounts: Accounts, cover: Cover) -> OwnTimes:
    """Of ops, calls, Python frames and collectives on the CPU, during a cover (ns of
    the file). Each moment of a thread belongs to one slice at most, by the order of
    `LAYERS`."""
    rows = [np.empty(0, dtype=np.intp)]
    times = [np.empty(0, dtype=np.int64)]
    for line in accounts.threads:
        left = _placed(line, cover)
        for kinds in LAYERS[:-1]:
            parts = merged_slices([line.slices(kind) for kind in kinds]).parts()
            rows.append(parts.rows)
            times.append(left.within(parts.start, parts.end))
            left = without(left, union(parts.start, parts.end))
        marks = line.slices(ThreadActivity.ANNOTATION)
        parts = marks.only(accounts.trace.matching(marks.rows, ON_CPU.match)).parts()
        rows.append(parts.rows)
        times.append(left.within(parts.start, parts.end))
    every = np.concatenate(rows)
    distinct_rows, place = np.unique(every, return_inverse=True)
    ns = summed(place, np.concatenate(times), len(distinct_rows))
    return OwnTimes(distinct_rows, ns).only(ns > 0)


def _placed(line: Threads, cover: Cover) -> Cover:
    """A cover in times of the file, on each thread of a line."""
    tracks = np.flatnonzero(line.tracks)
    each = len(cover.start)
    places = (np.repeat(tracks, each), np.tile(np.arange(each), len(tracks)))
    starts = line.on_line(places[0], cover.start[places[1]])
    ends = line.on_line(places[0], cover.end[places[1]])
    return union(starts, ends)


class ByKind(NamedTuple):
    """Own times of ops and calls, of Python functions, and of waiting."""

    ops: OwnTimes
    functions: OwnTimes
    waits: OwnTimes

    @property
    def ns(self) -> int:
        return sum(int(part.ns.sum()) for part in self)


def by_kind(accounts: Accounts, cover: Cover) -> ByKind:
    """Of the threads that run ops, or of all where none does: others, such as those of
    a pool, are mostly idle in a function that nobody recorded to wait."""
    trace = accounts.trace
    own = own_times(accounts, cover)
    is_python = trace.role[own.rows] == Role.PYTHON
    is_wait = accounts.kinds[own.rows] == ThreadActivity.SYNC
    is_wait |= is_python & trace.matching(own.rows, WAITS.search)
    is_wait |= trace.matching(own.rows, ON_CPU.match)
    thread = trace.thread_of_track[trace.track]
    runs_ops = thread[trace.rows_of(Role.OP)]
    counts = np.isin(thread[own.rows], runs_ops) | (len(runs_ops) == 0)
    return ByKind(
        ops=own.only(counts & ~is_python & ~is_wait),
        functions=own.only(counts & is_python & ~is_wait),
        waits=own.only(counts & is_wait),
    )


def cpu_work(accounts: Accounts, cover: Cover) -> CpuWork:
    """During a cover (ns of the file)."""
    found, trace = by_kind(accounts, cover), accounts.trace
    return CpuWork(
        whole_ns=found.ns,
        ops=tuple(one.share for one in longest(trace, found.ops)),
        functions=tuple(one.share for one in longest(trace, found.functions)),
        waits=tuple(one.share for one in longest(trace, found.waits, with_caller=True)),
    )


class NamedTime(NamedTuple):
    """The own time of all slices of one name, added up and of each."""

    share: Share
    own: OwnTimes


def longest(trace: Trace, own: OwnTimes, with_caller: bool = False) -> list[NamedTime]:
    """The names with the longest own time, the longest first. `with_caller`: a function
    is named with what called it, and counts apart for each caller."""
    if not len(own.rows):
        return []
    name = trace.name[own.rows].astype(np.int64)
    caller = np.full(len(name), NO_CALLER, dtype=np.int64)
    if with_caller:
        parent = trace.parent[own.rows]
        is_called = (parent >= 0) & (trace.role[own.rows] == Role.PYTHON)
        caller[is_called] = trace.name[parent[is_called]]
    key = name * (len(trace.names) + 1) + caller - NO_CALLER
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    ns = summed(place, own.ns, len(first))
    found: list[NamedTime] = []
    for number in np.lexsort((first, -ns))[:MOST_NAMES].tolist():
        text = frame_text(trace.names[name[first[number]]], LONGEST_NAME)
        if caller[first[number]] != NO_CALLER:
            text += (
                f" in {frame_text(trace.names[caller[first[number]]], LONGEST_NAME)}"
            )
        slices = own.only(place == number)
        share = Share(name=text, count=len(slices.rows), ns=int(ns[number]))
        found.append(NamedTime(share, slices))
    return found
