"""Break the time of CPU threads down by name, in traces without GPU events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.account import WAITING_FUNCTIONS, Accounts
from fusetui.analysis.why.causes import format_frame
from fusetui.analysis.why.model import CpuWork, Share
from fusetui.analysis.why.thread_activity import (
    WORK_LAYERS,
    Slices,
    ThreadActivity,
    Threads,
    merge_slices,
)
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct_rows,
    summed,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import Cover, union, without

MAX_NAMES = 10
"""How many names are listed of ops, of functions, and of waits."""

MAX_NAME_CHARACTERS = 200
NO_CALLER = -1


class OwnTimes(NamedTuple):
    """Slices of CPU threads, and how long each was the innermost one of its thread.

    Both arrays have shape [n]; the times are in ns.
    """

    rows: Rows
    ns: Int64s

    def select(self, is_selected: Flags) -> OwnTimes:
        """Return some of the slices, chosen by one flag each."""
        return OwnTimes(rows=self.rows[is_selected], ns=self.ns[is_selected])


def measure_own_times(accounts: Accounts, cover: Cover) -> OwnTimes:
    """Measure the own times of ops, calls, Python frames and collectives on the CPU.

    The *own time* of a slice is the time in which it is the innermost one that counts
    on its thread: each moment of a thread belongs to one slice at most, by the order of
    `LAYERS`.

    Args:
        cover: The time that counts, in ns of the file.

    Returns:
        Slices with an own time above 0, each once, in the order of the trace.
    """
    rows_of_parts = [np.empty(0, dtype=np.intp)]
    ns_of_parts = [np.empty(0, dtype=np.int64)]
    for threads in accounts.threads:
        unclaimed = _repeat_on_threads(threads, cover)
        for parts in _cut_layers(accounts.trace, threads):
            rows_of_parts.append(parts.rows)
            ns_of_parts.append(unclaimed.within(parts.start, parts.end))
            unclaimed = without(unclaimed, union(parts.start, parts.end))

    # A slice may have several parts: add them up.
    parts_by_row = grouped(np.concatenate(rows_of_parts))
    own_ns = parts_by_row.sums(np.concatenate(ns_of_parts))
    return OwnTimes(rows=parts_by_row.keys, ns=own_ns).select(own_ns > 0)


def _cut_layers(trace: Trace, threads: Threads) -> Iterator[Slices]:
    """Yield the slices of each layer, cut so that each part is the innermost one of its
    layer.

    A layer is a group of activities, such as runtime calls or Python frames. They come
    in the order of LAYERS, in which they claim time. Of annotations, the last layer,
    only collectives count.
    """
    for kinds in WORK_LAYERS:
        slices = merge_slices([threads.find_slices(kind) for kind in kinds])
        yield slices.cut_innermost_parts()

    annotations = threads.find_slices(ThreadActivity.ANNOTATION)
    is_collective = trace.matching(annotations.rows, ON_CPU.match)
    yield annotations.select(is_collective).cut_innermost_parts()


def _repeat_on_threads(threads: Threads, cover: Cover) -> Cover:
    """Repeat a cover of the file's time on each thread of an axis."""
    tracks = np.flatnonzero(threads.tracks)
    track_of_interval = np.repeat(tracks, len(cover.start))
    starts = np.tile(cover.start, len(tracks))
    ends = np.tile(cover.end, len(tracks))

    return union(
        threads.convert_to_axis(track_of_interval, starts),
        threads.convert_to_axis(track_of_interval, ends),
    )


class OwnTimesByKind(NamedTuple):
    """Own times of ops and calls, of Python functions, and of waiting."""

    ops: OwnTimes
    functions: OwnTimes
    waits: OwnTimes

    @property
    def ns(self) -> int:
        """Return the sum of all own times."""
        return sum(int(times.ns.sum()) for times in self)


