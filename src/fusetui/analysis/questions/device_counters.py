"""The state of a device while a kernel ran: clocks, power and activity, from counters.

The names are those of torch's CUPTI monitor (2.14) and of the GPU metrics of Nsight
Systems.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.counters import Counter, counters
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median

_OWNER: Final = r"GPU (\d{1,9})(?: .{0,40})?"
CLOCK: Final = "SM clock"
POWER: Final = "power"


class _CounterKind(NamedTuple):
    """What a counter counts."""

    kind: str
    unit: str
    beginning: str  # a pattern of how its name begins, in any case


_KINDS: Final = (
    _CounterKind(CLOCK, "MHz", r"(?:SM|GPC) Clock\b"),
    _CounterKind("memory clock", "MHz", r"Memory Clock\b"),
    _CounterKind(POWER, "W", r"Power\b.{0,9}\(W\)"),
    _CounterKind("temperature", "C", r"Temperature\b"),
    _CounterKind("SM activity", "%", r"SMs? Active\b"),
    _CounterKind("DRAM read", "%", r"(?:DRAM|HBM) (?:BW/)?Read\b"),
    _CounterKind("DRAM write", "%", r"(?:DRAM|HBM) (?:BW/)?Write\b"),
    _CounterKind("DRAM activity", "%", r"(?:DRAM|HBM) BW\b(?!/)"),
)
_MAX_HOLD_INTERVALS: Final = 10
"""A value holds until the next one, but for no longer than this many times the usual
distance."""

_MAX_HOLD_NS: Final = 1 << 60  # times of a file are below 1 << 62


class DeviceCounter(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A counter of one device."""

    device: Id
    kind: str
    unit: str
    counter: Counter

    def mean(self, begin: Int64s, end: Int64s) -> NDArray[np.float64]:
        """The mean over each [begin, end) in ns of the file, weighted by time; at
        `begin` where that is empty. nan where part of it is not covered. Shape [n]."""
        time = self.counter.time
        last_ns = np.maximum(end - 1, begin)
        first_value = time.searchsorted(begin, side="right") - 1
        last_value = time.searchsorted(last_ns, side="right") - 1
        is_covered = (first_value >= 0) & (last_ns < self._holds_until[last_value])
        is_covered &= self._gaps_before[last_value] == self._gaps_before[first_value]
        integral = self._integral(end, last_value) - self._integral(begin, first_value)
        mean = np.where(
            end > begin,
            integral / np.maximum(end - begin, 1),
            self.counter.value[first_value],
        )
        return np.where(is_covered, mean, np.nan)

    def _integral(self, times: Int64s, value: Rows) -> NDArray[np.float64]:
        """The integral from the first value up to each time; `value`: the index of the
        one that holds then."""
        since_ns = times - self.counter.time[value]
        return self._integral_before[value] + since_ns * self.counter.value[value]

    @cached_property
    def _holds_until(self) -> Int64s:
        """Until when (ns) each value holds; shape [values]."""
        time = self.counter.time
        usual_ns = median(np.diff(time)) if len(time) > 1 else 0
        max_hold_ns = min(_MAX_HOLD_INTERVALS * max(usual_ns, 1), _MAX_HOLD_NS)
        next_time = np.append(time[1:], np.iinfo(np.int64).max)
        until: Int64s = np.minimum(next_time, time + max_hold_ns)
        return until

    @cached_property
    def _gaps_before(self) -> Int64s:
        """How many values before each held for less than until the next."""
        has_gap = self._holds_until[:-1] < self.counter.time[1:]
        return np.concatenate(([0], np.cumsum(has_gap)))

    @cached_property
    def _integral_before(self) -> NDArray[np.float64]:
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
    first: dict[tuple[Id, str], DeviceCounter] = {}
    for counter in every:
        device = device_of(counter.pid)
        kind = _kind_of(counter)
        if device is None or kind is None or not counter.group.startswith("counters"):
            continue
        device_counter = DeviceCounter(
            device=device, kind=kind.kind, unit=kind.unit, counter=counter
        )
        first.setdefault((device, kind.kind), device_counter)
    return tuple(first.values())


def _kind_of(counter: Counter) -> _CounterKind | None:
    for kind in _KINDS:
        if re.match(kind.beginning, counter.label, re.IGNORECASE):
            return kind
    return None


def device_of(pid: Id) -> Id:
    """The device that a counter belongs to, None where that is not told."""
    if isinstance(pid, str):
        match = re.fullmatch(_OWNER, pid)
        return int(match[1]) if match else None
    return pid
