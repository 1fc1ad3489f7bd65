"""Finds graph breaks, and the time between the regions that they separate.

The function after a break is compiled on its own, and named
`torch_dynamo_resume_in_NAME_at_LINE`. It runs inside the region before the break. So
the time between the two is that from the end of the last call of a graph to the begin
of the second region.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from fusetui.analysis.compiled.graphs import find_logs_of_trace
from fusetui.analysis.compiled.model import PassedBreak
from fusetui.analysis.compiled.regions import CompiledCode, parse_compile_id
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import CompileId, CompileLog, GraphBreak
from fusetui.trace.model.arrays import Int64s, Rows, at, distinct, last_at_or_before
from fusetui.trace.model.categories import Role
from fusetui.trace.model.quantiles import median
from fusetui.trace.program.own_code import function_of

RESUMES = lazy_pattern(
    r"torch_dynamo_resume_in_(?P<function>.{1,500})_at_(?P<line>[0-9]{1,9})\Z"
)
UNKNOWN_TIME = -1


class Resumed(msgspec.Struct, frozen=True):
    """The function after a graph break, and the regions in which it runs."""

    function: str  # the function of the user in which the break is
    line: int
    file: str  # "" if unknown
    rows: tuple[int, ...]  # of its regions in the trace, or of its frames


def list_graph_breaks(
    compiled: CompiledCode | None, log: CompileLog | None
) -> tuple[PassedBreak, ...]:
    """List all graph breaks, with the times between the regions that they divide.

    They are those of the log, else those that frames of Python prove.

    Args:
        compiled: The compiled code of the trace; without a trace, None and no times.
        log: The compile log of the trace.
    """
    resumed_functions: list[Resumed] = []
    if compiled is not None:
        resumed_functions = _find_resumed_functions(compiled, log)

    breaks: list[PassedBreak] = []
    if log is not None and log.logs:
        logs: Collection[int] = range(len(log.logs))
        if compiled is not None:
            logs = find_logs_of_trace(compiled.trace, log)
        for logged in log.breaks:
            if logged.log in logs:
                breaks.append(
                    _describe_logged_break(logged, compiled, resumed_functions)
                )
    elif compiled is not None:
        for resumed in resumed_functions:
            breaks.append(_describe_break_of_frames(compiled, resumed))

    return tuple(breaks)


def find_rows_after(
    graph_break: GraphBreak, compiled: CompiledCode, log: CompileLog
) -> tuple[int, ...]:
    """List the regions that continue after a graph break, earliest first."""
    return _find_continuing_rows(graph_break, _find_resumed_functions(compiled, log))


def _find_resumed_functions(
    compiled: CompiledCode, log: CompileLog | None
) -> list[Resumed]:
    """Find the functions that continue after graph breaks.

    The log has the names of compiled functions; without them frames of Python show it.
    """
    if log is None or not log.functions:
        return _find_resumed_by_frames(compiled)
    return _find_resumed_by_log(compiled, log)


def _find_resumed_by_log(compiled: CompiledCode, log: CompileLog) -> list[Resumed]:
    """Find the functions that continue after graph breaks, by the names of functions in
    a log.

    Dynamo names such a function: torch_dynamo_resume_in_forward_at_12 continues line 12
    of `forward`. One that was compiled several times, or in several logs, is one
    function.

    Args:
        compiled: The compiled code of the trace.
        log: The compile log.
    """
    rows_of_id = _group_region_rows_by_id(compiled)
    file_of_compilation = {
        (compilation.log, compilation.compile_id): compilation.file
        for compilation in log.compilations
    }

    # By function, line and file: the rows of the regions of all compilations.
    rows_of_function: dict[tuple[str, int, str], set[int]] = {}
    for (log_index, compile_id), dynamo_name in log.functions.items():
        match = RESUMES.match(dynamo_name)
        if match is None:
            continue

        file = file_of_compilation.get((log_index, compile_id), "")
        function = (match["function"], int(match["line"]), file)
        rows = rows_of_id.get(compile_id, [])
        rows_of_function.setdefault(function, set()).update(rows)

    resumed_functions = []
    for (name, line, file), rows_of_all in rows_of_function.items():
        resumed_functions.append(
            Resumed(
                function=name, line=line, file=file, rows=tuple(sorted(rows_of_all))
            )
        )
    return resumed_functions


def _group_region_rows_by_id(compiled: CompiledCode) -> dict[CompileId, list[int]]:
    """Return the rows of the compiled regions of a trace by their compile id."""
    rows_of_id: dict[CompileId, list[int]] = {}
    for row in compiled.regions.rows.tolist():
        compile_id = parse_compile_id(compiled.trace.name_of(row))
        if compile_id is not None:
            rows_of_id.setdefault(compile_id, []).append(row)
    return rows_of_id


def _find_resumed_by_frames(compiled: CompiledCode) -> list[Resumed]:
    """Find the functions that continue after graph breaks, by recorded Python frames.

    Dynamo names such a function `torch_dynamo_resume_in_FUNCTION_at_LINE`. The
    functions are in the order of file and line; none are found if stacks were not
    recorded.
    """
    trace = compiled.trace
    rows = trace.rows_named(lambda name: "torch_dynamo_resume_in_" in name, Role.PYTHON)

    rows_by_name: dict[str, list[int]] = {}
    for row in rows.tolist():
        rows_by_name.setdefault(trace.name_of(row), []).append(row)

    resumed_functions = []
    for name, rows_of_name in rows_by_name.items():
        frame = function_of(name)
        if frame is None:
            continue
        match = RESUMES.match(frame.name)
        if match is None:
            continue

        resumed = Resumed(
            function=match["function"],
            line=int(match["line"]),
            file=frame.file,
            rows=tuple(rows_of_name),
        )
        resumed_functions.append(resumed)

    resumed_functions.sort(key=lambda resumed: (resumed.file, resumed.line))
    return resumed_functions


def _find_continuing_rows(
    graph_break: GraphBreak, resumed_functions: Sequence[Resumed]
) -> tuple[int, ...]:
    """Return the rows of the function that continues after a graph break.

    A break in a function that was inlined resumes in its caller, so all positions on
    the stack are tried. Returns () if no function is known for them.
    """
    positions = {(graph_break.file, graph_break.line)}
    positions |= {(frame.file, frame.line) for frame in graph_break.stack}
    for function in resumed_functions:
        if (function.file, function.line) in positions:
            return function.rows

    return ()


def _describe_logged_break(
    graph_break: GraphBreak,
    compiled: CompiledCode | None,
    resumed_functions: Sequence[Resumed],
) -> PassedBreak:
    """Describe a graph break of the compile log, with the times between the regions
    around it.

    Args:
        graph_break: The graph break.
        compiled: The compiled code of the trace; None without a trace.
        resumed_functions: The functions that continue after breaks.
    """
    between_ns = np.empty(0, dtype=np.int64)
    if compiled is not None:
        continuing_rows = _find_continuing_rows(graph_break, resumed_functions)
        rows = np.array(continuing_rows, dtype=np.intp)
        between_ns = measure_times_between(compiled, rows)

    compile_id = graph_break.compile_id
    innermost = graph_break.stack[-1] if graph_break.stack else None
    return PassedBreak(
        compile_id="" if compile_id is None else str(compile_id),
        file=graph_break.file,
        line=graph_break.line,
        function="" if innermost is None else innermost.function,
        reason=graph_break.reason,
        explanation=graph_break.explanation,
        hints=graph_break.hints,
        passed=len(between_ns),
        between_ns=int(between_ns.sum()),
        median_between_ns=_median_or_none(between_ns),
        code="" if innermost is None else innermost.code,
    )


def _describe_break_of_frames(compiled: CompiledCode, resumed: Resumed) -> PassedBreak:
    """Describe a graph break that only the Python frame of the function after it
    proves.

    Its reason is not known. The result has the times between the regions before and
    after it.

    Args:
        compiled: The compiled code of the trace.
        resumed: The function that continues after the break.
    """
    rows = np.array(resumed.rows, dtype=np.intp)
    between_ns = measure_times_between(compiled, rows)
    return PassedBreak(
        compile_id="",
        file=resumed.file,
        line=resumed.line,
        function=resumed.function,
        reason="",
        explanation="",
        hints=(),
        passed=len(between_ns),
        between_ns=int(between_ns.sum()),
        median_between_ns=_median_or_none(between_ns),
        code="",
    )


def _median_or_none(values: Int64s) -> int | None:
    """Return the median of some values; None if there are none."""
    return int(median(values)) if len(values) else None


def measure_times_between(compiled: CompiledCode, rows: Rows) -> Int64s:
    """Return the times between the regions before graph breaks and those after them.

    Each is the time since the last call of a graph on the same thread ended.

    Args:
        compiled: The compiled code of the trace.
        rows: The regions that continue after breaks. Those before which no graph was
            called are left out.
    """
    call_ends = find_ends_before(compiled, rows)
    has_call = call_ends != UNKNOWN_TIME
    between: Int64s = compiled.trace.start[rows[has_call]] - call_ends[has_call]
    return between


def find_ends_before(compiled: CompiledCode, rows: Rows) -> Int64s:
    """Find when the last call of a graph before each row ended, on the same thread.

    E.g. of calls that end at 5 and 9 ns, it is 5 ns for a row that starts at 7 ns.

    Returns:
        For each of `rows` a time in ns; UNKNOWN_TIME if there was no call.
    """
    trace = compiled.trace
    calls = compiled.calls.rows
    thread_of_row = trace.thread_of_track[trace.track[rows]]
    thread_of_call = trace.thread_of_track[trace.track[calls]]

    ends = np.full(len(rows), UNKNOWN_TIME, dtype=np.int64)
    for thread in distinct(thread_of_row).tolist():
        is_on_thread = thread_of_row == thread
        starts = trace.start[rows[is_on_thread]]
        call_ends = np.sort(trace.end[calls[thread_of_call == thread]])

        last_ended = last_at_or_before(call_ends, starts)
        ends[is_on_thread] = at(call_ends, last_ended, missing=UNKNOWN_TIME)

    return ends
