"""Counters and the memory that torch used: values over time, read on demand.

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
from contextlib import suppress
from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Floats, Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Sample
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import keep_result, kept_result
from fusetui.trace.model.report import Stop, never

# the most series of counters, and of memory, that are kept; others are only counted
MOST = 64
MOST_COUNTED = 10_000

TOTALS = {"Total Allocated": "allocated", "Total Reserved": "reserved"}
# c10::DeviceType; 6 is HIP
DEVICES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 19: "MTIA"}


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
    name: str
    id: str
    series: str


class Series:
    """The values of each key in file order."""

    def __init__(self) -> None:
        self.columns: dict[Key, tuple[array[int], array[float]]] = {}
        self._others: set[Key] = set()

    def add(self, key: Key, time: int, value: object) -> None:
        """Adds a value, unless it is not a finite number."""
        if (number := finite(value)) is None:
            return
        if key not in self.columns and len(self.columns) == MOST:
            if len(self._others) < MOST_COUNTED:
                self._others.add(key)
            return
        times, values = self.columns.setdefault(key, (array("q"), array("d")))
        times.append(time)
        values.append(number)

    def counters(
        self, group: str, unit: str, labels: dict[Key, str]
    ) -> Iterator[Counter]:
        """Those with a label, which names the process too where two have the same."""
        used, count = Counts(labels.values()), len(self._others)
        more = f"{count:,}" if count < MOST_COUNTED else f"{count:,} or"
        group += f", {more} more not shown" if count else ""
        for key, label in labels.items():
            time, value = map(np.array, self.columns[key])
            order = np.argsort(time, kind="stable")
            label = f"{label} of {key.pid}" if used[label] > 1 else label
            yield Counter(group, label, unit, key.pid, time[order], value[order])


def counters(trace: Trace, stop: Stop = never) -> tuple[Counter, ...]:
    """Every series of the trace: memory, GPUs first, then counters in file order.

    Reads the relevant parts of the file again, leaving out what cannot be read any
    more. Ends early with what was found once `stop` returns True.
    """
    if known := kept_result(trace, counters):
        return known  # type: ignore[no-any-return]
    memory, plain = Series(), Series()
    for number, stretch in enumerate(trace.elements.stretches):
        if stop():
            break
        if stretch.samples:
            for sample, time in trace.elements.samples(number):
                if sample.is_memory:
                    _add_memory(memory, sample, time)
                    continue
                for name, value in sample.args.items():
                    plain.add(
                        Key(sample.pid, sample.name, sample.id, name), time, value
                    )
    found = (*_of_memory(memory), *_of_counters(plain))
    if not stop():
        keep_result(trace, counters, found)
    return found


def _add_memory(series: Series, sample: Sample, time: int) -> None:
    """Both totals of the device, which traces from 2021 do not have."""
    kind, device = sample.args.get("Device Type"), sample.args.get("Device Id")
    if type(kind) is not int or type(device) is not int:
        return
    name = DEVICES.get(kind, f"device type {kind}") + (
        f" {device}" if device >= 0 else ""
    )
    for arg, total in TOTALS.items():
        series.add(Key(sample.pid, name, str(kind), total), time, sample.args.get(arg))


def finite(value: object) -> float | None:
    """None for what is not a finite number."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    with suppress(OverflowError):
        return number if math.isfinite(number := float(value)) else None
    return None


def _of_memory(series: Series) -> Iterator[Counter]:
    """Without series that are always zero: the CPU's allocator has no reserved
    memory."""
    used = [key for key, (_, values) in series.columns.items() if any(values)]
    used.sort(key=lambda key: (key.id == "0", key.id, len(key.name), key.name))
    return series.counters(
        "memory", "bytes", {key: f"{key.name} {key.series}" for key in used}
    )


def _of_counters(series: Series) -> Iterator[Counter]:
    several = Counts(key._replace(series="") for key in series.columns)
    labels: dict[Key, str] = {}
    for key in series.columns:
        plain = several[key._replace(series="")] == 1 or key.series == key.name
        parts = (key.name, key.id, "" if plain else key.series)
        labels[key] = " ".join(part for part in parts if part) or "counter"
    return series.counters("counters", "", labels)


# number of samples that are searched linearly, which takes a few microseconds
AT_ONCE = 1 << 14


class Curve(msgspec.Struct, frozen=True, eq=False):
    """A counter, and the largest of every two, four, eight, ... neighboring values."""

    counter: Counter
    levels: tuple[Floats, ...]  # shapes [n], [n // 2], [n // 4], ...
    largest: float  # of all values


def curve_of(counter: Counter) -> Curve:
    """Computed once per counter."""
    levels = [counter.value]
    while len(levels[-1]) > 1:
        below = levels[-1][: len(levels[-1]) // 2 * 2]
        levels.append(np.maximum(below[::2], below[1::2]))
    return Curve(counter, tuple(levels), float(counter.value.max()))


def values(curve: Curve, borders: Int64s, at_once: int = AT_ONCE) -> Floats:
    """The largest value in each cell, else the last one before it; nan before the
    first.

    `borders` are the W + 1 edges of the cells in ns (see raster.edges); the result has
    shape [W]. The samples of a cell are halved until at most `at_once` are left.
    """
    time, value = curve.counter.time, curve.counter.value
    at = np.searchsorted(time, borders, side="left")
    first, last = at[:-1], at[1:]
    held = np.where(first > 0, value[np.maximum(first - 1, 0)], np.nan)
    return np.where(last > first, _largest(curve.levels, first, last, at_once), held)


def _largest(
    levels: tuple[Floats, ...], first: Int64s, last: Int64s, at_once: int
) -> Floats:
    """The largest value in each [first, last); -inf if that is empty.

    The lower levels are used only at both ends of a range.
    """
    found = np.full(len(first), -np.inf)
    for level in levels:
        if last[-1] - first[0] <= at_once:
            cells = np.flatnonzero(first < last)
            if len(cells):
                cuts = np.stack([first[cells], last[cells]], axis=1).ravel()
                largest = np.maximum.reduceat(level[: cuts[-1]], cuts[:-1])[::2]
                found[cells] = np.maximum(found[cells], largest)
            break
        for odd, at in ((first % 2 == 1, first), (last % 2 == 1, last - 1)):
            cells = np.flatnonzero((first < last) & odd)
            found[cells] = np.maximum(found[cells], level[at[cells]])
        first, last = (first + 1) // 2, last // 2
    return found
