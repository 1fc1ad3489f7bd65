"""The figures of a whole trace: counts, times of the GPU, tracks, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.categories import Role
from fusetui.trace.columns import Id, Trace
from fusetui.trace.devices import device_names
from fusetui.trace.exact import exact_id
from fusetui.trace.intervals import union_length
from fusetui.trace.steps import Step, steps

Rows = NDArray[np.intp]

COLLECTIVE = re.compile(
    r"nccl|rccl|cross_device_reduce|multimem_all|allreduce_fusion|deep_ep::|dpsk::ep::",
    re.IGNORECASE,
)
LONGEST_NAME = 1 << 14  # characters; of a longer name only the begin is looked at


class GpuTimes(msgspec.Struct, frozen=True):
    """Nanoseconds, summed over devices. On each device busy + idle = span, exactly."""

    span_ns: int  # first start to last end over all devices
    busy_ns: int  # union of the intervals of a device
    idle_ns: int
    sum_ns: int  # of all durations
    compute_ns: int  # union of all that is neither a copy nor a collective
    comm_ns: int
    copy_ns: int


def gpu_times(trace: Trace, rows: Rows | None = None) -> GpuTimes:
    """Times of these GPU rows (default: all kernels, copies and sets)."""
    rows = trace.gpu_rows if rows is None else rows
    devices = list(_by_device(trace, rows))
    comm = _is_collective(trace, rows)
    copies = trace.role == Role.COPY
    return GpuTimes(
        span_ns=_span(trace, rows),
        busy_ns=sum(busy_ns(trace, device) for device in devices),
        idle_ns=sum(_span(trace, device) - busy_ns(trace, device) for device in devices),
        sum_ns=int(trace.dur[rows].sum()),
        compute_ns=sum(busy_ns(trace, d[~comm[d] & ~copies[d]]) for d in devices),
        comm_ns=sum(busy_ns(trace, d[comm[d]]) for d in devices),
        copy_ns=sum(busy_ns(trace, d[copies[d]]) for d in devices),
    )


def busy_ns(trace: Trace, rows: Rows) -> int:
    """The length of the union of these rows."""
    return union_length(trace.start[rows], trace.end[rows])


def device_busy_ns(trace: Trace, rows: Rows) -> int:
    """The union of these rows on each device, summed over devices."""
    return sum(busy_ns(trace, device) for device in _by_device(trace, rows))


def summary(trace: Trace) -> dict[str, Any]:
    """The `summary --json` contract.

    Starts are ns after `base_ns`, the time in the file of its first slice, which is a string: times
    since 1970 are beyond what a double holds.
    """
    gpu = trace.gpu_rows
    times = gpu_times(trace)
    report = trace.report
    return {
        "file": report.path,
        "bytes": report.bytes,
        "complete": report.complete,
        "events": report.events,
        "events_skipped": len(report.skipped),
        "skipped": [{"byte": s.byte, "reason": s.reason} for s in report.skipped],
        "slices": len(trace),
        "slices_unfinished": report.unfinished,
        "ends_unmatched": report.unmatched_ends,
        "counters": report.phases["C"],
        "instants": report.phases["i"] + report.phases["I"],
        "kernels": int((trace.role == Role.KERNEL).sum()),
        "gpu_events": len(gpu),
        "gpu_events_linked": int((trace.launch[gpu] >= 0).sum()),
        "gpu_events_with_op": int((trace.op[gpu] >= 0).sum()),
        "negative_launch_delays": report.negative_delays,
        "negative_durations": report.negative_durations,
        "base_ns": str(trace.begin_ns),
        "span_ns": trace.end_ns - trace.begin_ns,
        "gpu_span_ns": times.span_ns,
        "gpu_busy_ns": times.busy_ns,
        "gpu_idle_ns": times.idle_ns,
        "gpu_sum_ns": times.sum_ns,
        "gpu_compute_ns": times.compute_ns,
        "gpu_comm_ns": times.comm_ns,
        "gpu_copy_ns": times.copy_ns,
        "devices": device_names(trace),
        "tracks": [_track(trace, number) for number in range(len(trace.tracks))],
        "steps": [_step(trace, step) for step in steps(trace)],
    }


def _track(trace: Trace, number: int) -> dict[str, Any]:
    track = trace.tracks[number]
    rows = np.arange(track.first_row, track.end_row)
    return {
        "kind": str(track.layer),
        "label": track.label,
        "pid": exact_id(track.pid),
        "tid": exact_id(track.tid),
        "subrow": track.subrow,
        "slices": len(track),
        "busy_ns": busy_ns(trace, rows),
    }


def _step(trace: Trace, step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "start_ns": step.start_ns - trace.begin_ns,
        "dur_ns": step.dur_ns,
        "kernels": int((trace.role[step.gpu_rows] == Role.KERNEL).sum()),
        "gpu_busy_ns": device_busy_ns(trace, step.gpu_rows),
    }


def _by_device(trace: Trace, rows: Rows) -> Iterator[Rows]:
    pids = [t.pid for t in trace.tracks]
    numbers: dict[Id, int] = {pid: n for n, pid in enumerate(dict.fromkeys(pids))}
    device = np.array([numbers[pid] for pid in pids] or [0])[trace.track[rows]]
    for number in np.flatnonzero(np.bincount(device)):
        yield rows[device == number]


def _span(trace: Trace, rows: Rows) -> int:
    if not len(rows):
        return 0
    return int(trace.end[rows].max() - trace.start[rows].min())


def _is_collective(trace: Trace, rows: Rows) -> NDArray[np.bool_]:
    """Per row of the trace: is it one of `rows` and communication between devices, by its name."""
    named = np.zeros(len(trace.names), dtype=np.bool_)
    for number in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
        named[number] = COLLECTIVE.search(trace.names[number], 0, LONGEST_NAME) is not None
    found = np.zeros(len(trace), dtype=np.bool_)
    found[rows] = named[trace.name[rows]]
    return found
