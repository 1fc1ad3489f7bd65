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

MAX_NAMES = 10
"""Of ops, of functions, and of waits: those with the most time."""

MAX_NAME_CHARACTERS = 200
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
    times_ns = [np.empty(0, dtype=np.int64)]
    for line in accounts.threads:
        unclaimed = _on_each_thread(line, cover)
        for kinds in LAYERS[:-1]:
            of_layer = merged_slices([line.slices(kind) for kind in kinds])
            parts = of_layer.parts()
            rows.append(parts.rows)
            times_ns.append(unclaimed.within(parts.start, parts.end))
            unclaimed = without(unclaimed, union(parts.start, parts.end))
        annotations = line.slices(ThreadActivity.ANNOTATION)
        is_collective = accounts.trace.matching(annotations.rows, ON_CPU.match)
        parts = annotations.only(is_collective).parts()
        rows.append(parts.rows)
        times_ns.append(unclaimed.within(parts.start, parts.end))
    distinct_rows, place = np.unique(np.concatenate(rows), return_inverse=True)
    own_ns = summed(place, np.concatenate(times_ns), len(distinct_rows))
    return OwnTimes(rows=distinct_rows, ns=own_ns).only(own_ns > 0)


def _on_each_thread(line: Threads, cover: Cover) -> Cover:
    """A cover in times of the file, on each thread of a line."""
    tracks = np.flatnonzero(line.tracks)
    track = np.repeat(tracks, len(cover.start))
    starts = line.on_line(track, np.tile(cover.start, len(tracks)))
    ends = line.on_line(track, np.tile(cover.end, len(tracks)))
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
    trace = accounts.trace
    times = by_kind(accounts, cover)
    waits = longest(trace, times.waits, with_caller=True)
    return CpuWork(
        whole_ns=times.ns,
        ops=tuple(named.share for named in longest(trace, times.ops)),
        functions=tuple(named.share for named in longest(trace, times.functions)),
        waits=tuple(named.share for named in waits),
    )


class NamedTime(NamedTuple):
    """The own time of all slices of one name, added up and of each."""

    share: Share
    own: OwnTimes


def longest(trace: Trace, own: OwnTimes, with_caller: bool = False) -> list[NamedTime]:
    """The MAX_NAMES names with the longest own time in all, the longest first, of equal
    ones the one whose slice comes first in `own`. `with_caller`: a function is named
    with what called it, as `read in load`, and counts apart for each caller."""
    if not len(own.rows):
        return []
    name = trace.name[own.rows].astype(np.int64)
    caller = np.full_like(name, NO_CALLER)
    if with_caller:
        caller = _callers(trace, own.rows)
    # one number stands for both; callers count from 0 in it, NO_CALLER is the first
    callers = len(trace.names) + 1
    name_and_caller = name * callers + (caller - NO_CALLER)
    _, first, group = np.unique(name_and_caller, return_index=True, return_inverse=True)
    total_ns = summed(group, own.ns, len(first))
    longest_first = np.lexsort((first, -total_ns))
    times: list[NamedTime] = []
    for number in longest_first[:MAX_NAMES].tolist():
        slices = own.only(group == number)
        text = _name_text(trace, int(name[first[number]]))
        caller_number = int(caller[first[number]])
        if caller_number != NO_CALLER:
            text += f" in {_name_text(trace, caller_number)}"
        share = Share(name=text, count=len(slices.rows), ns=int(total_ns[number]))
        times.append(NamedTime(share=share, own=slices))
    return times


def _callers(trace: Trace, rows: Rows) -> Int64s:
    """The number of the name of what called each row, NO_CALLER for what is no Python
    function."""
    caller = np.full(len(rows), NO_CALLER, dtype=np.int64)
    parent = trace.parent[rows]
    is_called = (parent >= 0) & (trace.role[rows] == Role.PYTHON)
    caller[is_called] = trace.name[parent[is_called]]
    return caller


def _name_text(trace: Trace, number: int) -> str:
    return frame_text(trace.names[number], MAX_NAME_CHARACTERS)
