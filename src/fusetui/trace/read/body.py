"""Finds traceEvents in a document, and reads the keys before and after it."""

from __future__ import annotations

# It says where a value ends, as orjson and msgspec do not.
import json  # which tells where a text breaks
import re
from contextlib import suppress
from typing import Any, NamedTuple

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
    """Find where the list of events begins in a document, and read the keys before it.
    Raises NotATraceError, which says what the file seems to be instead."""
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
    key = _find_events_key(document, first + 1)
    if key is None:
        raise _no_events_error(source)
    value_start = key.match[1]
    if value_start != b"[":
        place = key.end - len(value_start)
        raise NotATraceError(
            f"{source.path}: traceEvents is not a list (byte {place})."
        )
    head = document[first : key.end] if key.end - first <= MAX_KEYS_BYTES else b"{["
    return Body(start=key.end, bare=False, head=read_keys(head + b"]}"))


def _no_events_error(source: Source) -> NotATraceError:
    """The error for an object without traceEvents, with the likely reason: cut short,
    or another kind of file."""
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


def _find_events_key(document: Document, start: int) -> Match | None:
    """Find the key traceEvents of the outermost object of a document.

    An object within it may have a key of that name too: it is the first one with as
    many closed as opened brackets before it. If the brackets are damaged, it is the
    first of all.

    Args:
        document: The document.
        start: The byte after the brace that opens the outermost object.
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
    """Return the keys and values of a JSON object, repaired if necessary; None if it is
    no object, or no JSON even then."""
    # first as it is, then repaired
    for form in (bytes, repaired):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(form(text))
            return value if isinstance(value, dict) else None
    return None


def read_known_keys(text: bytes) -> dict[str, Any]:
    """Return the keys READ_ALONE of a damaged object, as far as their values can be
    read.

    Of `"deviceProperties": [{"id": 0}], "x": oops` it is {"deviceProperties":
    [{"id": 0}]}.
    """
    values: dict[str, Any] = {}
    for key in READ_ALONE:
        begin = re.search(rb'"%b"\s*:\s*' % key, text)
        value = FLAT_VALUE.match(text, begin.end()) if begin else None
        with suppress(orjson.JSONDecodeError):
            if value:
                values[key.decode()] = orjson.loads(value[0])
    return values


def read_keys(text: bytes) -> Keys:
    """Read the keys of an object, all but traceEvents.

    If it is damaged, only READ_ALONE are read, and its text is kept, so that it can be
    searched for secrets.
    """
    values = keys_of(text)
    if values is None:
        return Keys(values=read_known_keys(text), damaged=_decode_beginning(text))
    values.pop("traceEvents", None)
    return Keys(values=values)


def _decode_beginning(damaged: bytes) -> str:
    """The beginning of damaged text, decoded so that it can be searched."""
    return damaged[:WINDOW_BYTES].decode("utf-8", "replace")


class Tail(msgspec.Struct, frozen=True):
    """What stands behind the events."""

    keys: Keys
    closed: bool  # whether the object of the document is
    unread: int = -1
    """The byte where something begins that is not read though it may hold events."""
    what: str = SECOND_TRACE  # what that is


def read_tail(document: Document, after: int, bare: bool) -> Tail:
    """Read what stands behind the events.

    Args:
        document: The document.
        after: The byte after the bracket that closes the list of events.
        bare: Whether the document is the list itself, without an object around it.
    """
    if bare:
        unread = _find_other_document(document, after)
        return Tail(keys=Keys(), closed=True, unread=unread)
    text = document[after : after + MAX_KEYS_BYTES]
    is_too_long = after + MAX_KEYS_BYTES < len(document)  # for the keys of a trace
    end = document[-WINDOW_BYTES:] if is_too_long else text
    closed = end.strip(BLANKS).endswith(b"}")
    if is_too_long:
        unread = _find_other_document(document, after)
        return Tail(keys=Keys(), closed=closed, unread=unread)
    keys = keys_of(_as_object(text))
    if keys is None:
        return _read_damaged_tail(document, after, text, closed)
    if not isinstance(keys.pop("traceEvents", None), list):
        return Tail(keys=Keys(values=keys), closed=closed)
    second = EVENTS_KEY.search(text)
    unread = after + (second.start() if second else 0)
    return Tail(Keys(values=keys), closed=closed, unread=unread, what=SECOND_LIST)


def _read_damaged_tail(
    document: Document, after: int, text: bytes, closed: bool
) -> Tail:
    """Read what stands behind the events if it is not the rest of one JSON object.

    Either the object is whole and something else follows it, perhaps another trace; or
    the object itself is damaged.

    Args:
        document: The document.
        after: The byte after the bracket that closes the list of events.
        text: What stands there.
        closed: Whether it ends with a brace.
    """
    rest = _find_object_end(text)
    if not rest.is_object:
        keys = Keys(values=read_known_keys(text), damaged=_decode_beginning(text))
        unread = _find_other_document(document, after)
        return Tail(keys=keys, closed=closed, unread=unread)
    behind = text[rest.end :].lstrip(BLANKS)
    unread = -1
    if OTHER_DOCUMENT.match(behind):
        unread = after + len(text) - len(behind)
    return Tail(
        keys=read_keys(_as_object(text[: rest.end])), closed=closed, unread=unread
    )


def _as_object(text: bytes) -> bytes:
    """Return the last keys of an object as an object: `{"a": 1}` for `, "a": 1}`."""
    return b"{" + text.strip(BLANKS).removeprefix(b",")


def is_end(document: Document, after: int) -> bool:
    """Tell whether a bracket is the end of the events.

    In a damaged document it may close a list within an event. It is the end if no event
    follows, if the rest of the object follows (`, "traceName": "x"}`), or another
    document.

    Args:
        document: The document.
        after: The byte after the bracket.
    """
    if not _has_event_behind(document, after):
        return True
    # Mostly a few bytes show it; else enough are looked at for the largest event.
    for size in (NEAR_BYTES, FAR_BYTES):
        text = document[after : after + size]
        rest = _find_object_end(text)
        if rest.is_object:
            behind = text[rest.end :].strip(BLANKS)
        else:
            behind = text.strip(BLANKS)
        is_up_to_end = len(text) < size
        # An object that does not end in the text may end behind it.
        is_broken = not rest.is_object and rest.end < size - MARGIN_BYTES
        has_more_behind = rest.is_object and behind != b""
        if is_up_to_end or is_broken or has_more_behind:
            is_last_object = rest.is_object and behind == b""
            if is_last_object:
                return True
            is_event = EVENT_START.match(behind) is not None
            return not is_event and OTHER_DOCUMENT.match(behind) is not None
    return True


def _has_event_behind(document: Document, after: int) -> bool:
    """Tell whether an event follows byte `after`, within MAX_KEYS_BYTES."""
    if PHASE_KEY.search(document[after : after + NEAR_BYTES]):
        return True
    return document.find(PHASE_KEY, after, after + MAX_KEYS_BYTES) is not None


class _RestOfObject(NamedTuple):
    """What follows the events of a document, as far as it is JSON."""

    is_object: bool  # whether it is the rest of an object, up to its brace
    end: int  # the byte behind that brace, or the one at which it is no JSON any more


def _find_object_end(text: bytes) -> _RestOfObject:
    """Find the end of the JSON object within which a text begins.

    In `, "a": 1} x` the object ends before byte 9. In `, "a": 1 x` it does not end, and
    byte 9 is the first that is no JSON.
    """
    plain = text.decode("latin-1")  # a character a byte: the structure is ASCII
    blanks = len(plain) - len(plain.lstrip())
    begin = blanks + plain.startswith(",", blanks)
    try:
        end = json.JSONDecoder(strict=False).raw_decode("{" + plain[begin:])[1]
    except json.JSONDecodeError as error:
        return _RestOfObject(is_object=False, end=begin + error.pos - 1)
    except (ValueError, RecursionError):  # digits or levels without end
        return _RestOfObject(is_object=False, end=0)
    return _RestOfObject(is_object=True, end=begin + end - 1)


def _find_other_document(document: Document, after: int) -> int:
    """Return the byte where something begins that looks like another trace; -1 if
    nothing does within MAX_KEYS_BYTES after byte `after`."""
    found = document.find(BRACKET_AND_DOCUMENT, after - 1, after + MAX_KEYS_BYTES)
    return found.end - len(found.match[1]) if found else -1
