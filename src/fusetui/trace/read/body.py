"""Finds traceEvents in a document, and reads the keys before and after it."""

from __future__ import annotations

# It says where a value ends, as orjson and msgspec do not.
import json  # which tells where a text breaks
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

NOT_BLANK = lazy_pattern(rb"[^\s\xef\xbb\xbf]")
EVENTS_KEY = lazy_pattern(rb'"traceEvents"\s*:\s*(\[|\S)')
EXECUTION_TRACE_KEY = lazy_pattern(rb'"nodes"\s*:\s*\[')
CLOSED = lazy_pattern(rb"\}\s*\Z")  # what a whole object ends with
BLANKS = b" \t\r\n\xef\xbb\xbf"
PHASE_KEY = lazy_pattern(rb'"ph"')  # in every event
EVENT_START = lazy_pattern(rb'\{\s*"(?:' + KEYS + rb')"\s*:')
DOCUMENT_START = rb'[\[{]\s*(?:\{|"[^"]{0,200}"\s*:)'
OTHER_DOCUMENT = lazy_pattern(DOCUMENT_START)
BRACKET_AND_DOCUMENT = lazy_pattern(rb"[\]}]\s*(" + DOCUMENT_START + rb")")

HINT_BYTES = 1 << 16  # that are searched for what a file is instead of a trace
WINDOW_BYTES = 1 << 20  # that are looked at at once, or shown of damaged keys
MAX_KEYS_BYTES = 64 << 20  # before and after the events in which keys are read
NEAR_BYTES = 1 << 12  # in which it mostly shows whether the list really ends
FAR_BYTES = 1 << 18  # that need no further look: no event is so long
MARGIN_BYTES = 1 << 10  # before their end in which an error may be that of the cut
SHOWN_BYTES = 12  # of a file that is no trace
READ_ALONE = (b"deviceProperties", b"distributedInfo")
"""Keys of a damaged object that are read nevertheless."""

FLAT_VALUE = lazy_pattern(rb"\[[^\]]*\]|\{[^}]*\}")
"""A list or an object without another one in it."""

SECOND_LIST = "a second list of events begins here"
SECOND_TRACE = "a second trace begins here"


class Keys(msgspec.Struct, frozen=True):
    """The keys around the events that could be read, and the text of those that could
    not."""

    values: dict[str, Any] = {}
    damaged: str = ""  # the first MiB of what is not JSON, which may hold secrets


class Body(msgspec.Struct, frozen=True):
    """Where the elements begin: the byte after the opening bracket, and the keys before
    it."""

    start: int
    bare: bool  # the document is the array itself
    head: Keys


def find_body(source: Source) -> Body:
    """Finds the events. Raises NotATraceError, naming what the file seems to be instead."""
    document = source.document
    first_match = document.find(NOT_BLANK, 0)
    first = first_match.start if first_match else 0
    opening = document[first : first + 1]
    if opening == b"[":
        return Body(start=first + 1, bare=True, head=Keys())
    if opening != b"{":
        shown = document[first : first + SHOWN_BYTES].decode("utf-8", "replace")
        raise NotATraceError(
            f"{source.path} is not the JSON of a trace: it begins with {shown!a}."
        )
    key = _events_key(document, first + 1)
    if key is None:
        raise _without_events(source)
    value_start = key.match[1]
    if value_start != b"[":
        place = key.end - len(value_start)
        raise NotATraceError(
            f"{source.path}: traceEvents is not a list (byte {place})."
        )
    head = document[first : key.end] if key.end - first <= MAX_KEYS_BYTES else b"{["
    return Body(start=key.end, bare=False, head=read_keys(head + b"]}"))


def _without_events(source: Source) -> NotATraceError:
    """Why an object has no traceEvents."""
    document = source.document
    if source.cut:
        return NotATraceError(
            f"{source.path}: {source.cut}, before the first trace event."
        )
    if not CLOSED.search(document[-HINT_BYTES:]):
        return NotATraceError(
            f"{source.path} ends early, at byte {len(document)}, before the first trace "
            "event."
        )
    is_execution_trace = EXECUTION_TRACE_KEY.search(document[:HINT_BYTES])
    hint = "it looks like an execution trace; " if is_execution_trace else ""
    return NotATraceError(
        f"{source.path} has no traceEvents: {hint}export one with "
        "prof.export_chrome_trace."
    )


def _events_key(document: Document, start: int) -> Match | None:
    """The key of the outermost object, whose first key may begin at `start`.

    If the brackets before it do not determine its depth, the first key of that name.
    """
    first = key = document.find(EVENTS_KEY, start)
    at = start
    state = INSIDE
    while key:
        while at < key.start:
            text = document[at : min(at + WINDOW_BYTES, key.start)]
            before = split(text, state)
            if before.close >= 0 or not text:
                return first
            at += len(text)
            state = before.state
        if state == INSIDE:
            return key
        key = document.find(EVENTS_KEY, key.start + 1)
    return first


