"""When a device is busy and idle, and what ran in a window of time: each definition has
its name.

Busy is always the length of a union: what overlaps, on one stream or on several, counts
once. The definitions differ in the span that busy and idle add up to, and in the work
that counts:

* `gpu_times`: all GPU events of a trace; the span of a device is its first start to its
  last end.
* `window_busy_ns`: what runs inside a window of time, clipped to it; the span is the
  window.
* `any_busy_ns`: the same for many windows (steps), with all devices as one: busy while
  any works.
* `work_busy_ns`: the work that a step launched, whenever it ran; it has no idle time.

Synchronizations and annotations on a GPU's lanes never count.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kinds import is_between_devices, is_collective
from fusetui.trace.model.arrays import Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    as_one,
    union,
    union_length,
    union_length_of_each,
)


class GpuTimes(msgspec.Struct, frozen=True):
    """Nanoseconds, summed over devices. On each device busy + idle = its span,
    exactly."""

    span_ns: int  # first start to last end over all devices
    busy_ns: int
    idle_ns: int
    sum_ns: int  # of all durations
    compute_ns: int  # union of the kernels that do not communicate
    comm_ns: int  # union of communication: collectives, and copies between devices
    copy_ns: int  # union of all other memcpys, and of memsets


def gpu_times(trace: Trace, rows: Rows | None = None) -> GpuTimes:
    """Times of these GPU rows (default: all kernels, memcpys and memsets) over each
    device's span."""
    rows = trace.gpu_rows if rows is None else rows
    if not len(rows):
        return GpuTimes(0, 0, 0, 0, 0, 0, 0)
    comm = communicates(trace, rows)
    kernel = trace.role[rows] == Role.KERNEL
    busy = work_busy_ns(trace, rows)
    own, begins = _sorted_by_device(trace, rows)
    first = np.minimum.reduceat(trace.start[own], begins[:-1])
    last = np.maximum.reduceat(trace.end[own], begins[:-1])
    return GpuTimes(
        span_ns=int(last.max() - first.min()),
        busy_ns=busy,
        idle_ns=int((last - first).sum()) - busy,
        sum_ns=int(trace.dur[rows].sum()),
        compute_ns=work_busy_ns(trace, rows[kernel & ~comm]),
        comm_ns=work_busy_ns(trace, rows[comm]),
        copy_ns=work_busy_ns(trace, rows[~kernel & ~comm]),
    )


def work_busy_ns(trace: Trace, rows: Rows) -> int:
    """The union of these rows on each device, summed over devices, whenever they
    ran."""
    rows, begins = _sorted_by_device(trace, rows)
    return union_length_of_each(begins, trace.start[rows], trace.end[rows])


