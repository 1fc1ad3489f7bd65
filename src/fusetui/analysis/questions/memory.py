"""The peak of allocated and reserved torch memory on each GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.layout.counters import DEVICE_TYPES, SERIES_OF_TOTAL, float_if_finite
from fusetui.trace.model.arrays import Floats, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import LARGEST
from fusetui.trace.read.samples import PLACE, read_totals

KEPT_AS: Final = "memory"
_GPU_KINDS: Final = [kind for kind, name in DEVICE_TYPES.items() if name == "GPU"]
# columns of what `read_totals` gives
_KIND: Final = 0
_DEVICE: Final = 1
_TOTALS: Final = slice(2, 4)  # allocated and reserved


class MemoryPeak(msgspec.Struct, frozen=True):
    """The largest totals of one GPU, in bytes; they need not be of the same moment."""

    device: int
    allocated: int
    reserved: int


class MemoryPeaks(msgspec.Struct, frozen=True):
    """The largest totals of all GPUs of a trace."""

    peaks: tuple[MemoryPeak, ...]  # of the GPUs for which both totals are recorded
    # Whether there is any memory event. Those of 2021 have no totals, and some are of
    # the CPU.
    is_recorded: bool


class DeviceTotals(NamedTuple):
    """The largest totals of one GPU in bytes; nan for one that is not recorded."""

    device: int
    allocated: float
    reserved: float


class StretchPeaks(NamedTuple):
    """The largest totals of GPUs in one stretch, a part of the file."""

    most: tuple[DeviceTotals, ...] = ()  # of each GPU that has any totals there
    is_recorded: bool = False  # whether it has any memory event


def find_memory_peaks(trace: Trace) -> MemoryPeaks:
    """Return the most memory that torch allocated and reserved on each GPU.

    The memory events of the file are read once. The result is kept beside the cache of
    the trace, if there is one.
    """
    events = trace.elements
    peaks = events.recall(KEPT_AS, MemoryPeaks)
    if peaks is None:
        numbers = range(len(events.stretches))
        peaks = combine_peaks(
            find_peaks_in_stretch(events, number) for number in numbers
        )
        events.keep(KEPT_AS, peaks)
    return peaks


def find_peaks_in_stretch(
    events: Events, number: int, totals: Floats | None = None
) -> StretchPeaks:
    """Find the largest totals of GPUs in one stretch of a file.

    Args:
        events: The events of the file.
        number: The index of the stretch.
        totals: What `read_totals` returns for it, if it was read already: a row for each
            memory event, with kind of device, device, allocated and reserved bytes.
    """
    stretch = events.stretches[number]
    if not stretch.samples:
        return StretchPeaks()
    if totals is None:
        totals = read_totals(events.text, stretch)
    if totals is None:
        totals = _read_totals_one_by_one(events, number)

    device_of_event = totals[:, _DEVICE]
    is_gpu = np.isin(totals[:, _KIND], _GPU_KINDS) & (device_of_event >= 0)
    sizes = totals[:, _TOTALS]
    sizes = np.where(sizes > LARGEST, np.nan, sizes)  # 9 PB: no number of bytes
    most = []
    for device in distinct(device_of_event[is_gpu]):
        is_of_device = is_gpu & (device_of_event == device)
        allocated, reserved = np.fmax.reduce(sizes[is_of_device]).tolist()
        most.append(
            DeviceTotals(device=int(device), allocated=allocated, reserved=reserved)
        )
    return StretchPeaks(most=tuple(most), is_recorded=len(totals) > 0)


def combine_peaks(parts: Iterable[StretchPeaks]) -> MemoryPeaks:
    """Combine the memory peaks of all stretches, which are the parts in which a file is
    read.

    A GPU with only one of the two totals (allocated and reserved) is left out. Negative
    totals become 0.
    """
    largest_of_device: dict[int, DeviceTotals] = {}
    is_recorded = False
    for part in parts:
        is_recorded |= part.is_recorded
        for totals in part.most:
            so_far = largest_of_device.get(totals.device, totals)
            largest_of_device[totals.device] = DeviceTotals(
                device=totals.device,
                # fmax returns the other one if one of the two is nan.
                allocated=float(np.fmax(so_far.allocated, totals.allocated)),
                reserved=float(np.fmax(so_far.reserved, totals.reserved)),
            )

    peaks = []
    for largest in largest_of_device.values():
        if math.isnan(largest.allocated) or math.isnan(largest.reserved):
            continue
        peak = MemoryPeak(
            device=largest.device,
            allocated=max(int(largest.allocated), 0),
            reserved=max(int(largest.reserved), 0),
        )
        peaks.append(peak)
    return MemoryPeaks(peaks=tuple(peaks), is_recorded=is_recorded)


def _read_totals_one_by_one(events: Events, number: int) -> Floats:
    """Read the totals of a stretch event by event, where `read_totals` cannot read it.

    Returns:
        A row for each memory event: kind of device, device, allocated and reserved
        bytes. Missing values are nan.
    """
    rows = []
    for sample, _ in events.samples(number):
        if not sample.is_memory:
            continue
        place = [_integer_or_none(sample.args.get(name)) for name in PLACE]
        totals = [float_if_finite(sample.args.get(name)) for name in SERIES_OF_TOTAL]
        rows.append([*place, *totals])
    columns = len(PLACE) + len(SERIES_OF_TOTAL)
    return np.array(rows, dtype=np.float64).reshape(-1, columns)


def _integer_or_none(value: object) -> int | None:
    """Return an integer as it is, and None for anything else."""
    return value if type(value) is int else None
