"""Computes the cost of each Python function of the user: CPU time, forward and backward
GPU time, idle time.

Time spent in library functions counts for the user's function that called them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Integers, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.joined import rows_there
from fusetui.trace.program.modules import (
    Unclaimed,
    all_gpu_ns,
    cpu_ns,
    gpu_figures,
    unclaimed,
)
from fusetui.trace.program.origin import Credit, Origins
from fusetui.trace.program.own_code import Function, function_of, is_in, is_own
from fusetui.trace.program.regions import Spans, frames, python_rows

Idle = tuple[Integers, Int64s]
"""Rows of CPU threads, and how long (ns) a device was idle because of each; equal
shapes."""

CALLED_FROM = "CallFrom"
"""The arg of a Python frame with the line that called it."""
MAX_LINE_DIGITS = 9


class FunctionTime(msgspec.Struct, frozen=True):
    """All calls of one function, on all threads. Figures include the functions that it
    called, except those with `self` in their names. A recursive call adds only to
    `self` and `count`."""

    file: str
    line: int  # of the def; by line that of the call
    function: str
    count: int
    cpu_ns: int
    cpu_self_ns: int
    gpu_ns: int  # the durations of GPU events, including backward work
    gpu_self_ns: int
    gpu_backward_ns: int  # of gpu_ns
    # of gpu_ns: forward work that the backward pass did once more
    gpu_recompute_ns: int
    kernels: int
    kernels_self: int
    idle_ns: int | None = None  # of the devices, because of it; None: not known
    idle_self_ns: int | None = None


class Functions(msgspec.Struct, frozen=True):
    """Sorted by own GPU and idle time, then by CPU time, largest first. The
    `gpu_self_ns` of all and the `gpu_ns` of `none` add up to `gpu_ns`."""

    functions: tuple[FunctionTime, ...]
    none: tuple[Unclaimed, ...]
    gpu_ns: int


class FunctionCalls:
    """Some frames, and sums of amounts by function, or whatever else frames are
    numbered by."""

    def __init__(self, spans: Spans, numbers: Integers) -> None:
        """`numbers`: that of each span."""
        self.spans = spans
        self.names, self._function = np.unique(numbers, return_inverse=True)
        self._is_recursive = _are_inside_same(self._function, spans.end_place)

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by the function of the frame that each belongs to; shape
        [functions]. The place of a frame is its index in `spans`; -1 belongs to
        none."""
        known = places >= 0
        return summed(self._function[places[known]], amounts[known], len(self.names))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """The same including called functions; each amount counts once per function."""
        known = places >= 0
        frames = len(self.spans)
        amount_of_frame = summed(places[known], amounts[known], frames)
        # the amounts of all frames before each, and at last of all
        before = np.concatenate(([0], np.cumsum(amount_of_frame)))
        with_inner = before[self.spans.end_place] - before[:-1]
        return self.outermost(with_inner)

    def outermost(self, amounts: Int64s) -> Int64s:
        """Amounts of frames (shape [frames]) by function, without recursive frames."""
        outermost = np.flatnonzero(~self._is_recursive)
        return self.own(outermost, amounts[outermost])


def function_times(
    origins: Origins,
    file: str | None = None,
    idle: Idle | None = None,
    by_line: bool = False,
) -> Functions:
    """The functions of the user; with `file`, all functions in that file or folder;
    `by_line`: their lines that call other functions (see _lines)."""
    if by_line:
        functions, calls = _lines(origins, file)
    else:
        functions, calls = _functions(origins, file)
    credit = origins.credit(calls.spans, origins.trace.gpu_rows)
    columns = _columns(origins, calls, credit, idle)
    times = []
    for index, number in enumerate(calls.names.tolist()):
        function = functions[number]
        figures = {name: int(column[index]) for name, column in columns.items()}
        times.append(
            FunctionTime(
                file=function.file,
                line=function.line,
                function=function.name,
                **figures,
            )
        )
    # sorts are stable: the place in the file decides between equal times
    times.sort(key=lambda time: (time.file, time.line, time.function))
    times.sort(key=_time_spent, reverse=True)
    return Functions(
        functions=tuple(times),
        none=unclaimed(origins.trace, credit),
        gpu_ns=all_gpu_ns(origins.trace),
    )


def _time_spent(time: FunctionTime) -> tuple[int, int]:
    """Own GPU and idle time, then own CPU time."""
    return time.gpu_self_ns + (time.idle_self_ns or 0), time.cpu_self_ns


