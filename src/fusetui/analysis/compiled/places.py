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
from fusetui.analysis.compiled.regions import find_regions
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

    Returns:
        The compilations and the breaks, each by the row of the slice.
    """
    compilation_of_id = {
        compilation.compile_id: compilation
        for compilation in list_compilations(trace, log)
        if not compilation.backward and compilation.in_recording is not False
    }
    compilations = {}
    for compile_id, row in find_compilation_rows(trace):
        if compile_id in compilation_of_id:
            compilations[row] = compilation_of_id[compile_id]

    breaks = {}
    regions = find_regions(trace)
    logs = find_logs_of_trace(trace, log)
    breaks_of_trace = [
        graph_break for graph_break in log.breaks if graph_break.log in logs
    ]
    breaks_with_times = list_graph_breaks(regions, log)
    for graph_break, with_times in zip(breaks_of_trace, breaks_with_times, strict=True):
        for row in find_rows_after(graph_break, regions, log):
            breaks[row] = with_times

    return PlacedEvents(compilations=compilations, breaks=breaks)
