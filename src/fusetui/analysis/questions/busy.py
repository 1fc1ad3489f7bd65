"""When a device is busy and idle, and what ran in a time window; each definition has a
name.

Busy is always the length of a union: what overlaps, on one stream or on several, counts
once. The definitions differ in the span that busy and idle add up to, and in the work
that counts:

* `measure_gpu_times`: all GPU events of a trace; the span of a device is its first start to its
  last end.
* `measure_window_busy_ns`: what runs inside a window of time, clipped to it; the span is the
  window.
* `measure_any_busy_ns`: the same for many windows (steps), with all devices as one: busy while
  any works.
* `measure_work_busy_ns`: the work that a step launched, whenever it ran; it has no idle time.

Synchronizations and annotations on a GPU's lanes never count.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kinds import is_between_devices, is_collective
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    group_numbers,
    reduce_groups,
    run_bounds,
    running_max,
    summed,
    value_before,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import (
    union,
    union_length,
    union_length_of_each,
)


class GpuTimes(msgspec.Struct, frozen=True):
    """How long GPUs worked, in ns.

    All but `span_ns` are sums over devices. The span of one device, from its first
    start to its last end, is exactly its busy time and its idle time.
    """

    span_ns: int  # from the first start to the last end on any device
    busy_ns: int  # in which at least one event ran; what overlaps counts once
    idle_ns: int
    sum_ns: int  # of all durations; what overlaps counts several times
    compute_ns: int  # union of the kernels that do not communicate
    comm_ns: int  # union of communication: collectives, and copies between devices
    copy_ns: int  # union of all other memcpys, and of memsets


_NO_TIMES: Final = GpuTimes(
    span_ns=0, busy_ns=0, idle_ns=0, sum_ns=0, compute_ns=0, comm_ns=0, copy_ns=0
)


def measure_gpu_times(trace: Trace, rows: Rows | None = None) -> GpuTimes:
    """Measure how long GPUs were busy and idle, and with what.

    E.g. two kernels of one device, from 0 to 10 and from 15 to 20 ns, are busy for 15
    ns and idle for 5 ns.

    Args:
        trace: The trace.
        rows: The GPU events that count, in any order; by default all kernels, memcpys
            and memsets. Without any, all times are 0.
    """
    if rows is None:
        rows = trace.gpu_rows
    if not len(rows):
        return _NO_TIMES
    by_device = _sort_by_device(trace, rows)
    first_of_device = by_device.bounds[:-1]
    start = trace.start[by_device.rows]
    end = trace.end[by_device.rows]
    first_start = reduce_groups(np.minimum, start, first_of_device)
    last_end = reduce_groups(np.maximum, end, first_of_device)
    spans_of_devices_ns = int((last_end - first_start).sum())

    busy_ns = measure_work_busy_ns(trace, rows)
    is_communication = communicates(trace, rows)
    is_kernel = trace.role[rows] == Role.KERNEL
    is_compute = is_kernel & ~is_communication
    is_copy = ~is_kernel & ~is_communication
    return GpuTimes(
        span_ns=int(last_end.max() - first_start.min()),
        busy_ns=busy_ns,
        idle_ns=spans_of_devices_ns - busy_ns,
        sum_ns=int(trace.dur[rows].sum()),
        compute_ns=measure_work_busy_ns(trace, rows[is_compute]),
        comm_ns=measure_work_busy_ns(trace, rows[is_communication]),
        copy_ns=measure_work_busy_ns(trace, rows[is_copy]),
    )


def measure_work_busy_ns(trace: Trace, rows: Rows) -> int:
    """Measure how long some GPU events ran, whenever that was, in ns.

    On one device, what overlaps counts once: kernels from 0 to 10 and from 6 to 15 ns
    are 15 ns. The times of several devices are added up.

    Args:
        trace: The trace.
        rows: The events, in any order; there may be none.
    """
    by_device = _sort_by_device(trace, rows)
    start = trace.start[by_device.rows]
    end = trace.end[by_device.rows]
    return union_length_of_each(by_device.bounds, start, end)


def measure_window_busy_ns(trace: Trace, rows: Rows, begin_ns: int, end_ns: int) -> int:
    """Measure how long devices ran some GPU events within a window of time, in ns.

    On one device, what overlaps counts once; the times of several devices are added up.
    So the idle time of the window is its length times the number of devices, minus
    this.

    Args:
        trace: The trace.
        rows: The events, each of which must reach into the window.
        begin_ns: The begin of the window, in ns of the file.
        end_ns: Its end.
    """
    by_device = _sort_by_device(trace, rows)
    start = np.maximum(trace.start[by_device.rows], begin_ns)
    end = np.minimum(trace.end[by_device.rows], end_ns)
    return union_length_of_each(by_device.bounds, start, end)


def measure_any_busy_ns(
    trace: Trace, rows: Rows, begins: Int64s, ends: Int64s
) -> Int64s:
    """Measure for how long at least one of some slices runs, in each of some windows.

    It does not matter on which devices or threads they run: two that run at the same
    time count once. So the idle time of a window is its length minus this.

    Args:
        trace: The trace.
        rows: The slices, in any order.
        begins: The begin of each window, in ns of the file.
        ends: The end of each window.

    Returns:
        ns per window.
    """
    return union(trace.start[rows], trace.end[rows]).within(begins, ends)


class _ByDevice(NamedTuple):
    """GPU events, one device after the other."""

    rows: Rows
    # Those of the n-th device are rows[bounds[n] : bounds[n + 1]].
    bounds: Rows


def _sort_by_device(trace: Trace, rows: Rows) -> _ByDevice:
    """Sort GPU events by device; those of one device keep their order."""
    device = trace.process_of_track[trace.track[rows]]
    order = np.argsort(device, kind="stable")
    return _ByDevice(rows=rows[order], bounds=run_bounds(device[order]))


def communicates(trace: Trace, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Mark the GPU events that move data between devices.

    These are the kernels of collectives (`ncclDevKernel_AllReduce...`), and copies from
    one device to another (`Memcpy PtoP`), by their names.

    Returns:
        A flag for each of `rows`.
    """
    is_kernel = trace.role[rows] == Role.KERNEL
    is_collective_kernel = trace.matching(rows, is_collective)
    is_copy_between_devices = trace.matching(rows, is_between_devices)
    return np.where(is_kernel, is_collective_kernel, is_copy_between_devices)


