"""The longest gaps, and what is reported about each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.account import Device
from fusetui.trace.insights.covering import Covering, covering, inside_of
from fusetui.trace.insights.gaps import IDLE, Cuts, Gaps
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.model import Gap
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.program.regions import MODULE_PREFIX

Rows = NDArray[np.intp]
Idle = tuple[Gaps, Cuts, NDArray[np.int64]]
"""See Device.idle_in."""

LONGEST = 100
"""The number of gaps that are reported, unless all are asked for."""


class Listed(msgspec.Struct, frozen=True):
    """Gaps, the longest first, and how many there are in all."""

    gaps: tuple[Gap, ...]
    count: int


def longest_gaps(
    devices: Sequence[Device], most: int | None = LONGEST, window: tuple[int, int] | None = None
) -> Listed:
    """The gaps of all devices together; None for all. `window`: what lies in [begin, end), in ns of
    the file; a gap across its border counts with the part inside, as in the account."""
    idle = [device.idle_in(window) for device in devices]
    found = [
        gap
        for device, own in zip(devices, idle, strict=True)
        for gap in _told(device, own, _longest(own[0], most))
    ]
    found.sort(key=lambda gap: (-gap.dur_ns, gap.start_ns))
    return Listed(tuple(found[:most]), sum(len(gaps) for gaps, *_ in idle))


def gaps_of(device: Device, which: Rows) -> list[Gap]:
    """Some gaps of a device, by their indices in `device.gaps`."""
    return _told(device, device.idle_in(None), which)


def _told(device: Device, idle: Idle, which: Rows) -> list[Gap]:
    trace, (gaps, cuts, reasons) = device.trace, idle
    rows = _explained(device, gaps, cuts, which)
    names = (rows.op, rows.annotation, rows.module, rows.frame, _drained_by(device, gaps, which))
    columns = (
        gaps.begin[which].tolist(),
        (gaps.end[which] - gaps.begin[which]).tolist(),
        reasons[:, which].T.tolist(),
        _names(trace, gaps.before[which]),
        gaps.event[which].tolist(),
        gaps.launch[which].tolist(),
        zip(*(_names(trace, row) for row in names), strict=True),
    )
    return [
        Gap(
            device=exact_id(device.pid),
            start_ns=start,
            dur_ns=dur,
            idle={name: ns for name, ns in zip(IDLE, why, strict=True) if ns},
            previous=before,
            next=trace.name_of(event),
            op=op,
            annotation=annotation,
            module=module.removeprefix(MODULE_PREFIX) if module else None,
            frame=frame,
            drained_by=drained,
            event_row=event,
            launch_row=launch,
        )
        for start, dur, why, before, event, launch, (op, annotation, module, frame, drained) in zip(
            *columns, strict=True
        )
    ]


def _explained(device: Device, gaps: Gaps, cuts: Cuts, which: Rows) -> Covering:
    """The rows that covered most of the host part of some gaps; for a gap without one, of the
    launch call that was running."""
    trace = device.trace
    begin, called, returned = gaps.begin[which], cuts.called[which], cuts.returned[which]
    waits = called > begin
    first, last = np.where(waits, begin, called), np.where(waits, called, returned)
    known = gaps.plain[which] & (last > first)
    found = np.full((4, len(which)), -1, dtype=np.intp)
    track = trace.track[np.maximum(gaps.launch[which], 0)]
    for line in device.accounts.threads:
        own = np.flatnonzero(known & line.tracks[track])
        if len(own):
            on = track[own]
            most = covering(trace, line, line.on_line(on, first[own]), line.on_line(on, last[own]))
            found[:, own] = most.op, most.annotation, most.module, most.frame
    return Covering(*found)


def _drained_by(device: Device, gaps: Gaps, which: Rows) -> Rows:
    """The call that waits for the device inside which the launching thread was when a gap began,
    -1 for none, or if the next event had been launched by then; shape of `which`."""
    trace = device.trace
    found = np.full(len(which), -1, dtype=np.intp)
    launch = gaps.launch[which]
    track = trace.track[np.maximum(launch, 0)]
    for line in device.accounts.threads:
        late = (launch >= 0) & (trace.start[launch] > gaps.begin[which])
        own = np.flatnonzero(late & line.tracks[track])
        if len(own):
            times = line.on_line(track[own], gaps.begin[which[own]])
            found[own] = inside_of(trace, line, Host.SYNC, times)
    return found


def _longest(gaps: Gaps, most: int | None) -> Rows:
    return np.argsort(gaps.begin - gaps.end, kind="stable")[:most]


def _names(trace: Trace, rows: Rows) -> list[str | None]:
    return [trace.name_of(row) if row >= 0 else None for row in rows.tolist()]
