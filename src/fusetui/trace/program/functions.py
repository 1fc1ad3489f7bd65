"""What each Python function of the user cost: CPU time, forward and backward GPU time,
idle time.

Time spent in library functions counts for the user's function that called them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Integers, Rows, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.joined import rows_there
from fusetui.trace.program.modules import Unclaimed, cpu_ns, gpu_figures, unclaimed
from fusetui.trace.program.origin import Credit, Origins
from fusetui.trace.program.own_code import Function, function_of, is_in, is_own
from fusetui.trace.program.regions import Spans, frames, python_rows

Idle = tuple[Integers, Int64s]
"""Rows of CPU threads, and how long (ns) a device was idle because of each; equal
shapes."""

CALLED_FROM = "CallFrom"


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
        self._outer = ~_inside_same(
            self._function, np.arange(len(spans)), spans.end_place
        )

    def own(self, places: Rows, amounts: Int64s) -> Int64s:
        """Amounts by the function of the frame that each belongs to; shape
        [functions]."""
        known = places >= 0
        return summed(self._function[places[known]], amounts[known], len(self.names))

    def total(self, places: Rows, amounts: Int64s) -> Int64s:
        """The same including called functions; each amount counts once per function."""
        known = places >= 0
        before = np.cumsum(
            summed(places[known] + 1, amounts[known], len(self.spans) + 1)
        )
        return self.outermost(before[self.spans.end_place] - before[:-1])

    def outermost(self, amounts: Int64s) -> Int64s:
        """Amounts of frames (shape [frames]) by function, without recursive frames."""
        outer = np.flatnonzero(self._outer)
        return self.own(outer, amounts[outer])


def function_times(
    found: Origins,
    file: str | None = None,
    idle: Idle | None = None,
    by_line: bool = False,
) -> Functions:
    """The functions of the user; with `file`, all functions in that file or folder;
    `by_line`: their lines that call other functions (see _lines)."""
    functions, calls = (_lines if by_line else _functions)(found, file)
    credit = found.credit(calls.spans, found.trace.gpu_rows)
    columns = _columns(found, calls, credit, idle)
    rows = zip(
        calls.names.tolist(),
        *(column.tolist() for column in columns.values()),
        strict=True,
    )
    times = [
        FunctionTime(*functions[name], **dict(zip(columns, figures, strict=True)))
        for name, *figures in rows
    ]
    times.sort(key=lambda t: (t.file, t.line, t.function))
    times.sort(
        key=lambda t: (t.gpu_self_ns + (t.idle_self_ns or 0), t.cpu_self_ns),
        reverse=True,
    )
    return Functions(tuple(times), *unclaimed(found.trace, credit))


def _functions(
    found: Origins, file: str | None
) -> tuple[Mapping[int, Function], FunctionCalls]:
    """The requested functions, by the numbers of their names, and their frames."""
    trace = found.trace
    functions: dict[int, Function] = {}
    for number in np.flatnonzero(
        np.bincount(trace.name[rows_there(trace, Role.PYTHON)])
    ).tolist():
        function = function_of(trace.names[number])
        if function and _is_asked(function.file, file):
            functions[number] = function
    wanted = np.zeros(len(trace.names) or 1, dtype=np.bool_)
    wanted[list(functions)] = True
    spans = frames(trace, found.line, wanted)
    return functions, FunctionCalls(spans, trace.name[spans.rows])


def _lines(
    found: Origins, file: str | None
) -> tuple[Mapping[int, Function], FunctionCalls]:
    """The lines of the requested functions from which others were called, and the
    frames that they called. torch 2.14 and later record the line (`CallFrom`:
    `file.py:42`)."""
    trace = found.trace
    rows = python_rows(trace)
    read = arguments(trace.elements, trace.order[rows], (CALLED_FROM,), "callers")
    lines = [_line_of(text) for (text,) in read.distinct]
    asked = [line is not None and _is_asked(line[0], file) for line in lines]
    chosen = np.array([*asked, False])[read.number]
    of_row = np.full(len(trace) or 1, -1, dtype=np.int64)
    callers = trace.name[trace.parent[rows]]  # the frame around it, on the same track
    width = len(trace.names) + 1
    of_row[rows] = read.number * width + np.where(
        trace.parent[rows] >= 0, callers, width - 1
    )
    spans = Spans(trace, found.line, rows[chosen])
    calls = FunctionCalls(spans, of_row[spans.rows])
    functions, names = {}, (*trace.names, "")
    for number in calls.names.tolist():
        line, caller = lines[number // width], names[number % width]
        # called in a function, or in a module, as `nn.Module: Linear_0`
        if line is not None:
            within = function_of(caller)
            functions[number] = Function(
                line[0], line[1], within.name if within else caller
            )
    return functions, calls


def has_lines(trace: Trace) -> bool:
    """Whether the calling lines of frames were recorded, by the first of them."""
    rows = trace.rows_of(Role.PYTHON)[:1]
    return any(CALLED_FROM in trace.args_of(int(row)) for row in rows)


def _line_of(text: bytes) -> tuple[str, int] | None:
    """`"file.py:42"`, as JSON, as file and line."""
    value = parsed(text)
    file, _, line = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return (file, int(line)) if file and line.isdecimal() and len(line) < 10 else None


def _is_asked(file: str, wanted: str | None) -> bool:
    return is_own(file) if wanted is None else is_in(file, wanted)


def _columns(
    found: Origins, calls: FunctionCalls, credit: Credit, idle: Idle | None
) -> dict[str, Int64s]:
    """The figures of FunctionTime, each of shape [functions]."""
    spans, places, cpu = (
        calls.spans,
        np.arange(len(calls.spans)),
        cpu_ns(found.trace, calls.spans),
    )
    columns = {
        "count": calls.own(places, np.ones(len(spans), dtype=np.int64)),
        "cpu_ns": calls.outermost(cpu),
        "cpu_self_ns": calls.own(places, spans.self_ns(cpu)),
        **gpu_figures(found.trace, credit, calls.total, calls.own),
    }
    if idle is not None:
        caused = found.credit(spans, idle[0]).place
        columns["idle_ns"] = calls.total(caused, idle[1])
        columns["idle_self_ns"] = calls.own(caused, idle[1])
    return columns


def _inside_same(function: Rows, places: Rows, end: Rows) -> Flags:
    """For each frame, whether it lies, at any depth, inside another one of its
    function."""
    order = np.argsort(function, kind="stable")
    group = function[order].astype(np.int64) * (len(places) + 1)
    reached = np.maximum.accumulate(group + end[order]) if len(places) else group
    found = np.zeros(len(places), dtype=np.bool_)
    found[order[1:]] = (group + places[order])[1:] < reached[:-1]
    return found
