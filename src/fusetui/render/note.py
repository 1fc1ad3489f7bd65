"""Output that is made from one trace: what the trace says of itself goes with it."""

from __future__ import annotations

from textwrap import wrap

import msgspec

from fusetui.render.output import emit, emit_json, width
from fusetui.trace import Trace
from fusetui.trace.questions.note import note_of


def emit_of(trace: Trace, text: str) -> None:
    """A table, and below it the note of its trace, if there is one."""
    note = note_of(trace)
    lines = ["", *wrap(f"! {note}", width(), subsequent_indent="  ")] if note else []
    emit("\n".join([text, *lines]))


def emit_json_of(trace: Trace, document: object) -> None:
    """A JSON document, with the note of its trace as `note`, if there is one."""
    note = note_of(trace)
    emit_json({**msgspec.to_builtins(document), "note": note} if note else document)
