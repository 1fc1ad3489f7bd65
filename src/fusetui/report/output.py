"""Standard output: only results, as text or one JSON document, escaped for terminals;
results from traces include the notes about their origin. And a progress bar."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from textwrap import wrap
from typing import TYPE_CHECKING, Self, TextIO

import msgspec
import orjson

from fusetui.report.streams import write
from fusetui.text.figures import percent
from fusetui.text.printable import (
    json_lines,
    printable,
    printable_lines,
    without_credentials,
)

if TYPE_CHECKING:
    from fusetui.trace import Trace

MIN_WIDTH = 40
"""Cells of a line; a narrower terminal breaks the lines."""

MAX_WIDTH = 10_000
UNKNOWN_WIDTH = 100
"""Where there is no terminal."""

PATIENCE_SECONDS = 1.0
"""Before a bar is drawn."""

REFRESH_SECONDS = 0.1
BAR_CELLS = 24
MIN_TITLE_CELLS = 8
"""Before a bar."""


def emit(text: str) -> None:
    """Write lines to standard output, each made printable. Raises OutputError or
    BrokenPipeError as `streams.write` does."""
    write(f"{printable_lines(text)}\n")


def emit_json(document: object) -> None:
    """Write one indented JSON document of dicts, lists and records to standard output.
    Raises as `emit` does."""
    try:
        text = orjson.dumps(document, msgspec.to_builtins, orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # a lone surrogate, from a file name that is not UTF-8, which Python's json takes
        text = json.dumps(
            document, indent=2, ensure_ascii=False, default=msgspec.to_builtins
        )
    write(f"{json_lines(text)}\n")


def width() -> int:
    """Return the width of the terminal in cells, between MIN_WIDTH and MAX_WIDTH;
    COLUMNS has precedence. Without a terminal it is a fixed width for which no name is
    cut."""
    from fusetui.text.tables import UncutWidth  # which JSON does not need

    cells = shutil.get_terminal_size(fallback=(0, 24)).columns
    if not cells:
        return UncutWidth(UNKNOWN_WIDTH)
    return min(MAX_WIDTH, max(MIN_WIDTH, cells))


def supports_unicode() -> bool:
    """Whether standard output can represent box-drawing characters."""
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") == "utf8"


def emit_with_notes(trace: Trace, text: str, *others: Trace) -> None:
    """Print a text about traces, followed by their notes, if any."""
    emit("\n".join([text, *wrap_notes(notes_of(trace, *others))]))


def wrap_notes(notes: Sequence[str]) -> list[str]:
    """Return the lines of notes below a table, with an empty line before each note."""
    lines = []
    for note in notes:
        lines.append("")
        lines += wrap(f"! {note}", width(), subsequent_indent="  ")
    return lines


def emit_json_with_notes(trace: Trace, document: object, *others: Trace) -> None:
    """Print a JSON document about traces. Their notes are added under the key `note`,
    if there are any."""
    note = " ".join(notes_of(trace, *others))
    if note:
        document = {**msgspec.to_builtins(document), "note": note}
    emit_json(document)


def notes_of(*traces: Trace) -> list[str]:
    """Return what was noted about the origin of these traces, each note once."""
    from fusetui.analysis.questions.note import note_of

    notes: dict[str, None] = {}  # in this order
    for trace in traces:
        for note in (note_of(trace), *trace.notes):
            if note:
                notes[note] = None
    return list(notes)


class Bar:
    """Progress of work that takes over a second, on terminals only:
    `reading big.json  [#######-----]    58 %`, on one line that is erased at the end."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = printable(without_credentials(title))
        self._stream = stream
        self._due_s = time.monotonic() + PATIENCE_SECONDS
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._write("")

    def update(self, done: int, total: int) -> None:
        """Redraw the progress bar if it is time to, and the stream is a terminal.
        `done` and `total` have the same unit."""
        if time.monotonic() < self._due_s or not self._stream.isatty():
            return
        from fusetui.text.cutting import clip  # only where a bar is drawn

        self._due_s = time.monotonic() + REFRESH_SECONDS
        self._drawn = True
        total = max(total, 1)
        filled_cells = BAR_CELLS * done // total
        bar = ("#" * filled_cells).ljust(BAR_CELLS, "-")
        figures = f"  [{bar}] {percent(done, total):>7}"
        width = shutil.get_terminal_size().columns - 1
        title_cells = max(MIN_TITLE_CELLS, width - len(figures))
        title = clip(self._title, title_cells, "...")
        self._write(f"{title}{figures}")

    def _write(self, line: str) -> None:
        with suppress(OSError):  # a bar that cannot be drawn is not an error
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()
