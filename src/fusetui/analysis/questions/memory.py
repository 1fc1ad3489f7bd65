"""The most memory that torch used of each GPU: what it had handed out, and what it
held."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.layout.counters import DEVICES, TOTALS, finite
from fusetui.trace.model.arrays import Floats, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import LARGEST
from fusetui.trace.read.samples import PLACE, totals_in

KEPT_AS = "memory"
GPUS = [kind for kind, name in DEVICES.items() if name == "GPU"]
DEVICE, ALLOCATED, RESERVED = 1, 2, 3  # columns


class MemoryPeak(msgspec.Struct, frozen=True):
    """The largest totals of one GPU, in bytes; they need not be of the same moment."""

    device: int
    allocated: int
    reserved: int


class MemoryPeaks(msgspec.Struct, frozen=True):
    """Of every GPU that the file has both totals of."""

    peaks: tuple[MemoryPeak, ...]
    # any memory event: of 2021 they have no totals, and some are of the CPU
    is_recorded: bool


class StretchPeaks(NamedTuple):
    """Of one stretch: the device, and its largest totals (bytes), of each GPU that has
    any; nan for one that is not recorded."""

    most: tuple[tuple[int, float, float], ...] = ()
    is_recorded: bool = False


def memory_peaks(trace: Trace) -> MemoryPeaks:
    """Reads the memory events of the file, but only once if the trace is in the
    cache."""
    found = trace.elements.recall(KEPT_AS, MemoryPeaks)
    if found is None:
        events = trace.elements
        found = peaks_of(
            peaks_in(events, number) for number in range(len(events.stretches))
        )
        events.keep(KEPT_AS, found)
    return found


def peaks_in(events: Events, number: int, totals: Floats | None = None) -> StretchPeaks:
    """Reads one stretch, unless what `totals_in` gives of it is known."""
    if not events.stretches[number].samples:
        return StretchPeaks()
    totals = (
        totals_in(events.text, events.stretches[number]) if totals is None else totals
    )
    totals = _one_by_one(events, number) if totals is None else totals
    gpus = totals[
        np.logical_or.reduce([totals[:, 0] == kind for kind in GPUS])
        & (totals[:, DEVICE] >= 0)
    ]
    # 9 PB: no number of bytes
    gpus[:, ALLOCATED:][gpus[:, ALLOCATED:] > LARGEST] = np.nan
    most = tuple(
        (
            int(device),
            *np.fmax.reduce(gpus[gpus[:, DEVICE] == device][:, ALLOCATED:]).tolist(),
        )
        for device in distinct(gpus[:, DEVICE])
    )
    return StretchPeaks(most, bool(len(totals)))


def peaks_of(parts: Iterable[StretchPeaks]) -> MemoryPeaks:
    """From the parts of all stretches."""
    most: dict[int, tuple[float, float]] = {}
    is_recorded = False
    for part in parts:
        is_recorded |= part.is_recorded
        for device, *totals in part.most:
            allocated, reserved = np.fmax(
                most.get(device, (np.nan, np.nan)), totals
            ).tolist()
            most[device] = allocated, reserved
    known = {
        device: totals for device, totals in most.items() if not np.isnan(totals).any()
    }
    peaks = (
        MemoryPeak(device, *(max(int(n), 0) for n in known[device])) for device in known
    )
    return MemoryPeaks(tuple(peaks), is_recorded)


def _one_by_one(events: Events, number: int) -> Floats:
    """What `totals_in` gives, of a stretch that it cannot read."""
    every = [sample.args for sample, _ in events.samples(number) if sample.is_memory]
    places = [
        [n if type(n := args.get(name)) is int else None for name in PLACE]
        for args in every
    ]
    totals = [[finite(args.get(name)) for name in TOTALS] for args in every]
    rows = [[*place, *total] for place, total in zip(places, totals, strict=True)]
    return np.array(rows, dtype=np.float64).reshape(-1, len(PLACE) + len(TOTALS))
