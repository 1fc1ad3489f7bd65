"""Paths, compressed files, pipes and standard input -> one document.

The format is recognized by content; the name does not matter.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import IO

import msgspec

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.model.report import Stop, never, silent
from fusetui.trace.read.document import Document, OpenFile, read_at
from fusetui.trace.read.foreign import HEAD, foreign, is_archive, may_hold_events
from fusetui.trace.read.memory import SHARE, file_in_memory, file_on_disk, memory_left
from fusetui.trace.read.remote import Arriving, copied_to, is_remote, size_of_url
from fusetui.trace.read.unpack import (
    GZIP,
    DamagedError,
    Packing,
    TooLargeError,
    first_pieces,
    limit_for,
    packing_of,
    too_large,
    unpack,
)

PIECE = 1 << 20  # bytes that are copied at once
PATIENCE = 64 << 20  # bytes of a pipe within which there must be an event
EVENT = lazy_pattern(rb'"ph"\s{0,64}:')
AROUND = 128  # the most bytes that an EVENT may have
# bytes of an unpacked document above which it is unpacked again on demand
LARGE = 64 << 20
PACKED = 15  # the usual compression ratio of traces

Grown = Callable[[int, int], None]
"""Called with the available bytes of the document, and the bytes of the file that they
took."""


State = tuple[int, int]
"""Size (bytes) and modification time (ns) of a file: if they are equal, the file is
unchanged."""
ENOUGH = 1 << 18  # bytes of the document
KEY = b'"traceEvents"'


class Stored(msgspec.Struct, frozen=True, eq=False):
    """An open file that holds a trace, compressed or not."""

    path: str
    size: int  # bytes, never 0
    file: IO[bytes]
    packing: Packing | None
    state: State
    cut: str | None = None  # how a zip that it was taken from is damaged
    arriving: Arriving | None = None  # of a file that is fetched while it is read

    @property
    def document(self) -> Document:
        return self.arriving or Document(self.file.fileno(), self.size)

    @property
    def likely_size(self) -> int:
        """The size of the document in bytes; an estimate for a compressed file."""
        return self.size * (PACKED if self.packing else 1)

    def has_changed(self) -> bool:
        """Since it was opened; what arrives is looked after in remote.py."""
        return self.arriving is None and state_of(self.file.fileno()) != self.state

    def room(self) -> IO[bytes]:
        """The file that holds the document, or an unnamed one that it will be unpacked
        into."""
        if self.packing is None:
            return self.file
        return file_in_memory() if is_remote(self.path) else _room(self.likely_size)


class Source(msgspec.Struct, frozen=True, eq=False):
    """The bytes of one document."""

    path: str
    size: int  # of the file as stored, in bytes
    document: Document
    cut: str | None = None  # how a compressed file ended too early
    # bytes of the file that this part took; None: unpacked to the end
    taken: int | None = None
    state: State = (0, 0)  # of the file when it was opened
    file: OpenFile | None = None  # where to read it again; None: the document is kept


def open_source(path: str) -> Source:
    """The whole document of a file. Raises CannotReadError or NotATraceError."""
    stored = open_stored(path)
    with closing(stored.file), closing(stored.room()) as room:
        return msgspec.structs.replace(unpacked(stored, room), document=present(room))


def open_stored(path: str) -> Stored:
    """Opens a file; `-` is standard input. Raises CannotReadError with one plain
    sentence."""
    shown = "standard input" if path == "-" else path
    try:
        opened, cut = (sys.stdin.buffer, None) if path == "-" else _opened(path)
        file = _seekable(opened, shown)
        is_zip = is_archive(read_at(file.fileno(), 0, 4))
        stored = _extracted(file, shown) if is_zip else stored_in(shown, file)
        stored = msgspec.structs.replace(stored, cut=cut or stored.cut)
    except OSError as error:
        raise CannotReadError(f"{path} cannot be opened: {reason(error)}.") from None
    if stored.size == 0:
        stored.file.close()
        raise CannotReadError(
            f"{shown} is empty: was the profiler stopped before it exported?"
        )
    return stored


def open_arriving(path: str) -> Stored:
    """As `open_stored`, but a file behind a URL is fetched while it is read, unless it
    is an archive or the server does not say how large it is. Raises CannotReadError."""
    size = size_of_url(path) if is_remote(path) else None
    if not size:
        return open_stored(path)
    room = file_in_memory()
    with _closed_on_error(room):
        arriving = Arriving(path, room, size)
        begin = arriving[:4]
        if not is_archive(begin):
            return Stored(
                path, size, room, packing_of(begin), (size, 0), arriving=arriving
            )
        arriving.fetch(size)
    return _extracted(room, path)


def stored_in(path: str, file: IO[bytes]) -> Stored:
    """Describes an open file; `path` is its name in messages."""
    state = state_of(file.fileno())
    return Stored(path, state[0], file, packing_of(read_at(file.fileno(), 0, 4)), state)


def state_of(file: int) -> State:
    found = os.fstat(file)
    return found.st_size, found.st_mtime_ns


def _room(size: int) -> IO[bytes]:
    """An unnamed file for so many bytes."""
    return file_in_memory() if size < memory_left() // SHARE else file_on_disk()


def unpacked(
    stored: Stored,
    room: IO[bytes],
    grown: Grown = silent,
    stop: Stop = never,
    is_meant: Callable[[bytes], bool] = lambda head: False,
) -> Source:
    """Unpacks into `room` if necessary. Raises CannotReadError or NotATraceError, also
    for files of other programs, except that which `is_meant` by its first HEAD
    bytes."""
    fill = _fill if stored.packing else _fetched
    cut, taken = fill(stored, room, grown, stop)
    size = os.fstat(room.fileno()).st_size
    if size == 0:
        name = stored.packing.name if stored.packing else "plain"
        raise NotATraceError(
            f"{stored.path} is a {name} file that cannot be unpacked at all ({cut or 'empty'})."
        )
    head = Document(room.fileno(), size)[:HEAD]
    if not is_meant(head) and (sentence := foreign(stored.path, head)):
        raise NotATraceError(sentence)
    grown(size, stored.size if taken is None else taken)
    again = taken is None and (stored.packing is None or size >= LARGE)
    file = OpenFile(stored.file.fileno()) if again else None
    kept = Document(room.fileno() if again else OpenFile(room.fileno()), size)
    arriving = stored.arriving
    cut = (arriving.cut if arriving else stored.cut) or cut
    state = state_of(stored.file.fileno()) if arriving else stored.state
    return Source(stored.path, stored.size, kept, cut, taken, state, file)


def present(room: IO[bytes]) -> Document:
    """The current contents of a file, also accessible once it is closed."""
    return Document(OpenFile(room.fileno()), os.fstat(room.fileno()).st_size)


def _extracted(file: IO[bytes], path: str) -> Stored:
    """The trace in a zip as a file of its own. Raises CannotReadError or
    NotATraceError."""
    from fusetui.trace.read.archive import Archive  # rarely needed

    with closing(file):
        archive = Archive(file, path)
        room = _room(archive.size)
        with _closed_on_error(room):
            cut = archive.extract(room)
    return msgspec.structs.replace(stored_in(path, room), cut=cut)


def _fill(
    stored: Stored, room: IO[bytes], grown: Grown, stop: Stop
) -> tuple[str | None, int | None]:
    """Unpacks; returns Source.cut and Source.taken."""
    assert stored.packing
    limit = limit_for(stored.size)
    length = 0
    try:
        for piece, taken in unpack(stored.document, stored.packing, limit):
            room.write(piece)
            room.flush()
            length += len(piece)
            grown(length, taken)
            if stop():
                return None, taken
    except TooLargeError:
        raise too_large(stored.path, limit) from None
    except DamagedError as damage:
        return str(damage), None
    except OSError as error:
        raise CannotReadError(
            f"{stored.path} cannot be unpacked: {reason(error)}."
        ) from None
    return None, None


def _fetched(
    stored: Stored, room: IO[bytes], grown: Grown, stop: Stop
) -> tuple[str | None, int | None]:
    """Of a plain file, waits until all of it is in `room`; returns what `_fill`
    does."""
    here = 0
    while stored.arriving and here < stored.size and not stored.arriving.cut:
        here = stored.arriving.fetch(here + 1)
        grown(here, here)
        if stop():
            return None, here
    return None, None


def _opened(path: str) -> tuple[IO[bytes], str | None]:
    """A file, or what a URL gives, in memory, and how that was cut. Raises OSError,
    CannotReadError."""
    if not is_remote(path):
        return Path(path).open("rb"), None
    room = file_in_memory()
    with _closed_on_error(room):
        return room, copied_to(path, room)


@contextmanager
def _closed_on_error(file: IO[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file.close()
        raise


def _seekable(file: IO[bytes], path: str) -> IO[bytes]:
    """The file itself, or a copy of a pipe, which can be read only once and in
    order."""
    with suppress(UnsupportedOperation):  # a stream that is not a file of the system
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
    try:
        return _copied(file, path)
    finally:
        if file is not sys.stdin.buffer:
            file.close()


def _copied(file: IO[bytes], path: str) -> IO[bytes]:
    """The whole content of a pipe, in memory or, if it is too large, on disk.

    Raises CannotReadError if it begins with more than any trace has before its first
    event."""
    room, size, in_memory = file_in_memory(), 0, memory_left() // SHARE
    while piece := file.read(PIECE):
        room.write(piece)
        room.flush()
        before, size = size, size + len(piece)
        if before < PATIENCE <= size and not _has_event(Document(room.fileno(), size)):
            room.close()
            raise CannotReadError(
                f"{path} contains no trace event in its first {PATIENCE >> 20} MB."
            )
        if before < in_memory <= size:
            with room:
                room.seek(0)
                shutil.copyfileobj(room, place := file_on_disk(), PIECE)
            room = place
            room.flush()
    return room


def _has_event(begin: Document) -> bool:
    """Whether the beginning has something like an event, or may hold events that are no
    text."""
    if may_hold_events(b"".join(first_pieces(begin, packing_of(begin[:4]), HEAD))):
        return True
    last = b""
    for piece in first_pieces(begin, packing_of(begin[:4]), PATIENCE):
        if EVENT.search(last + piece):
            return True
        last = piece[-AROUND:]
    return False


def reason(error: OSError) -> str:
    """Why a system call failed, in a few words."""
    return (error.strerror or str(error)).lower()


def beginning(path: str, most: int = ENOUGH) -> bytes:
    """At least the first `most` bytes of the document, if it has them; b"" if it is
    unreadable."""
    try:
        stored = open_stored(path)
        with closing(stored.file):
            return b"".join(first_pieces(stored.document, stored.packing, most))
    except (TraceError, OSError):
        return b""


def glimpse(path: str, most: int) -> bytes:
    """As `beginning`, but at most `most` bytes and by one read, if the file is plain or
    gzip: for looking at many files."""
    try:
        with open(path, "rb", buffering=0) as file:
            stored = file.read(most) or b""
        if stored.startswith(GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(stored, most)
    except (OSError, zlib.error):
        return b""
    return (
        stored if stored.lstrip()[:1] in (b"{", b"[") else beginning(path, most)[:most]
    )
