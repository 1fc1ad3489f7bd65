"""What a trace says of itself, beside the figures that are made from it."""

from __future__ import annotations

from typing import Any

from fusetui.render.output import width
from fusetui.trace import Trace
from fusetui.trace.questions.note import note_of


def noted(text: str, trace: Trace) -> str:
    """A table with the note of its trace below, if there is one."""
    from textwrap import wrap

    note = note_of(trace)
    lines = wrap(f"! {note}", width(), subsequent_indent="  ") if note else []
    return "\n".join([text, *lines])


def with_note(document: dict[str, Any], trace: Trace) -> dict[str, Any]:
    """A JSON document with the note of its trace, if there is one, as `note`."""
    note = note_of(trace)
    return {**document, "note": note} if note else document
