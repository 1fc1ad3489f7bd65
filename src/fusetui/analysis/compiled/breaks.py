"""Graph breaks, and the time between the regions that they divide.

The function after a break is compiled on its own, as `torch_dynamo_resume_in_NAME_at_LINE`.
It runs inside the region before the break, so the time between the two is that from the
end of the last call of a graph to the begin of the second region.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from fusetui.analysis.compiled.graphs import logs_of_trace
from fusetui.analysis.compiled.model import PassedBreak
from fusetui.analysis.compiled.regions import NONE, RegionsOfTrace, compile_id_of
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import CompileId, CompileLog, GraphBreak
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.quantiles import median
from fusetui.trace.program.own_code import function_of

RESUMES = lazy_pattern(
    r"torch_dynamo_resume_in_(?P<function>.{1,500})_at_(?P<line>[0-9]{1,9})\Z"
)
UNKNOWN_TIME = -1


class Resumed(msgspec.Struct, frozen=True):
    """The function after a break, and the regions in which it runs."""

    function: str  # of the user, in which the break is
    line: int
    file: str  # "" if unknown
    rows: tuple[int, ...]  # of its regions in the trace, or of its frames


def passed_breaks(
    regions: RegionsOfTrace | None, log: CompileLog | None
) -> tuple[PassedBreak, ...]:
    """All breaks that the log has, else those that frames of Python prove; with the
    times between regions where a trace was given."""
    resumed = _resumed_functions(regions, log) if regions is not None else []
    if log is not None and log.logs:
        logs: Collection[int] = range(len(log.logs))
        if regions is not None:
            logs = logs_of_trace(regions.trace, log)
        return tuple(
            _with_times(one, regions, resumed) for one in log.breaks if one.log in logs
        )
    return tuple(_by_frames(regions, one) for one in resumed if regions is not None)


def rows_after(
    one: GraphBreak, regions: RegionsOfTrace, log: CompileLog
) -> tuple[int, ...]:
    """The regions that continue after a break, in the order of their starts."""
    return _rows_after(one, _resumed_functions(regions, log))


def _resumed_functions(
    regions: RegionsOfTrace, log: CompileLog | None
) -> list[Resumed]:
    """The functions after breaks: by the names of compiled functions in the log, else by
    frames."""
    trace = regions.trace
    if log is None or not log.functions:
        return _resumed_by_frames(regions)
    rows_of_id: dict[CompileId, list[int]] = {}
    for row in regions.regions.rows.tolist():
        compile_id = compile_id_of(trace.name_of(row))
        if compile_id is not None:
            rows_of_id.setdefault(compile_id, []).append(row)
    files = {
        (one.log, one.compile_id): one.file
        for one in log.compilations
        if one.compile_id is not None
    }
    found: dict[tuple[str, int, str], list[int]] = {}
    for (number, compile_id), function in log.functions.items():
        match = RESUMES.match(function)
        if match:
            file = files.get((number, compile_id), "")
            key = (match["function"], int(match["line"]), file)
            found.setdefault(key, []).extend(rows_of_id.get(compile_id, []))
    return [
        Resumed(function=function, line=line, file=file, rows=tuple(sorted(set(rows))))
        for (function, line, file), rows in found.items()
    ]


def _resumed_by_frames(regions: RegionsOfTrace) -> list[Resumed]:
    """The functions after breaks that stacks of Python show."""
    trace = regions.trace
    rows = trace.rows_named(lambda name: "torch_dynamo_resume_in_" in name, Role.PYTHON)
    by_name: dict[str, list[int]] = {}
    for row in rows.tolist():
        by_name.setdefault(trace.name_of(row), []).append(row)
    found = []
    for name, some in by_name.items():
        function = function_of(name)
        match = RESUMES.match(function.name) if function else None
        if function and match:
            found.append(
                Resumed(
                    function=match["function"],
                    line=int(match["line"]),
                    file=function.file,
                    rows=tuple(some),
                )
            )
    found.sort(key=lambda one: (one.file, one.line))
    return found


def _rows_after(one: GraphBreak, resumed: Sequence[Resumed]) -> tuple[int, ...]:
    """The rows of the function that continues after a break. A break in a function that
    was inlined resumes in its caller, which is on the stack."""
    places = {(one.file, one.line)}
    places |= {(frame.file, frame.line) for frame in one.stack}
    for function in resumed:
        if (function.file, function.line) in places:
            return function.rows
    return ()


def _with_times(
    one: GraphBreak, regions: RegionsOfTrace | None, resumed: Sequence[Resumed]
) -> PassedBreak:
    between = np.empty(0, dtype=np.int64)
    if regions is not None:
        rows = np.array(_rows_after(one, resumed), dtype=np.intp)
        between = times_between(regions, rows)
    innermost = one.stack[-1] if one.stack else None
    return PassedBreak(
        compile_id="" if one.compile_id is None else str(one.compile_id),
        file=one.file,
        line=one.line,
        function=innermost.function if innermost else "",
        reason=one.reason,
        explanation=one.explanation,
        hints=one.hints,
        passed=len(between),
        between_ns=int(between.sum()),
        median_between_ns=_median(between),
        code=innermost.code if innermost else "",
    )


def _by_frames(regions: RegionsOfTrace, one: Resumed) -> PassedBreak:
    """A break that only the frame after it proves."""
    between = times_between(regions, np.array(one.rows, dtype=np.intp))
    return PassedBreak(
        compile_id="",
        file=one.file,
        line=one.line,
        function=one.function,
        reason="",
        explanation="",
        hints=(),
        passed=len(between),
        between_ns=int(between.sum()),
        median_between_ns=_median(between),
        code="",
    )


def _median(values: Int64s) -> int | None:
    return int(median(values)) if len(values) else None


def times_between(regions: RegionsOfTrace, rows: Rows) -> Int64s:
    """For each of these rows, which continue after a break, the time since the last call
    of a graph on its thread ended; rows before which there was none are left out."""
    begins = ends_before(regions, rows)
    known = begins != UNKNOWN_TIME
    between: Int64s = regions.trace.start[rows[known]] - begins[known]
    return between


def ends_before(regions: RegionsOfTrace, rows: Rows) -> Int64s:
    """When the last call of a graph before each row ended, on the thread of the row;
    UNKNOWN_TIME where there was none."""
    trace = regions.trace
    thread_of = trace.thread_of_track[trace.track]
    calls = regions.calls.rows
    ends = np.full(len(rows), UNKNOWN_TIME, dtype=np.int64)
    for thread in np.unique(thread_of[rows]).tolist():
        of_thread = np.flatnonzero(thread_of[rows] == thread)
        call_ends = np.sort(trace.end[calls[thread_of[calls] == thread]])
        before = call_ends.searchsorted(trace.start[rows[of_thread]], side="right") - 1
        known = before != NONE
        ends[of_thread[known]] = call_ends[before[known]]
    return ends
