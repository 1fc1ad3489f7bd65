"""Output that is made from traces: what a trace says of itself goes with it."""

from __future__ import annotations

from textwrap import wrap

import msgspec

from fusetui.render.output import emit, emit_json, width
from fusetui.trace import Trace
from fusetui.trace.questions.note import note_of


def emit_of(trace: Trace, text: str, *others: Trace) -> None:
    """A table, and below it the notes of its traces, if there are any."""
    lines = [text]
    for note in _notes(trace, *others):
        lines += ["", *wrap(f"! {note}", width(), subsequent_indent="  ")]
    emit("\n".join(lines))


def emit_json_of(trace: Trace, document: object, *others: Trace) -> None:
    """A JSON document, with the notes of its traces as `note`, if there are any."""
    note = " ".join(_notes(trace, *others))
    emit_json({**msgspec.to_builtins(document), "note": note} if note else document)


def _notes(*traces: Trace) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(note for trace in traces if (note := note_of(trace))))
