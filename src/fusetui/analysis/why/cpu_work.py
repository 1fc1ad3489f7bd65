"""What the time of CPU threads goes to, by name: the breakdown of a trace without GPU
events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.account import WAITS, Accounts
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.model import CpuWork, Share
from fusetui.analysis.why.thread_activity import (
    LAYERS,
    Slices,
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
        """Some of the slices."""
        return OwnTimes(rows=self.rows[which], ns=self.ns[which])


def own_times(accounts: Accounts, cover: Cover) -> OwnTimes:
    """The own times of ops, calls, Python frames and collectives on the CPU during a
    cover (ns of the file), without those of 0. Each moment of a thread belongs to one
    slice at most, by the order of `LAYERS`."""
    rows = [np.empty(0, dtype=np.intp)]
    times_ns = [np.empty(0, dtype=np.int64)]
    for line in accounts.threads:
        unclaimed = _on_each_thread(line, cover)
        for parts in _parts_of_layers(accounts.trace, line):
            rows.append(parts.rows)
            times_ns.append(unclaimed.within(parts.start, parts.end))
            unclaimed = without(unclaimed, union(parts.start, parts.end))
    distinct_rows, place = np.unique(np.concatenate(rows), return_inverse=True)
    own_ns = summed(place, np.concatenate(times_ns), len(distinct_rows))
    return OwnTimes(rows=distinct_rows, ns=own_ns).only(own_ns > 0)


def _parts_of_layers(trace: Trace, line: Threads) -> Iterator[Slices]:
    """When each slice of a layer is the innermost one of that layer, for one layer
    after the other; of annotations only collectives count."""
    *layers, _ = LAYERS  # the last one is that of annotations
    for kinds in layers:
        yield merged_slices([line.slices(kind) for kind in kinds]).parts()
    annotations = line.slices(ThreadActivity.ANNOTATION)
    is_collective = trace.matching(annotations.rows, ON_CPU.match)
    yield annotations.only(is_collective).parts()


def _on_each_thread(line: Threads, cover: Cover) -> Cover:
    """A cover in times of the file, on each thread of a line."""
    tracks = np.flatnonzero(line.tracks)
    track_of_interval = np.repeat(tracks, len(cover.start))
    starts = np.tile(cover.start, len(tracks))
    ends = np.tile(cover.end, len(tracks))
    return union(
        line.on_line(track_of_interval, starts), line.on_line(track_of_interval, ends)
    )


class ByKind(NamedTuple):
    """Own times of ops and calls, of Python functions, and of waiting."""

    ops: OwnTimes
    functions: OwnTimes
    waits: OwnTimes

    @property
    def ns(self) -> int:
        """The sum of all own times."""
        return sum(int(times.ns.sum()) for times in self)


def by_kind(accounts: Accounts, cover: Cover) -> ByKind:
    """The own times during a cover (ns of the file) of the threads that run ops, or of
    all where none does: others, such as those of a pool, are mostly idle in a function
    that nobody recorded to wait."""
    trace = accounts.trace
    own = own_times(accounts, cover)
    own = own.only(_is_of_program(trace, own.rows))
    is_python = trace.role[own.rows] == Role.PYTHON
    is_wait = accounts.kinds[own.rows] == ThreadActivity.SYNC
    is_wait |= is_python & trace.matching(own.rows, WAITS.search)
    is_wait |= trace.matching(own.rows, ON_CPU.match)
    return ByKind(
        ops=own.only(~is_python & ~is_wait),
        functions=own.only(is_python & ~is_wait),
        waits=own.only(is_wait),
    )


def _is_of_program(trace: Trace, rows: Rows) -> Flags:
    """Which rows are of threads that run ops; all, if none does."""
    ops = trace.rows_of(Role.OP)
    if not len(ops):
        return np.ones(len(rows), dtype=np.bool_)
    thread_of_row = trace.thread_of_track[trace.track[rows]]
    thread_of_op = trace.thread_of_track[trace.track[ops]]
    return np.isin(thread_of_row, thread_of_op)


def cpu_work(accounts: Accounts, cover: Cover) -> CpuWork:
    """What the time of the CPU goes to during a cover (ns of the file)."""
    trace = accounts.trace
    times = by_kind(accounts, cover)
    ops = longest(trace, times.ops)
    functions = longest(trace, times.functions)
    waits = longest(trace, times.waits, with_caller=True)
    return CpuWork(
        whole_ns=times.ns,
        ops=tuple(named.share for named in ops),
        functions=tuple(named.share for named in functions),
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
        share = Share(
            name=_text(trace, int(name[first[number]]), int(caller[first[number]])),
            count=len(slices.rows),
            ns=int(total_ns[number]),
        )
        times.append(NamedTime(share=share, own=slices))
    return times


def _text(trace: Trace, name: int, caller: int) -> str:
    """`NAME in CALLER`, or only `NAME` for NO_CALLER; by the numbers of both names."""
    text = frame_text(trace.names[name], MAX_NAME_CHARACTERS)
    if caller == NO_CALLER:
        return text
    return f"{text} in {frame_text(trace.names[caller], MAX_NAME_CHARACTERS)}"


def _callers(trace: Trace, rows: Rows) -> Int64s:
    """The number of the name of what called each row, NO_CALLER for what is no Python
    function."""
    caller = np.full(len(rows), NO_CALLER, dtype=np.int64)
    parent = trace.parent[rows]
    is_called = (parent >= 0) & (trace.role[rows] == Role.PYTHON)
    caller[is_called] = trace.name[parent[is_called]]
    return caller
