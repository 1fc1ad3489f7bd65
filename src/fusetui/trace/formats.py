"""The supported formats of traces. Each is read by a package of its own, which is
imported when a file of that format is met; the rest of fusetui does not depend on which
one it was.

A reader's `read(stored, callbacks)` gives the columns of all slices. Its `text(path,
file, state)` gives the text of the events behind them (see read/document_text.py) when
the Trace came from the cache. A reader of files that several processes share also has
`processes(path)`, and its `read` takes the process that is meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from fusetui.debug_log import debug
from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.events import Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.read import Callbacks
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.foreign import HEAD, is_export_of_nsys, is_pftrace_of_torch
from fusetui.trace.read.source import (
    EVENT,
    EVENTS_KEY,
    State,
    Stored,
    beginning,
    open_arriving,
    reason,
)
from fusetui.trace.read.unpack import first_pieces

# A line feed is no such byte: it may begin a packet of protobuf.
FIRST_BYTES_OF_JSON = (b"{", b"[", b" ", b"\r", b"\t")
MAX_PROCESS_DIGITS = 8  # of FILE#PID

JSON = "json"
FORMATS: dict[str, Callable[[bytes], bool]] = {
    "pftrace": is_pftrace_of_torch,
    "nsys": is_export_of_nsys,
}
"""Formats other than JSON, as Report.format and the packages with `reading` name them,
and what recognizes each by the first HEAD bytes of a document."""


def read(path: str, callbacks: Callbacks) -> Raw:
    """Read a trace of any format into columns. The path FILE#PID is one process of a
    file that several processes share.

    Raises CannotReadError or NotATraceError with one plain sentence. If the user stops
    it, the result has a `prefix`, which says how far the file was read. Raises
    NothingReadError if there would be no event in it.
    """
    file, process = _file_and_process(path)
    stored = open_arriving(file)
    try:
        with closing(stored.file):
            package = reader(_detect_format(stored))
            if process is None:
                raw: Raw = package.read(stored, callbacks)
                return raw
            raw = package.read(stored, callbacks, process)
            return replace(raw, report=replace(raw.report, path=path))
    except OSError as error:
        raise CannotReadError(
            f"{stored.path} cannot be read: {reason(error)}."
        ) from None


def processes_in(path: str) -> list[str]:
    """Return a path for each process in a file: ["a.sqlite#7", "a.sqlite#9"].

    `read` takes such paths. It is the path itself, alone, if the format does not tell
    processes apart, if there is only one, and if the file cannot be read.
    """
    processes: list[int] = []
    with suppress(OSError, TraceError):
        if os.path.isfile(path):
            package = _choose_reader(path)
            if hasattr(package, "processes"):
                processes = package.processes(path)
    if len(processes) < 2:
        return [path]
    return [f"{path}#{pid}" for pid in processes]


def _file_and_process(path: str) -> tuple[str, int | None]:
    """Divide FILE#PID into a file and the process of it that is meant.

    "a.sqlite#7" is ("a.sqlite", 7) if a.sqlite is of a format whose files several
    processes share. Anything else is a path, with None; so is a file whose own name
    ends so.
    """
    file, mark, pid = path.rpartition("#")
    is_number = pid.isdecimal() and len(pid) <= MAX_PROCESS_DIGITS
    if mark and is_number and not os.path.exists(path):
        with suppress(OSError):
            if hasattr(_choose_reader(file), "processes"):
                return file, int(pid)
    return path, None


def text_of(name: str, path: str, file: OpenFile, state: State) -> Text:
    """The text behind a trace that came from the cache. `name` is its format; `state`
    is that of the file when it was read."""
    text: Text = reader(name).text(path, file, state)
    return text


def reader(name: str) -> Any:
    """The package that reads the format `name`; any name that is not in FORMATS means
    JSON. It is imported only when needed."""
    package = f"{name}.reading" if name in FORMATS else "read"
    return import_module(f"fusetui.trace.{package}")


def _detect_format(stored: Stored) -> str:
    """The name of the format of an open file, found from its first bytes. Compressed
    files are unpacked as far as needed. Raises OSError."""
    first_byte = stored.document[:1]
    if not stored.packing and first_byte.startswith(FIRST_BYTES_OF_JSON):
        name = JSON
        debug("%s begins with %r: it is read as JSON", stored.path, first_byte)
    else:
        first_bytes = b"".join(first_pieces(stored.document, stored.packing, HEAD))
        name = format_of(first_bytes)
        packing = stored.packing.name if stored.packing else "not packed"
        debug(
            "%s (%s) begins with %r: it is read as %s",
            stored.path,
            packing,
            first_bytes[:16],
            name,
        )
    return name


def _choose_reader(path: str) -> Any:
    """The package that reads the file at a path, chosen by its first bytes. Raises
    OSError."""
    with open(path, "rb") as file:
        return reader(format_of(file.read(HEAD)))


def format_of(head: bytes) -> str:
    """The name of the format of a document that begins with the bytes `head`. It is
    "json" if no other format recognizes them."""
    for name, is_of_format in FORMATS.items():
        if is_of_format(head):
            return name
    return JSON


def looks_like_a_trace(path: str) -> bool:
    """Whether the file at a path begins like a trace. False also if it cannot be read."""
    head = beginning(path)
    if EVENTS_KEY in head or EVENT.search(head):
        return True
    return format_of(head) != JSON
