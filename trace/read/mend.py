"""Reads what the fast way could not: the first and last chunk, wrong cuts, damage.

A stretch that does not decode is halved until the damage is alone in a small piece, which is then
read event by event. So a wrong guess about the form of a file costs time, never a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusetui.trace.read.chunks import (
    BOUNDARY,
    Chunk,
    Skipped,
    decode_stretch,
    decode_to_the_end,
)
from fusetui.trace.read.events import ExactEvent
from fusetui.trace.read.gather import gather
from fusetui.trace.read.salvage import Element, Patience, array_end, elements

SMALL = 1 << 15  # bytes; not halved any more
PIECE = 4 << 20  # bytes; a longer stretch is not tried at once
STEP = 1 << 18  # bytes that are read event by event before anybody hears of it


def read_stretch(data: Any, start: int, stop: int, patience: Patience) -> Iterator[Chunk]:
    """Chunks from the element at `start` on. The last one may overrun `stop`, or have met the end
    of the array (see Chunk.after)."""
    if stop >= len(data) and stop - start <= PIECE:
        whole = decode_to_the_end(data, start)
    else:
        whole = decode_stretch(data, start, stop) if stop - start <= PIECE else None
    if whole is not None:
        yield whole
        return
    middle = BOUNDARY.search(data, (start + stop) // 2, stop) if stop - start > SMALL else None
    if middle is None:
        yield from _slow(data, start, stop, patience)
        return
    yield from _halves(data, start, middle.end(), stop, patience)


def _halves(data: Any, start: int, middle: int, stop: int, patience: Patience) -> Iterator[Chunk]:
    position = start
    for end in (middle, stop):
        if position >= end:
            continue
        for chunk in read_stretch(data, position, end, patience):
            yield chunk
            position = chunk.end
            if chunk.after != -1:
                return


def _slow(data: Any, start: int, end: int, patience: Patience) -> Iterator[Chunk]:
    """In pieces, between which somebody may stop."""
    end = min(end, len(data))
    while True:
        chunk = _piece(data, start, min(start + STEP, end), patience)
        yield chunk
        if chunk.after != -1 or chunk.end >= end:
            return
        start = chunk.end


def _piece(data: Any, start: int, end: int, patience: Patience) -> Chunk:
    found: list[Element] = list(elements(data, start, end, patience))
    stop = found[-1].end if found else start
    after = array_end(data, stop)
    return Chunk(
        start,
        max(stop, end) if after == -1 else stop,
        len(found),
        gather([element.event or UNREADABLE for element in found]),
        tuple(Skipped(e.start, e.reason) for e in found if e.event is None),
        tuple((e.start, e.end) for e in found),
        after,
    )


UNREADABLE = ExactEvent()
