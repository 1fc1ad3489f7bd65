"""Lists compilations, with their times in the recording."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

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
    compilations: list[CompiledOnce] = []
    if log is not None and log.compilations:
        logs: Collection[int] = range(len(log.logs))
        if trace is not None:
            logs = find_logs_of_trace(trace, log)
        for compilation in log.compilations:
            if compilation.log in logs:
                compilations.append(_describe_logged_compilation(trace, compilation))
    elif trace is not None:
        compilations = _list_traced_compilations(trace)

    return tuple(sorted(compilations, key=_make_sort_key))


def _make_sort_key(compilation: CompiledOnce) -> tuple[bool, int]:
    """Return a key that sorts compilations by their start, those without one last."""
    return compilation.start_ns is None, compilation.start_ns or 0


def _describe_logged_compilation(
    trace: Trace | None, compilation: Compilation
) -> CompiledOnce:
    """Describe a compilation of the compile log, with the time in the trace at which it
    ran.

    Args:
        trace: The trace; None if there is only a log.
        compilation: The compilation as it was logged.
    """
    compile_id = compilation.compile_id
    guards = [
        Guard(entry=guard.entry, text=guard.guard) for guard in compilation.guards
    ]

    start_ns: int | None = None
    in_recording: bool | None = None
    is_dated = compilation.start_ns != 0  # 0: its time was not recorded
    if trace is not None and trace.epoch_ns and is_dated:
        start_ns = compilation.start_ns - trace.epoch_ns - trace.begin_ns
        end_ns = start_ns + compilation.duration_ns
        in_recording = start_ns < trace.span_ns and end_ns > 0

    return CompiledOnce(
        compile_id="" if compile_id is None else str(compile_id),
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


def _list_traced_compilations(trace: Trace) -> list[CompiledOnce]:
    """List the compilations that a trace itself shows, for use without a compile log.
    Only their ids and times are known."""
    return [
        CompiledOnce(
            compile_id=compilation.compile_id,
            function="",
            file="",
            line=0,
            backward=False,
            start_ns=int(trace.start[compilation.row]) - trace.begin_ns,
            duration_ns=int(trace.dur[compilation.row]),
            inductor_ns=0,
            in_recording=True,
            guards=(),
            failure="",
            cache="",
            from_log=False,
        )
        for compilation in find_compilation_rows(trace)
    ]


class TracedCompilation(NamedTuple):
    """A compilation that a trace shows."""

    compile_id: str  # 0/1
    row: int  # of the op that lasts as long as the compilation


def find_compilation_rows(trace: Trace) -> list[TracedCompilation]:
    """Find the compilations that a trace shows.

    Before the op that lasts as long as the compilation, torch writes an annotation with
    the compile id.
    """
    annotations = trace.rows_named(COMPILING.match, Role.ANNOTATION, Role.OP)
    timed_ops = trace.rows_named(lambda name: name == TIMED, Role.OP, Role.ANNOTATION)
    thread_of = trace.thread_of_track[trace.track]

    compilations = []
    for annotation in annotations.tolist():
        is_on_thread = thread_of[timed_ops] == thread_of[annotation]
        is_later = trace.start[timed_ops] >= trace.end[annotation]
        later_ops = timed_ops[is_on_thread & is_later]

        # The first op of the thread behind the annotation is that of the compilation.
        match = COMPILING.match(trace.name_of(annotation))
        if match is not None and len(later_ops):
            next_op = later_ops[np.argmin(trace.start[later_ops])]
            compilation = TracedCompilation(compile_id=match["id"], row=int(next_op))
            compilations.append(compilation)

    return compilations
