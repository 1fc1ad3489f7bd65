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
from fusetui.trace.model.arrays import Int64s, Rows, last_at_or_before, prefix_sums
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median

_OWNER: Final = r"GPU (\d{1,9})(?: .{0,40})?"
CLOCK: Final = "SM clock"
POWER: Final = "power"


class _CounterKind(NamedTuple):
    """A quantity that counters of several profilers measure."""

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
        """Return the mean of the counter over each of some intervals, weighted by time.

        E.g. of values 10 from 0 ns on and 40 from 20 ns on, the mean from 0 to 30 ns is
        (20 x 10 + 10 x 40) / 30 = 20.

        Args:
            begin: The begin of each interval, in ns of the file.
            end: The end of each. Where it equals the begin, the value there is taken.

        Returns:
            A mean per interval; nan if the counter has no value in some part of it.
        """
        last_ns = np.maximum(end - 1, begin)
        first_value = last_at_or_before(self.counter.time, begin)
        last_value = last_at_or_before(self.counter.time, last_ns)

        has_begun = first_value >= 0
        still_holds = last_ns < self._holds_until[last_value]
        has_no_gap = (
            self._gap_count_before[last_value] == self._gap_count_before[first_value]
        )
        is_known = has_begun & still_holds & has_no_gap

        until_begin = self._integrate_until(begin, first_value)
        until_end = self._integrate_until(end, last_value)
        length_ns = end - begin
        mean_over_length = (until_end - until_begin) / np.maximum(length_ns, 1)
        value_at_begin = self.counter.value[first_value]
        mean = np.where(length_ns > 0, mean_over_length, value_at_begin)
        return np.where(is_known, mean, np.nan)

    def _integrate_until(self, times: Int64s, value: Rows) -> NDArray[np.float64]:
        """Integrate the counter from its first value up to each of some times.

        Args:
            times: The times, in ns of the file.
            value: The index of the value that holds at each of them.
        """
        since_ns = times - self.counter.time[value]
        return self._integral_before[value] + since_ns * self.counter.value[value]

    @cached_property
    def _holds_until(self) -> Int64s:
        """Until when each value holds, in ns of the file.

        That is when the next one is recorded, but at most _MAX_HOLD_INTERVALS (10)
        times the usual interval after its own time.
        """
        time = self.counter.time
        usual_ns = median(np.diff(time)) if len(time) > 1 else 0
        max_hold_ns = min(_MAX_HOLD_INTERVALS * max(usual_ns, 1), _MAX_HOLD_NS)
        never = np.iinfo(np.int64).max
        next_time = np.append(time[1:], never)
        until: Int64s = np.minimum(next_time, time + max_hold_ns)
        return until

    @cached_property
    def _gap_count_before(self) -> Int64s:
        """For each value, how many gaps lie before it. A gap begins when a value has
        been held for too long without a new one."""
        has_gap = self._holds_until[:-1] < self.counter.time[1:]
        return prefix_sums(has_gap)

    @cached_property
    def _integral_before(self) -> NDArray[np.float64]:
        """The integral of the counter from its first value up to each value."""
        parts = self.counter.value[:-1] * np.diff(self.counter.time)
        return prefix_sums(parts)


@memo()
def read_device_counters(trace: Trace) -> tuple[DeviceCounter, ...]:
    """Return the counters of devices in a trace whose kind is known; see `choose_device_counters`.

    If the trace has counters at all, its file is read again.
    """
    if not trace.report.phases["C"]:
        return ()
    return choose_device_counters(counters(trace))


def choose_device_counters(
    all_counters: Sequence[Counter],
) -> tuple[DeviceCounter, ...]:
    """Choose the counters of devices whose kind is known, e.g. that of the power of a
    GPU.

    Of several counters of the same device and kind the first one is chosen. All others
    are left out.

    Args:
        all_counters: All counters of a trace.
    """
    first_counters: dict[tuple[Id, str], DeviceCounter] = {}
    for counter in all_counters:
        device = parse_device(counter.pid)
        kind = _recognize_counter(counter)
        if device is None or kind is None or not counter.group.startswith("counters"):
            continue
        device_counter = DeviceCounter(
            device=device, kind=kind.kind, unit=kind.unit, counter=counter
        )
        first_counters.setdefault((device, kind.kind), device_counter)
    return tuple(first_counters.values())


def _recognize_counter(counter: Counter) -> _CounterKind | None:
    """Return what a counter measures and in which unit, by its name; None if the name
    is not known."""
    for kind in _KINDS:
        if re.match(kind.beginning, counter.label, re.IGNORECASE):
            return kind
    return None


def parse_device(pid: Id) -> Id:
    """Return the device that a counter belongs to; None if it is not known.

    E.g. 1 for the process "GPU 1 (NVIDIA H100)", and 1 for the process 1.
    """
    if isinstance(pid, str):
        match = re.fullmatch(_OWNER, pid)
        return int(match[1]) if match else None
    return pid
