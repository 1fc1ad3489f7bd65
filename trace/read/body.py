"""Finds traceEvents in a document, and reads the keys before and after it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from fusetui.trace.model.errors import NotATrace
from fusetui.trace.read.document import Document, Found
from fusetui.trace.read.source import Source
from fusetui.trace.read.structure import INSIDE, split

FIRST = re.compile(rb"[^\s\xef\xbb\xbf]")
EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*(\[|\S)')
EXECUTION_TRACE_KEY = re.compile(rb'"nodes"\s*:\s*\[')
SECOND = re.compile(rb'[\]}]\s*([\[{]\s*(?:\{|"[^"]{0,200}"\s*:))')
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
        raise NotATrace(f"{source.path} has no traceEvents{_guess(document)}.")
    if found.match[1] != b"[":
        place = found.end - len(found.match[1])
        raise NotATrace(f"{source.path}: traceEvents is not a list (byte {place}).")
    head = document[first : found.end] if found.end - first <= MOST else b"{["
    return Body(found.end, bare=False, head=read_keys(head + b"]}"))


def tail_keys(document: Document, after: int) -> tuple[dict[str, Any], bool]:
    """From the bytes after the closing bracket of traceEvents: the keys there, and whether the
    object was closed."""
    text = document[after : after + MOST].strip(BLANKS)
    end = text if after + MOST >= len(document) else document[-WINDOW:].strip(BLANKS)
    if end is not text:
        text = b"}"  # too long to be the keys of a trace
    return read_keys(b"{" + text.removeprefix(b",")), end.endswith(b"}")


def second_trace(document: Document, after: int) -> int:
    """Where something like another trace begins after the events of this one, or -1."""
    found = document.find(SECOND, after - 1, after + MOST)
    return found.end - len(found.match[1]) if found else -1


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


def read_keys(text: bytes) -> dict[str, Any]:
    """The keys of one object, except traceEvents; of a damaged object only the most important."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _pieces(text)
    found.pop("traceEvents", None)
    return found if isinstance(found, dict) else {}


def _pieces(text: bytes) -> dict[str, Any]:
    """The important keys of a damaged header that can be read separately."""
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


def _guess(document: Document) -> str:
    if EXECUTION_TRACE_KEY.search(document[:HEAD]):
        return ": it looks like an execution trace; export one with prof.export_chrome_trace"
    return ": export one with prof.export_chrome_trace"
