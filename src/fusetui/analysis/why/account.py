"""The account of each device and CPU thread: every ns of its span, of a step or of a
window is in one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.backward_threads import lent_work
from fusetui.analysis.why.devices import Devices, Named
from fusetui.analysis.why.host import Host, Threads, TimeLine, host_kinds
from fusetui.analysis.why.model import DeviceAccount, ThreadAccount
from fusetui.text.patterns import late
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.arrays import Int64s, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import Cover, common, union
from fusetui.trace.model.memo import once


class Accounts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The devices of a trace that ran kernels, copies or sets, in the order of their
    lanes. Each part is computed when it is first needed."""

    trace: Trace

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        return host_kinds(self.trace)

    @cached_property
    def threads(self) -> tuple[Threads, ...]:
        """All CPU threads, on as many lines of time as they need."""
        trace = self.trace
        most, thread = TimeLine(trace).most, trace.thread_of_track
        firsts = [track.first_row for track in trace.tracks]
        kinds = np.minimum.reduceat(self.kinds, firsts) if firsts else self.kinds
        chosen = distinct(thread[kinds != Host.NOTHING])
        parts = (chosen[at : at + most] for at in range(0, len(chosen), most))
        alone = len(chosen) <= most
        return tuple(
            Threads(trace, self.kinds, np.isin(thread, part), alone) for part in parts
        )

    @cached_property
    def launchers(self) -> tuple[Threads, ...]:
        """The same threads, each with what autograd's engine does while it waits for
        that: what a thread was doing before its next launch. The accounts of threads
        leave that out."""
        lent = lent_work(self.trace)
        if not len(lent.rows):
            return self.threads
        return tuple(
            msgspec.structs.replace(line, lent=lent, alike=line)
            if line.tracks[lent.track].any()
            else line
            for line in self.threads
        )

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return tuple(Device(line, n) for line in self.lines for n in range(len(line)))

    @cached_property
    def lines(self) -> tuple[Devices, ...]:
        """All devices, on as many lines of time as they need."""
        return self._lines([*self._processes])

    def lines_of(self, pid: str | None) -> tuple[Devices, ...]:
        """Only those that people call so, likewise; None for all."""
        own = [
            n for n, device in self._processes.items() if pid in (None, str(device.pid))
        ]
        return self.lines if len(own) == len(self._processes) else self._lines(own)

    def as_one(self) -> Devices:
        """All devices as if they were one, by the name of the first one; there must be
        one."""
        everywhere = np.zeros(len(self.trace.tracks), dtype=np.int32)
        named = [*self._processes.values()][:1]
        return Devices(self.trace, self.launchers, named, everywhere, as_one=True)

    @cached_property
    def _processes(self) -> dict[int, Named]:
        """The devices by their numbers among all processes."""
        trace, known, found = (
            self.trace,
            device_properties(self.trace),
            dict[int, Named](),
        )
        for track in np.flatnonzero(np.bincount(trace.track[trace.gpu_rows])).tolist():
            pid = trace.tracks[track].pid
            name = known.get(pid, {}).get("name")
            found[int(trace.process_of_track[track])] = Named(
                pid, name if isinstance(name, str) else ""
            )
        return found

    def _lines(self, processes: Sequence[int]) -> tuple[Devices, ...]:
        trace, most, lines = self.trace, TimeLine(self.trace).most, []
        for at in range(0, len(processes), most):
            own = processes[at : at + most]
            number = np.full(len(trace.tracks) + 1, -1, dtype=np.int32)
            number[own] = np.arange(len(own))  # by process
            named = [self._processes[process] for process in own]
            lines.append(
                Devices(trace, self.launchers, named, number[trace.process_of_track])
            )
        return tuple(lines)


def line_of(trace: Trace, thread: int) -> Iterator[tuple[Threads, int]]:
    """The line of a thread, if it has one; how much farther its places are than times
    of the file."""
    for line in once(trace, Accounts).threads:
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


WAITS = late(
    r"<built-in (?:method|function) (?:acquire|sleep|select|poll|wait\w*|recv\w*|accept)\b"
    r"|<method '(?:acquire|poll|wait\w*|recv\w*|accept)' of"
)
"""Frames of functions that wait for a lock, a time, a process or a socket."""


def cpu_accounts(
    accounts: Accounts, window: tuple[int, int] | None = None
) -> tuple[ThreadAccount, ...]:
    """Each thread in the order of the lanes; if there is a window [begin, end), in ns
    of the file, only its part."""
    by_track = [
        one
        for line in accounts.threads
        for one in _accounts(accounts.trace, line, window)
    ]
    return tuple(account for _, account in sorted(by_track, key=lambda one: one[0]))


def _accounts(
    trace: Trace, line: Threads, window: tuple[int, int] | None
) -> Iterator[tuple[int, ThreadAccount]]:
    """Of each thread, by its first track."""
    firsts = np.array([track.first_row for track in trace.tracks])
    ends = np.maximum.reduceat(trace.end, firsts)
    on_cpu = np.array([track.layer in CPU_LAYERS for track in trace.tracks])
    tracks = np.flatnonzero(line.tracks & on_cpu)
    _, first, own = np.unique(
        trace.thread_of_track[tracks], return_index=True, return_inverse=True
    )
    track, begin = tracks[first], np.full(len(first), np.iinfo(np.int64).max)
    end = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(begin, own, trace.start[firsts[tracks]])
    np.maximum.at(end, own, ends[tracks])
    if window is not None:
        begin, end = np.clip(begin, *window), np.clip(end, *window)
    first, last = line.on_line(track, begin), line.on_line(track, end)
    split = line.split(first, last)
    waits = common(line.covers[Host.PYTHON], waiting_frames(trace, line)).within(
        first, last
    )
    inside = common(line.covers[Host.ANNOTATION], _collectives(trace, line)).within(
        first, last
    )
    op = split[Host.ALLOC] + split[Host.CALL] + split[Host.OP]
    noted, waited = split[Host.ANNOTATION] - inside, split[Host.SYNC] + waits + inside
    nothing = noted + split[Host.NOTHING]
    columns = (
        end - begin,
        op,
        split[Host.PYTHON] - waits,
        waited,
        nothing,
        noted,
        inside,
    )
    for at, figures in zip(track.tolist(), np.stack(columns).T.tolist(), strict=True):
        one = trace.tracks[at]
        yield (
            at,
            ThreadAccount(exact_id(one.pid), exact_id(one.tid), one.label, *figures),
        )


def _collectives(trace: Trace, line: Threads) -> Cover:
    """The time in which a collective runs on the CPU: an annotation that lasts until it
    is done."""
    marks = line.slices(Host.ANNOTATION)
    return union(*marks.only(trace.matching(marks.rows, ON_CPU.match))[1:])


def waiting_frames(trace: Trace, line: Threads) -> Cover:
    """The time in which the innermost frame is that of a function that waits."""
    waits = union(*line.bounds(line.own(trace.rows_named(WAITS.search, Role.PYTHON))))
    parts = line.slices(Host.PYTHON).begun_in(waits)[0].parts()  # and what they call
    return union(*parts.only(trace.matching(parts.rows, WAITS.search))[1:])
