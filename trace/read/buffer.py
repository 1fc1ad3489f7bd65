"""Where a worker puts its chunks: a file in memory, from which others read finished records.

A record is the number of the extent, the number of its pieces, the size of each, and the pieces:
the columns of the chunk, and last its pickle without them. A piece begins at a multiple of 8 bytes.
A record counts once it is complete, so the buffer can be read while its worker writes, and after
the worker has died.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from itertools import accumulate
from typing import IO

from fusetui.trace.read.chunks import Chunk
from fusetui.trace.read.document import read_at
from fusetui.trace.read.spool_file import file_in_memory

HEAD = struct.Struct("<QQ")  # extent, number of pieces
SIZE = 8  # bytes of the size of a piece
ALIGNED = 8  # bytes


class Buffer:
    """The reader's end. It tracks its own position, as the worker shares the file's."""

    def __init__(self) -> None:
        self._file: IO[bytes] = file_in_memory()
        self._read = 0

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def new(self) -> Iterator[tuple[int, Chunk | None]]:
        """The records finished since the last call; their columns are read-only."""
        size = os.fstat(self.fileno()).st_size
        while head := self._head(size - self._read):
            extent, sizes = head
            begins = list(accumulate(map(_padded, sizes), initial=0))
            self._read += HEAD.size + SIZE * len(sizes)
            body = memoryview(self._at(0, begins[-1]))
            self._read += begins[-1]
            parts = [body[at : at + part] for at, part in zip(begins, sizes, strict=False)]
            yield extent, pickle.loads(parts[-1], buffers=parts[:-1])

    def _head(self, left: int) -> tuple[int, tuple[int, ...]] | None:
        """The extent and the piece sizes of the next record, if it is complete in the `left`
        bytes."""
        if left < HEAD.size:
            return None
        extent, count = HEAD.unpack(self._at(0, HEAD.size))
        left -= HEAD.size + SIZE * count
        if left < 0:
            return None
        sizes = struct.unpack(f"<{count}Q", self._at(HEAD.size, SIZE * count))
        return (extent, sizes) if sum(map(_padded, sizes)) <= left else None

    def _at(self, offset: int, size: int) -> bytes:
        """Bytes at this offset from the read position."""
        return read_at(self.fileno(), self._read + offset, size)


def put(buffer: int, extent: int, chunk: Chunk | None) -> None:
    """Appends a record to the buffer that is open as file descriptor `buffer`."""
    columns: list[pickle.PickleBuffer] = []
    text = pickle.dumps(chunk, protocol=5, buffer_callback=columns.append)
    parts = [*(column.raw() for column in columns), memoryview(text)]
    sizes = [part.nbytes for part in parts]
    _write(buffer, HEAD.pack(extent, len(parts)) + struct.pack(f"<{len(parts)}Q", *sizes))
    for part in parts:
        _write(buffer, part)
        _write(buffer, bytes(_padded(part.nbytes) - part.nbytes))


def _padded(size: int) -> int:
    return size + -size % ALIGNED


def _write(buffer: int, part: bytes | memoryview) -> None:
    left = memoryview(part)
    while left:
        left = left[os.write(buffer, left) :]
