"""Lists compilations, with their times in the recording."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fusetui.analysis.compiled.graphs import find_logs_of_trace
from fusetui.analysis.compiled.model import CompiledOnce, Guard
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import Compilation, CompileLog
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

COMPILING = lazy_pattern(
    r"entire_frame_compile_data: .*?compile_id=(?P<id>[0-9]{1,9}/[0-9]{1,9})"
)
"""The annotation that torch writes before an op with the time of a compilation."""
TIMED = "_compile.compile_inner (dynamo_timed)"


def list_compilations(
    trace: Trace | None, log: CompileLog | None
) -> tuple[CompiledOnce, ...]:
    """List what torch.compile compiled, in the order of the starts.

    The log has all compilations; without it those that the trace shows are listed.

    Args:
        trace: The trace; None if there is only a log.
        log: The compile log; None if there is only a trace.
    """
    if log is not None and log.compilations:
        logs: Collection[int] = range(len(log.logs))
        if trace is not None:
            logs = find_logs_of_trace(trace, log)
        logged = [
            compilation for compilation in log.compilations if compilation.log in logs
        ]
        compilations = [
            _describe_logged_compilation(trace, compilation) for compilation in logged
        ]
    elif trace is not None:
        compilations = _list_traced_compilations(trace)
    else:
        compilations = []

    # Those whose start is not known come last.
    compilations.sort(
        key=lambda compilation: (
            compilation.start_ns is None,
            compilation.start_ns or 0,
        )
    )
    return tuple(compilations)


def _describe_logged_compilation(
    trace: Trace | None, compilation: Compilation
) -> CompiledOnce:
    """Describe a compilation of the compile log, with the time in the trace at which it
    ran.

    Args:
        trace: The trace; None if there is only a log.
        compilation: The compilation as it was logged.
    """
    start_ns, in_recording = _convert_to_trace_time(
        trace, compilation.start_ns, compilation.duration_ns
    )
    guards = [
        Guard(entry=guard.entry, text=guard.guard) for guard in compilation.guards
    ]

    return CompiledOnce(
        compile_id=""
        if compilation.compile_id is None
        else str(compilation.compile_id),
        function=compilation.function,
        file=compilation.file,
        line=compilation.line,
        backward=compilation.is_backward,
        start_ns=start_ns,
        duration_ns=compilation.duration_ns,
        inductor_ns=compilation.inductor_ns,
        in_recording=in_recording,
        guards=tuple(guards),
        failure=compilation.failure,
        cache=compilation.cache,
        from_log=True,
    )


def _convert_to_trace_time(
    trace: Trace | None, start_ns: int, duration_ns: int
) -> tuple[int | None, bool | None]:
    """Find out when a compilation was in terms of the trace.

    Args:
        trace: The trace; None without one.
        start_ns: When the compilation began, in ns since 1970; 0 if that is not known.
        duration_ns: How long it took.

    Returns:
        The start in ns after the begin of the trace, and whether the compilation
        overlaps the recording. None twice if a clock is not known.
    """
    if trace is None or not start_ns or not trace.epoch_ns:
        return None, None

    start = start_ns - trace.epoch_ns - trace.begin_ns
    overlaps = start < trace.span_ns and start + duration_ns > 0
    return start, overlaps


def _list_traced_compilations(trace: Trace) -> list[CompiledOnce]:
    """List the compilations that a trace itself shows, for use without a compile log.
    Only their ids and times are known."""
    return [
        CompiledOnce(
            compile_id=compile_id,
            function="",
            file="",
            line=0,
            backward=False,
            start_ns=int(trace.start[row]) - trace.begin_ns,
            duration_ns=int(trace.dur[row]),
            inductor_ns=0,
            in_recording=True,
            guards=(),
            failure="",
            cache="",
            from_log=False,
        )
        for compile_id, row in find_compilation_rows(trace)
    ]


def find_compilation_rows(trace: Trace) -> list[tuple[str, int]]:
    """Find the compilations that a trace shows.

    Before the op that lasts as long as the compilation, torch writes an annotation with
    the compile id.

    Returns:
        For each compilation its compile id and the row of that op.
    """
    annotations = trace.rows_named(COMPILING.match, Role.ANNOTATION, Role.OP)
    timed_ops = trace.rows_named(lambda name: name == TIMED, Role.OP, Role.ANNOTATION)
    thread_of = trace.thread_of_track[trace.track]

    compilations = []
    for row in annotations.tolist():
        ops_of_thread = timed_ops[thread_of[timed_ops] == thread_of[row]]
        later_ops = ops_of_thread[trace.start[ops_of_thread] >= trace.end[row]]

        # The first op of the thread behind the annotation is that of the compilation.
        match = COMPILING.match(trace.name_of(row))
        if match is not None and len(later_ops):
            next_op = later_ops[np.argmin(trace.start[later_ops])]
            compilations.append((match["id"], int(next_op)))

    return compilations
