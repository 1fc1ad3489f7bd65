"""Standard output: results only, text or one JSON document, escaped for terminals; those that are
derived from traces together with the traces' notes about their origin."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import msgspec
import orjson

from fusetui.report.streams import write
from fusetui.text.printable import json_lines, printable_lines
from fusetui.text.tables import Unseen

if TYPE_CHECKING:
    from fusetui.trace import Trace

NARROWEST, WIDEST = 40, 10_000
UNKNOWN_WIDTH = 100


def emit(text: str) -> None:
    """Writes lines, each made printable. Raises as `streams.write` does."""
    write(f"{printable_lines(text)}\n")


def emit_json(document: object) -> None:
    """Writes one indented JSON document of dicts, lists and records. Raises as `emit` does."""
    write(f"{json_lines(_json(document))}\n")


def width() -> int:
    """The width of the terminal, or of COLUMNS within reason; a fixed width if there is neither,
    for which no name is cut."""
    known = shutil.get_terminal_size((0, 24)).columns
    return min(WIDEST, max(NARROWEST, known)) if known else Unseen(UNKNOWN_WIDTH)


def speaks_unicode() -> bool:
    """Whether standard output can represent box-drawing characters."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def _json(document: object) -> str:
    try:
        return orjson.dumps(document, msgspec.to_builtins, orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, from a file name that is not UTF-8
        return json.dumps(document, indent=2, ensure_ascii=False, default=msgspec.to_builtins)


def emit_of(trace: Trace, text: str, *others: Trace) -> None:
    """Prints a table, followed by the notes of its traces, if any."""
    emit("\n".join([text, *note_lines(trace, *others)]))


def note_lines(*traces: Trace) -> list[str]:
    """The lines that `emit_of` prints below a table."""
    return wrapped(notes_of(*traces))


def wrapped(notes: Sequence[str]) -> list[str]:
    """Notes below a table."""
    lines = (wrap(f"! {note}", width(), subsequent_indent="  ") for note in notes)
    return [line for note in lines for line in ("", *note)]


def emit_json_of(trace: Trace, document: object, *others: Trace) -> None:
    """Prints a JSON document, with the notes of its traces as `note`, if any."""
    note = " ".join(notes_of(trace, *others))
    emit_json({**msgspec.to_builtins(document), "note": note} if note else document)


def notes_of(*traces: Trace) -> list[str]:
    """What was noted about the origin of these traces, each note once."""
    from fusetui.analysis.questions.note import note_of

    notes = (note for trace in traces for note in (note_of(trace), *trace.notes))
    return list(dict.fromkeys(filter(None, notes)))
