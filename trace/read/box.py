"""Where a helper of a Team leaves its chunks: a file in memory of which others read what is done.

A record is the number of the cell, the length of the rest, and the pickled chunk (or None). It
counts once all of it is there, so the box can be read while its helper writes, or after it died.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from typing import IO

from fusetui.trace.read.chunks import Chunk
from fusetui.trace.read.source import file_in_memory

HEAD = struct.Struct("<QQ")  # cell, bytes that follow


class Box:
    """The reader's end. It keeps its own place: the helper shares the file, and its position."""

    def __init__(self) -> None:
        self._file: IO[bytes] = file_in_memory()
        self._read = 0

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def new(self) -> Iterator[tuple[int, Chunk | None]]:
        """The records that were finished since the last time."""
        file = self.fileno()
        size = os.fstat(file).st_size
        while self._read + HEAD.size <= size:
            cell, length = HEAD.unpack(os.pread(file, HEAD.size, self._read))
            begin = self._read + HEAD.size
            if begin + length > size:
                return
            self._read = begin + length
            yield cell, pickle.loads(os.pread(file, length, begin))


def put(box: int, cell: int, chunk: Chunk | None) -> None:
    """Append a record to the box that is open as file number `box`."""
    text = pickle.dumps(chunk, protocol=5)
    for part in (HEAD.pack(cell, len(text)), text):
        left = memoryview(part)
        while left:
            left = left[os.write(box, left) :]
