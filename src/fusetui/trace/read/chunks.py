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

from fusetui.debug_log import debug
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.report import Skipped
from fusetui.trace.read.document import read_at
from fusetui.trace.read.events import decode_events, decode_exact
from fusetui.trace.read.gather import ChunkColumns, Gathering
from fusetui.trace.read.scanned import scanned
from fusetui.trace.read.structure import split
from fusetui.trace.read.times import InexactTimesError

EXTENT_BYTES = 4 << 20
# that Python decodes at once: their events fit into the caches of a processor
PIECE_BYTES = 1 << 18
# read beyond an extent, where there is almost always a boundary
MARGIN_BYTES = 1 << 14
MAX_CHUNK_BYTES = 1 << 26  # a boundary farther away is not searched for
END_BYTES = 1 << 16  # of a document, in which its list almost always ends

KEYS = rb"ph|name|cat|ts|dur|pid|tid|args|id|s|bp"
"""The keys that an event may begin with."""
BOUNDARY = lazy_pattern(rb'\}\s*,\s*(?=\{\s*"(?:' + KEYS + rb')"\s*:)')
"""From the end of an event to the begin of the next."""
END = lazy_pattern(rb'\}\s*(?=\]\s*(?:,\s*"[\w ]+"\s*:|\}\s*\Z|\Z))')
"""From the end of an event to the bracket that closes the list."""
SEPARATORS = b" \t\r\n,"

UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoders raise on text that they do not accept."""

CUT_SHORT = "cut short"  # why the last element is unreadable if the file ends within it


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


def decode_extent(file: int, extent: int, size: int = EXTENT_BYTES) -> Chunk | None:
    """Decode the chunk that begins in an extent of a document.

    It goes from the first boundary between two events in the extent to the first one in
    a later extent.

    Args:
        file: The descriptor of the open file. Raises OSError.
        extent: The number of the extent.
        size: How many bytes each extent has.

    Returns:
        The chunk; None if there is no boundary, or it cannot be decoded in one go.
    """
    offset = extent * size
    buffer = read_at(file, offset, size + MARGIN_BYTES)
    first = BOUNDARY.search(buffer, 0, size)
    if first is None:
        return None
    start = first.end()
    last = BOUNDARY.search(buffer, size)
    searched = size  # the bytes in front of the margin
    while last is None:
        is_document_end = len(buffer) < searched + MARGIN_BYTES
        if is_document_end:
            return _decode_last_chunk(buffer, start, offset)
        if searched >= MAX_CHUNK_BYTES:
            return None
        searched_before = searched
        searched *= 2
        missing = searched + MARGIN_BYTES - len(buffer)
        buffer += read_at(file, offset + len(buffer), missing)
        last = BOUNDARY.search(buffer, searched_before)
    events = memoryview(buffer)[start : last.start() + 1]
    return decode_list(events, offset + start, offset + last.end())


def decode_list(
    text: bytes | memoryview, start: int, end: int, after: int = -1
) -> Chunk | None:
    """Decode some elements.

    Args:
        text: The elements, with commas between them but none at the end.
        start: The byte of the document where they begin.
        end: The byte after them, where the next chunk begins.
        after: The byte after the bracket that closes the list, if that follows.

    Returns:
        The chunk; None if this is not a list of events whose fields have the usual
        types.
    """
    columns = scanned(text)
    if columns is None:
        debug("bytes %d to %d are decoded by Python, not by the scanner", start, end)
        columns = _decode_by_python(text)
    if columns is None:
        return None
    return Chunk(start, end, columns.phases.total(), columns, after=after)


def _decode_by_python(text: bytes | memoryview) -> ChunkColumns | None:
    """Decode some elements without the scanner.

    Args:
        text: The elements, with commas between them.

    Returns:
        Their columns; None if they do not decode, or if one of them has no phase and so
        is no event.
    """
    # A wrong cut gives pieces that do not decode: then all is decoded at once.
    for piece_bytes in (PIECE_BYTES, len(text) + 1):
        gathering = Gathering()
        try:
            for listed in _split_into_lists(text, piece_bytes):
                _decode_and_add(listed, gathering)
        except UNDECODABLE:
            continue
        has_no_phase = "" in gathering.phases
        return None if has_no_phase else gathering.columns()
    return None


def _split_into_lists(text: bytes | memoryview, size: int) -> Iterator[bytes]:
    """Divide elements into lists of about `size` bytes each: b"[{...},{...}]".

    A list ends where the next event seems to begin. The last may be twice as large.
    """
    at = 0
    while len(text) - at > 2 * size:
        boundary = BOUNDARY.search(text, at + size)
        if boundary is None:
            break
        yield b"".join((b"[", text[at : boundary.start() + 1], b"]"))
        at = boundary.end()
    yield b"".join((b"[", text[at:], b"]"))


def _decode_and_add(listed: bytes, gathering: Gathering) -> None:
    """Decode a JSON list of events and add them, exactly where floats would not do.
    Raises one of UNDECODABLE."""
    # A time may be a number in quotes, or too long for a float.
    with suppress(msgspec.ValidationError, InexactTimesError):
        gathering.add(decode_events(listed), listed)
        return
    gathering.add(decode_exact(listed))


def _decode_last_chunk(buffer: bytes, start: int, offset: int) -> Chunk | None:
    """Decode the last elements of a document, up to the bracket that closes the list.

    Without such a bracket they go to the end of the document. The place where the list
    seems to end is tried first: if the guess is wrong, the elements do not decode.

    Args:
        buffer: The document from byte `offset` on.
        start: Where in the buffer the first element begins.
        offset: Where in the document the buffer begins.

    Returns:
        The chunk; None if the elements cannot be decoded together.
    """

    def chunk_up_to(close: int) -> Chunk | None:
        text = buffer[start:close].rstrip(SEPARATORS)
        after = offset + close + 1 if close < len(buffer) else -1
        return decode_list(text, offset + start, offset + close, after)

    guess = END.search(buffer, max(start, len(buffer) - END_BYTES))
    if guess is not None:
        bracket = guess.end()  # which END only looks ahead at
        chunk = chunk_up_to(bracket)
        if chunk is not None:
            return chunk
    close = split(buffer[start:]).close
    return chunk_up_to(start + close if close >= 0 else len(buffer))
