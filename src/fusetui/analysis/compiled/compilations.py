"""What was compiled, and when in the recording."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fusetui.analysis.compiled.graphs import logs_of_trace
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


def compilations_of(
    trace: Trace | None, log: CompileLog | None
) -> tuple[CompiledOnce, ...]:
    """All compilations that the log has, else those that the trace shows; in the order
    of their starts."""
    if log is not None and log.compilations:
        logs: Collection[int] = range(len(log.logs))
        if trace is not None:
            logs = logs_of_trace(trace, log)
        of_logs = [one for one in log.compilations if one.log in logs]
        found = [_of_log(trace, one) for one in of_logs]
    elif trace is not None:
        found = _of_trace(trace)
    else:
        found = []
    found.sort(key=lambda one: (one.start_ns is None, one.start_ns or 0))
    return tuple(found)


def _of_log(trace: Trace | None, one: Compilation) -> CompiledOnce:
    start_ns, in_recording = _placed(trace, one.start_ns, one.duration_ns)
    guards = [Guard(entry=guard.entry, text=guard.guard) for guard in one.guards]
    return CompiledOnce(
        compile_id="" if one.compile_id is None else str(one.compile_id),
        function=one.function,
        file=one.file,
        line=one.line,
        backward=one.is_backward,
        start_ns=start_ns,
        duration_ns=one.duration_ns,
        inductor_ns=one.inductor_ns,
        in_recording=in_recording,
        guards=tuple(guards),
        failure=one.failure,
        cache=one.cache,
        from_log=True,
    )


def _placed(
    trace: Trace | None, start_ns: int, duration_ns: int
) -> tuple[int | None, bool | None]:
    """When a compilation began, in ns after the begin of the trace, and whether it
    overlaps the recording; None where a clock is unknown."""
    if trace is None or not start_ns or not trace.epoch_ns:
        return None, None
    start = start_ns - trace.epoch_ns - trace.begin_ns
    overlaps = start < trace.span_ns and start + duration_ns > 0
    return start, overlaps


def _of_trace(trace: Trace) -> list[CompiledOnce]:
    """The compilations of a trace without a log."""
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
        for compile_id, row in rows_of_compilations(trace)
    ]


def rows_of_compilations(trace: Trace) -> list[tuple[str, int]]:
    """The compile id of each compilation that the trace shows, and the op that lasts as
    long: torch writes an annotation with the id right before it."""
    named = trace.rows_named(COMPILING.match, Role.ANNOTATION, Role.OP)
    timed = trace.rows_named(lambda name: name == TIMED, Role.OP, Role.ANNOTATION)
    thread_of = trace.thread_of_track[trace.track]
    found = []
    for row in named.tolist():
        of_thread = timed[thread_of[timed] == thread_of[row]]
        later = of_thread[trace.start[of_thread] >= trace.end[row]]
        match = COMPILING.match(trace.name_of(row))
        if match is not None and len(later):
            found.append((match["id"], int(later[np.argmin(trace.start[later])])))
    return found