def _functions(
    origins: Origins, file: str | None
) -> tuple[Mapping[int, Function], FunctionCalls]:
    """The requested functions, by the numbers of their names, and their frames."""
    trace = origins.trace
    functions: dict[int, Function] = {}
    frames_of_name = np.bincount(trace.name[rows_there(trace, Role.PYTHON)])
    for number in np.flatnonzero(frames_of_name).tolist():
        function = function_of(trace.names[number])
        if function and _is_requested(function.file, file):
            functions[number] = function
    is_requested = np.zeros(len(trace.names), dtype=np.bool_)
    is_requested[list(functions)] = True
    spans = frames(trace, origins.line, is_requested)
    return functions, FunctionCalls(spans, numbers=trace.name[spans.rows])


def _lines(
    origins: Origins, file: str | None
) -> tuple[Mapping[int, Function], FunctionCalls]:
    """The lines of the requested functions from which others were called, and the
    frames that they called. torch 2.14 and later record the line (`CallFrom`:
    `file.py:42`).

    A call is numbered by its line and the name of the frame around it, on the same
    track: line * (names + 1) + name, where the last name stands for no frame.
    """
    trace = origins.trace
    rows = python_rows(trace)
    called_from = arguments(
        trace.elements, trace.order[rows], (CALLED_FROM,), "callers"
    )
    lines = [_line_of(text) for (text,) in called_from.distinct]
    are_requested = [
        line is not None and _is_requested(line.file, file) for line in lines
    ]
    # the last element stands for frames without the arg
    is_requested = np.array([*are_requested, False])[called_from.number]
    caller_names = (*trace.names, "")
    no_caller = len(trace.names)
    caller = trace.parent[rows]
    caller_name = np.where(caller >= 0, trace.name[caller], no_caller)
    number_of_row = np.full(len(trace), -1, dtype=np.int64)
    number_of_row[rows] = called_from.number * len(caller_names) + caller_name
    spans = Spans(trace, origins.line, rows[is_requested])
    calls = FunctionCalls(spans, numbers=number_of_row[spans.rows])
    functions: dict[int, Function] = {}
    for number in calls.names.tolist():
        line_number, name_number = divmod(number, len(caller_names))
        line = lines[line_number]
        if line is not None:
            functions[number] = _calling_function(line, caller_names[name_number])
    return functions, calls


def _calling_function(line: CallingLine, caller_name: str) -> Function:
    """The function at a line, which is in the frame of this name: of a function, or of
    a module, as `nn.Module: Linear_0`."""
    function = function_of(caller_name)
    name = function.name if function else caller_name
    return Function(file=line.file, line=line.line, name=name)


def has_lines(trace: Trace) -> bool:
    """Whether the calling lines of frames were recorded, by the first of them."""
    rows = trace.rows_of(Role.PYTHON)[:1]
    return any(CALLED_FROM in trace.args_of(int(row)) for row in rows)


class CallingLine(NamedTuple):
    """A line from which a function was called."""

    file: str
    line: int


def _line_of(text: bytes) -> CallingLine | None:
    """`"file.py:42"`, as JSON; None for anything else."""
    value = parsed(text)
    if not isinstance(value, str):
        return None
    file, _, line = value.rpartition(":")
    if not file or not line.isdecimal() or len(line) > MAX_LINE_DIGITS:
        return None
    return CallingLine(file=file, line=int(line))


def _is_requested(file: str, wanted: str | None) -> bool:
    return is_own(file) if wanted is None else is_in(file, wanted)


def _columns(
    origins: Origins, calls: FunctionCalls, credit: Credit, idle: Idle | None
) -> dict[str, Int64s]:
    """The figures of FunctionTime, each of shape [functions]."""
    spans = calls.spans
    places = np.arange(len(spans))
    cpu = cpu_ns(origins.trace, spans)
    columns = gpu_figures(origins.trace, credit, total=calls.total, own=calls.own)
    columns["count"] = calls.own(places, np.ones(len(spans), dtype=np.int64))
    columns["cpu_ns"] = calls.outermost(cpu)
    columns["cpu_self_ns"] = calls.own(places, spans.self_ns(cpu))
    if idle is not None:
        rows, idle_ns = idle
        causing_frame = origins.credit(spans, rows).place
        columns["idle_ns"] = calls.total(causing_frame, idle_ns)
        columns["idle_self_ns"] = calls.own(causing_frame, idle_ns)
    return columns


def _are_inside_same(function: Rows, end_place: Rows) -> Flags:
    """For each frame, whether it lies, at any depth, inside another one of its
    function. `function`: a number of the function of each frame; `end_place`: the index
    after the last frame that begins in it."""
    frames_count = len(function)
    by_function = np.argsort(function, kind="stable")  # and by place within each
    # places, those of each function beyond all of the one before
    offset = function[by_function].astype(np.int64) * (frames_count + 1)
    begins_at = offset + by_function
    ends_at = offset + end_place[by_function]
    is_inside = np.zeros(frames_count, dtype=np.bool_)
    if frames_count:
        ended_by = np.maximum.accumulate(ends_at)
        is_inside[by_function[1:]] = begins_at[1:] < ended_by[:-1]
    return is_inside
