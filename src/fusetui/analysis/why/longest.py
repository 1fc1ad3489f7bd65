"""The longest gaps, and what is reported about each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.account import Device
from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.dominant_slice import Covering, covering, inside_of
from fusetui.analysis.why.gaps import Gaps, Reasons, cuts_of
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.analysis.why.model import Gap
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.program.regions import MODULE_PREFIX

Rows = NDArray[np.intp]

LONGEST = 100
"""The number of gaps that are reported, unless all are asked for."""


class Listed(msgspec.Struct, frozen=True):
    """Gaps, the longest first, and how many there are in all."""

    gaps: tuple[Gap, ...]
    count: int


def longest_gaps(
    lines: Sequence[Devices], most: int | None = LONGEST, window: tuple[int, int] | None = None
) -> Listed:
    """The gaps of all devices together; None for all. `window`: what lies in [begin, end), in ns of
    the file; a gap across its border counts with the part inside, as in the account."""
    found: list[Gap] = []
    number = 0
    for line in lines:
        gaps, why = line.idle_in(window)
        number += len(gaps)
        found += told_of(line, gaps, why, longest(gaps, most))
    found.sort(key=lambda gap: (-gap.dur_ns, gap.start_ns))
    return Listed(tuple(found[:most]), number)


def gaps_of(device: Device, which: Rows) -> list[Gap]:
    """Some gaps of a device, by their indices in `device.gaps`."""
    return told_of(device.line, device.gaps, device.reasons, which)


def longest(gaps: Gaps, most: int | None) -> Rows:
    """The places of the longest gaps, of equal ones the earliest."""
    lasted = gaps.end - gaps.begin
    among = np.arange(len(gaps))
    if most is not None and most < len(gaps):
        least = np.partition(lasted, -most)[-most]
        more = np.flatnonzero(lasted > least)
        equal = np.flatnonzero(lasted == least)
        rest = most - len(more)
        if rest < len(equal):
            equal = equal[np.argsort(gaps.begin[equal], kind="stable")[:rest]]
        among = np.concatenate((more, equal))
        among.sort()
    return among[np.lexsort((gaps.begin[among], -lasted[among]))]


def told_of(line: Devices, every: Gaps, why: Reasons, which: Rows) -> list[Gap]:
    """What is known about some of these gaps, by their places and with their reasons."""
    trace, gaps = line.trace, every.only(which)
    rows = _explained(line, gaps)
    names = (rows.op, rows.annotation, rows.module, rows.frame, _drained_by(line, gaps))
    columns = (
        line.number(gaps.event).tolist(),
        gaps.begin.tolist(),
        (gaps.end - gaps.begin).tolist(),
        np.stack([column[which] for column in why]).T.tolist(),
        _names(trace, gaps.before),
        gaps.event.tolist(),
        gaps.launch.tolist(),
        zip(*(_names(trace, row) for row in names), strict=True),
    )
    return [
        Gap(
            device=exact_id(line.named[number].pid),
            start_ns=start,
            dur_ns=dur,
            idle={name: ns for name, ns in zip(IDLE, reasons, strict=True) if ns},
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
        for number, start, dur, reasons, before, event, launch, (
            op,
            annotation,
            module,
            frame,
            drained,
        ) in zip(*columns, strict=True)
    ]


def _explained(line: Devices, gaps: Gaps) -> Covering:
    """The rows that covered most of the host part of gaps; for a gap without one, of the launch
    call that was running."""
    trace, cuts = line.trace, cuts_of(line.trace, gaps, line.latency_of(gaps))
    waits = cuts.called > gaps.begin
    first = np.where(waits, gaps.begin, cuts.called)
    last = np.where(waits, cuts.called, cuts.returned)
    known = gaps.plain & (last > first)
    found = np.full((4, len(gaps)), -1, dtype=np.intp)
    track = trace.track[np.maximum(gaps.launch, 0)]
    for threads in line.threads:
        own = np.flatnonzero(known & threads.tracks[track])
        if len(own):
            begin, end = (threads.on_line(track[own], times[own]) for times in (first, last))
            most = covering(trace, threads, begin, end)
            found[:, own] = most.op, most.annotation, most.module, most.frame
    return Covering(*found)


def _drained_by(line: Devices, gaps: Gaps) -> Rows:
    """The call that waits for the device inside which the launching thread was when a gap began,
    -1 for none, or if the next event had been launched by then; shape [gaps]."""
    trace = line.trace
    found = np.full(len(gaps), -1, dtype=np.intp)
    called = np.maximum(gaps.launch, 0)
    track, late = trace.track[called], trace.start[called] > gaps.begin
    for threads in line.threads:
        own = np.flatnonzero((gaps.launch >= 0) & late & threads.tracks[track])
        if len(own):
            times = threads.on_line(track[own], gaps.begin[own])
            found[own] = inside_of(trace, threads, Host.SYNC, times)
    return found


def _names(trace: Trace, rows: NDArray[np.integer]) -> list[str | None]:
    return [trace.name_of(row) if row >= 0 else None for row in rows.tolist()]
