"""Finds the slices of a trace on which compilations and graph breaks happened."""

from __future__ import annotations

import msgspec

from fusetui.analysis.compiled.breaks import passed_breaks, rows_after
from fusetui.analysis.compiled.compilations import compilations_of, rows_of_compilations
from fusetui.analysis.compiled.graphs import logs_of_trace
from fusetui.analysis.compiled.model import CompiledOnce, PassedBreak
from fusetui.analysis.compiled.regions import regions_of
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.model.columns import Trace


class PlacedEvents(msgspec.Struct, frozen=True):
    """On which slices compilations and graph breaks happened, by row of the trace."""

    compilations: dict[int, CompiledOnce]  # by the op that lasts as long
    breaks: dict[int, PassedBreak]  # by the region that continues after the break


def placed_events(trace: Trace, log: CompileLog) -> PlacedEvents:
    """Find the slices on which the compilations and graph breaks of a log happened.

    Those outside of the recording are left out.
    """
    compilation_of_id = {
        compilation.compile_id: compilation
        for compilation in compilations_of(trace, log)
        if not compilation.backward and compilation.in_recording is not False
    }
    compilations = {}
    for compile_id, row in rows_of_compilations(trace):
        if compile_id in compilation_of_id:
            compilations[row] = compilation_of_id[compile_id]

    breaks = {}
    regions = regions_of(trace)
    logs = logs_of_trace(trace, log)
    logged = [graph_break for graph_break in log.breaks if graph_break.log in logs]
    breaks_with_times = passed_breaks(regions, log)
    for graph_break, with_times in zip(logged, breaks_with_times, strict=True):
        for row in rows_after(graph_break, regions, log):
            breaks[row] = with_times

    return PlacedEvents(compilations=compilations, breaks=breaks)
