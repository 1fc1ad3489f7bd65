"""Computes the cost of each Python function of the user: CPU time, forward and backward
GPU time, idle time.

Time spent in library functions counts for the user's function that called them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Integers,
    Rows,
    distinct,
    distinct_rows,
    prefix_sums,
    summed,
)
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
    """Calls of functions: their frames, and sums of amounts for each function."""

    def __init__(self, spans: Spans, numbers: Integers) -> None:
        """Group frames.

        Args:
            spans: The frames.
            numbers: The number of the function of each frame. Any numbers will do;
                `names` has the distinct ones, ascending.
        """
        self.spans = spans
        self.names, self._function = np.unique(numbers, return_inverse=True)
        self._is_recursive = _are_inside_same(self._function, spans.end_place)

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Add up amounts for each function, without those of functions that it calls.

        Args:
            places: The index of the frame that each amount belongs to; -1 for none.
            amounts: The amounts.

        Returns:
            A sum for each of `names`.
        """
        known = places >= 0
        return summed(self._function[places[known]], amounts[known], len(self.names))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """Add up amounts for each function, with those of functions that it calls.

        The arguments are those of `own`. Each amount counts once per function, also if
        it belongs to a recursive call.
        """
        known = places >= 0
        amount_of_frame = summed(places[known], amounts[known], len(self.spans))
        # A frame and everything inside it are consecutive.
        before = prefix_sums(amount_of_frame)
        with_inner = before[self.spans.end_place] - before[:-1]
        return self.outermost(with_inner)

    def outermost(self, amounts: Int64s) -> Int64s:
        """Add up amounts of frames for each function, leaving out recursive calls.

        Args:
            amounts: The amount of each frame.
        """
        outermost = np.flatnonzero(~self._is_recursive)
        return self.own(outermost, amounts[outermost])


def function_times(
    origins: Origins,
    file: str | None = None,
    idle: Idle | None = None,
    by_line: bool = False,
) -> Functions:
    """Return what each Python function cost.

    Args:
        origins: The program of the trace.
        file: Only functions in this file or folder. If left out, those that are the
            user's own code.
        idle: Idle times of devices, with the rows of CPU threads that caused them.
        by_line: Whether each line of a function that calls another function is listed
            by itself.
    """
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
    times.sort(key=_time_sort_key, reverse=True)
    return Functions(
        functions=tuple(times),
        none=unclaimed(origins.trace, credit),
        gpu_ns=all_gpu_ns(origins.trace),
    )


def _time_sort_key(time: FunctionTime) -> tuple[int, int]:
    """A sort key for functions: own GPU and idle time together, then own CPU time, in
    ns."""
    return time.gpu_self_ns + (time.idle_self_ns or 0), time.cpu_self_ns


def _functions(
    origins: Origins, file: str | None
) -> tuple[Mapping[int, Function], FunctionCalls]:
    """Return the functions that were asked for, and their calls.

    Args:
        origins: The program of the trace.
        file: Their file or folder; None asks for the user's own code.

    Returns:
        Functions by the number of their name in the trace; and all their frames, which
        have that number too.
    """
    trace = origins.trace
    functions: dict[int, Function] = {}
    names_of_frames = distinct(trace.name[rows_there(trace, Role.PYTHON)])
    for number in names_of_frames.tolist():
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
    """Return the lines that call functions, and the frames that they called.

    torch 2.14 and later record the line in the arg CallFrom of the called frame:
    "train.py:42". A line in two functions, such as a wrapper's and a module's, is two
    lines.

    Args:
        origins: The program of the trace.
        file: The file or folder of the lines; None asks for the user's own code.

    Returns:
        For each line a Function, whose `line` is that of the call, by a number; and the
        frames that were called, which have that number too.
    """
    trace = origins.trace
    rows = python_rows(trace)
    called_from = arguments(
        trace.elements, trace.order[rows], (CALLED_FROM,), "callers"
    )
    lines = [_parse_calling_line(text) for (text,) in called_from.distinct]

    is_line_requested = [
        line is not None and _is_requested(line.file, file) for line in lines
    ]
    # The additional flag is found by the number -1 of frames without the arg.
    is_requested = np.array([*is_line_requested, False])[called_from.number]
    spans = Spans(trace, origins.line, rows[is_requested])

    line_of_row = np.full(len(trace), -1, dtype=np.int64)  # index into `lines`
    line_of_row[rows] = called_from.number
    line_of_frame = line_of_row[spans.rows]
    caller_names = (*trace.names, "")  # the last one if there is no such frame
    caller = trace.parent[spans.rows]
    has_caller = caller != NO_ROW
    name_of_caller = np.where(has_caller, trace.name[caller], len(trace.names))

    first_frames, number_of_frame = distinct_rows([line_of_frame, name_of_caller])
    functions: dict[int, Function] = {}
    for number, frame in enumerate(first_frames.tolist()):
        line = lines[line_of_frame[frame]]
        if line is not None:
            caller_name = caller_names[name_of_caller[frame]]
            functions[number] = _calling_function(line, caller_name)
    return functions, FunctionCalls(spans, numbers=number_of_frame)


