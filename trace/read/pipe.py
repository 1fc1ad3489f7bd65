"""Pipes and other streams, which can be read only once and in order -> a file."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from contextlib import suppress
from io import UnsupportedOperation
from typing import IO

from fusetui.trace.model.errors import CannotRead
from fusetui.trace.read.document import Document
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.spool_file import SHARE, file_in_memory, file_on_disk
from fusetui.trace.read.unpack import Damaged, TooLarge, packing_of, unpack

PIECE = 1 << 20  # bytes that are copied at once
PATIENCE = 64 << 20  # bytes of a pipe within which there must be an event
EVENT = re.compile(rb'"ph"\s{0,64}:')
AROUND = 128  # the most bytes that an EVENT may have


def seekable(file: IO[bytes], path: str) -> IO[bytes]:
    """The file itself, or a copy of a pipe, which can be read only once and in order."""
    if _is_regular(file):
        return file
    try:
        return _copied(file, path)
    finally:
        if file is not sys.stdin.buffer:
            file.close()


def _copied(file: IO[bytes], path: str) -> IO[bytes]:
    """The whole content of a pipe, in memory or, if it is too large, on disk.

    Raises CannotRead if it begins with more than any trace has before its first event.
    """
    room, size, in_memory = file_in_memory(), 0, memory_left() // SHARE
    while piece := file.read(PIECE):
        room.write(piece)
        room.flush()
        before, size = size, size + len(piece)
        if before < PATIENCE <= size and not _has_event(Document(room.fileno(), size)):
            room.close()
            raise CannotRead(f"{path} contains no trace event in its first {PATIENCE >> 20} MB.")
        if before < in_memory <= size:
            room = _moved(room)
    return room


def _has_event(begin: Document) -> bool:
    """Whether the beginning of a document, unpacked if necessary, contains something like an
    event."""
    packing = packing_of(begin[:4])
    if packing is None:
        return begin.find(EVENT, 0) is not None
    last = b""
    with suppress(Damaged, TooLarge):
        for piece, _ in unpack(begin, packing, PATIENCE):
            if EVENT.search(last + piece):
                return True
            last = piece[-AROUND:]
    return False


def _moved(room: IO[bytes]) -> IO[bytes]:
    """Moves the bytes to disk."""
    place = file_on_disk()
    room.seek(0)
    shutil.copyfileobj(room, place, PIECE)
    place.flush()
    room.close()
    return place


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except UnsupportedOperation:  # a stream that is not a file of the system
        return False
