"""When a device is busy and idle, and what ran in a time window; each definition has a
name.

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

from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kinds import is_between_devices, is_collective
from fusetui.trace.model.arrays import Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    as_one_track,
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


_NO_TIMES: Final = GpuTimes(
    span_ns=0, busy_ns=0, idle_ns=0, sum_ns=0, compute_ns=0, comm_ns=0, copy_ns=0
)


def gpu_times(trace: Trace, rows: Rows | None = None) -> GpuTimes:
    """Times of these GPU rows (default: all kernels, memcpys and memsets) over each
    device's span."""
    if rows is None:
        rows = trace.gpu_rows
    if not len(rows):
        return _NO_TIMES
    is_communication = communicates(trace, rows)
    is_kernel = trace.role[rows] == Role.KERNEL
    busy_ns = work_busy_ns(trace, rows)
    by_device = _sorted_by_device(trace, rows)
    first_of_device = by_device.bounds[:-1]
    first_start = np.minimum.reduceat(trace.start[by_device.rows], first_of_device)
    last_end = np.maximum.reduceat(trace.end[by_device.rows], first_of_device)
    spans_ns = last_end - first_start
    return GpuTimes(
        span_ns=int(last_end.max() - first_start.min()),
        busy_ns=busy_ns,
        idle_ns=int(spans_ns.sum()) - busy_ns,
        sum_ns=int(trace.dur[rows].sum()),
        compute_ns=work_busy_ns(trace, rows[is_kernel & ~is_communication]),
        comm_ns=work_busy_ns(trace, rows[is_communication]),
        copy_ns=work_busy_ns(trace, rows[~is_kernel & ~is_communication]),
    )


def work_busy_ns(trace: Trace, rows: Rows) -> int:
    """The union of these rows on each device, summed over devices, whenever they ran
    (ns)."""
    by_device = _sorted_by_device(trace, rows)
    start = trace.start[by_device.rows]
    end = trace.end[by_device.rows]
    return union_length_of_each(by_device.bounds, start, end)


