"""What ran in a window of time: every slice clipped exactly to the window, in integers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import window_busy_ns
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.intervals import union_length


class NameTime(msgspec.Struct, frozen=True):
    """All slices of one name that touch the window; `ns` is the sum of their parts inside."""

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
    """The window [begin_ns, end_ns), in ns of the file. busy + idle = span x devices, exactly."""

    begin_ns: int
    end_ns: int
    devices: int  # those that ran any GPU event of the trace
    busy_ns: int  # see busy.window_busy_ns
    kernels: int  # that start in the window
    streams: tuple[StreamTime, ...]  # with an event in the window, in lane order
    names: tuple[NameTime, ...]  # GPU events; without a device, CPU ops by self time; largest first

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def idle_ns(self) -> int:
        return self.span_ns * self.devices - self.busy_ns


def window_figures(trace: Trace, begin_ns: int, end_ns: int) -> WindowFigures:
    """The figures of the window from begin_ns to before end_ns."""
    gpu = trace.gpu_rows
    rows = gpu[_touching(trace, gpu, begin_ns, end_ns)]
    start, end = _clipped(trace, rows, begin_ns, end_ns)
    named = _names(trace, rows, end - start) if len(gpu) else _ops(trace, begin_ns, end_ns)
    starting = (trace.role[rows] == Role.KERNEL) & (trace.start[rows] >= begin_ns)
    return WindowFigures(
        begin_ns=begin_ns,
        end_ns=end_ns,
        devices=len({trace.tracks[n].pid for n in np.unique(trace.track[gpu])}),
        busy_ns=window_busy_ns(trace, rows, begin_ns, end_ns),
        kernels=int(starting.sum()),
        streams=tuple(
            StreamTime(track.label, len(own), union_length(start[own], end[own]))
            for track, own in _by_stream(trace, rows)
        ),
        names=named,
    )


def _touching(trace: Trace, rows: Rows, begin: int, end: int) -> NDArray[np.bool_]:
    """For each row, whether part of it lies in the window, or for an empty slice, its start."""
    start = trace.start[rows]
    touching: NDArray[np.bool_] = (start < end) & ((trace.end[rows] > begin) | (start >= begin))
    return touching


def _clipped(trace: Trace, rows: Rows, begin: int, end: int) -> tuple[Int64s, Int64s]:
    """Starts and ends within the window; shape of `rows`."""
    return np.maximum(trace.start[rows], begin), np.minimum(trace.end[rows], end)


def _by_stream(trace: Trace, rows: Rows) -> Iterator[tuple[Track, Rows]]:
    """The first track of each stream, and the indices in `rows` that belong to the stream."""
    of_row = trace.thread_of_track[trace.track[rows]]
    for number in np.unique(of_row).tolist():
        yield trace.first_track(number), np.flatnonzero(of_row == number)


def _names(trace: Trace, rows: Rows, inside: Int64s) -> tuple[NameTime, ...]:
    """Times inside the window summed by name; `inside` has the shape of `rows`."""
    names, where, index, count = np.unique(
        trace.name[rows], return_index=True, return_inverse=True, return_counts=True
    )
    total = np.zeros(len(names), dtype=np.int64)
    np.add.at(total, index, inside)
    found = [
        NameTime(trace.names[name], Role(int(trace.role[rows[first]])), int(events), int(ns))
        for name, first, events, ns in zip(names, where, count, total, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))


def _ops(trace: Trace, begin: int, end: int) -> tuple[NameTime, ...]:
    """CPU ops by self time inside the window."""
    rows = np.flatnonzero(_touching(trace, np.arange(len(trace)), begin, end))
    start, until = _clipped(trace, rows, begin, end)
    own = np.zeros(len(trace), dtype=np.int64)
    own[rows] = until - start
    inner = rows[trace.parent[rows] >= 0]
    np.subtract.at(own, trace.parent[inner], own[inner])
    ops = rows[trace.role[rows] == Role.OP]
    return _names(trace, ops, own[ops])
