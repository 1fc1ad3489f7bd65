"""Finds the slices of a trace on which compilations and graph breaks happened."""

from __future__ import annotations

import msgspec

from fusetui.analysis.compiled.breaks import find_rows_after, list_graph_breaks
from fusetui.analysis.compiled.compilations import (
    find_compilation_rows,
    list_compilations,
)
from fusetui.analysis.compiled.graphs import find_logs_of_trace
from fusetui.analysis.compiled.model import CompiledOnce, PassedBreak
from fusetui.analysis.compiled.regions import find_compiled_code
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.model.columns import Trace


class PlacedEvents(msgspec.Struct, frozen=True):
    """On which slices compilations and graph breaks happened, by row of the trace."""

    compilations: dict[int, CompiledOnce]  # by the op that lasts as long
    breaks: dict[int, PassedBreak]  # by the region that continues after the break


def locate_logged_events(trace: Trace, log: CompileLog) -> PlacedEvents:
    """Find the slices of a trace to which the compilations and graph breaks of a log
    belong.

    A compilation belongs to its op, and a break to the regions that continue after it.
    Those outside of the recording are left out.
    """
    return PlacedEvents(
        compilations=_locate_compilations(trace, log),
        breaks=_locate_breaks(trace, log),
    )


def _locate_compilations(trace: Trace, log: CompileLog) -> dict[int, CompiledOnce]:
    """Return the compilations of a log by the rows of their ops in the trace."""
    compilation_of_id = {}
    for compilation in list_compilations(trace, log):
        may_be_recorded = compilation.in_recording is not False
        # Backward passes have the compile ids of their forward passes.
        if may_be_recorded and not compilation.backward:
            compilation_of_id[compilation.compile_id] = compilation

    located = {}
    for traced in find_compilation_rows(trace):
        if traced.compile_id in compilation_of_id:
            located[traced.row] = compilation_of_id[traced.compile_id]
    return located


def _locate_breaks(trace: Trace, log: CompileLog) -> dict[int, PassedBreak]:
    """Return the graph breaks of a log by the rows of the regions that continue after
    them."""
    compiled = find_compiled_code(trace)
    logs = find_logs_of_trace(trace, log)
    logged = [graph_break for graph_break in log.breaks if graph_break.log in logs]

    # `list_graph_breaks` describes the same breaks in the same order.
    described = list_graph_breaks(compiled, log)
    located = {}
    for graph_break, passed_break in zip(logged, described, strict=True):
        for row in find_rows_after(graph_break, compiled, log):
            located[row] = passed_break
    return located
