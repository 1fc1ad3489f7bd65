"""Counters and torch's memory use: values over time, read on demand.

A counter is an event of phase C, each of its args the value of one series (Trace Event
Format, "Counter Events"; the only series of Kineto's hardware counters is called "").
For memory, Kineto writes an instant event called [memory] at each allocation, with the
new totals of one device.

What a counter shows in W cells for a window of time takes O(W log n) for n samples.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter as Counts
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Floats, Int64s, reduce_groups
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Sample
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import keep_result, kept_result
from fusetui.trace.model.report import Stop, never

MAX_SERIES = 64
"""Series of counters, and of memory, that are kept; others are only counted."""
MAX_COUNTED_SERIES = 10_000

SERIES_OF_TOTAL = {"Total Allocated": "allocated", "Total Reserved": "reserved"}
"""The args of a [memory] event that are shown, and what their series are called."""
DEVICE_TYPES = {
    0: "CPU",
    1: "GPU",
    6: "GPU",  # HIP
    12: "XPU",
    19: "MTIA",
}
"""c10::DeviceType."""
CPU_TYPE = "0"


class Counter(msgspec.Struct, frozen=True, eq=False):
    """One series: each `value` holds from its time until the next. Arrays are [n], n >
    0."""

    group: str  # "memory" or "counters", and how many series of the group are left out
    label: str
    unit: str  # "bytes", or "" if the file does not say
    pid: Id  # whose it is, as in the file
    time: Int64s  # ns as in the file, sorted
    value: Floats  # finite


class Key(NamedTuple):
    """What distinguishes a series from others."""

    pid: Id
    name: str  # of the counter, or of the device
    id: str  # of the counter, or the type of the device
    series: str  # the arg


class Samples(NamedTuple):
    """The samples of one series, in file order."""

    times: array[int]  # ns as in the file
    values: array[float]


class SeriesGroup:
    """Collects the samples of several series; keeps the first MAX_SERIES of them."""

    def __init__(self) -> None:
        """Start without series."""
        self.samples: dict[Key, Samples] = {}
        self._left_out: set[Key] = set()

    def add(self, key: Key, time: int, value: object) -> None:
        """Add a sample to its series.

        What is not a finite number is ignored. Of series beyond the first MAX_SERIES
        nothing is kept; they are only counted, up to MAX_COUNTED_SERIES.
        """
        number = float_if_finite(value)
        if number is None:
            return
        if key not in self.samples and len(self.samples) == MAX_SERIES:
            if len(self._left_out) < MAX_COUNTED_SERIES:
                self._left_out.add(key)
            return
        samples = self.samples.setdefault(key, Samples(array("q"), array("d")))
        samples.times.append(time)
        samples.values.append(number)

    def counters(
        self, group: str, unit: str, labels: dict[Key, str]
    ) -> Iterator[Counter]:
        """Yield a Counter for each series in `labels`, its samples sorted by time.

        Two series labelled "queue" become "queue of 7" and "queue of 8", by their pids.

        Args:
            group: The heading above them: "memory" or "counters".
            unit: "bytes" or "".
            labels: The label of each series, in the order of the result.
        """
        series_of_label = Counts(labels.values())
        for key, label in labels.items():
            time = np.array(self.samples[key].times)
            value = np.array(self.samples[key].values)
            order = np.argsort(time, kind="stable")
            is_unique = series_of_label[label] == 1
            yield Counter(
                group=group + self._left_out_text(),
                label=label if is_unique else f"{label} of {key.pid}",
                unit=unit,
                pid=key.pid,
                time=time[order],
                value=value[order],
            )

    def _left_out_text(self) -> str:
        """Return what a heading says about series that are not kept: ", 12 more not
        shown"; "" if all are."""
        count = len(self._left_out)
        if not count:
            return ""
        or_more = " or" if count == MAX_COUNTED_SERIES else ""
        return f", {count:,}{or_more} more not shown"


