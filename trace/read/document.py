"""Finds traceEvents in a document, and reads the keys before and after it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from fusetui.trace.errors import NotATrace
from fusetui.trace.read.source import Source

EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*(\[|\S)')
EXECUTION_TRACE_KEY = re.compile(rb'"nodes"\s*:\s*\[')
BLANKS = b" \t\r\n\xef\xbb\xbf"
HEAD = 1 << 16


class Body(msgspec.Struct, frozen=True):
    """Where the elements begin: the byte after the opening bracket, and what stood before."""

    start: int
    bare: bool  # the document is the array itself
    head: dict[str, Any]


def find_body(source: Source) -> Body:
    """Raises NotATrace, with what the file seems to be instead."""
    data = source.data
    first = _skip_blanks(data)
    opening = data[first : first + 1]
    if opening == b"[":
        return Body(first + 1, bare=True, head={})
    if opening != b"{":
        begin = _show(data[first : first + 12])
        raise NotATrace(f"{source.path} is no JSON of a trace: it begins with {begin}.")
    found = EVENTS_KEY.search(data, first)
    if found is None and source.cut:
        raise NotATrace(f"{source.path}: {source.cut}, before the first trace event.")
    if found is None:
        raise NotATrace(f"{source.path} has no traceEvents{_guess(data)}.")
    if found[1] != b"[":
        raise NotATrace(f"{source.path}: traceEvents is no list (byte {found.start(1)}).")
    return Body(found.end(), bare=False, head=_object(data[first : found.end()] + b"]}"))


def tail_keys(tail: bytes) -> tuple[dict[str, Any], bool]:
    """The bytes after the closing bracket of traceEvents -> (keys there, was the object closed)."""
    text = tail.strip(BLANKS)
    closed = text.endswith(b"}")
    return _object(b"{" + text.removeprefix(b",")), closed


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _pieces(text)
    found.pop("traceEvents", None)
    return found if isinstance(found, dict) else {}


def _pieces(text: bytes) -> dict[str, Any]:
    """The keys of a damaged header that matter and can be read on their own."""
    found: dict[str, Any] = {}
    for key in ("deviceProperties", "distributedInfo"):
        value = re.search(rb'"%s"\s*:\s*(\[[^\]]*\]|\{[^}]*\})' % key.encode(), text)
        if value:
            try:
                found[key] = orjson.loads(value[1])
            except orjson.JSONDecodeError:
                continue
    return found


def _skip_blanks(data: Any) -> int:
    found = re.search(rb"[^\s\xef\xbb\xbf]", data)
    return found.start() if found else 0


def _show(start: bytes) -> str:
    return ascii(start.decode("utf-8", "replace"))


def _guess(data: Any) -> str:
    if EXECUTION_TRACE_KEY.search(data[:HEAD]):
        return ": it looks like an execution trace; export one with prof.export_chrome_trace"
    return ": export one with prof.export_chrome_trace"
