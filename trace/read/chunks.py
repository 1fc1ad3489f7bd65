"""Cuts traceEvents into chunks at event boundaries and decodes each: fast, and else exactly.

A cut that is wrong (inside the args of an event, or behind the end of the array) makes a chunk
that does not parse; such a chunk is read element by element instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fusetui.trace.read.events import ExactEvent, decode_events, decode_exact
from fusetui.trace.read.gather import ChunkColumns, gather
from fusetui.trace.read.salvage import KEYS, Element, array_end, elements
from fusetui.trace.read.times import InexactTimes

CHUNK = 4 << 20
BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:' + KEYS + rb')"\s*:)')
SEARCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Skipped:
    """One element that could not be read."""

    byte: int  # in the unpacked document
    reason: str


@dataclass(frozen=True, eq=False)
class Chunk:
    """The columns of the bytes [start, end) of the document.

    `places` is empty when the bytes decode as one list, else the (start, end) of each element.
    """

    start: int
    end: int
    events: int  # elements, the skipped ones included
    columns: ChunkColumns
    skipped: tuple[Skipped, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    after: int = -1  # the byte after the closing bracket, once it was met


def cut_points(data: Any, start: int, size: int = CHUNK) -> list[int]:
    """Where chunks probably begin, and the end of the document: `start`, ..., len(data)."""
    points = [start]
    while points[-1] < len(data):
        points.append(_cut(data, points[-1] + size))
    return points


def read_chunk(data: Any, start: int, end: int) -> Chunk:
    """The chunk that begins at `start`; `end` is the next cut point, which it may overrun."""
    if end < len(data):
        return decode_chunk(data, start, end) or _slow(data, start, end)
    likely = _likely_end(data, start)
    fast = decode_chunk(data, start, likely)
    after = array_end(data, likely)
    if fast is not None and (after != -1 or likely == len(data)):
        return _closed(fast, after)
    return _slow(data, start, end)


def _cut(data: Any, target: int) -> int:
    if target >= len(data):
        return len(data)
    found = BOUNDARY.search(data, target, target + SEARCH)
    return found.end() if found else len(data)


def _closed(chunk: Chunk, after: int) -> Chunk:
    return Chunk(chunk.start, chunk.end, chunk.events, chunk.columns, after=after)


def _likely_end(data: Any, start: int) -> int:
    """Where the array probably closes: keys may follow it, so the first `}` before a `]` and a key
    or the end. A wrong guess does not parse."""
    pattern = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[\w ]+"\s*:|\}\s*\Z|\Z))')
    found = pattern.search(data, start)
    return found.end() if found else len(data)


def decode_chunk(data: Any, start: int, end: int) -> Chunk | None:
    """The chunk of exactly these bytes, None when they are no list of readable events."""
    text = b"[" + bytes(data[start:end]).rstrip(b" \t\r\n,") + b"]"
    try:
        events, columns = _decode(text)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return None
    if columns.phases.get(""):
        return None
    return Chunk(start, end, events, columns)


def _decode(text: bytes) -> tuple[int, ChunkColumns]:
    events: Sequence[Any] = decode_events(text)
    try:
        return len(events), gather(events)
    except InexactTimes:
        exact: Sequence[ExactEvent] = decode_exact(text)
        return len(exact), gather(exact)


def _slow(data: Any, start: int, end: int) -> Chunk:
    found: list[Element] = list(elements(data, start, end))
    stop = found[-1].end if found else start
    return Chunk(
        start,
        max(stop, min(end, len(data))) if array_end(data, stop) == -1 else stop,
        len(found),
        gather([element.event or UNREADABLE for element in found]),
        tuple(Skipped(e.start, e.reason) for e in found if e.event is None),
        tuple((e.start, e.end) for e in found),
        array_end(data, stop),
    )


UNREADABLE = ExactEvent()
