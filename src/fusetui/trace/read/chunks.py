"""Cuts traceEvents into chunks at event boundaries and decodes each in one call.

The document is divided into extents of 4 MB. The chunk of an extent runs from the first
boundary between two events in it to the first boundary in a later extent, so any chunk
can be found without knowing the others. A wrong cut (inside the args of an event, or
beyond the end of the array) makes a chunk that does not parse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.report import Skipped
from fusetui.trace.read.document import read_at
from fusetui.trace.read.events import decode_events, decode_exact
from fusetui.trace.read.gather import ChunkColumns, Gathering
from fusetui.trace.read.scanned import scanned
from fusetui.trace.read.structure import split
from fusetui.trace.read.times import InexactTimesError

EXTENT = 4 << 20
# bytes that are decoded at once: their events fit into the caches of a processor
PIECE = 1 << 18
KEYS = rb"ph|name|cat|ts|dur|pid|tid|args|id|s|bp"
BOUNDARY = lazy_pattern(rb'\}\s*,\s*(?=\{\s*"(?:' + KEYS + rb')"\s*:)')
END = lazy_pattern(rb'\}\s*(?=\]\s*(?:,\s*"[\w ]+"\s*:|\}\s*\Z|\Z))')
NEAR_END = 1 << 16  # bytes in which a list almost always ends
MARGIN = 1 << 14  # read beyond an extent, where there is almost always a boundary
FARTHEST = 1 << 26  # boundaries farther away are not searched for

UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


CUT_SHORT = "cut short"  # Why the last element is unreadable if the file ends within it


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """The columns of the bytes [start, end) of the document."""

    start: int
    end: int
    events: int  # elements, including unreadable ones
    columns: ChunkColumns
    unreadable: int = 0  # elements
    skipped: tuple[Skipped, ...] = ()  # the first unreadable ones
    places: Int64s | None = None
    """If the bytes do not decode as one list: number, start and end byte of each
    event."""
    after: int = -1  # the byte after the closing bracket, if it was found
    too_damaged: bool = False  # what follows is not read


def decode_extent(file: int, extent: int, size: int = EXTENT) -> Chunk | None:
    """The chunk that begins in this extent of an open file, None if it cannot be
    decoded."""
    begin = extent * size
    buffer = read_at(file, begin, size + MARGIN)
    first = BOUNDARY.search(buffer, 0, size)
    if first is None:
        return None
    last = BOUNDARY.search(buffer, size)
    reach = size
    while last is None and reach < FARTHEST and len(buffer) == reach + MARGIN:
        reach *= 2
        buffer += read_at(file, begin + len(buffer), reach + MARGIN - len(buffer))
        last = BOUNDARY.search(buffer, reach // 2)
    start = first.end()
    if last is None:
        ends = len(buffer) < reach + MARGIN
        return _last_chunk(buffer, start, begin) if ends else None
    events = memoryview(buffer)[start : last.start() + 1]
    return decode_list(events, begin + start, begin + last.end())


def decode_list(
    text: bytes | memoryview, start: int, end: int, after: int = -1
) -> Chunk | None:
    """The chunk of exactly these elements, without a trailing comma.

    `start`, `end` and `after` are those of the chunk. None if this is not a list of
    events whose fields have the usual types.
    """
    if (columns := scanned(text)) is not None:
        return Chunk(start, end, columns.phases.total(), columns, after=after)
    for size in (PIECE, len(text) + 1):  # a wrong cut gives pieces that do not decode
        gathered = Gathering()
        try:
            for piece in _pieces(text, size):
                _decode(piece, gathered)
        except UNDECODABLE:
            continue
        if "" in gathered.phases:
            return None
        return Chunk(
            start, end, gathered.phases.total(), gathered.columns(), after=after
        )
    return None


def _pieces(text: bytes | memoryview, size: int) -> Iterator[bytes]:
    """Lists of some of the elements each, of about this many bytes."""
    at = 0
    while len(text) - at > 2 * size and (found := BOUNDARY.search(text, at + size)):
        yield b"".join((b"[", text[at : found.start() + 1], b"]"))
        at = found.end()
    yield b"".join((b"[", text[at:], b"]"))


def _decode(listed: bytes, gathered: Gathering) -> None:
    """Raises one of UNDECODABLE."""
    # a time may be a number in quotes
    with suppress(msgspec.ValidationError, InexactTimesError):
        return gathered.add(decode_events(listed), listed)
    gathered.add(decode_exact(listed))


def _last_chunk(buffer: bytes, start: int, offset: int) -> Chunk | None:
    """The elements from `start` to the bracket that closes the list, or else to the
    end.

    `buffer` holds the document from byte `offset` on. The place where the list seems to
    end is tried first: a wrong guess does not parse.
    """

    def up_to(close: int) -> Chunk | None:
        text = buffer[start:close].rstrip(b" \t\r\n,")
        after = offset + close + 1 if close < len(buffer) else -1
        return decode_list(text, offset + start, offset + close, after)

    guess = END.search(buffer, max(start, len(buffer) - NEAR_END))
    if guess and (found := up_to(guess.end())):
        return found
    close = split(buffer[start:]).close
    return up_to(start + close if close >= 0 else len(buffer))
