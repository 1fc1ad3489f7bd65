"""On which slices of a trace compilations and graph breaks happened."""

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
    """By row of the trace: the op that lasts as long as a compilation, and the region
    that continues after a graph break."""

    compilations: dict[int, CompiledOnce]
    breaks: dict[int, PassedBreak]


def placed_events(trace: Trace, log: CompileLog) -> PlacedEvents:
    """Where in the trace the compilations and graph breaks of its log happened; those
    outside of the recording are left out."""
    once = {
        one.compile_id: one
        for one in compilations_of(trace, log)
        if not one.backward and one.in_recording is not False
    }
    compilations = {}
    for compile_id, row in rows_of_compilations(trace):
        if compile_id in once:
            compilations[row] = once[compile_id]
    breaks = {}
    regions = regions_of(trace)
    logs = logs_of_trace(trace, log)
    logged = [one for one in log.breaks if one.log in logs]
    passed = passed_breaks(regions, log)
    for one, with_times in zip(logged, passed, strict=True):
        for row in rows_after(one, regions, log):
            breaks[row] = with_times
    return PlacedEvents(compilations=compilations, breaks=breaks)
