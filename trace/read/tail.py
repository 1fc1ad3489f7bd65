"""What stands behind the events of a document: its other keys, or what is not read."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import msgspec

from fusetui.trace.read.body import BLANKS, EVENTS_KEY, MOST, WINDOW, keys_of, pieces
from fusetui.trace.read.chunks import KEYS
from fusetui.trace.read.document import Document

PHASE = re.compile(rb'"ph"')  # in every event
NEAR = 1 << 12  # bytes in which it mostly shows whether the list really ends
FAR = 1 << 18  # bytes of an object that need no further look: no event is so long
MARGIN = 1 << 10  # bytes before their end in which an error may be that of the cut
EVENT = re.compile(rb'\{\s*"(?:' + KEYS + rb')"\s*:')
DOCUMENT = rb'[\[{]\s*(?:\{|"[^"]{0,200}"\s*:)'
OTHER_DOCUMENT = re.compile(DOCUMENT)
BEHIND_ANY_BRACKET = re.compile(rb"[\]}]\s*(" + DOCUMENT + rb")")

SECOND_LIST = "a second list of events begins here"
SECOND_TRACE = "a second trace begins here"


class Tail(msgspec.Struct, frozen=True):
    """`closed`: the object of the document was. `unread`: the byte where something begins that is
    not read though it may hold events, or -1; `what`: what that is."""

    keys: dict[str, Any]
    closed: bool
    unread: int = -1
    what: str = SECOND_TRACE


class Rest(NamedTuple):
    """Of a text that begins within an object: where that ends, else where it is no JSON."""

    closed: bool
    end: int


def tail_of(document: Document, after: int, bare: bool) -> Tail:
    """What begins at `after`, the byte behind the bracket that closes the events; `bare`: the
    document is only that list."""
    text = document[after : after + MOST]
    if bare:
        return Tail({}, True, _other_document(document, after))
    end = text if after + MOST >= len(document) else document[-WINDOW:]
    closed = end.strip(BLANKS).endswith(b"}")
    if end is not text:  # too long to be the keys of a trace
        return Tail({}, closed, _other_document(document, after))
    keys = _keys(text)
    if keys is None:
        return _damaged(document, after, text, closed)
    if not isinstance(keys.pop("traceEvents", None), list):
        return Tail(keys, closed)
    again = EVENTS_KEY.search(text)
    return Tail(keys, closed, after + (again.start() if again else 0), SECOND_LIST)


def _damaged(document: Document, after: int, text: bytes, closed: bool) -> Tail:
    """Of a text that is not the rest of one object."""
    rest = _rest(text)
    keys = _keys(text[: rest.end]) if rest.closed else None
    keys = pieces(text) if keys is None else keys
    if not rest.closed:
        return Tail(keys, closed, _other_document(document, after))
    behind = text[rest.end :].lstrip(BLANKS)
    place = after + len(text) - len(behind) if OTHER_DOCUMENT.match(behind) else -1
    return Tail(keys, closed, place)


def is_end(document: Document, after: int) -> bool:
    """Is the bracket before the byte `after` the end of the events: what follows is the rest of the
    document, or another document, or holds no event."""
    near = document[after : after + NEAR]
    if not PHASE.search(near) and document.find(PHASE, after, after + MOST) is None:
        return True
    for size in (NEAR, FAR):
        text = document[after : after + size]
        rest = _rest(text)
        behind = text[rest.end if rest.closed else 0 :].strip(BLANKS)
        if len(text) < size or (behind if rest.closed else rest.end < size - MARGIN):
            other = OTHER_DOCUMENT.match(behind) is not None and EVENT.match(behind) is None
            return other or (rest.closed and not behind)
    return True


def _rest(text: bytes) -> Rest:
    plain = text.decode("latin-1")  # a character a byte: the structure is ASCII
    blanks = len(plain) - len(plain.lstrip())
    begin = blanks + plain.startswith(",", blanks)
    try:
        end = json.JSONDecoder(strict=False).raw_decode("{" + plain[begin:])[1]
    except json.JSONDecodeError as error:
        return Rest(False, begin + error.pos - 1)
    except (ValueError, RecursionError):  # digits or levels without end
        return Rest(False, 0)
    return Rest(True, begin + end - 1)


def _keys(text: bytes) -> dict[str, Any] | None:
    return keys_of(b"{" + text.strip(BLANKS).removeprefix(b","))


def _other_document(document: Document, after: int) -> int:
    """Where something like another trace begins, or -1."""
    found = document.find(BEHIND_ANY_BRACKET, after - 1, after + MOST)
    return found.end - len(found.match[1]) if found else -1