def divide_by_kind(accounts: Accounts, cover: Cover) -> OwnTimesByKind:
    """Measure the own times during some time by kind.

    Only threads that run ops count, or all where none does: others, such as those of a
    pool, are mostly idle in a function that nobody recorded to wait.

    Args:
        cover: The time that counts, in ns of the file.
    """
    trace = accounts.trace
    own = measure_own_times(accounts, cover)
    own = own.select(_mark_program_rows(trace, own.rows))

    is_python = trace.role[own.rows] == Role.PYTHON
    is_wait = accounts.kinds[own.rows] == ThreadActivity.SYNC
    is_wait |= is_python & trace.matching(own.rows, WAITING_FUNCTIONS.search)
    is_wait |= trace.matching(own.rows, ON_CPU.match)

    return OwnTimesByKind(
        ops=own.select(~is_python & ~is_wait),
        functions=own.select(is_python & ~is_wait),
        waits=own.select(is_wait),
    )


def _mark_program_rows(trace: Trace, rows: Rows) -> Flags:
    """Tell which rows are of threads that run ops; all rows if no thread does."""
    ops = trace.rows_of(Role.OP)
    if not len(ops):
        return np.ones(len(rows), dtype=np.bool_)

    thread_of_row = trace.thread_of(rows)
    thread_of_op = trace.thread_of(ops)
    return np.isin(thread_of_row, thread_of_op)


def summarize_cpu_work(accounts: Accounts, cover: Cover) -> CpuWork:
    """List what the time of the CPU goes to during some time (ns of the file)."""
    trace = accounts.trace
    times = divide_by_kind(accounts, cover)
    ops = rank_names(trace, times.ops)
    functions = rank_names(trace, times.functions)
    waits = rank_names(trace, times.waits, with_caller=True)

    return CpuWork(
        whole_ns=times.ns,
        ops=tuple(named.share for named in ops),
        functions=tuple(named.share for named in functions),
        waits=tuple(named.share for named in waits),
    )


class NamedTime(NamedTuple):
    """All slices of one name: their sum, and the own time of each."""

    share: Share
    own: OwnTimes


def rank_names(
    trace: Trace, own: OwnTimes, with_caller: bool = False
) -> list[NamedTime]:
    """List the MAX_NAMES names with the longest own time, the longest first.

    Of names with equal times, the one comes first whose slice comes first in `own`.

    Args:
        with_caller: Whether a function is named with what called it, as `read in load`,
            and counts apart for each caller.
    """
    if not len(own.rows):
        return []

    name = trace.name[own.rows]
    caller = np.full(len(own.rows), NO_CALLER, dtype=np.int64)
    if with_caller:
        caller = _find_callers(trace, own.rows)

    first_slice, name_and_caller = distinct_rows((name, caller))
    total_ns = summed(name_and_caller, own.ns, len(first_slice))
    longest_first = np.lexsort((first_slice, -total_ns))

    times: list[NamedTime] = []
    for group in longest_first[:MAX_NAMES].tolist():
        first = first_slice[group]
        text = _format_named_call(trace, int(name[first]), int(caller[first]))
        slices = own.select(name_and_caller == group)
        share = Share(name=text, count=len(slices.rows), ns=int(total_ns[group]))
        times.append(NamedTime(share=share, own=slices))

    return times


def _format_named_call(trace: Trace, name: int, caller: int) -> str:
    """Format `NAME in CALLER`, or only `NAME` for NO_CALLER.

    Args:
        name: The index of the name in the trace.
        caller: Likewise.
    """
    text = format_frame(trace.names[name], MAX_NAME_CHARACTERS)
    if caller == NO_CALLER:
        return text
    return f"{text} in {format_frame(trace.names[caller], MAX_NAME_CHARACTERS)}"


def _find_callers(trace: Trace, rows: Rows) -> Int64s:
    """Return the index of the name of what called each row.

    It is NO_CALLER for rows that are no Python function.
    """
    caller = np.full(len(rows), NO_CALLER, dtype=np.int64)
    parent = trace.parent[rows]
    is_python = trace.role[rows] == Role.PYTHON
    is_called = is_python & (parent != NO_ROW)
    caller[is_called] = trace.name[parent[is_called]]

    return caller