def counters(trace: Trace, stop: Stop = never) -> tuple[Counter, ...]:
    """Read every series of a trace from its file: memory, then counters.

    Of memory, GPUs come first; counters are in the order of the file. What of the file
    cannot be read any more is left out.

    Args:
        trace: The trace. The result is kept with it, for the next call.
        stop: Is asked between parts of the file. Once it returns True, the result is
            what was read by then, and is not kept.
    """
    known: tuple[Counter, ...] | None = kept_result(trace, counters)
    if known:
        return known
    of_memory = SeriesGroup()
    of_counters = SeriesGroup()
    for number, stretch in enumerate(trace.elements.stretches):
        if stop():
            break
        if not stretch.samples:
            continue
        for sample, time in trace.elements.samples(number):
            if sample.is_memory:
                _add_memory(of_memory, sample, time)
            else:
                _add_values(of_counters, sample, time)
    read = (*_memory_counters(of_memory), *_plain_counters(of_counters))
    if not stop():  # not interrupted
        keep_result(trace, counters, read)
    return read


def _add_values(of_counters: SeriesGroup, sample: Sample, time: int) -> None:
    """Add the values of a counter event (phase C), each to its series.

    The args {"reads": 3, "writes": 5} are a value of two series.
    """
    for arg, value in sample.args.items():
        key = Key(pid=sample.pid, name=sample.name, id=sample.id, series=arg)
        of_counters.add(key, time, value)


def _add_memory(of_memory: SeriesGroup, sample: Sample, time: int) -> None:
    """Add the totals of a [memory] event to the series of its device.

    The args {"Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total
    Reserved": 2048} are the value 512 of `GPU 0 allocated` and 2048 of `GPU 0
    reserved`. Traces from 2021 lack the totals; a missing one adds nothing.
    """
    device_type = sample.args.get("Device Type")
    device_id = sample.args.get("Device Id")
    if type(device_type) is not int or type(device_id) is not int:
        return
    name = DEVICE_TYPES.get(device_type, f"device type {device_type}")
    if device_id >= 0:
        name += f" {device_id}"
    for arg, series in SERIES_OF_TOTAL.items():
        key = Key(pid=sample.pid, name=name, id=str(device_type), series=series)
        of_memory.add(key, time, sample.args.get(arg))