def window_busy_ns(trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> int:
    """How long each device runs any of these rows in the window [begin_ns, end_ns),
    summed over devices; the idle time of the window is its length times the number of
    devices, minus this."""
    by_device = _sorted_by_device(trace, rows)
    start = np.maximum(trace.start[by_device.rows], begin_ns)
    end = np.minimum(trace.end[by_device.rows], end_ns)
    return union_length_of_each(by_device.bounds, start, end)


def any_busy_ns(trace: Trace, rows: Rows, begins: Int64s, ends: Int64s) -> Int64s:
    """How long any of these rows runs in each window [begin, end) (ns), on any device
    or thread; the idle time of a window is its length minus this."""
    return union(trace.start[rows], trace.end[rows]).within(begins, ends)


class _ByDevice(NamedTuple):
    """Rows by device."""

    rows: Rows
    bounds: Rows  # where the rows of each device begin, then their number


def _sorted_by_device(trace: Trace, rows: Rows) -> _ByDevice:
    """These rows by device, those of one device in their order."""
    device = trace.process_of_track[trace.track[rows]]
    if not len(rows):
        return _ByDevice(rows=rows, bounds=np.array([0]))
    if device.min() == device.max():
        return _ByDevice(rows=rows, bounds=np.array([0, len(rows)]))
    order = np.argsort(device, kind="stable")
    changes = np.flatnonzero(np.diff(device[order])) + 1
    bounds = np.concatenate(([0], changes, [len(rows)]))
    return _ByDevice(rows=rows[order], bounds=bounds)


def communicates(trace: Trace, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which of these GPU rows communicate between devices, by their names; shape of
    `rows`."""
    is_kernel = trace.role[rows] == Role.KERNEL
    is_collective_kernel = trace.matching(rows, is_collective)
    is_copy_between_devices = trace.matching(rows, is_between_devices)
    return np.where(is_kernel, is_collective_kernel, is_copy_between_devices)


def effective_ns(trace: Trace) -> Int64s:
    """For each of `trace.gpu_rows`, its end minus the later of its start and the latest
    end of an event that started earlier on its stream, at least 0 (ns). With
    programmatic dependent launch a kernel starts before its predecessor has ended, and
    waits for it. The effective durations of a stream add up to its busy time, exactly:
    of events that start together, the longest comes first."""
    rows = trace.gpu_rows
    effective = trace.dur[rows]
    places = _places_of_overlaps(trace)
    if not len(places):
        return effective
    overlapping = rows[places]
    start = trace.start[overlapping]
    end = trace.end[overlapping]
    stream = trace.thread_of_track[trace.track[overlapping]]
    changes = np.flatnonzero(np.diff(stream)) + 1
    bounds = np.concatenate(([0], changes, [len(places)]))
    # the streams one behind the other on one line of time, so that one pass serves all
    first, last = as_one_track(bounds, start, end)
    time_ns = np.zeros(int(last.max()) + 1, dtype=np.int64)
    time_ns[first] = start
    time_ns[last] = end
    latest_before = np.concatenate(([0], np.maximum.accumulate(last)[:-1]))
    begin = np.minimum(np.maximum(first, latest_before), last)
    effective[places] = time_ns[last] - time_ns[begin]
    return effective


def _places_of_overlaps(trace: Trace) -> Rows:
    """The places in `trace.gpu_rows` of the events on streams on which some overlap, by
    stream and start; of equal starts the longest first."""
    rows = trace.gpu_rows
    stream = trace.thread_of_track[trace.track[rows]]
    has_overlap = [track.subrow > 0 for track in trace.tracks]
    places = np.flatnonzero(np.isin(stream, trace.thread_of_track[has_overlap]))
    overlapping = rows[places]
    longest_first = -trace.dur[overlapping]
    start = trace.start[overlapping]
    by_start = np.lexsort((overlapping, longest_first, start, stream[places]))
    return places[by_start]


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
        """The length of the window."""
        return self.end_ns - self.begin_ns

    @property
    def idle_ns(self) -> int:
        """The idle time of all devices together."""
        return self.span_ns * self.devices - self.busy_ns


def window_figures(trace: Trace, begin_ns: int, end_ns: int) -> WindowFigures:
    """The figures of the window from begin_ns to before end_ns."""
    gpu_rows = trace.gpu_rows
    inside = _inside_window(trace, gpu_rows, begin_ns, end_ns)
    starts_inside = trace.start[inside.rows] >= begin_ns
    is_kernel = trace.role[inside.rows] == Role.KERNEL
    if len(gpu_rows):
        names = _times_by_name(trace, inside.rows, inside.end - inside.start)
    else:
        names = _self_times_of_ops(trace, begin_ns, end_ns)
    tracks = distinct(trace.track[gpu_rows]).tolist()
    devices = {trace.tracks[number].pid for number in tracks}
    return WindowFigures(
        begin_ns=begin_ns,
        end_ns=end_ns,
        devices=len(devices),
        busy_ns=window_busy_ns(trace, inside.rows, begin_ns, end_ns),
        kernels=int((is_kernel & starts_inside).sum()),
        streams=_stream_times(trace, inside),
        names=names,
    )


class _Inside(NamedTuple):
    """Slices of which a part lies in a window, or of an empty one its start; and their
    starts and ends (ns) within it."""

    rows: Rows
    start: Int64s
    end: Int64s


def _inside_window(trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> _Inside:
    """Those of these rows that are in the window [begin_ns, end_ns)."""
    start = trace.start[rows]
    reaches_in = (trace.end[rows] > begin_ns) | (start >= begin_ns)
    rows = rows[(start < end_ns) & reaches_in]
    return _Inside(
        rows=rows,
        start=np.maximum(trace.start[rows], begin_ns),
        end=np.minimum(trace.end[rows], end_ns),
    )


def _stream_times(trace: Trace, inside: _Inside) -> tuple[StreamTime, ...]:
    """The times of the streams of these slices, in lane order."""
    stream = trace.thread_of_track[trace.track[inside.rows]]
    times = []
    for number in distinct(stream).tolist():
        is_on_stream = stream == number
        start = inside.start[is_on_stream]
        end = inside.end[is_on_stream]
        time = StreamTime(
            label=trace.first_track(number).label,
            events=len(start),
            busy_ns=union_length(start, end),
        )
        times.append(time)
    return tuple(times)


def _times_by_name(trace: Trace, rows: Rows, inside_ns: Int64s) -> tuple[NameTime, ...]:
    """Times inside the window summed by name, largest first; `inside_ns` has the shape
    of `rows`."""
    names, first_place, index, counts = np.unique(
        trace.name[rows], return_index=True, return_inverse=True, return_counts=True
    )
    totals_ns = summed(index, inside_ns, len(names))
    roles = trace.role[rows[first_place]]
    times = []
    for name, role, count, ns in zip(
        names.tolist(), roles.tolist(), counts.tolist(), totals_ns.tolist(), strict=True
    ):
        time = NameTime(name=trace.names[name], role=Role(role), events=count, ns=ns)
        times.append(time)
    return tuple(sorted(times, key=lambda time: (-time.ns, time.name)))


def _self_times_of_ops(
    trace: Trace, begin_ns: int, end_ns: int
) -> tuple[NameTime, ...]:
    """Self times of CPU ops inside the window, by name."""
    inside = _inside_window(trace, np.arange(len(trace)), begin_ns, end_ns)
    rows = inside.rows
    self_ns = np.zeros(len(trace), dtype=np.int64)
    self_ns[rows] = inside.end - inside.start
    children = rows[trace.parent[rows] >= 0]
    np.subtract.at(self_ns, trace.parent[children], self_ns[children])
    ops = rows[trace.role[rows] == Role.OP]
    return _times_by_name(trace, ops, self_ns[ops])
