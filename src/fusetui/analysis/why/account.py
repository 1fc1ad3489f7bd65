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
        """All CPU threads, on as many lines of time as they need."""
        trace = self.trace
        fit_on_line = TimeLine(trace).most
        thread = trace.thread_of_track
        firsts = [track.first_row for track in trace.tracks]
        kinds = np.minimum.reduceat(self.kinds, firsts) if firsts else self.kinds
        chosen = distinct(thread[kinds != ThreadActivity.NOTHING])
        lines = []
        for first in range(0, len(chosen), fit_on_line):
            of_line = np.isin(thread, chosen[first : first + fit_on_line])
            is_only_line = len(chosen) <= fit_on_line
            lines.append(Threads(trace, self.kinds, of_line, is_only_line))
        return tuple(lines)

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
        devices = []
        for line in self.lines:
            devices += [Device(line, number) for number in range(len(line))]
        return tuple(devices)

    @cached_property
    def lines(self) -> tuple[Devices, ...]:
        """All devices, on as many lines of time as they need."""
        return self._lines([*self._processes])

    def lines_of(self, pid: str | None) -> tuple[Devices, ...]:
        """Only those that people call so, likewise; None for all."""
        processes = [
            process
            for process, device in self._processes.items()
            if pid in (None, str(device.pid))
        ]
        if len(processes) == len(self._processes):
            return self.lines
        return self._lines(processes)

    def as_one(self) -> Devices:
        """All devices as if they were one, by the name of the first one; there must be
        one."""
        everywhere = np.zeros(len(self.trace.tracks), dtype=np.int32)
        named = [*self._processes.values()][:1]
        return Devices(self.trace, self.launchers, named, everywhere, as_one=True)

    @cached_property
    def _processes(self) -> dict[int, Named]:
        """The devices by their numbers among all processes."""
        trace = self.trace
        properties = device_properties(trace)
        devices: dict[int, Named] = {}
        for track in np.flatnonzero(np.bincount(trace.track[trace.gpu_rows])).tolist():
            pid = trace.tracks[track].pid
            name = properties.get(pid, {}).get("name")
            process = int(trace.process_of_track[track])
            devices[process] = Named(pid, name if isinstance(name, str) else "")
        return devices

    def _lines(self, processes: Sequence[int]) -> tuple[Devices, ...]:
        trace = self.trace
        fit_on_line = TimeLine(trace).most
        lines = []
        for first in range(0, len(processes), fit_on_line):
            of_line = processes[first : first + fit_on_line]
            number_of_process = np.full(len(trace.tracks) + 1, -1, dtype=np.int32)
            number_of_process[of_line] = np.arange(len(of_line))
            lines.append(
                Devices(
                    trace,
                    self.launchers,
                    named=[self._processes[process] for process in of_line],
                    number_of_track=number_of_process[trace.process_of_track],
                )
            )
        return tuple(lines)


@memo()
def accounts_of(trace: Trace) -> Accounts:
    return Accounts(trace)


def line_of(trace: Trace, thread: int) -> Iterator[tuple[Threads, int]]:
    """The line of a thread, if it has one; how much farther its places are than times
    of the file."""
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
        """Of its gaps among those of the line."""
        number = self.line.number(self.line.gaps.event)
        return slice(*number.searchsorted((self.number, self.number + 1)).tolist())


WAITS: Final = lazy_pattern(
    r"<built-in (?:method|function) (?:acquire|sleep|select|poll|wait\w*|recv\w*|accept)\b"
    r"|<method '(?:acquire|poll|wait\w*|recv\w*|accept)' of"
)
"""Frames of functions that wait for a lock, a time, a process or a socket."""


def cpu_accounts(
    accounts: Accounts, window: tuple[int, int] | None = None
) -> tuple[ThreadAccount, ...]:
    """Each thread in the order of the lanes; if there is a window [begin, end), in ns
    of the file, only its part."""
    account_of_track: dict[int, ThreadAccount] = {}
    for line in accounts.threads:
        account_of_track.update(_accounts(accounts.trace, line, window))
    return tuple(account_of_track[track] for track in sorted(account_of_track))


