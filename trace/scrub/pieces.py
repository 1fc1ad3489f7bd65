"""traceEvents in pieces of some MB, each of which is a JSON list of its own.

They are split as in reading: everything that the reader can read, or that is JSON, is in a piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.read.chunks import Chunk
from fusetui.trace.read.document import Document
from fusetui.trace.read.join import whole
from fusetui.trace.read.mend import SEPARATORS
from fusetui.trace.read.structure import first_bytes, split


class Piece(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document: a list without its brackets, or separate elements."""

    start: int
    end: int
    events: int
    places: NDArray[np.int64] | None = None  # shape [n, 2]: start and end of each element


class Cut:
    """Goes through traceEvents once."""

    def __init__(self, document: Document, start: int) -> None:
        self._document = document
        self.at = start
        self.after = -1  # the byte after the closing bracket, if it was found
        self.lost: list[tuple[int, str]] = []  # byte and reason of what could not be read
        self.lost_in_all = 0  # their number; not all are listed

    def pieces(self) -> Iterator[Piece]:
        """The pieces up to the bracket that closes the list, or to where the document is too
        damaged."""
        for chunk in whole(self._document, self.at, others=True):
            self.at, self.after = chunk.end, chunk.after
            self._count_lost(chunk)
            piece = self._plain(chunk) if chunk.places is None else _apart(chunk)
            if piece.events:
                yield piece

    def _plain(self, chunk: Chunk) -> Piece:
        """Consecutive events: as one text, if that is valid UTF-8."""
        text = self._document[chunk.start : chunk.end]
        count = chunk.events - chunk.unreadable
        if not is_utf8(text):
            return Piece(chunk.start, chunk.end, count, _places(text, chunk.start))
        start = chunk.start + len(text) - len(text.lstrip(SEPARATORS))
        end = chunk.start + len(text.rstrip(SEPARATORS))
        return Piece(start, end, count)

    def _count_lost(self, chunk: Chunk) -> None:
        kept = set() if chunk.places is None else set(chunk.places[:, 1].tolist())
        lost = [(skip.byte, skip.reason) for skip in chunk.skipped if skip.byte not in kept]
        self.lost += lost
        self.lost_in_all += chunk.unreadable - (len(chunk.skipped) - len(lost))
        if chunk.too_damaged:
            self.lost.append((chunk.end, "too damaged to continue from here"))
            self.lost_in_all += 1


def texts_of(document: Document, piece: Piece) -> Iterator[bytes]:
    """The elements of a piece with separate elements."""
    text = document[piece.start : piece.end]
    for start, end in () if piece.places is None else (piece.places - piece.start).tolist():
        yield text[start:end].strip(SEPARATORS)


def is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


def _places(text: bytes, offset: int) -> NDArray[np.int64]:
    """The places of the elements of a text, as in Piece."""
    found = split(text + b"]")
    places = np.stack((found.begins, found.ends), axis=1)
    return offset + places[first_bytes(text, found.begins, found.ends) < found.ends]


def _apart(chunk: Chunk) -> Piece:
    places = np.empty((0, 3), dtype=np.int64) if chunk.places is None else chunk.places
    return Piece(chunk.start, chunk.end, len(places), places[:, 1:])
