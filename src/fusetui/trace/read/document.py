"""The bytes of one document, read from its file chunk by chunk.

The file is not memory-mapped: if a mapped file shrinks, the process ends with SIGBUS;
if it shrinks while it is read, there are just fewer bytes.
"""

from __future__ import annotations

import os
import re
from threading import Lock
from typing import NamedTuple
from weakref import finalize

# bytes that are searched at once at first, plus as many for a match to extend into
FIRST_WINDOW_BYTES = 1 << 10
WINDOW_GROWTH = 4
MAX_WINDOW_BYTES = 1 << 18
_POSITION = Lock()  # held while the position of a file is moved to read from it


class Match(NamedTuple):
    """A match of a pattern: its bytes are [start, end) of the document."""

    start: int
    end: int
    match: re.Match[bytes]


class OpenFile:
    """A file that stays open as long as this object exists."""

    def __init__(self, file: int) -> None:
        """Keep a file open beyond its descriptor `file`, which may be closed. Its own
        descriptor is closed when this object is freed."""
        self.number = os.dup(file)
        finalize(self, os.close, self.number)


class Document:
    """A sequence of bytes, of which only the parts in use take memory. It is the Text of
    its events, too."""

    at_hand = True

    def __init__(self, file: int | OpenFile, size: int) -> None:
        """Take the first `size` bytes of a file as a document. A file given as a
        descriptor must stay open."""
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
        """The descriptor of the file."""
        return self._file if isinstance(self._file, int) else self._file.number

    def part(self, start: int, end: int) -> bytes:
        """The bytes [start, end) of the document."""
        return self[start:end]

    def problem(self) -> str:
        """Always "", because the bytes of an open file can be read at any time. Other
        texts say here why they cannot be read."""
        return ""

    def find(
        self, pattern: re.Pattern[bytes], start: int, end: int | None = None
    ) -> Match | None:
        """The first match of a pattern in [start, end); None if there is none. A match
        longer than 1 kB may be missed."""
        end = self._size if end is None else min(end, self._size)
        size = FIRST_WINDOW_BYTES
        while start < end:
            window = self[start : min(start + 2 * size, end)]
            if not window:  # the file has shrunk
                return None
            match = pattern.search(window)
            # A match in the second half may be longer than what the window has of it.
            is_last_window = start + len(window) >= end
            if match and (match.start() < size or is_last_window):
                return Match(start + match.start(), start + match.end(), match)
            start += size
            size = min(size * WINDOW_GROWTH, MAX_WINDOW_BYTES)
        return None


def read_at(file: int, start: int, size: int) -> bytes:
    """Read `size` bytes from the byte `start` of a file on; fewer at its end. Raises
    OSError."""
    data = _pread(file, max(size, 0), start)
    if len(data) == size or not data:
        return data
    pieces = [data]
    read_bytes = len(data)
    while read_bytes < size:  # one read returns 2 GB at most
        piece = _pread(file, size - read_bytes, start + read_bytes)
        if not piece:
            break
        pieces.append(piece)
        read_bytes += len(piece)
    return b"".join(pieces)


def _pread(file: int, size: int, start: int) -> bytes:
    """Read once at a place of a file, whose own position stays as it is. May return
    fewer bytes. Raises OSError."""
    if hasattr(os, "pread"):
        return os.pread(file, size, start)
    with _POSITION:  # Windows
        position = os.lseek(file, 0, os.SEEK_CUR)
        try:
            os.lseek(file, start, os.SEEK_SET)
            return os.read(file, size)
        finally:
            os.lseek(file, position, os.SEEK_SET)
