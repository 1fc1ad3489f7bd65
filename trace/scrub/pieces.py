"""traceEvents in pieces of some MB, each of which is a list of JSON on its own.

What is damaged is read element by element; an element that cannot be read is in no piece.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from fusetui.trace.read.salvage import Patience, array_end, elements
from fusetui.trace.scrub.values import parse_damaged

PIECE = 4 << 20  # bytes
MARGIN = 1 << 16  # bytes behind a piece, in which nearly always an element ends
SMALL = 1 << 15  # bytes; a damaged piece of this size is not halved any more
WAYS = 3  # boundaries that are tried as the end of a piece: one may lie inside an element
SCANS = 10_000  # elements whose end is sought in vain, before another way is taken at once
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
BETWEEN = b" \t\r\n\x0b\x0c,"

scan = json.JSONDecoder().raw_decode
decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Piece(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document: a list without its brackets, or damaged elements."""

    start: int
    end: int
    events: int
    places: array[int] | None = None  # start, end of each element, where those are to be mended


class Cut:
    """Walks over traceEvents once."""

    def __init__(self, data: Any, start: int) -> None:
        self._data = data
        self.at = start
        self.after = -1  # the byte behind the closing bracket, once it was met
        self.lost: list[tuple[int, str]] = []  # byte and reason of what could not be read
        self._patience = Patience()
        self._scans_left = SCANS
        self._reason = ""  # why the last element could not be read

    def pieces(self) -> Iterator[Piece]:
        while not self._is_over():
            piece = self._whole()
            if piece is not None:
                yield piece
                continue
            stop = min(self.at + PIECE, len(self._data))
            while self.at < stop and not self._is_over():
                yield from self._halves(self.at, stop)

    def _is_over(self) -> bool:
        """Goes over blanks and commas; is there nothing more of the list?"""
        size = 1 << 6
        while True:
            here = bytes(self._data[self.at : self.at + size])
            self.at += len(here) - len(here.lstrip(BETWEEN))
            if not here or here.lstrip(BETWEEN):
                break
            size = MARGIN
        if self.at >= len(self._data):
            return True
        self.after = array_end(self._data, self.at)
        return self.after != -1

    def _whole(self) -> Piece | None:
        """The next piece, when all of it can be read; None near the end, at damage, and where no
        element ends within the margin."""
        text = bytes(self._data[self.at : self.at + PIECE + MARGIN])
        for _, bound in zip(range(WAYS), BOUNDARY.finditer(text, PIECE), strict=False):
            count = count_of(text[: bound.start() + 1])
            if count:
                begin = self.at
                self.at += bound.end()
                return Piece(begin, begin + bound.start() + 1, count)
        return None

    def _halves(self, start: int, stop: int) -> Iterator[Piece]:
        text = bytes(self._data[start:stop]).rstrip(BETWEEN)
        count = count_of(text)
        if count:
            self.at = stop
            yield Piece(start, start + len(text), count)
            return
        middle = BOUNDARY.search(text, len(text) // 2) if len(text) > SMALL else None
        if middle is None:
            comma = text.rfind(b",")
            count = count_of(text[:comma]) if comma > SMALL else 0  # a list without objects
            if count:
                self.at = start + comma
                yield Piece(start, self.at, count)
            yield from self._slowly(stop)
            return
        for end in (start + middle.end(), stop):
            if self.at < end and self.after == -1:
                yield from self._halves(self.at, end)

    def _slowly(self, stop: int) -> Iterator[Piece]:
        """One element after the other; the last one may overrun `stop`."""
        first = self.at
        text = bytes(self._data[first : stop + MARGIN]).decode("latin-1")  # a byte is a character
        run, whole = array("q"), True  # elements that follow one another, all whole or all damaged
        while self.at < stop and not self._is_over():
            begin, self.at = self.at, self._end(text, self.at - first) + first
            element = bytes(self._data[begin : self.at]).rstrip(BETWEEN)
            is_whole = count_of(element) == 1
            if not is_whole and not _can_be_mended(element):
                self.lost.append((begin, self._reason))
                continue
            if is_whole is not whole:
                yield from self._piece(run, whole)
                run, whole = array("q"), is_whole
            run.extend((begin, begin + len(element)))
        yield from self._piece(run, whole)
        if not self._is_over():
            self.at = max(self.at, stop)

    def _end(self, text: str, at: int) -> int:
        """Where the element at `at` ends in a text; where it is damaged, that is a guess."""
        self._reason = "unreadable"
        if self._scans_left:
            try:
                return scan(text, at)[1]
            except (ValueError, RecursionError):
                self._scans_left -= 1
        found = next(elements(self._data, self.at, self.at + 1, self._patience))
        self._reason = found.reason or self._reason
        return at + max(found.end - self.at, 1)

    def _piece(self, places: array[int], whole: bool) -> Iterator[Piece]:
        """Elements that follow one another; as text, where they and all between them is JSON."""
        if not places:
            return
        start, end, count = places[0], places[-1], len(places) // 2
        if whole and count_of(bytes(self._data[start:end])) == count:
            yield Piece(start, end, count)
        else:
            yield Piece(start, end, count, places)


def count_of(text: bytes) -> int:
    """How many elements a list without its brackets holds; 0 when it is no JSON."""
    try:
        if not text.isascii():
            text.decode()
        return len(decode_raw(b"[%b]" % text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


def _can_be_mended(element: bytes) -> bool:
    try:
        parse_damaged(element)
    except (ValueError, ArithmeticError, RecursionError):
        return False
    return True


def texts_of(data: Any, piece: Piece) -> Iterator[bytes]:
    """The elements of a damaged piece."""
    places = piece.places or ()
    for start, end in zip(places[::2], places[1::2], strict=True):
        yield bytes(data[start:end])
