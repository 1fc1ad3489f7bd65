"""Cuts traceEvents into chunks at event boundaries and decodes each in one call.

The document is divided into cells of 4 MB. The chunk of a cell runs from the first boundary of two
events in it to the first boundary in a later cell. So everybody can find any chunk without knowing
the others. A cut that is wrong (inside the args of an event, or behind the end of the array) makes
a chunk that does not parse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from fusetui.trace.read.events import PHASES_OF_PAIRS, decode_events, decode_exact
from fusetui.trace.read.gather import ChunkColumns, gather
from fusetui.trace.read.salvage import KEYS, array_end
from fusetui.trace.read.times import InexactTimes

CELL = 4 << 20
BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:' + KEYS + rb')"\s*:)')
MARGIN = 1 << 14  # read beyond a cell, which nearly always holds a boundary
FARTHEST = 1 << 26  # a boundary farther off than this is not looked for
END = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[\w ]+"\s*:|\}\s*\Z|\Z))')
NEAR_END = 1 << 16  # bytes in which the array nearly always ends

UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class Skipped(msgspec.Struct, frozen=True):
    """One element that could not be read."""

    byte: int  # in the unpacked document
    reason: str


class Chunk(msgspec.Struct, frozen=True, eq=False):
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


def decode_cell(file: int, cell: int, size: int = CELL) -> Chunk | None:
    """The chunk that begins in this cell of an open file, None when it cannot be decoded."""
    begin = cell * size
    buffer = _read(file, begin, size + MARGIN)
    first = BOUNDARY.search(buffer, 0, size)
    if first is None:
        return None
    last = BOUNDARY.search(buffer, size)
    reach = size
    while last is None and reach < FARTHEST and len(buffer) == reach + MARGIN:
        reach *= 2
        buffer = _read(file, begin, reach + MARGIN)
        last = BOUNDARY.search(buffer, reach // 2)
    if last is None:
        ends = len(buffer) < reach + MARGIN
        return decode_to_the_end(buffer, first.end(), begin) if ends else None
    start, close = first.end(), last.start() + 1
    buffer[start - 1], buffer[close] = ord("["), ord("]")  # blanks or commas before
    return _chunk(memoryview(buffer)[start - 1 : close + 1], begin + start, begin + last.end())


def decode_stretch(data: Any, start: int, end: int) -> Chunk | None:
    """The chunk of exactly these bytes, None when they are no list of readable events."""
    return _chunk(b"[" + bytes(data[start:end]).rstrip(b" \t\r\n,") + b"]", start, end)


def decode_to_the_end(data: Any, start: int, offset: int = 0) -> Chunk | None:
    """The last chunk: from the element at `start` to the bracket that closes the array; `data` is
    the document from byte `offset` on.

    Keys may follow the array, so it closes at a `}` before a `]` and a key or the end of the
    document: the first one near the end, else the first of all. A wrong guess does not parse.
    """
    tried = -1
    for sought in (max(start, len(data) - NEAR_END), start):
        found = END.search(data, sought)
        end = found.end() if found else len(data)
        if end == tried:
            break
        tried = end
        after = array_end(data, end)
        text = b"[" + bytes(data[start:end]).rstrip(b" \t\r\n,") + b"]"
        if after != -1 or end == len(data):
            after = after + offset if after != -1 else -1
            chunk = _chunk(text, start + offset, end + offset, after)
            if chunk is not None:
                return chunk
    return None


def _read(file: int, start: int, size: int) -> bytearray:
    buffer = bytearray(size)
    got = os.preadv(file, [buffer], start)
    if got < size:
        del buffer[got:]
    return buffer


def _chunk(text: bytes | memoryview, start: int, end: int, after: int = -1) -> Chunk | None:
    try:
        events, columns = _decode(text)
    except UNDECODABLE:
        return None
    if "" in columns.phases:
        return None
    return Chunk(start, end, events, columns, after=after)


def _decode(text: bytes | memoryview) -> tuple[int, ChunkColumns]:
    events: Sequence[Any] = decode_events(text)
    try:
        columns = gather(events)
    except InexactTimes:
        return len(events), gather(decode_exact(text))
    if PHASES_OF_PAIRS.isdisjoint(columns.phases):
        return len(events), columns
    return len(events), gather(decode_exact(text))
