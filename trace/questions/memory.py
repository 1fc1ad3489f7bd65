"""The most memory that torch used of each GPU: what it had handed out, and what it held."""

from __future__ import annotations

import msgspec

from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.counters import DEVICES, TOTALS, Series, add_memory

KEPT_AS = "memory"
GPU = f"{DEVICES[1]} "


class MemoryPeak(msgspec.Struct, frozen=True):
    """The largest totals of one GPU, in bytes; they need not be of the same moment."""

    device: int
    allocated: int
    reserved: int


class MemoryPeaks(msgspec.Struct, frozen=True):
    """Of every GPU that the file has both totals of."""

    peaks: tuple[MemoryPeak, ...]
    is_recorded: bool  # any memory event: of 2021 they have no totals, and some are of the CPU


def memory_peaks(trace: Trace) -> MemoryPeaks:
    """Reads the memory events of the file, but only once if the trace is in the cache."""
    found = trace.elements.recall(KEPT_AS, MemoryPeaks)
    if found is None:
        found = _read(trace)
        trace.elements.keep(KEPT_AS, found)
    return found


def _read(trace: Trace) -> MemoryPeaks:
    series, is_recorded = Series(), False
    for number, stretch in enumerate(trace.elements.stretches):
        if stretch.samples:
            for sample, time in trace.elements.samples(number):
                if sample.is_memory:
                    is_recorded = True
                    add_memory(series, sample, time)
    most: dict[str, dict[str, int]] = {}
    for key, (_, values) in series.columns.items():
        totals = most.setdefault(key.name, {})
        totals[key.series] = max(totals.get(key.series, 0), int(max(values)))
    peaks = tuple(
        MemoryPeak(int(name.removeprefix(GPU)), totals["allocated"], totals["reserved"])
        for name, totals in most.items()
        if name.startswith(GPU) and totals.keys() == set(TOTALS.values())
    )
    return MemoryPeaks(peaks, is_recorded)
