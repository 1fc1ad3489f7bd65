"""Reads the elements of a stretch of traceEvents one by one: slow, exact, and past damage.

An element that cannot be read is skipped up to the next place that looks like the start of an
event, and reported with its byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from fusetui.trace.read.events import ExactEvent, coerce, decode_one_exact, times_of

KEYS = rb"ph|name|cat|ts|dur|pid|tid|args|id|s|bp"
EVENT_START = re.compile(rb'\{\s*"(?:' + KEYS + rb')"\s*:')
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # possessive: strings may be very long
TOKEN = re.compile(STRING.encode() + rb"|[{}]", re.DOTALL)
BETWEEN = re.compile(rb"[\s,]*")
NO_EVENT = re.compile(rb"(?:\{\s*\}|null|true|false|-?[0-9][0-9.eE+-]*)(?=\s*[,\]])")
NEAR = 8  # starts of events over which the end of a damaged element is sought

BARE_WORD = re.compile(rf"({STRING})|(-?\b(?:inf|nan|NaN|Infinity|0x[0-9a-fA-F]+)\b)", re.DOTALL)
TRAILING_COMMA = re.compile(rf"({STRING})|,(?=\s*+[}}\]])|(?<=[{{\[,])\s*+,", re.DOTALL)
BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])|\\u(?![0-9a-fA-F]{4})')
PATH_ESCAPE = re.compile(r'\\(?!["\\])')


class Patience(msgspec.Struct):
    """How many more bytes may be searched in vain for the far end of an element.

    Without a bound, a file with thousands of damaged events would be searched thousands of times.
    """

    left: int = 32 << 20


class Element(msgspec.Struct, frozen=True):
    """One element of the array: its bytes [start, end) and the event, or why there is none."""

    start: int
    end: int
    event: ExactEvent | None
    reason: str = ""


def elements(data: Any, start: int, stop: int, patience: Patience) -> Iterator[Element]:
    """Elements that begin in data[start:stop]; ends early at the bracket that closes the array.

    The last Element tells by its `end` how far the array was read.
    """
    position = start
    while True:
        position = _end(BETWEEN.match(data, position), position)
        if position >= min(stop, len(data)) or data[position : position + 1] == b"]":
            return
        element = _element(data, position, patience)
        yield element
        position = element.end


def array_end(data: Any, position: int) -> int:
    """The byte after the closing bracket at or after blanks at `position`, or -1."""
    position = _end(BETWEEN.match(data, position), position)
    return position + 1 if data[position : position + 1] == b"]" else -1


def parse(text: bytes) -> ExactEvent:
    """One event from its text, repaired where that is safe. Raises ValueError."""
    try:
        event = decode_one_exact(text)
        if event.ph and times_of(event):
            return event
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    return coerce(loads(text))


def loads(text: bytes) -> Any:
    """JSON as writers of traces really write it; numbers with a fraction become Decimal.

    Takes NaN, inf, hex numbers, trailing commas, raw control characters, invalid UTF-8 (replaced)
    and unescaped backslashes. Raises ValueError for the rest.
    """
    plain = text.decode("utf-8", "replace")
    try:
        return json.loads(plain, strict=False, parse_float=_fraction)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_repair(plain), strict=False, parse_float=_fraction)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _repair(plain: str) -> str:
    if BAD_ESCAPE.search(plain):  # a Windows path: then \t and \n in it are no escapes either
        plain = PATH_ESCAPE.sub(r"\\\\", plain)
    plain = BARE_WORD.sub(lambda m: m[1] or _number(m[2]), plain)
    return TRAILING_COMMA.sub(lambda m: m[1] or "", plain)


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds: infinite, or zero
        return Decimal(float(text))


def _number(word: str) -> str:
    return str(int(word, 16)) if "0x" in word else "null"


def _element(data: Any, start: int, patience: Patience) -> Element:
    reason = "unreadable"
    for end in _candidate_ends(data, start, patience):
        try:
            return Element(start, end, parse(bytes(data[start:end])))
        except ValueError as error:
            reason = getattr(error, "msg", "") or str(error)
    simple = NO_EVENT.match(data, start)
    if simple:
        return Element(start, simple.end(), None, reason)
    return Element(start, _next_start(data, start) or _stop(data, start), None, reason)


def _candidate_ends(data: Any, start: int, patience: Patience) -> Iterator[int]:
    """Where the element may end: before the next event, else at its own closing brace."""
    simple = NO_EVENT.match(data, start)
    if simple:
        yield simple.end()
        return
    before = _next_start(data, start) or len(data)
    first = start + len(bytes(data[start:before]).rstrip(b" \t\r\n,"))
    yield first
    near = before
    for _ in range(NEAR):
        near = _next_start(data, near) or len(data)
    limit = max(near, min(len(data), start + patience.left))
    end = _balanced_end(data, start, limit)
    patience.left -= max(0, (limit if end == -1 else end) - near)
    if end not in (-1, first):
        yield end


def _next_start(data: Any, start: int) -> int | None:
    found = EVENT_START.search(data, start + 1)
    return found.start() if found else None


def _balanced_end(data: Any, start: int, limit: int) -> int:
    depth = 0
    for token in TOKEN.finditer(data, start, limit):
        mark = token[0]
        depth += (mark == b"{") - (mark == b"}")
        if depth <= 0:
            return token.end() if mark == b"}" else -1
    return -1


def _stop(data: Any, start: int) -> int:
    """The end of an unreadable last element: before the closing bracket, else the end."""
    closing = re.compile(rb"\]\s*(?:,|\}|\Z)").search(data, start)
    return closing.start() if closing else len(data)


def _end(match: re.Match[bytes] | None, position: int) -> int:
    return match.end() if match else position
