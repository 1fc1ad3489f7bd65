"""Finds traceEvents in a document, and reads the keys before it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from fusetui.trace.model.errors import NotATrace
from fusetui.trace.read.document import Document, Found
from fusetui.trace.read.repair import repaired
from fusetui.trace.read.source import Source
from fusetui.trace.read.structure import INSIDE, split

FIRST = re.compile(rb"[^\s\xef\xbb\xbf]")
EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*(\[|\S)')
EXECUTION_TRACE_KEY = re.compile(rb'"nodes"\s*:\s*\[')
CLOSED = re.compile(rb"\}\s*\Z")  # what a whole object ends with
BLANKS = b" \t\r\n\xef\xbb\xbf"
HEAD = 1 << 16  # bytes that are searched for what a file is instead of a trace
WINDOW = 1 << 20
MOST = 64 << 20  # bytes before and after the events in which keys are read


class Body(msgspec.Struct, frozen=True):
    """Where the elements begin: the byte after the opening bracket, and the text before it."""

    start: int
    bare: bool  # the document is the array itself
    head: dict[str, Any]


def find_body(source: Source) -> Body:
    """Finds the events. Raises NotATrace, naming what the file seems to be instead."""
    document = source.document
    blanks = document.find(FIRST, 0)
    first = blanks.start if blanks else 0
    opening = document[first : first + 1]
    if opening == b"[":
        return Body(first + 1, bare=True, head={})
    if opening != b"{":
        begin = ascii(document[first : first + 12].decode("utf-8", "replace"))
        raise NotATrace(f"{source.path} is not the JSON of a trace: it begins with {begin}.")
    found = _events_key(document, first + 1)
    if found is None and source.cut:
        raise NotATrace(f"{source.path}: {source.cut}, before the first trace event.")
    if found is None:
        if not CLOSED.search(document[-HEAD:]):
            raise NotATrace(
                f"{source.path} ends early, at byte {len(document)}, before the first trace event."
            )
        raise NotATrace(f"{source.path} has no traceEvents{_guess(document)}.")
    if found.match[1] != b"[":
        place = found.end - len(found.match[1])
        raise NotATrace(f"{source.path}: traceEvents is not a list (byte {place}).")
    head = document[first : found.end] if found.end - first <= MOST else b"{["
    return Body(found.end, bare=False, head=read_keys(head + b"]}"))


def _events_key(document: Document, start: int) -> Found | None:
    """The key of the outermost object, whose first key may begin at `start`.

    If the brackets before it do not determine its depth, the first key of that name.
    """
    first = found = document.find(EVENTS_KEY, start)
    at, state = start, INSIDE
    while found:
        while at < found.start:
            text = document[at : min(at + WINDOW, found.start)]
            before = split(text, state)
            if before.close >= 0 or not text:
                return first
            at, state = at + len(text), before.state
        if state == INSIDE:
            return found
        found = document.find(EVENTS_KEY, found.start + 1)
    return first


def keys_of(text: bytes) -> dict[str, Any] | None:
    """Those of an object; None when it is no JSON, even repaired."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            found = orjson.loads(repaired(text))
        except orjson.JSONDecodeError:
            return None
    return found if isinstance(found, dict) else None


def pieces(text: bytes) -> dict[str, Any]:
    """The keys of a damaged header that matter and can be read on their own."""
    found: dict[str, Any] = {}
    for key in (b"deviceProperties", b"distributedInfo"):
        begin = re.search(rb'"%b"\s*:\s*' % key, text)
        value = re.compile(rb"\[[^\]]*\]|\{[^}]*\}").match(text, begin.end()) if begin else None
        if value:
            try:
                found[key.decode()] = orjson.loads(value[0])
            except orjson.JSONDecodeError:
                continue
    return found


def read_keys(text: bytes) -> dict[str, Any]:
    """The keys of one object, all but traceEvents; of a damaged one the few that matter most."""
    found = keys_of(text)
    found = pieces(text) if found is None else found
    found.pop("traceEvents", None)
    return found


def _guess(document: Document) -> str:
    if EXECUTION_TRACE_KEY.search(document[:HEAD]):
        return ": it looks like an execution trace; export one with prof.export_chrome_trace"
    return ": export one with prof.export_chrome_trace"