def keys_of(text: bytes) -> dict[str, Any] | None:
    """Those of an object; None when it is no JSON, even repaired."""
    for form in (bytes, repaired):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(form(text))
            return value if isinstance(value, dict) else None
    return None


def pieces(text: bytes) -> dict[str, Any]:
    """The keys of a damaged header that matter and can be read on their own."""
    values: dict[str, Any] = {}
    for key in READ_ALONE:
        begin = re.search(rb'"%b"\s*:\s*' % key, text)
        value = FLAT_VALUE.match(text, begin.end()) if begin else None
        with suppress(orjson.JSONDecodeError):
            if value:
                values[key.decode()] = orjson.loads(value[0])
    return values


def read_keys(text: bytes) -> Keys:
    """The keys of one object, all but traceEvents; of a damaged one the few that matter
    most."""
    values = keys_of(text)
    if values is None:
        return Keys(values=pieces(text), damaged=_shown(text))
    values.pop("traceEvents", None)
    return Keys(values=values)


def _shown(damaged: bytes) -> str:
    return damaged[:WINDOW_BYTES].decode("utf-8", "replace")


class Tail(msgspec.Struct, frozen=True):
    """What stands behind the events."""

    keys: Keys
    closed: bool  # whether the object of the document is
    unread: int = -1
    """The byte where something begins that is not read though it may hold events."""
    what: str = SECOND_TRACE  # what that is


def tail_of(document: Document, after: int, bare: bool) -> Tail:
    """What begins at `after`, behind the bracket that closes the events; `bare`: as of
    Body."""
    if bare:
        unread = _other_document(document, after)
        return Tail(keys=Keys(), closed=True, unread=unread)
    text = document[after : after + MAX_KEYS_BYTES]
    is_too_long = after + MAX_KEYS_BYTES < len(document)  # for the keys of a trace
    end = document[-WINDOW_BYTES:] if is_too_long else text
    closed = end.strip(BLANKS).endswith(b"}")
    if is_too_long:
        unread = _other_document(document, after)
        return Tail(keys=Keys(), closed=closed, unread=unread)
    keys = keys_of(_as_object(text))
    if keys is None:
        return _damaged_tail(document, after, text, closed)
    if not isinstance(keys.pop("traceEvents", None), list):
        return Tail(keys=Keys(values=keys), closed=closed)
    second = EVENTS_KEY.search(text)
    unread = after + (second.start() if second else 0)
    return Tail(Keys(values=keys), closed=closed, unread=unread, what=SECOND_LIST)


def _damaged_tail(document: Document, after: int, text: bytes, closed: bool) -> Tail:
    """As `tail_of`, of a text that is no JSON: what follows the object of the document
    is none, or that object is damaged."""
    is_object, length = _object_in(text)
    if not is_object:
        keys = Keys(values=pieces(text), damaged=_shown(text))
        unread = _other_document(document, after)
        return Tail(keys=keys, closed=closed, unread=unread)
    behind = text[length:].lstrip(BLANKS)
    unread = -1
    if OTHER_DOCUMENT.match(behind):
        unread = after + len(text) - len(behind)
    return Tail(read_keys(_as_object(text[:length])), closed=closed, unread=unread)


def _as_object(text: bytes) -> bytes:
    """An object from the text of its last keys."""
    return b"{" + text.strip(BLANKS).removeprefix(b",")


def is_end(document: Document, after: int) -> bool:
    """Whether the bracket before the byte `after` is the end of the events: what
    follows is the rest of the document, or another document, or holds no event."""
    has_event = PHASE_KEY.search(document[after : after + NEAR_BYTES]) is not None
    if not has_event:
        has_event = document.find(PHASE_KEY, after, after + MAX_KEYS_BYTES) is not None
    if not has_event:
        return True
    for size in (NEAR_BYTES, FAR_BYTES):
        text = document[after : after + size]
        is_object, end = _object_in(text)
        behind = text[end if is_object else 0 :].strip(BLANKS)
        is_all = len(text) < size
        # An object that does not end in the text may end behind it.
        is_broken = not is_object and end < size - MARGIN_BYTES
        has_more_behind = is_object and bool(behind)
        if is_all or is_broken or has_more_behind:
            is_event = EVENT_START.match(behind) is not None
            is_document = not is_event and OTHER_DOCUMENT.match(behind) is not None
            is_last_object = is_object and not behind
            return is_document or is_last_object
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
    found = document.find(BRACKET_AND_DOCUMENT, after - 1, after + MAX_KEYS_BYTES)
    return found.end - len(found.match[1]) if found else -1
