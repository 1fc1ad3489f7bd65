"""Notes from the compile log on slices of the lanes: compilations and graph breaks."""

from __future__ import annotations

from fusetui.analysis.compiled.model import CompiledOnce, PassedBreak
from fusetui.analysis.compiled.places import placed_events
from fusetui.report.compiled import break_sentence, place_text, why_compiled
from fusetui.text.figures import duration
from fusetui.text.printable import printable
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import keep_result
from fusetui.tui.layout.kinds import COMPILE_NOTES, SliceNote


def keep_notes(trace: Trace, log: CompileLog) -> None:
    """From now on `note_of` knows where the compilations and breaks of a log were."""
    events = placed_events(trace, log)
    notes = {row: _of_compilation(one) for row, one in events.compilations.items()}
    for row, one in events.breaks.items():
        notes[row] = _of_break(one, trace.name_of(row))
    keep_result(trace, COMPILE_NOTES, notes)


def _of_compilation(one: CompiledOnce) -> SliceNote:
    """The guard that failed, in the log's words, the newest entry of the cache first."""
    why = printable(why_compiled(one))
    function = printable(one.function or "a function")
    return SliceNote(
        label=f"compiles {one.compile_id}, {why}",
        text=f"Compilation {one.compile_id} of {function}, {duration(one.duration_ns)}: {why}.",
    )


def _of_break(one: PassedBreak, region: str) -> SliceNote:
    """The break before a region."""
    place = place_text(one.file, one.line)
    return SliceNote(
        label=printable(f"graph break {place}, {one.reason}, then {region}"),
        text=printable(break_sentence(one)),
    )
