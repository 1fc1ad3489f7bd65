"""Notes from the compile log on slices of the lanes: compilations and graph breaks."""

from __future__ import annotations

from fusetui.analysis.compiled.model import CompiledOnce, PassedBreak
from fusetui.analysis.compiled.places import locate_logged_events
from fusetui.report.compiled import describe_break, explain_compilation, format_place
from fusetui.text.figures import duration
from fusetui.text.printable import printable
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import keep_result
from fusetui.tui.layout.kinds import COMPILE_NOTES, SliceNote


def keep_compile_notes(trace: Trace, log: CompileLog) -> None:
    """Store notes about compilations and graph breaks with a trace, for the labels of
    the slices at which they happened. `log` is the compile log of the same run."""
    events = locate_logged_events(trace, log)
    notes = {
        row: _describe_compilation(event) for row, event in events.compilations.items()
    }
    for row, event in events.breaks.items():
        notes[row] = _describe_graph_break(event, trace.name_of(row))
    keep_result(trace, COMPILE_NOTES, notes)


def _describe_compilation(one: CompiledOnce) -> SliceNote:
    """Return the note on a compilation: its id, and why it was needed, such as the
    guard that failed. The text also has the function and the duration."""
    why = printable(explain_compilation(one))
    function = printable(one.function or "a function")
    return SliceNote(
        label=f"compiles {one.compile_id}, {why}",
        text=f"Compilation {one.compile_id} of {function}, {duration(one.duration_ns)}: {why}.",
    )


def _describe_graph_break(one: PassedBreak, region: str) -> SliceNote:
    """Return the note on a graph break: its place in the program and its reason.
    `region` is the name of the compiled region that follows it."""
    place = format_place(one.file, one.line)
    return SliceNote(
        label=printable(f"graph break {place}, {one.reason}, then {region}"),
        text=printable(describe_break(one)),
    )
