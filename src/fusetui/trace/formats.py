"""The formats that a trace may have. Each is read by a package of its own, which is
imported when a file of that format is met; nothing behind this door knows which one it
was.

A reader's `read(stored, callbacks)` gives the columns of all slices; its `text(path,
file, state)`, the text of the events behind them (see read/document_text.py) when the
Trace came from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.events import Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.read import Callbacks
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.foreign import HEAD, is_export_of_nsys, is_pftrace_of_torch
from fusetui.trace.read.source import (
    EVENT,
    KEY,
    State,
    beginning,
    open_arriving,
    reason,
)
from fusetui.trace.read.unpack import first_pieces

# a line feed may be a packet of protobuf
SURELY_JSON = (b"{", b"[", b" ", b"\r", b"\t")


FORMATS: dict[str, Callable[[bytes], bool]] = {
    "pftrace": is_pftrace_of_torch,
    "nsys": is_export_of_nsys,
}
"""Formats other than JSON, as Report.format and the packages with `reading` name them,
and what knows each by the first HEAD bytes of a document."""


def read(path: str, callbacks: Callbacks) -> Raw:
    """Reads a trace of any format. Raises CannotReadError or NotATraceError with one
    plain sentence.

    If it is stopped, the result has a `prefix`; raises NothingReadError if that would
    be empty."""
    file, process = _of_process(path)
    stored = open_arriving(file)
    try:
        with closing(stored.file):
            only = () if process is None else (process,)
            form = "json"
            if stored.packing or not stored.document[:1].startswith(SURELY_JSON):
                form = format_of(
                    b"".join(first_pieces(stored.document, stored.packing, HEAD))
                )
            found: Raw = reader(form).read(stored, callbacks, *only)
            return (
                replace(found, report=replace(found.report, path=path))
                if only
                else found
            )
    except OSError as error:
        raise CannotReadError(
            f"{stored.path} cannot be read: {reason(error)}."
        ) from None


def processes_in(path: str) -> list[str]:
    """What `read` takes for each process, FILE#PID, where several share a file whose
    format tells them apart; else the path itself."""
    found: list[int] = []
    with suppress(OSError, TraceError):
        if os.path.isfile(path) and hasattr(package := _reader_of(path), "processes"):
            found = package.processes(path)
    return [f"{path}#{pid}" for pid in found] if len(found) > 1 else [path]


def _of_process(path: str) -> tuple[str, int | None]:
    """The file, and the process of it that is meant."""
    file, mark, pid = path.rpartition("#")
    if mark and pid.isdecimal() and len(pid) <= 8 and not os.path.exists(path):
        with suppress(OSError):
            if hasattr(_reader_of(file), "processes"):
                return file, int(pid)
    return path, None


def text_of(name: str, path: str, file: OpenFile, state: State) -> Text:
    """The text behind a trace of the format `name` that was in the cache."""
    found: Text = reader(name).text(path, file, state)
    return found


def reader(name: str) -> Any:
    """What reads the format `name`."""
    return import_module(
        f"fusetui.trace.{f'{name}.reading' if name in FORMATS else 'read'}"
    )


def _reader_of(path: str) -> Any:
    """Raises OSError."""
    with open(path, "rb") as file:
        return reader(format_of(file.read(HEAD)))


def format_of(head: bytes) -> str:
    """The name of the format of a document that begins with these bytes; "json" if it
    is none of FORMATS."""
    return next((name for name, is_one in FORMATS.items() if is_one(head)), "json")


def looks_like_a_trace(path: str) -> bool:
    """False also for what cannot be read."""
    head = beginning(path)
    return KEY in head or EVENT.search(head) is not None or format_of(head) != "json"
