"""Finds traceEvents in a document, and reads the keys before it; what stands behind it:
other keys, or what is not read."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import msgspec
import orjson

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.errors import NotATraceError
from fusetui.trace.read.chunks import KEYS
from fusetui.trace.read.document import Document, Match
from fusetui.trace.read.repair import repaired
from fusetui.trace.read.source import Source
from fusetui.trace.read.structure import INSIDE, split

FIRST = lazy_pattern(rb"[^\s\xef\xbb\xbf]")
EVENTS_KEY = lazy_pattern(rb'"traceEvents"\s*:\s*(\[|\S)')
EXECUTION_TRACE_KEY = lazy_pattern(rb'"nodes"\s*:\s*\[')
CLOSED = lazy_pattern(rb"\}\s*\Z")  # what a whole object ends with
BLANKS = b" \t\r\n\xef\xbb\xbf"
HEAD = 1 << 16  # bytes that are searched for what a file is instead of a trace
WINDOW = 1 << 20
MOST = 64 << 20  # bytes before and after the events in which keys are read
PHASE = lazy_pattern(rb'"ph"')  # in every event
NEAR = 1 << 12  # bytes in which it mostly shows whether the list really ends
FAR = 1 << 18  # bytes of an object that need no further look: no event is so long
MARGIN = 1 << 10  # bytes before their end in which an error may be that of the cut
EVENT = lazy_pattern(rb'\{\s*"(?:' + KEYS + rb')"\s*:')
DOCUMENT = rb'[\[{]\s*(?:\{|"[^"]{0,200}"\s*:)'
OTHER_DOCUMENT = lazy_pattern(DOCUMENT)
BEHIND_ANY_BRACKET = lazy_pattern(rb"[\]}]\s*(" + DOCUMENT + rb")")

SECOND_LIST = "a second list of events begins here"
SECOND_TRACE = "a second trace begins here"


class Body(msgspec.Struct, frozen=True):
    """Where the elements begin: the byte after the opening bracket, and the text before
    it."""

    start: int
    bare: bool  # the document is the array itself
    head: Keys


class Keys(msgspec.Struct, frozen=True):
    """The keys around the events that could be read, and the text of those that could
    not."""

    values: dict[str, Any] = {}
    damaged: str = ""  # the first MiB of what is not JSON, which may hold secrets


def find_body(source: Source) -> Body:
    """Finds the events. Raises NotATraceError, naming what the file seems to be
    instead."""
    document = source.document
    blanks = document.find(FIRST, 0)
    first = blanks.start if blanks else 0
    opening = document[first : first + 1]
    if opening == b"[":
        return Body(first + 1, bare=True, head=Keys())
    if opening != b"{":
        begin = ascii(document[first : first + 12].decode("utf-8", "replace"))
        raise NotATraceError(
            f"{source.path} is not the JSON of a trace: it begins with {begin}."
        )
    found = _events_key(document, first + 1)
    if found is None and source.cut:
        raise NotATraceError(
            f"{source.path}: {source.cut}, before the first trace event."
        )
    if found is None:
        if not CLOSED.search(document[-HEAD:]):
            raise NotATraceError(
                f"{source.path} ends early, at byte {len(document)}, before the first trace event."
            )
        is_other = EXECUTION_TRACE_KEY.search(document[:HEAD])
        seems = "it looks like an execution trace; " if is_other else ""
        raise NotATraceError(
            f"{source.path} has no traceEvents: {seems}export one with prof.export_chrome_trace."
        )
    if found.match[1] != b"[":
        place = found.end - len(found.match[1])
        raise NotATraceError(
            f"{source.path}: traceEvents is not a list (byte {place})."
        )
    head = document[first : found.end] if found.end - first <= MOST else b"{["
    return Body(found.end, bare=False, head=read_keys(head + b"]}"))


def _events_key(document: Document, start: int) -> Match | None:
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
    for form in (bytes, repaired):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(form(text))
            return found if isinstance(found, dict) else None
    return None


def pieces(text: bytes) -> dict[str, Any]:
    """The keys of a damaged header that matter and can be read on their own."""
    found: dict[str, Any] = {}
    for key in (b"deviceProperties", b"distributedInfo"):
        begin = re.search(rb'"%b"\s*:\s*' % key, text)
        value = (
            re.compile(rb"\[[^\]]*\]|\{[^}]*\}").match(text, begin.end())
            if begin
            else None
        )
        with suppress(orjson.JSONDecodeError):
            if value:
                found[key.decode()] = orjson.loads(value[0])
    return found


def read_keys(text: bytes) -> Keys:
    """The keys of one object, all but traceEvents; of a damaged one the few that matter
    most."""
    values = keys_of(text)
    if values is None:
        return Keys(pieces(text), text[:WINDOW].decode("utf-8", "replace"))
    values.pop("traceEvents", None)
    return Keys(values)


class Tail(msgspec.Struct, frozen=True):
    """`closed`: the object of the document was. `unread`: the byte where something
    begins that is not read though it may hold events, or -1; `what`: what that is."""

    keys: Keys
    closed: bool
    unread: int = -1
    what: str = SECOND_TRACE


def tail_of(document: Document, after: int, bare: bool) -> Tail:
    """What begins at `after`, behind the bracket that closes the events; `bare`: as of
    Body."""
    text = document[after : after + MOST]
    if bare:
        return Tail(Keys(), True, _other_document(document, after))
    end = text if after + MOST >= len(document) else document[-WINDOW:]
    closed = end.strip(BLANKS).endswith(b"}")
    if end is not text:  # too long to be the keys of a trace
        return Tail(Keys(), closed, _other_document(document, after))
    keys = keys_of(b"{" + text.strip(BLANKS).removeprefix(b","))
    if keys is not None:
        if not isinstance(keys.pop("traceEvents", None), list):
            return Tail(Keys(keys), closed)
        again = EVENTS_KEY.search(text)
        return Tail(
            Keys(keys), closed, after + (again.start() if again else 0), SECOND_LIST
        )
    is_object, length = _object_in(text)  # what follows it is not JSON
    if not is_object:
        damaged = text[:WINDOW].decode("utf-8", "replace")
        return Tail(
            Keys(pieces(text), damaged), closed, _other_document(document, after)
        )
    known = read_keys(b"{" + text[:length].strip(BLANKS).removeprefix(b","))
    behind = text[length:].lstrip(BLANKS)
    place = after + len(text) - len(behind) if OTHER_DOCUMENT.match(behind) else -1
    return Tail(known, closed, place)


def is_end(document: Document, after: int) -> bool:
    """Is the bracket before the byte `after` the end of the events: what follows is the
    rest of the document, or another document, or holds no event."""
    near = document[after : after + NEAR]
    if not PHASE.search(near) and document.find(PHASE, after, after + MOST) is None:
        return True
    for size in (NEAR, FAR):
        text = document[after : after + size]
        closed, end = _object_in(text)
        behind = text[end if closed else 0 :].strip(BLANKS)
        if len(text) < size or (behind if closed else end < size - MARGIN):
            other = (
                OTHER_DOCUMENT.match(behind) is not None and EVENT.match(behind) is None
            )
            return other or (closed and not behind)
    return True


def _object_in(text: bytes) -> tuple[bool, int]:
    """Whether the object that a text begins within ends in it, and where; else where it
    breaks."""
    plain = text.decode("latin-1")  # a character a byte: the structure is ASCII
    blanks = len(plain) - len(plain.lstrip())
    begin = blanks + plain.startswith(",", blanks)
    try:
        end = json.JSONDecoder(strict=False).raw_decode("{" + plain[begin:])[1]
    except json.JSONDecodeError as error:
        return False, begin + error.pos - 1
    except (ValueError, RecursionError):  # digits or levels without end
        return False, 0
    return True, begin + end - 1


def _other_document(document: Document, after: int) -> int:
    """Where something like another trace begins, or -1."""
    found = document.find(BEHIND_ANY_BRACKET, after - 1, after + MOST)
    return found.end - len(found.match[1]) if found else -1
