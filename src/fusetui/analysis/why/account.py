"""The account of each device and CPU thread: every ns of its span, of a step or of a
window is in one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.backward_threads import lent_work
from fusetui.analysis.why.devices import Devices, Named
from fusetui.analysis.why.model import DeviceAccount, ThreadAccount
from fusetui.analysis.why.thread_activity import (
    ThreadActivity,
    Threads,
    TimeLine,
    activities,
)
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import Cover, common, union
from fusetui.trace.model.memo import memo


class Accounts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The devices of a trace that ran kernels, copies or sets, in the order of their
    lanes. Each part is computed when it is first needed."""

    trace: Trace

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        return activities(self.trace)

    @cached_property
    def threads(self) -> tuple[Threads, ...]:
        """All CPU threads of which something was recorded, on as many lines of time as
        they need."""
        trace = self.trace
        numbers = self._recorded_threads
        fit_on_line = TimeLine(trace).most
        is_only_line = len(numbers) <= fit_on_line
        lines = []
        for first in range(0, len(numbers), fit_on_line):
            of_line = numbers[first : first + fit_on_line]
            tracks = np.isin(trace.thread_of_track, of_line)
            lines.append(Threads(trace, self.kinds, tracks, is_only_line))
        return tuple(lines)

    @property
    def _recorded_threads(self) -> NDArray[np.integer]:
        """The numbers of the threads that have a slice of some ThreadActivity."""
        first_rows = [track.first_row for track in self.trace.tracks]
        # NOTHING is the greatest kind: the least one of a track tells if it has others
        least_kind = self.kinds
        if first_rows:
            least_kind = np.minimum.reduceat(self.kinds, first_rows)
        has_slices = least_kind != ThreadActivity.NOTHING
        return distinct(self.trace.thread_of_track[has_slices])

    @cached_property
    def launchers(self) -> tuple[Threads, ...]:
        """The same threads, each with what autograd's engine does while it waits for
        that: what a thread was doing before its next launch. The accounts of threads
        leave that out."""
        lent = lent_work(self.trace)
        if not len(lent.rows):
            return self.threads
        lines = []
        for line in self.threads:
            if line.tracks[lent.track].any():
                lines.append(msgspec.structs.replace(line, lent=lent, alike=line))
            else:
                lines.append(line)
        return tuple(lines)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Each device of all lines, in the order of their lanes."""
        devices = []
        for line in self.lines:
            for number in range(len(line)):
                devices.append(Device(line, number))
        return tuple(devices)

    @cached_property
    def lines(self) -> tuple[Devices, ...]:
        """All devices, on as many lines of time as they need."""
        return self._lines([*self._processes])

    def lines_of(self, pid: str | None) -> tuple[Devices, ...]:
        """The devices whose process id reads like this, on lines as in `lines`; None
        for all devices. () if there is no such device."""
        if pid is None:
            return self.lines
        processes = []
        for process, device in self._processes.items():
            if str(device.pid) == pid:
                processes.append(process)
        if len(processes) == len(self._processes):
            return self.lines
        return self._lines(processes)

    def as_one(self) -> Devices:
        """All devices as if they were one, by the name of the first one; there must be
        one."""
        first_device = next(iter(self._processes.values()))
        index_of_track = np.zeros(len(self.trace.tracks), dtype=np.int32)
        return Devices(
            self.trace, self.launchers, [first_device], index_of_track, as_one=True
        )

    @cached_property
    def _processes(self) -> dict[int, Named]:
        """The devices by their numbers among all processes."""
        trace = self.trace
        properties = device_properties(trace)
        tracks = np.flatnonzero(np.bincount(trace.track[trace.gpu_rows]))
        devices: dict[int, Named] = {}
        for track in tracks.tolist():
            pid = trace.tracks[track].pid
            name = properties.get(pid, {}).get("name")
            if not isinstance(name, str):
                name = ""
            process = int(trace.process_of_track[track])
            devices[process] = Named(pid, name)
        return devices

    def _lines(self, processes: Sequence[int]) -> tuple[Devices, ...]:
        """The devices with these numbers of processes, on as many lines of time as they
        need."""
        trace = self.trace
        fit_on_line = TimeLine(trace).most
        lines = []
        for first in range(0, len(processes), fit_on_line):
            of_line = processes[first : first + fit_on_line]
            number_of_process = np.full(len(trace.tracks) + 1, -1, dtype=np.int32)
            number_of_process[of_line] = np.arange(len(of_line))
            devices = Devices(
                trace,
                self.launchers,
                named=[self._processes[process] for process in of_line],
                index_of_track=number_of_process[trace.process_of_track],
            )
            lines.append(devices)
        return tuple(lines)


@memo()
def accounts_of(trace: Trace) -> Accounts:
    return Accounts(trace)


def line_of(trace: Trace, thread: int) -> Iterator[tuple[Threads, int]]:
    """The line of a thread, if it has one, and by how much its places there are larger
    than times of the file (ns)."""
    for line in accounts_of(trace).threads:
        tracks = np.flatnonzero(line.tracks & (trace.thread_of_track == thread))
        if len(tracks):
            begin = line.on_line(tracks[:1], np.array([trace.begin_ns]))
            yield line, int(begin[0]) - trace.begin_ns


class Device(NamedTuple):
    """One device: a number on its line."""

    line: Devices
    number: int

    @property
    def pid(self) -> Id:
        return self.line.named[self.number].pid

    @property
    def span(self) -> DeviceAccount:
        """The account from the first start to the last end of its events."""
        return self.line.spans[self.number]

    def over(self, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """The account of each window [begin, end) (ns of the file), where begin <=
        end."""
        return self.line.at(np.full(len(begin), self.number), begin, end)

    @property
    def places(self) -> slice:
        """The places of its gaps among those of the line."""
        device_of_gap = self.line.number(self.line.gaps.event)
        first = device_of_gap.searchsorted(self.number)
        after_last = device_of_gap.searchsorted(self.number + 1)
        return slice(int(first), int(after_last))


WAITS: Final = lazy_pattern(
    r"<built-in (?:method|function) (?:acquire|sleep|select|poll|wait\w*|recv\w*|accept)\b"
    r"|<method '(?:acquire|poll|wait\w*|recv\w*|accept)' of"
)
"""Frames of functions that wait for a lock, a time, a process or a socket."""


def cpu_accounts(
    accounts: Accounts, window: tuple[int, int] | None = None
) -> tuple[ThreadAccount, ...]:
    """The account of each thread, in the order of the lanes; if there is a window
    [begin, end), in ns of the file, that of its part in the window."""
    account_of_track: dict[int, ThreadAccount] = {}
    for line in accounts.threads:
        account_of_track.update(_accounts(accounts.trace, line, window))
    return tuple(account_of_track[track] for track in sorted(account_of_track))


def _accounts(
    trace: Trace, line: Threads, window: tuple[int, int] | None
) -> dict[int, ThreadAccount]:
    """The account of each thread of a line, by its first track."""
    spans = _thread_spans(trace, line)
    begin_ns = spans.begin_ns
    end_ns = spans.end_ns
    if window is not None:
        begin_ns = np.clip(begin_ns, *window)
        end_ns = np.clip(end_ns, *window)
    times = _thread_times(
        trace,
        line,
        begin=line.on_line(spans.track, begin_ns),
        end=line.on_line(spans.track, end_ns),
    )
    accounts = {}
    for place, number in enumerate(spans.track.tolist()):
        track = trace.tracks[number]
        annotation_ns = int(times.annotation_ns[place])
        accounts[number] = ThreadAccount(
            process=exact_id(track.pid),
            thread=exact_id(track.tid),
            label=track.label,
            span_ns=int(end_ns[place] - begin_ns[place]),
            op_ns=int(times.op_ns[place]),
            python_ns=int(times.python_ns[place]),
            wait_ns=int(times.wait_ns[place]),
            nothing_ns=annotation_ns + int(times.unrecorded_ns[place]),
            annotation_ns=annotation_ns,
            collective_ns=int(times.collective_ns[place]),
        )
    return accounts


class _ThreadTimes(msgspec.Struct, frozen=True, eq=False):
    """What threads did in some stretches of time (ns), arrays of shape [threads]. All
    but `collective_ns`, which is a part of `wait_ns`, add up to the stretch."""

    op_ns: Int64s
    """Ops and runtime calls."""
    python_ns: Int64s
    wait_ns: Int64s
    annotation_ns: Int64s
    """Only an annotation was recorded."""
    unrecorded_ns: Int64s
    """Not even that."""
    collective_ns: Int64s


def _thread_times(
    trace: Trace, line: Threads, begin: Int64s, end: Int64s
) -> _ThreadTimes:
    """What the threads did in [begin, end) on their line. A frame that waits counts as
    waiting, and so does the annotation of a collective."""
    split_ns = line.split(begin, end)
    in_waiting_frames = common(
        line.covers[ThreadActivity.PYTHON], waiting_frames(trace, line)
    )
    frame_wait_ns = in_waiting_frames.within(begin, end)
    in_collectives = common(
        line.covers[ThreadActivity.ANNOTATION], _collectives(trace, line)
    )
    collective_ns = in_collectives.within(begin, end)
    call_ns = split_ns[ThreadActivity.ALLOC] + split_ns[ThreadActivity.CALL]
    sync_ns = split_ns[ThreadActivity.SYNC]
    return _ThreadTimes(
        op_ns=call_ns + split_ns[ThreadActivity.OP],
        python_ns=split_ns[ThreadActivity.PYTHON] - frame_wait_ns,
        wait_ns=sync_ns + frame_wait_ns + collective_ns,
        annotation_ns=split_ns[ThreadActivity.ANNOTATION] - collective_ns,
        unrecorded_ns=split_ns[ThreadActivity.NOTHING],
        collective_ns=collective_ns,
    )


class ThreadSpans(msgspec.Struct, frozen=True, eq=False):
    """When each CPU thread of a line runs; ns of the file, arrays of shape
    [threads]."""

    track: Rows
    """Its first one."""
    begin_ns: Int64s
    end_ns: Int64s


def _thread_spans(trace: Trace, line: Threads) -> ThreadSpans:
    """The span of each CPU thread of a line, from the first start to the last end of
    its slices, in the order of their numbers."""
    first_row = np.array([track.first_row for track in trace.tracks])
    last_end_ns = np.maximum.reduceat(trace.end, first_row)
    is_on_cpu = np.array([track.layer in CPU_LAYERS for track in trace.tracks])
    tracks = np.flatnonzero(line.tracks & is_on_cpu)
    numbers = trace.thread_of_track[tracks]
    _, first_track, thread = np.unique(numbers, return_index=True, return_inverse=True)
    threads = len(first_track)
    begin_ns = np.full(threads, np.iinfo(np.int64).max)
    np.minimum.at(begin_ns, thread, trace.start[first_row[tracks]])
    end_ns = np.full(threads, np.iinfo(np.int64).min)
    np.maximum.at(end_ns, thread, last_end_ns[tracks])
    return ThreadSpans(track=tracks[first_track], begin_ns=begin_ns, end_ns=end_ns)


def _collectives(trace: Trace, line: Threads) -> Cover:
    """The time in which a collective runs on the CPU: an annotation that lasts until it
    is done."""
    annotations = line.slices(ThreadActivity.ANNOTATION)
    are_collectives = trace.matching(annotations.rows, ON_CPU.match)
    collectives = annotations.only(are_collectives)
    return union(collectives.start, collectives.end)


def waiting_frames(trace: Trace, line: Threads) -> Cover:
    """The time, on the line of some threads, in which the innermost Python frame is
    that of a function that waits; see WAITS. What such a function calls is not the time
    of a wait."""
    frames = line.own(trace.rows_named(WAITS.search, Role.PYTHON))
    start, end = line.bounds(frames)
    time_of_frames = union(start, end)
    frames_within, _ = line.slices(ThreadActivity.PYTHON).begun_in(time_of_frames)
    innermost = frames_within.parts()
    does_wait = trace.matching(innermost.rows, WAITS.search)
    waits = innermost.only(does_wait)
    return union(waits.start, waits.end)