def float_if_finite(value: object) -> float | None:
    """Return a number as a float; None for infinity, NaN, True, "5" and whatever else
    is not a finite number."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _memory_counters(of_memory: SeriesGroup) -> Iterator[Counter]:
    """Return the series of memory in order of the devices, the CPU last.

    Series of zeros only are left out: the allocator of the CPU has no reserved memory.
    """
    used = [key for key, samples in of_memory.samples.items() if any(samples.values)]
    # GPU 2 before GPU 10: the shorter name first
    used.sort(key=lambda key: (key.id == CPU_TYPE, key.id, len(key.name), key.name))
    labels = {key: f"{key.name} {key.series}" for key in used}
    return of_memory.counters("memory", "bytes", labels)


def _plain_counters(of_counters: SeriesGroup) -> Iterator[Counter]:
    """Return the series of counters, in the order of the file.

    A counter `disk` with the series `reads` and `writes` has the labels `disk reads`
    and `disk writes`; with a single series, `disk`.
    """
    series_of_counter = Counts(key._replace(series="") for key in of_counters.samples)
    labels: dict[Key, str] = {}
    for key in of_counters.samples:
        is_only_series = series_of_counter[key._replace(series="")] == 1
        words = [key.name, key.id]
        if not is_only_series and key.series != key.name:
            words.append(key.series)
        label = " ".join(word for word in words if word)
        labels[key] = label or "counter"
    return of_counters.counters("counters", "", labels)


MAX_SCANNED_SAMPLES = 1 << 14
"""So many samples are searched one by one, which takes a few microseconds."""


class Curve(msgspec.Struct, frozen=True, eq=False):
    """A counter, and the largest of every two, four, eight, ... neighboring values."""

    counter: Counter
    # level k has the largest of each 2**k neighbors: shapes [n], [n // 2], [n // 4], ...
    levels: tuple[Floats, ...]
    largest: float  # of all values


def curve_of(counter: Counter) -> Curve:
    """Prepare a counter for fast searches of the largest value in a range.

    The values [3, 9, 4, 1, 7] have the levels [3, 9, 4, 1, 7], [9, 4] and [9]: a value
    without a neighbor has no part in the next level.
    """
    levels = [counter.value]
    while len(levels[-1]) > 1:
        even_length = len(levels[-1]) // 2 * 2
        below = levels[-1][:even_length]
        levels.append(np.maximum(below[::2], below[1::2]))
    return Curve(
        counter=counter, levels=tuple(levels), largest=float(counter.value.max())
    )


def values(
    curve: Curve, borders: Int64s, max_scanned: int = MAX_SCANNED_SAMPLES
) -> Floats:
    """Return what a counter shows in each cell of a line on the screen.

    It is the largest value in the cell; in a cell without samples the last value before
    it; nan before the first sample. For samples of 5 at 10 and 8 at 12 ns, the borders
    [0, 10, 20, 30] give [nan, 8, 8].

    Args:
        curve: The counter.
        borders: The edges of the cells in ns of the file, ascending; one more than
            there are cells.
        max_scanned: If the cells have more samples than this, coarser levels of the
            curve are used instead of looking at each sample.
    """
    value = curve.counter.value
    sample_at_border = np.searchsorted(curve.counter.time, borders, side="left")
    first = sample_at_border[:-1]
    end = sample_at_border[1:]
    has_samples = end > first
    last_before = np.where(first > 0, value[np.maximum(first - 1, 0)], np.nan)
    largest = _largest_in_ranges(curve.levels, first, end, max_scanned)
    return np.where(has_samples, largest, last_before)


def _largest_in_ranges(
    levels: tuple[Floats, ...], first: Int64s, end: Int64s, max_scanned: int
) -> Floats:
    """Return the largest value in each range [first, end) of the first level.

    Each range ends where the next one begins. For the values [3, 9, 4, 1, 7] and the
    ranges [0, 3), [3, 3), [3, 5), the result is [9, -inf, 7].

    Of each level only the values at the two ends of a range are looked at that share
    their pair with a value outside; all other pairs are one value of the next level.

    Args:
        levels: Those of `Curve`.
        first: The first index of each range; ascending, at least one.
        end: The index after the last of each range.
        max_scanned: Once all ranges have no more values than this, each is looked at.
    """
    largest = np.full(len(first), -np.inf)
    for level in levels:
        if end[-1] - first[0] <= max_scanned:
            _include_all(largest, level, first, end)
            break
        is_not_empty = first < end
        begins_in_pair = first % 2 == 1
        ends_in_pair = end % 2 == 1
        _include(largest, level, first, is_not_empty & begins_in_pair)
        _include(largest, level, end - 1, is_not_empty & ends_in_pair)
        first = (first + 1) // 2
        end = end // 2
    return largest


def _include_all(largest: Floats, level: Floats, first: Int64s, end: Int64s) -> None:
    """Raise in place each of `largest` to the largest value in its range [first, end).

    Args:
        largest: The largest value of each range so far.
        level: The values.
        first: The first index of each range, ascending.
        end: The index after the last of each range. Ranges do not overlap.
    """
    ranges = np.flatnonzero(first < end)
    if not len(ranges):
        return
    # Every second group is a range, the others are what lies between two ranges.
    starts_and_ends = np.stack([first[ranges], end[ranges]], axis=1).ravel()
    last_end = starts_and_ends[-1]
    in_and_between = reduce_groups(
        np.maximum, level[:last_end], first=starts_and_ends[:-1]
    )
    in_ranges = in_and_between[::2]
    largest[ranges] = np.maximum(largest[ranges], in_ranges)


def _include(largest: Floats, level: Floats, index: Int64s, which: Flags) -> None:
    """Raise in place those of `largest` that `which` marks to `level[index]`."""
    ranges = np.flatnonzero(which)
    largest[ranges] = np.maximum(largest[ranges], level[index[ranges]])
