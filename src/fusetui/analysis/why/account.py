"""The account of each device: every ns of its span, of a step or of a window is in one class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.devices import Devices, Named
from fusetui.analysis.why.gaps import Gaps, Int32s, Reasons
from fusetui.analysis.why.host import Host, Threads, host_kinds, in_lines
from fusetui.analysis.why.line import line_of
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id

Int64s = NDArray[np.int64]


class Accounts:
    """The devices of a trace that ran kernels, copies or sets, in the order of their lanes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """See host.host_kinds."""
        return host_kinds(self.trace)

    @cached_property
    def threads(self) -> tuple[Threads, ...]:
        """All CPU threads, on as many lines of time as they need."""
        tracks = np.zeros(len(self.trace.tracks), dtype=np.bool_)
        tracks[self.trace.track[self.kinds != Host.NOTHING]] = True
        return in_lines(self.trace, self.kinds, tracks)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return devices_on(self.lines)

    @cached_property
    def lines(self) -> tuple[Devices, ...]:
        """All devices, on as many lines of time as they need."""
        return self._lines(range(len(self._processes)))

    def lines_of(self, devices: Sequence[Device]) -> tuple[Devices, ...]:
        """Some of the devices, in the order of their lanes, likewise."""
        pids = {device.pid for device in devices}
        own = [n for n, device in enumerate(self.devices) if device.pid in pids]
        return self.lines if len(own) == len(self.devices) else self._lines(own)

    def as_one(self) -> Devices:
        """All devices as if they were one, by the name of the first one; there must be one."""
        everywhere = np.zeros(len(self.trace.tracks), dtype=np.int32)
        named = [self._named[int(self._processes[0])]]
        return Devices(self.trace, self.threads, named, everywhere, as_one=True)

    @cached_property
    def _processes(self) -> Int32s:
        """The number of each device among all processes."""
        trace = self.trace
        tracks = np.flatnonzero(np.bincount(trace.track[trace.gpu_rows]))
        processes = trace.process_of_track[tracks]
        first = np.unique(processes, return_index=True)[1]
        return processes[np.sort(first)]

    @cached_property
    def _named(self) -> dict[int, Named]:
        """The devices by their numbers among all processes."""
        known = device_properties(self.trace)
        found: dict[int, Named] = {}
        for number, track in zip(
            self.trace.process_of_track.tolist(), self.trace.tracks, strict=True
        ):
            name = known.get(track.pid, {}).get("name")
            found.setdefault(number, Named(track.pid, name if isinstance(name, str) else ""))
        return found

    def _lines(self, chosen: Sequence[int]) -> tuple[Devices, ...]:
        """`chosen`: places in `_processes`."""
        trace, most = self.trace, line_of(self.trace).most
        processes = self._processes[np.array(chosen, dtype=np.intp)]
        lines = []
        for at in range(0, len(processes), most):
            own = processes[at : at + most]
            number = np.full(len(trace.tracks) + 1, -1, dtype=np.int32)
            number[own] = np.arange(len(own))  # by process
            named = [self._named[process] for process in own.tolist()]
            lines.append(Devices(trace, self.threads, named, number[trace.process_of_track]))
        return tuple(lines)


class Device:
    """One device."""

    def __init__(self, line: Devices, number: int) -> None:
        """`number`: its place on the line."""
        self.trace = line.trace
        self.line = line
        self.number = number

    @property
    def pid(self) -> Id:
        return self.line.named[self.number].pid

    @property
    def name(self) -> str:
        """Blank where the file does not tell it."""
        return self.line.named[self.number].name

    @property
    def begin_ns(self) -> int:
        """The first start of its events."""
        return int(self.line.begin_ns[self.number])

    @property
    def end_ns(self) -> int:
        """The last end of its events."""
        return int(self.line.end_ns[self.number])

    @property
    def span(self) -> DeviceAccount:
        """The account from the first start to the last end of its events."""
        return self.line.spans[self.number]

    def over(self, begin: Int64s, end: Int64s) -> list[DeviceAccount]:
        """The account of each window [begin, end) (ns of the file), where begin <= end."""
        return self.line.at(np.full(len(begin), self.number), begin, end)

    @property
    def gaps(self) -> Gaps:
        return self.line.gaps.only(self._places)

    @property
    def reasons(self) -> Reasons:
        """How long each gap lasted for which reason."""
        return tuple(column[self._places] for column in self.line.reasons)

    @cached_property
    def _places(self) -> slice:
        number = self.line.number(self.line.gaps.event)
        return slice(*number.searchsorted((self.number, self.number + 1)).tolist())


def devices_on(lines: Sequence[Devices]) -> tuple[Device, ...]:
    """The devices of some lines, in their order."""
    return tuple(Device(line, n) for line in lines for n in range(len(line)))


def accounts(trace: Trace) -> Accounts:
    """What the devices of a trace did. Each part is computed when it is first needed."""
    return Accounts(trace)