def window_busy_ns(trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> int:
    """How long each device runs any of these rows in the window [begin_ns, end_ns),
    summed over devices; the idle time of the window is its length times the number of
    devices, minus this."""
    rows, begins = _sorted_by_device(trace, rows)
    start, end = (
        np.maximum(trace.start[rows], begin_ns),
        np.minimum(trace.end[rows], end_ns),
    )
    return union_length_of_each(begins, start, end)


def any_busy_ns(trace: Trace, rows: Rows, begins: Int64s, ends: Int64s) -> Int64s:
    """How long any of these rows runs in each window [begin, end) (ns), on any device
    or thread; the idle time of a window is its length minus this."""
    return union(trace.start[rows], trace.end[rows]).within(begins, ends)


def _sorted_by_device(trace: Trace, rows: Rows) -> tuple[Rows, Rows]:
    """The rows sorted by device, and the bounds of each device in that list."""
    device = trace.process_of_track[trace.track[rows]]
    if not len(device) or device.min() == device.max():
        return rows, np.array([0, len(rows)] if len(rows) else [0])
    order = np.argsort(device, kind="stable")
    cuts = np.flatnonzero(np.diff(device[order])) + 1
    return rows[order], np.concatenate(([0], cuts, [len(rows)]))


def communicates(trace: Trace, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which of these GPU rows communicate between devices, by their names; shape of
    `rows`."""
    moves = trace.matching(rows, is_between_devices)
    return np.where(
        trace.role[rows] == Role.KERNEL, trace.matching(rows, is_collective), moves
    )


def effective_ns(trace: Trace) -> Int64s:
    """For each of `trace.gpu_rows`, its end minus the later of its start and the latest
    end of an event that started earlier on its stream, at least 0 (ns). With
    programmatic dependent launch a kernel starts before its predecessor has ended, and
    waits for it. The effective durations of a stream add up to its busy time, exactly:
    of events that start together, the longest comes first."""
    rows = trace.gpu_rows
    effective = trace.dur[rows]
    stream = trace.thread_of_track[trace.track[rows]]
    # of streams on which slices overlap
    spilled = [track.subrow > 0 for track in trace.tracks]
    places = np.flatnonzero(np.isin(stream, trace.thread_of_track[spilled]))
    if not len(places):
        return effective
    own, stream = rows[places], stream[places]
    order = np.lexsort((own, -trace.dur[own], trace.start[own], stream))
    places, own, stream = places[order], own[order], stream[order]
    begins = np.concatenate(([0], np.flatnonzero(np.diff(stream)) + 1, [len(own)]))
    first, last = as_one(begins, trace.start[own], trace.end[own])
    times = np.zeros(int(last.max()) + 1, dtype=np.int64)
    times[first], times[last] = trace.start[own], trace.end[own]
    before = np.concatenate(([0], np.maximum.accumulate(last)[:-1]))
    effective[places] = times[last] - times[np.minimum(np.maximum(first, before), last)]
    return effective


class NameTime(msgspec.Struct, frozen=True):
    """All slices of one name that touch the window; `ns` is the sum of their parts
    inside."""

    name: str
    role: Role
    events: int
    ns: int


class StreamTime(msgspec.Struct, frozen=True):
    """One stream; `busy_ns` is the union of its GPU events inside the window."""

    label: str
    events: int
    busy_ns: int


class WindowFigures(msgspec.Struct, frozen=True):
    """The window [begin_ns, end_ns), in ns of the file. busy + idle = span x devices,
    exactly."""

    begin_ns: int
    end_ns: int
    devices: int  # those that ran any GPU event of the trace
    busy_ns: int  # see busy.window_busy_ns
    kernels: int  # that start in the window
    streams: tuple[StreamTime, ...]  # with an event in the window, in lane order
    # GPU events; without a device, CPU ops by self time; largest first
    names: tuple[NameTime, ...]

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def idle_ns(self) -> int:
        return self.span_ns * self.devices - self.busy_ns


def window_figures(trace: Trace, begin_ns: int, end_ns: int) -> WindowFigures:
    """The figures of the window from begin_ns to before end_ns."""
    gpu = trace.gpu_rows
    rows, start, end = _touching(trace, gpu, begin_ns, end_ns)
    starting = (trace.role[rows] == Role.KERNEL) & (trace.start[rows] >= begin_ns)
    stream = trace.thread_of_track[trace.track[rows]]
    streams = [(trace.first_track(n), stream == n) for n in distinct(stream).tolist()]
    return WindowFigures(
        begin_ns=begin_ns,
        end_ns=end_ns,
        devices=len({trace.tracks[n].pid for n in distinct(trace.track[gpu])}),
        busy_ns=window_busy_ns(trace, rows, begin_ns, end_ns),
        kernels=int(starting.sum()),
        streams=tuple(
            StreamTime(track.label, int(own.sum()), union_length(start[own], end[own]))
            for track, own in streams
        ),
        names=_names(trace, rows, end - start)
        if len(gpu)
        else _ops(trace, begin_ns, end_ns),
    )


def _touching(
    trace: Trace, rows: Rows, begin: int, end: int
) -> tuple[Rows, Int64s, Int64s]:
    """The rows of which a part lies in the window, or of an empty slice its start; and
    their starts and ends within it."""
    start = trace.start[rows]
    rows = rows[(start < end) & ((trace.end[rows] > begin) | (start >= begin))]
    return rows, np.maximum(trace.start[rows], begin), np.minimum(trace.end[rows], end)


def _names(trace: Trace, rows: Rows, inside: Int64s) -> tuple[NameTime, ...]:
    """Times inside the window summed by name; `inside` has the shape of `rows`."""
    names, where, index, count = np.unique(
        trace.name[rows], return_index=True, return_inverse=True, return_counts=True
    )
    total = summed(index, inside, len(names))
    found = [
        NameTime(
            trace.names[name], Role(int(trace.role[rows[first]])), int(events), int(ns)
        )
        for name, first, events, ns in zip(names, where, count, total, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))


def _ops(trace: Trace, begin: int, end: int) -> tuple[NameTime, ...]:
    rows, start, until = _touching(trace, np.arange(len(trace)), begin, end)
    own = np.zeros(len(trace), dtype=np.int64)
    own[rows] = until - start
    inner = rows[trace.parent[rows] >= 0]
    np.subtract.at(own, trace.parent[inner], own[inner])
    ops = rows[trace.role[rows] == Role.OP]
    return _names(trace, ops, own[ops])
