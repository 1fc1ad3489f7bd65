"""The gaps of devices as the rules see them, on the lines of time of the threads that launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.devices import HOST, Devices, Reasons
from fusetui.analysis.why.host import CALLS, Host, Threads, launching
from fusetui.analysis.why.model import IDLE
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows
from fusetui.trace.model.columns import Trace

CPU_BOUND = 0.10  # of the span; from this share on, a GPU counts as waiting for launches
WORK_NS = 5_000_000  # a longer gap is not due to launching, unless it has many slices:
SLICE_NS = 200_000  # of no more than this on average
LONG_WORK_NS = 50_000_000  # whatever it is made of
LATE = np.array([kind not in (Host.SYNC, Host.ALLOC) for kind in Host])
"""What a thread that launches too late is doing: neither waiting nor allocating."""


class Idle(msgspec.Struct, frozen=True, eq=False):
    """The gaps of devices within the window, clipped to it; arrays of shape [gaps], ns."""

    device: Int32s  # a number, in order
    begin: Int64s
    end: Int64s
    event: Int32s  # the GPU event that ends the gap
    before: Int32s  # the one that ended last before it, -1 for none
    launch: Int32s  # the launch call of the event, -1 where it is not known
    called: Int64s  # the end of the host part: when that call begins; `begin` without one
    returned: Int64s  # the end of the call, if it lies in the gap; `begin` without one
    reasons: Reasons

    def __len__(self) -> int:
        return len(self.begin)

    def ns(self, *names: str) -> Int64s:
        """How long each gap lasted for these reasons."""
        found: Int64s = np.stack([self.reasons[[*IDLE].index(name)] for name in names]).sum(axis=0)
        return found

    @property
    def host(self) -> Int64s:
        """How long each gap lasted for what the launching thread did, [Host, gaps]."""
        return np.stack(self.reasons[HOST : HOST + len(Host)])


def idle_of(lines: Sequence[Devices], window: tuple[int, int] | None) -> Idle:
    """The gaps of all devices; in a window [begin, end) (ns of the file) what lies in it."""
    parts: list[list[NDArray[Any]]] = []
    devices = 0
    for line in lines:
        gaps, why = line.idle_in(window)
        cuts = line.cuts_of(gaps)
        called, returned = (
            np.where(gaps.plain, t, gaps.begin) for t in (cuts.called, cuts.returned)
        )
        columns = (gaps.begin, gaps.end, gaps.event, gaps.before, gaps.launch, called, returned)
        parts.append([line.number(gaps.event) + devices, *columns, *why])
        devices += len(line)
    if not parts:
        parts.append([np.empty(0, dtype=np.int32)] * (8 + len(IDLE)))
    whole = parts[0] if len(parts) == 1 else [np.concatenate(c) for c in zip(*parts, strict=True)]
    device, begin, end, event, before, launch, called, returned, *reasons = whole
    return Idle(device, begin, end, event, before, launch, called, returned, tuple(reasons))


def sums(places: Rows, ns: Int64s, length: int) -> Int64s:
    """The exact sum of the ns of each place; shape [length]."""
    order = np.argsort(places, kind="stable")
    total = np.concatenate(([0], np.cumsum(ns[order])))
    ends = np.searchsorted(places[order], np.arange(length + 1))
    return np.diff(total[ends])


def by_text(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str]
) -> dict[str, tuple[int, int]]:
    """How many rows have a name that is said like this, and their exact sum (ns)."""
    names, each = np.unique(trace.name[rows], return_inverse=True)
    counts = np.bincount(each, minlength=len(names)).tolist()
    found: dict[str, tuple[int, int]] = {}
    totals = sums(each, ns, len(names)).tolist()
    for number, n, total in zip(names.tolist(), counts, totals, strict=True):
        said = text(trace.names[number])
        before = found.get(said, (0, 0))
        found[said] = before[0] + n, before[1] + total
    return found


def other_work(trace: Trace, threads: tuple[Threads, ...], idle: Idle, late_ns: Int64s) -> Flags:
    """The gaps in which the launching thread does something else than launch: `late_ns` of its time
    is more than a sequence of ops takes, and not made of many short slices."""
    long, slices = (late_ns > WORK_NS) & (idle.launch >= 0), np.zeros(len(idle), dtype=np.int64)
    for line, own, placed in launching(trace, threads, idle.launch, long):
        edges = placed(idle.begin), placed(idle.called)
        for kind in (*CALLS, Host.OP, Host.PYTHON):
            slices[own] += np.diff(line.slices(kind).start.searchsorted(edges), axis=0)[0]
    found: Flags = long & ((late_ns > SLICE_NS * slices) | (late_ns > LONG_WORK_NS))
    return found
