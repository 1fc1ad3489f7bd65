"""Output that is derived from traces, together with the traces' notes about their origin."""

from __future__ import annotations

from textwrap import wrap

import msgspec

from fusetui.analysis.questions.note import note_of
from fusetui.report.output import emit, emit_json, width
from fusetui.trace import Trace


def emit_of(trace: Trace, text: str, *others: Trace) -> None:
    """Prints a table, followed by the notes of its traces, if any."""
    emit("\n".join([text, *note_lines(trace, *others)]))


def note_lines(*traces: Trace) -> list[str]:
    """The lines that `emit_of` prints below a table."""
    notes = (wrap(f"! {note}", width(), subsequent_indent="  ") for note in _notes(*traces))
    return [line for note in notes for line in ("", *note)]


def emit_json_of(trace: Trace, document: object, *others: Trace) -> None:
    """Prints a JSON document, with the notes of its traces as `note`, if any."""
    note = " ".join(_notes(trace, *others))
    emit_json({**msgspec.to_builtins(document), "note": note} if note else document)


def _notes(*traces: Trace) -> list[str]:
    """The distinct notes."""
    return list(
        dict.fromkeys(note for trace in traces for note in (note_of(trace), *trace.notes) if note)
    )