def _accounts(
    trace: Trace, line: Threads, window: tuple[int, int] | None
) -> Iterator[tuple[int, ThreadAccount]]:
    """Of each thread, by its first track."""
    spans = _thread_spans(trace, line)
    begin = spans.begin_ns
    end = spans.end_ns
    if window is not None:
        begin = np.clip(begin, *window)
        end = np.clip(end, *window)
    first = line.on_line(spans.track, begin)
    last = line.on_line(spans.track, end)
    split_ns = line.split(first, last)
    waiting = common(line.covers[ThreadActivity.PYTHON], waiting_frames(trace, line))
    waits_ns = waiting.within(first, last)
    in_collectives = common(
        line.covers[ThreadActivity.ANNOTATION], _collectives(trace, line)
    )
    collective_ns = in_collectives.within(first, last)
    annotation_ns = split_ns[ThreadActivity.ANNOTATION] - collective_ns
    op_ns = (
        split_ns[ThreadActivity.ALLOC]
        + split_ns[ThreadActivity.CALL]
        + split_ns[ThreadActivity.OP]
    )
    python_ns = split_ns[ThreadActivity.PYTHON] - waits_ns
    wait_ns = split_ns[ThreadActivity.SYNC] + waits_ns + collective_ns
    for place, number in enumerate(spans.track.tolist()):
        track = trace.tracks[number]
        noted_ns = int(annotation_ns[place])
        yield (
            number,
            ThreadAccount(
                process=exact_id(track.pid),
                thread=exact_id(track.tid),
                label=track.label,
                span_ns=int(end[place] - begin[place]),
                op_ns=int(op_ns[place]),
                python_ns=int(python_ns[place]),
                wait_ns=int(wait_ns[place]),
                nothing_ns=noted_ns + int(split_ns[ThreadActivity.NOTHING, place]),
                annotation_ns=noted_ns,
                collective_ns=int(collective_ns[place]),
            ),
        )


class ThreadSpans(msgspec.Struct, frozen=True, eq=False):
    """When each CPU thread of a line runs; ns of the file, arrays of shape
    [threads]."""

    track: Rows
    """Its first one."""
    begin_ns: Int64s
    end_ns: Int64s


def _thread_spans(trace: Trace, line: Threads) -> ThreadSpans:
    """From the first start to the last end of its slices."""
    first_row = np.array([track.first_row for track in trace.tracks])
    last_end_ns = np.maximum.reduceat(trace.end, first_row)
    is_on_cpu = np.array([track.layer in CPU_LAYERS for track in trace.tracks])
    tracks = np.flatnonzero(line.tracks & is_on_cpu)
    _, first, thread = np.unique(
        trace.thread_of_track[tracks], return_index=True, return_inverse=True
    )
    limits = np.iinfo(np.int64)
    begin_ns = np.full(len(first), limits.max)
    end_ns = np.full(len(first), limits.min)
    np.minimum.at(begin_ns, thread, trace.start[first_row[tracks]])
    np.maximum.at(end_ns, thread, last_end_ns[tracks])
    return ThreadSpans(track=tracks[first], begin_ns=begin_ns, end_ns=end_ns)


def _collectives(trace: Trace, line: Threads) -> Cover:
    """The time in which a collective runs on the CPU: an annotation that lasts until it
    is done."""
    annotations = line.slices(ThreadActivity.ANNOTATION)
    are_collectives = trace.matching(annotations.rows, ON_CPU.match)
    collectives = annotations.only(are_collectives)
    return union(collectives.start, collectives.end)


def waiting_frames(trace: Trace, line: Threads) -> Cover:
    """The time in which the innermost frame is that of a function that waits."""
    frames = line.own(trace.rows_named(WAITS.search, Role.PYTHON))
    start, end = line.bounds(frames)
    within_waits = line.slices(ThreadActivity.PYTHON).begun_in(union(start, end))[0]
    innermost = within_waits.parts()  # and what they call
    waits = innermost.only(trace.matching(innermost.rows, WAITS.search))
    return union(waits.start, waits.end)