def _calling_function(line: CallingLine, caller_name: str) -> Function:
    """Return the function that contains a line.

    Args:
        line: The line.
        caller_name: The name of the frame that contains it, of a function such as
            `train.py(40): step`, which gives the name `step`; or of a module such as
            `nn.Module: Linear_0`, which is kept.
    """
    function = function_of(caller_name)
    name = function.name if function else caller_name
    return Function(file=line.file, line=line.line, name=name)


def has_lines(trace: Trace) -> bool:
    """Tell whether the calling lines of frames were recorded, judging by the first
    frame."""
    rows = trace.rows_of(Role.PYTHON)[:1]
    return any(CALLED_FROM in trace.args_of(int(row)) for row in rows)


class CallingLine(NamedTuple):
    """A line from which a function was called."""

    file: str
    line: int


def _parse_calling_line(text: bytes) -> CallingLine | None:
    """Read the arg CallFrom: b'"train.py:42"' is line 42 of train.py.

    It is None for everything else, such as numbers with more than MAX_LINE_DIGITS.
    """
    value = parsed(text)
    if not isinstance(value, str):
        return None
    file, _, line = value.rpartition(":")
    if not file or not line.isdecimal() or len(line) > MAX_LINE_DIGITS:
        return None
    return CallingLine(file=file, line=int(line))


def _is_requested(file: str, wanted: str | None) -> bool:
    """Tell whether a file is the wanted one or in the wanted folder; without a wanted
    one, whether it is the user's own code."""
    return is_own(file) if wanted is None else is_in(file, wanted)


def _columns(
    origins: Origins, calls: FunctionCalls, credit: Credit, idle: Idle | None
) -> dict[str, Int64s]:
    """Compute the figures of FunctionTime, each as a column with a value per function.

    Args:
        origins: The program of the trace.
        calls: The frames of the functions.
        credit: The frame that each of all GPU events belongs to.
        idle: As for `function_times`; without it, the idle times are left out.
    """
    spans = calls.spans
    indices = np.arange(len(spans))
    cpu = cpu_ns(origins.trace, spans)
    columns = gpu_figures(origins.trace, credit, total=calls.total, own=calls.own)
    columns["count"] = calls.own(indices, np.ones(len(spans), dtype=np.int64))
    columns["cpu_ns"] = calls.outermost(cpu)
    columns["cpu_self_ns"] = calls.own(indices, spans.self_ns(cpu))
    if idle is not None:
        rows, idle_ns = idle
        causing_frame = origins.credit(spans, rows).place
        columns["idle_ns"] = calls.total(causing_frame, idle_ns)
        columns["idle_self_ns"] = calls.own(causing_frame, idle_ns)
    return columns


def _are_inside_same(function: Rows, end_place: Rows) -> Flags:
    """Tell of each frame whether it is a recursive call: inside a frame of its function.

    If f calls g, which calls f, the functions are [0, 1, 0] and the ends [3, 3, 3]; the
    result is [False, False, True].

    Args:
        function: The number of the function of each frame, outer frames first.
        end_place: The index after the last frame inside each frame.
    """
    frames_count = len(function)
    is_inside = np.zeros(frames_count, dtype=np.bool_)
    if not frames_count:
        return is_inside

    # Look at the frames of one function after the other. An offset puts those of each
    # function behind those of the one before, so that one pass serves all.
    by_function = np.argsort(function, kind="stable")
    offset = function[by_function].astype(np.int64) * (frames_count + 1)
    begins_at = offset + by_function
    ends_at = offset + end_place[by_function]
    latest_end = np.maximum.accumulate(ends_at)
    is_inside[by_function[1:]] = begins_at[1:] < latest_end[:-1]
    return is_inside
