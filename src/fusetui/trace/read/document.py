"""The bytes of one document, read from its file piece by piece.

The file is not memory-mapped: if a mapped file shrinks, the process ends with SIGBUS;
if it shrinks while it is read, there are just fewer bytes.
"""

from __future__ import annotations

import os
import re
from threading import Lock
from typing import NamedTuple
from weakref import finalize

NEAR = 1 << 10  # bytes that are searched first, plus as many for a match to extend into
WINDOW = 1 << 18  # bytes that are searched at once, at most
_POSITION = Lock()  # held while a file is read in the way of systems without pread


class Match(NamedTuple):
    """A match of a pattern: its bytes are [start, end) of the document."""

    start: int
    end: int
    match: re.Match[bytes]


class OpenFile:
    """A file that stays open as long as this object exists."""

    def __init__(self, file: int) -> None:
        self.number = os.dup(file)
        finalize(self, os.close, self.number)


class Document:
    """A sequence of bytes, of which only the parts in use take memory."""

    at_hand = True

    def __init__(self, file: int | OpenFile, size: int) -> None:
        """A file given as a descriptor must stay open; `size` is in bytes."""
        self._file = file
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        """The bytes of a slice without a step; fewer if the file has shrunk. Raises
        OSError."""
        start, end, _ = place.indices(self._size)
        return read_at(self.number, start, end - start)

    @property
    def number(self) -> int:
        return self._file if isinstance(self._file, int) else self._file.number

    def part(self, start: int, end: int) -> bytes:
        return self[start:end]

    def problem(self) -> str:
        return ""

    def find(
        self, pattern: re.Pattern[bytes], start: int, end: int | None = None
    ) -> Match | None:
        """The first match in [start, end); a match longer than 1 kB may be missed."""
        end = self._size if end is None else min(end, self._size)
        size = NEAR
        while start < end:
            window = self[start : min(start + 2 * size, end)]
            found = pattern.search(window)
            if found and (found.start() < size or start + len(window) >= end):
                return Match(start + found.start(), start + found.end(), found)
            if not window:  # the file has shrunk
                return None
            start, size = start + size, min(size * 4, WINDOW)
        return None


def read_at(file: int, start: int, size: int) -> bytes:
    """This many bytes from `start` on, fewer at the end of the file. Raises OSError."""
    found = _pread(file, max(size, 0), start)
    if len(found) == size or not found:
        return found
    pieces, got = [found], len(found)  # one read returns 2 GB at most
    while got < size and (piece := _pread(file, size - got, start + got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def _pread(file: int, size: int, start: int) -> bytes:
    """One read at a place; the position of the file stays. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(file, size, start)
    with _POSITION:  # Windows
        before = os.lseek(file, 0, os.SEEK_CUR)
        try:
            os.lseek(file, start, os.SEEK_SET)
            return os.read(file, size)
        finally:
            os.lseek(file, before, os.SEEK_SET)
