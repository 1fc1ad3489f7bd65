"""The formats that a trace may have. Each is read by a package of its own, which is imported when a
file of that format is met; nothing behind this door knows which one it was.

A reader's `read(stored, callbacks)` gives the columns of all slices; its `text(path, file, state)`,
the text of the events behind them (see read/rendered.py) when the Trace came from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from typing import Any

import msgspec
from msgspec.structs import replace

from fusetui.trace.model.errors import CannotRead, TraceError
from fusetui.trace.model.events import Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.read import Callbacks
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.foreign import HEAD, is_export_of_nsys, is_pftrace_of_torch
from fusetui.trace.read.source import EVENT, KEY, State, Stored, beginning, open_arriving, reason
from fusetui.trace.read.unpack import first_pieces

SURELY_JSON = (b"{", b"[", b" ", b"\r", b"\t")  # a line feed may be a packet of protobuf


class Format(msgspec.Struct, frozen=True):
    """A format other than JSON."""

    name: str  # of Report.format
    is_one: Callable[[bytes], bool]  # by the first HEAD bytes of the document
    package: str  # with `read` and `text`


FORMATS: tuple[Format, ...] = (
    Format("pftrace", is_pftrace_of_torch, "fusetui.trace.pftrace"),
    Format("nsys", is_export_of_nsys, "fusetui.trace.nsys"),
)


def read(path: str, callbacks: Callbacks) -> Raw:
    """Reads a trace of any format. Raises CannotRead or NotATrace with one plain sentence.

    If it is stopped, the result has a `prefix`; raises NothingRead if that would be empty.
    """
    file, process = _of_process(path)
    stored = open_arriving(file)
    try:
        with closing(stored.file):
            only = () if process is None else (process,)
            found: Raw = reader(_format_of(stored)).read(stored, callbacks, *only)
            return replace(found, report=replace(found.report, path=path)) if only else found
    except OSError as error:
        raise CannotRead(f"{stored.path} cannot be read: {reason(error)}.") from None


def processes_in(path: str) -> list[str]:
    """What `read` takes for each process, FILE#PID, where several share a file whose format tells
    them apart; else the path itself."""
    found: list[int] = []
    with suppress(OSError, TraceError):
        with open(path, "rb") as file:
            name = format_of(file.read(HEAD)) if os.path.isfile(path) else "json"
        if hasattr(reader(name), "processes"):
            found = reader(name).processes(path)
    return [f"{path}#{pid}" for pid in found] if len(found) > 1 else [path]


def _of_process(path: str) -> tuple[str, int | None]:
    """The file, and the process of it that is meant."""
    file, mark, pid = path.rpartition("#")
    if not mark or not pid.isdecimal() or len(pid) > 8 or os.path.exists(path):
        return path, None
    with suppress(OSError), open(file, "rb") as opened:
        if hasattr(reader(format_of(opened.read(HEAD))), "processes"):
            return file, int(pid)
    return path, None


def text_of(name: str, path: str, file: OpenFile, state: State) -> Text:
    """The text behind a trace of the format `name` that was in the cache."""
    found: Text = reader(name).text(path, file, state)
    return found


def reader(name: str) -> Any:
    """The package that reads the format `name`."""
    package = {one.name: one.package for one in FORMATS}
    return import_module(package.get(name, "fusetui.trace.read"))


def format_of(head: bytes) -> str:
    """The name of the format of a document that begins with these bytes; "json" if it is none of
    FORMATS."""
    return next((one.name for one in FORMATS if one.is_one(head)), "json")


def looks_like_a_trace(path: str) -> bool:
    """False also for what cannot be read."""
    head = beginning(path)
    return KEY in head or EVENT.search(head) is not None or format_of(head) != "json"


def _format_of(stored: Stored) -> str:
    if stored.packing is None and stored.document[:1].startswith(SURELY_JSON):
        return "json"
    return format_of(b"".join(first_pieces(stored.document, stored.packing, HEAD)))
