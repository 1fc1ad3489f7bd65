"""What a device did while a kernel ran: clocks, power and activity, as counters
recorded it.

The names are those of torch's CUPTI monitor (2.14) and of the GPU metrics of Nsight
Systems.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.counters import Counter, counters
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median

OWNER = r"GPU (\d{1,9})(?: .{0,40})?"
CLOCK, POWER = "SM clock", "power"
KINDS = (
    (CLOCK, "MHz", r"(?:SM|GPC) Clock\b"),
    ("memory clock", "MHz", r"Memory Clock\b"),
    (POWER, "W", r"Power\b.{0,9}\(W\)"),
    ("temperature", "C", r"Temperature\b"),
    ("SM activity", "%", r"SMs? Active\b"),
    ("DRAM read", "%", r"(?:DRAM|HBM) (?:BW/)?Read\b"),
    ("DRAM write", "%", r"(?:DRAM|HBM) (?:BW/)?Write\b"),
    ("DRAM activity", "%", r"(?:DRAM|HBM) BW\b(?!/)"),
)
"""What is known of a counter, its unit, and a pattern of the beginning of its name."""
STALE = 10
"""A value holds until the next one, but for no longer than this many times the usual
distance."""
LONGEST_NS = 1 << 60  # times of a file are below 1 << 62


class DeviceCounter(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A counter of one device."""

    device: Id
    kind: str
    unit: str
    counter: Counter

    def mean(self, begin: Int64s, end: Int64s) -> NDArray[np.float64]:
        """The mean over each [begin, end) in ns of the file, weighted by time; at
        `begin` where that is empty. nan where part of it is not covered. Shape [n]."""
        time, value, until = (
            self.counter.time,
            self.counter.value,
            np.maximum(end - 1, begin),
        )
        first, last = (
            time.searchsorted(times, side="right") - 1 for times in (begin, until)
        )
        covered = (first >= 0) & (until < self._until[last])
        covered &= self._gaps[last] == self._gaps[first]
        before, sums = (  # the integral from the first value
            self._before[at] + (times - time[at]) * value[at]
            for times, at in ((begin, first), (end, last))
        )
        means = np.where(
            end > begin, (sums - before) / np.maximum(end - begin, 1), value[first]
        )
        return np.where(covered, means, np.nan)

    @cached_property
    def _until(self) -> Int64s:
        """Until when each value holds; shape [values]."""
        time = self.counter.time
        usual = median(np.diff(time)) if len(time) > 1 else 0
        holds = min(STALE * max(usual, 1), LONGEST_NS)
        found: Int64s = np.minimum(
            np.append(time[1:], np.iinfo(np.int64).max), time + holds
        )
        return found

    @cached_property
    def _gaps(self) -> Int64s:
        """How many values before each held for less than until the next."""
        gaps = self._until[:-1] < self.counter.time[1:]
        return np.concatenate(([0], np.cumsum(gaps)))

    @cached_property
    def _before(self) -> NDArray[np.float64]:
        """The integral up to each value."""
        parts = self.counter.value[:-1] * np.diff(self.counter.time)
        return np.concatenate(([0.0], np.cumsum(parts)))


@memo()
def device_counters(trace: Trace) -> tuple[DeviceCounter, ...]:
    """Those of devices whose kind is known; reads the counters of the file, if it has
    any."""
    if not trace.report.phases["C"]:
        return ()
    return of_devices(counters(trace))


def of_devices(every: Sequence[Counter]) -> tuple[DeviceCounter, ...]:
    """Of each device and kind the first."""
    found: dict[tuple[Id, str], DeviceCounter] = {}
    for one in every:
        device = device_of(one.pid)
        known = next(
            (kind[:2] for kind in KINDS if re.match(kind[2], one.label, re.I)), None
        )
        if (
            device is not None
            and known is not None
            and one.group.startswith("counters")
        ):
            found.setdefault((device, known[0]), DeviceCounter(device, *known, one))
    return tuple(found.values())


def device_of(pid: Id) -> Id:
    """The device that a counter belongs to, None where that is not told."""
    if isinstance(pid, str):
        match = re.fullmatch(OWNER, pid)
        return int(match[1]) if match else None
    return pid