def measure_effective_ns(trace: Trace) -> Int64s:
    """Return how long each GPU event runs while no earlier event of its stream does.

    E.g. of kernels from 0 to 10 and from 6 to 15 ns on one stream, the first one takes
    10 ns and the second one 5 ns. With programmatic dependent launch a kernel starts
    before its predecessor has ended, and waits for it, so its duration alone is too
    long. Effective times of a stream add up to the time in which it is busy.

    Returns:
        ns for each of `trace.gpu_rows`, at least 0.
    """
    rows = trace.gpu_rows
    effective = trace.dur[rows]
    positions = _find_overlapping_events(trace)
    overlapping = rows[positions]
    start = trace.start[overlapping]
    end = trace.end[overlapping]

    begins_stream = begins_runs(trace.thread_of_track[trace.track[overlapping]])
    latest_end = running_max(end, group_numbers(begins_stream))
    latest_end_before = value_before(latest_end, begins_stream, missing=start)
    runs_alone_since = np.maximum(start, latest_end_before)
    effective[positions] = np.maximum(end - runs_alone_since, 0)
    return effective


def _find_overlapping_events(trace: Trace) -> Rows:
    """Find the GPU events of the streams on which some events overlap.

    Returns:
        Positions in `trace.gpu_rows`, by stream and start. Of equal starts the longest
        comes first, because it then counts and the others take no effective time.
    """
    rows = trace.gpu_rows
    stream = trace.thread_of_track[trace.track[rows]]
    # What overlaps on a stream is laid out on further tracks, its sub-rows.
    is_sub_row = [track.subrow > 0 for track in trace.tracks]
    streams_with_overlap = trace.thread_of_track[is_sub_row]
    positions = np.flatnonzero(np.isin(stream, streams_with_overlap))

    rows = rows[positions]
    longest_first = -trace.dur[rows]
    by_stream_and_start = np.lexsort(
        (rows, longest_first, trace.start[rows], stream[positions])
    )
    return positions[by_stream_and_start]


class NameTime(msgspec.Struct, frozen=True):
    """All slices of one name that reach into a window of time."""

    name: str
    role: Role  # of the first of them
    events: int
    ns: int  # the sum of their parts inside the window


class StreamTime(msgspec.Struct, frozen=True):
    """The GPU events of one stream that reach into a window of time."""

    label: str
    events: int
    busy_ns: int  # inside the window; what overlaps counts once


class WindowFigures(msgspec.Struct, frozen=True):
    """What ran in a window of time.

    Exactly, busy + idle = the length of the window x devices.
    """

    begin_ns: int  # in ns of the file
    end_ns: int
    devices: int  # those that ran any GPU event of the trace
    busy_ns: int  # see busy.measure_window_busy_ns
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


