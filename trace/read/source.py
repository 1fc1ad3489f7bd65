"""Paths, packed files and standard input -> one document that is mapped into memory.

What a file is, its first bytes say; its name says nothing.
"""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from io import UnsupportedOperation
from pathlib import Path
from typing import IO
from weakref import finalize

import msgspec

from fusetui.trace.errors import CannotRead, NotATrace
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.unpack import (
    GIB,
    LIMIT,
    Damaged,
    Packing,
    TooLarge,
    limit_for,
    packing_of,
    unpack,
)
from fusetui.trace.read.watch import Stop, never, silent

LARGE = 64 << 20  # bytes of an unpacked document that is not kept, but unpacked again
SHARE = 4  # a document that takes a larger part of the memory is unpacked onto the disk
PACKED = 15  # how many times traces are usually packed

Grown = Callable[[int, int], None]
"""Called with the bytes of the document that are there, and those of the file that they took."""


State = tuple[int, int]
"""Size (bytes) and time of the last change (ns) of a file: the same as long as these are."""


class OpenFile:
    """A file that stays open as long as somebody holds this."""

    def __init__(self, file: int) -> None:
        self.number = os.dup(file)
        finalize(self, os.close, self.number)


class Stored(msgspec.Struct, frozen=True, eq=False):
    """An open file that holds a trace, packed or not."""

    path: str
    size: int  # bytes, never 0
    file: IO[bytes]
    packing: Packing | None
    state: State


class Source(msgspec.Struct, frozen=True, eq=False):
    """The bytes of one document."""

    path: str
    size: int  # of the file as stored, in bytes
    data: mmap.mmap
    cut: str | None = None  # how a packed file ended too early
    taken: int | None = None  # bytes of the file that this much took; None: unpacked to the end
    state: State = (0, 0)  # of the file when it was opened
    file: OpenFile | None = None  # from which it is had again; None: the document is kept


def open_source(path: str) -> Source:
    """The whole document of a file. Raises CannotRead or NotATrace."""
    stored = open_stored(path)
    room = room_for(stored)
    with closing(stored.file), closing(room):
        return document(stored, room)


def open_stored(path: str) -> Stored:
    """Open a file; `-` is standard input. Raises CannotRead with one plain sentence."""
    shown = "standard input" if path == "-" else path
    try:
        file = _seekable(sys.stdin.buffer if path == "-" else _opened(path))
        stored = stored_in(shown, file)
    except OSError as error:
        raise CannotRead(f"{path} cannot be opened: {_reason(error)}.") from None
    if stored.size == 0:
        file.close()
        raise CannotRead(f"{shown} is empty: was the profiler stopped before it exported?")
    return stored


def stored_in(path: str, file: IO[bytes]) -> Stored:
    """What an open file holds; `path` is what it is called."""
    state = state_of(file.fileno())
    return Stored(path, state[0], file, packing_of(os.pread(file.fileno(), 4, 0)), state)


def state_of(file: int) -> State:
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


def room_for(stored: Stored) -> IO[bytes]:
    """The file that the document is in, or will be once it is unpacked: without a name."""
    if stored.packing is None:
        return stored.file
    small = likely_size(stored) < memory_left() // SHARE
    return file_in_memory() if small else file_on_disk()


def likely_size(stored: Stored) -> int:
    """Of the document, in bytes; a guess for a packed one."""
    return stored.size * (PACKED if stored.packing else 1)


def document(stored: Stored, room: IO[bytes], grown: Grown = silent, stop: Stop = never) -> Source:
    """Unpack into `room`, where that is needed, and map it. Raises CannotRead or NotATrace."""
    cut, taken = _fill(stored, room, grown, stop) if stored.packing else (None, None)
    size = os.fstat(room.fileno()).st_size
    if size == 0:
        name = stored.packing.name if stored.packing else "plain"
        raise NotATrace(
            f"{stored.path} is a {name} file of which nothing can be unpacked ({cut or 'empty'})."
        )
    grown(size, stored.size if taken is None else taken)
    again = taken is None and (stored.packing is None or size >= LARGE)
    file = OpenFile(stored.file.fileno()) if again else None
    return Source(stored.path, stored.size, mapped(room), cut, taken, stored.state, file)


def mapped(room: IO[bytes]) -> mmap.mmap:
    """What is in a file now."""
    return mmap.mmap(room.fileno(), 0, access=mmap.ACCESS_READ)


def file_in_memory() -> IO[bytes]:
    """A file without a name, in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fusetui"), "w+b", buffering=0)
    return file_on_disk()


def file_on_disk() -> IO[bytes]:
    """A file without a name."""
    import tempfile  # rarely needed, and every start would wait for it

    return tempfile.TemporaryFile()


def _fill(
    stored: Stored, room: IO[bytes], grown: Grown, stop: Stop
) -> tuple[str | None, int | None]:
    """Unpack; the result is Source.cut and Source.taken."""
    assert stored.packing
    limit = limit_for(stored.size)
    length = 0
    with mmap.mmap(stored.file.fileno(), 0, access=mmap.ACCESS_READ) as packed:
        try:
            for piece, taken in unpack(packed, stored.packing, limit):
                room.write(piece)
                room.flush()
                length += len(piece)
                grown(length, taken)
                if stop():
                    return None, taken
        except TooLarge:
            raise CannotRead(
                f"{stored.path} unpacks to more than {limit / GIB:.3g} GiB, which no trace of its "
                f"size should; if it is one, set {LIMIT} to the GiB it may have."
            ) from None
        except Damaged as damage:
            return str(damage), None
        except OSError as error:
            raise CannotRead(f"{stored.path} cannot be unpacked: {_reason(error)}.") from None
    return None, None


def _opened(path: str) -> IO[bytes]:
    return Path(path).open("rb")


def _seekable(file: IO[bytes]) -> IO[bytes]:
    """The file itself, or a copy of a pipe, which can be read only once and only in order."""
    if _is_regular(file):
        return file
    room = file_in_memory()
    shutil.copyfileobj(file, room)
    if file is not sys.stdin.buffer:
        file.close()
    return room


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except UnsupportedOperation:  # a stream that is no file of the system
        return False


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
