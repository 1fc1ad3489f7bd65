"""What each Python function of the user cost: CPU time, forward and backward GPU time, idle time.

Time spent in library functions counts for the user's function that called them.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import rows_there
from fusetui.trace.program.modules import Unclaimed, unclaimed
from fusetui.trace.program.origin import Origins
from fusetui.trace.program.own_code import Function, function_of, is_in, is_own
from fusetui.trace.program.regions import Spans, frames

Idle = tuple[NDArray[np.integer], Int64s]
"""Rows of CPU threads, and how long (ns) a device was idle because of each; equal shapes."""


class FunctionTime(msgspec.Struct, frozen=True):
    """All calls of one function, on all threads. Figures include the functions that it called,
    except those with `self` in their names. A recursive call adds only to `self` and `count`."""

    file: str
    line: int  # of the def
    function: str
    count: int
    cpu_ns: int
    cpu_self_ns: int
    gpu_ns: int  # the durations of GPU events, including backward work
    gpu_self_ns: int
    gpu_backward_ns: int  # of gpu_ns
    gpu_recompute_ns: int  # of gpu_ns: forward work that the backward pass did once more
    kernels: int
    kernels_self: int
    idle_ns: int | None = None  # of the devices, because of it; None: not known
    idle_self_ns: int | None = None


class Functions(msgspec.Struct, frozen=True):
    """Sorted by own GPU and idle time, then by CPU time, largest first. The `gpu_self_ns` of all
    and the `gpu_ns` of `none` add up to `gpu_ns`."""

    functions: tuple[FunctionTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int


class FunctionCalls:
    """The frames of some functions, and sums of amounts by function."""

    def __init__(self, trace: Trace, spans: Spans) -> None:
        self.spans = spans
        names = trace.name[spans.rows]
        self.names, self._function = np.unique(names, return_inverse=True)
        self._outer = ~_inside_same(self._function, np.arange(len(spans)), spans.end_place)

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by the function of the frame that each belongs to; shape [functions]."""
        known = places >= 0
        found = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(found, self._function[places[known]], amounts[known])
        return found

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """The same including called functions; each amount counts once per function."""
        known = places >= 0
        before = np.zeros(len(self.spans) + 1, dtype=np.int64)
        np.add.at(before, places[known] + 1, amounts[known])
        before = np.cumsum(before)
        return self.outermost(before[self.spans.end_place] - before[:-1])

    def outermost(self, amounts: Int64s) -> Int64s:
        """Amounts of frames (shape [frames]) by function, without recursive frames."""
        outer = np.flatnonzero(self._outer)
        return self.own(outer, amounts[outer])


def function_times(found: Origins, file: str | None = None, idle: Idle | None = None) -> Functions:
    """The functions of the user; with `file`, all functions in that file or folder."""
    trace = found.trace
    functions = _functions(trace, file)
    wanted = np.zeros(len(trace.names) or 1, dtype=np.bool_)
    wanted[list(functions)] = True
    calls = FunctionCalls(trace, frames(trace, found.line, wanted))
    columns = _columns(found, calls, idle)
    rows = zip(calls.names.tolist(), *(column.tolist() for column in columns.values()), strict=True)
    times = [
        FunctionTime(*functions[name], **dict(zip(columns, figures, strict=True)))
        for name, *figures in rows
    ]
    times.sort(key=_weight)
    credit = found.credit(calls.spans, trace.gpu_rows)
    dur = trace.dur[trace.gpu_rows]
    return Functions(tuple(times), unclaimed(trace, credit, dur), int(dur.sum()))


def _functions(trace: Trace, file: str | None) -> dict[int, Function]:
    """The requested functions, by the numbers of their names."""
    rows = rows_there(trace, Role.PYTHON)
    found: dict[int, Function] = {}
    for number in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
        function = function_of(trace.names[number])
        if function and (is_own(function.file) if file is None else is_in(function.file, file)):
            found[number] = function
    return found


def _columns(found: Origins, calls: FunctionCalls, idle: Idle | None) -> dict[str, Int64s]:
    """The figures of FunctionTime, each of shape [functions]."""
    trace, rows, spans = found.trace, found.trace.gpu_rows, calls.spans
    credit = found.credit(spans, rows)
    captured = trace.role[spans.rows] == Role.CAPTURED  # their CPU time is of another trace
    dur, cpu = trace.dur[rows], np.where(captured, 0, trace.dur[spans.rows])
    kernel = (trace.role[rows] == Role.KERNEL).astype(np.int64)
    places = np.arange(len(spans))
    columns = {
        "count": calls.own(places, np.ones(len(spans), dtype=np.int64)),
        "cpu_ns": calls.outermost(cpu),
        "cpu_self_ns": calls.own(places, spans.self_ns(cpu)),
        "gpu_ns": calls.total(credit.place, dur),
        "gpu_self_ns": calls.own(credit.place, dur),
        "gpu_backward_ns": calls.total(credit.place, np.where(credit.backward, dur, 0)),
        "gpu_recompute_ns": calls.total(credit.place, np.where(credit.recompute, dur, 0)),
        "kernels": calls.total(credit.place, kernel),
        "kernels_self": calls.own(credit.place, kernel),
    }
    if idle is not None:
        caused = found.credit(spans, idle[0]).place
        columns["idle_ns"] = calls.total(caused, idle[1])
        columns["idle_self_ns"] = calls.own(caused, idle[1])
    return columns


def _weight(time: FunctionTime) -> tuple[int, int, str, int, str]:
    device = time.gpu_self_ns + (time.idle_self_ns or 0)
    return (-device, -time.cpu_self_ns, time.file, time.line, time.function)


def _inside_same(function: Rows, places: Rows, end: Rows) -> Flags:
    """For each frame, whether it lies, at any depth, inside another one of its function."""
    order = np.argsort(function, kind="stable")
    group = function[order].astype(np.int64) * (len(places) + 1)
    reached = np.maximum.accumulate(group + end[order]) if len(places) else group
    found = np.zeros(len(places), dtype=np.bool_)
    found[order[1:]] = (group + places[order])[1:] < reached[:-1]
    return found