def summarize_window(trace: Trace, begin_ns: int, end_ns: int) -> WindowFigures:
    """Sum up what ran in a window of time, from `begin_ns` to before `end_ns`.

    Times count only as far as they lie inside: of a kernel from 0 to 10 ns, 4 ns in a
    window from 6 to 20 ns. A kernel counts in the window in which it starts.

    Args:
        trace: The trace. If it has no GPU event, CPU ops are listed by their self time.
        begin_ns: The begin of the window, in ns of the file.
        end_ns: Its end.
    """
    gpu_rows = trace.gpu_rows
    inside = _clip_to_window(trace, gpu_rows, begin_ns, end_ns)
    starts_inside = trace.start[inside.rows] >= begin_ns
    is_kernel = trace.role[inside.rows] == Role.KERNEL
    if len(gpu_rows):
        names = _sum_times_by_name(trace, inside.rows, inside.end - inside.start)
    else:
        names = _sum_self_times_of_ops(trace, begin_ns, end_ns)
    tracks = distinct(trace.track[gpu_rows]).tolist()
    devices = {trace.tracks[number].pid for number in tracks}
    return WindowFigures(
        begin_ns=begin_ns,
        end_ns=end_ns,
        devices=len(devices),
        busy_ns=measure_window_busy_ns(trace, inside.rows, begin_ns, end_ns),
        kernels=int((is_kernel & starts_inside).sum()),
        streams=_measure_stream_times(trace, inside),
        names=names,
    )


class _ClippedSlices(NamedTuple):
    """The slices that reach into a window of time, clipped to it."""

    rows: Rows
    start: Int64s  # of the part inside, in ns of the file
    end: Int64s


def _clip_to_window(
    trace: Trace, rows: Rows, begin_ns: int, end_ns: int
) -> _ClippedSlices:
    """Choose the slices that reach into a window of time, and clip them to it.

    E.g. a slice from 0 to 10 ns is clipped to 6 to 10 ns for a window from 6 to 20 ns.
    A slice of no length is inside if it starts there.

    Args:
        trace: The trace.
        rows: The slices to choose from.
        begin_ns: The begin of the window, in ns of the file.
        end_ns: Its end.
    """
    start = trace.start[rows]
    reaches_in = (trace.end[rows] > begin_ns) | (start >= begin_ns)
    rows = rows[(start < end_ns) & reaches_in]
    return _ClippedSlices(
        rows=rows,
        start=np.maximum(trace.start[rows], begin_ns),
        end=np.minimum(trace.end[rows], end_ns),
    )


def _measure_stream_times(
    trace: Trace, inside: _ClippedSlices
) -> tuple[StreamTime, ...]:
    """Measure how long each stream was busy in a window, in the order of the lanes.
    Streams without an event in the window are left out."""
    stream = trace.thread_of_track[trace.track[inside.rows]]
    times = []
    for stream_number in distinct(stream).tolist():
        is_on_stream = stream == stream_number
        start = inside.start[is_on_stream]
        end = inside.end[is_on_stream]
        time = StreamTime(
            label=trace.first_track(stream_number).label,
            events=len(start),
            busy_ns=union_length(start, end),
        )
        times.append(time)
    return tuple(times)


def _sum_times_by_name(
    trace: Trace, rows: Rows, inside_ns: Int64s
) -> tuple[NameTime, ...]:
    """Add up the times of slices by their names.

    Args:
        trace: The trace.
        rows: The slices.
        inside_ns: The part of each slice that counts, e.g. inside a window, in
            ns.

    Returns:
        One entry per name, the largest time first; equal times in the order of
        names.
    """
    groups = grouped(trace.name[rows])
    times = []
    for name, first_row, events, ns in zip(
        groups.keys.tolist(),
        rows[groups.first].tolist(),
        groups.counts.tolist(),
        groups.sums(inside_ns).tolist(),
        strict=True,
    ):
        role = Role(trace.role[first_row])
        time = NameTime(name=trace.names[name], role=role, events=events, ns=ns)
        times.append(time)
    return tuple(sorted(times, key=lambda time: (-time.ns, time.name)))


def _sum_self_times_of_ops(
    trace: Trace, begin_ns: int, end_ns: int
) -> tuple[NameTime, ...]:
    """Add up the self time of CPU ops inside a window of time, by name.

    The self time of an op is its time without that of the slices directly inside it.

    Args:
        trace: The trace.
        begin_ns: The begin of the window, in ns of the file.
        end_ns: Its end.

    Returns:
        One entry per name, the largest time first.
    """
    clipped = _clip_to_window(trace, np.arange(len(trace)), begin_ns, end_ns)
    rows = clipped.rows
    inside_ns = np.zeros(len(trace), dtype=np.int64)
    inside_ns[rows] = clipped.end - clipped.start

    children = rows[trace.parent[rows] != NO_ROW]
    children_ns = summed(trace.parent[children], inside_ns[children], len(trace))
    self_ns = inside_ns - children_ns
    ops = rows[trace.role[rows] == Role.OP]
    return _sum_times_by_name(trace, ops, self_ns[ops])
