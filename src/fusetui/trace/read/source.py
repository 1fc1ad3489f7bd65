"""Opens paths, compressed files, pipes, URLs and standard input as one document.

The format is recognized by content; the name does not matter.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.model.report import Stop, never, silent
from fusetui.trace.read.document import Document, OpenFile, read_at
from fusetui.trace.read.foreign import HEAD, foreign, is_archive, may_hold_events
from fusetui.trace.read.memory import SHARE, file_in_memory, file_on_disk, memory_left
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

if TYPE_CHECKING:
    from fusetui.trace.read.remote import Arriving

COPY_BYTES = 1 << 20  # of a pipe, at once
MAX_PIPE_BYTES_BEFORE_EVENT = 64 << 20  # a pipe with no event in them is given up
EVENT = lazy_pattern(rb'"ph"\s{0,64}:')
MAX_EVENT_BYTES = 128  # that EVENT matches
EVENTS_KEY = b'"traceEvents"'
URL = lazy_pattern(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
# bytes of an unpacked document from which on it is not kept, but unpacked again on demand
LARGE = 64 << 20
TYPICAL_RATIO = 15  # of compression, of traces
MIN_BEGINNING_BYTES = 1 << 18  # of a document, that show what it is

Grown = Callable[[int, int], None]
"""Called with the bytes of the document that are available, and the bytes of the file
that they took."""


class State(NamedTuple):
    """A file is unchanged if these are equal."""

    size: int  # bytes
    mtime_ns: int


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
        return self.size * (TYPICAL_RATIO if self.packing else 1)

    def has_changed(self) -> bool:
        """Whether the file changed since it was opened. A file that is fetched is
        watched by remote.py."""
        return self.arriving is None and state_of(self.file.fileno()) != self.state

    def room(self) -> IO[bytes]:
        """The file that holds the document, or an empty, unnamed one that it will be
        unpacked into."""
        if self.packing is None:
            return self.file
        if is_remote(self.path):
            return file_in_memory()
        return _unnamed_file(self.likely_size)


class Source(msgspec.Struct, frozen=True, eq=False):
    """The bytes of one document."""

    path: str
    size: int  # of the file as stored, in bytes
    document: Document
    cut: str | None = None  # how a compressed file ended too early
    # bytes of the file that were unpacked or fetched; None: all
    taken: int | None = None
    state: State = State(size=0, mtime_ns=0)  # of the file when it was opened
    file: OpenFile | None = None  # where to read it again; None: the document is kept


def is_remote(path: str) -> bool:
    """Whether it is a URL, which remote.py reads."""
    return URL.match(path) is not None


def open_source(path: str) -> Source:
    """The whole document of a file. Raises CannotReadError or NotATraceError."""
    stored = open_stored(path)
    with closing(stored.file), closing(stored.room()) as room:
        return replace(unpacked(stored, room), document=present(room))


def open_stored(path: str) -> Stored:
    """Opens a file; `-` is standard input. A URL is fetched completely. Raises
    CannotReadError with one plain sentence."""
    shown = "standard input" if path == "-" else path
    try:
        opened, cut = _opened(path)
        file = _seekable(opened, shown)
        if is_archive(read_at(file.fileno(), 0, 4)):
            stored = _extracted(file, shown)
        else:
            stored = stored_in(shown, file)
        stored = replace(stored, cut=cut or stored.cut)
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
    if not is_remote(path):
        return open_stored(path)
    from fusetui.trace.read import remote  # only for URLs

    size = remote.size_of_url(path)
    if not size:
        return open_stored(path)
    file = file_in_memory()
    with _closed_on_error(file):
        arriving = remote.Arriving(path, file, size)
        head = arriving[:4]
        if is_archive(head):
            arriving.fetch(size)
            return _extracted(file, path)
        return Stored(
            path=path,
            size=size,
            file=file,
            packing=packing_of(head),
            state=State(size=size, mtime_ns=0),
            arriving=arriving,
        )


def stored_in(path: str, file: IO[bytes]) -> Stored:
    """Describes an open file; `path` is its name in messages."""
    state = state_of(file.fileno())
    packing = packing_of(read_at(file.fileno(), 0, 4))
    return Stored(path=path, size=state.size, file=file, packing=packing, state=state)


def state_of(file: int) -> State:
    """Of an open file, by its descriptor."""
    stat_result = os.fstat(file)
    return State(size=stat_result.st_size, mtime_ns=stat_result.st_mtime_ns)


def _unnamed_file(size: int) -> IO[bytes]:
    """For so many bytes: in memory if they take no large share of it."""
    return file_in_memory() if size < memory_left() // SHARE else file_on_disk()


def unpacked(
    stored: Stored,
    room: IO[bytes],
    grown: Grown = silent,
    stop: Stop = never,
    is_meant: Callable[[bytes], bool] = lambda head: False,
) -> Source:
    """Unpacks into `room` if necessary. Raises CannotReadError or NotATraceError, also for files
    of other programs, except those that `is_meant` accepts by their first HEAD bytes.
    """
    fill = _unpack_into if stored.packing else _fetch_into
    filled = fill(stored, room, grown, stop)
    size = os.fstat(room.fileno()).st_size
    if size == 0:
        form = stored.packing.name if stored.packing else "plain"
        raise NotATraceError(
            f"{stored.path} is a {form} file that cannot be unpacked "
            f"({filled.cut or 'empty'})."
        )
    head = Document(room.fileno(), size)[:HEAD]
    if not is_meant(head) and (sentence := foreign(stored.path, head)):
        raise NotATraceError(sentence)
    grown(size, stored.size if filled.taken is None else filled.taken)
    is_read_again = filled.taken is None and (stored.packing is None or size >= LARGE)
    if is_read_again:  # `room` may be closed then
        document = Document(room.fileno(), size)
    else:
        document = Document(OpenFile(room.fileno()), size)
    cut_before = stored.arriving.cut if stored.arriving else stored.cut
    return Source(
        path=stored.path,
        size=stored.size,
        document=document,
        cut=cut_before or filled.cut,
        taken=filled.taken,
        state=state_of(stored.file.fileno()) if stored.arriving else stored.state,
        file=OpenFile(stored.file.fileno()) if is_read_again else None,
    )


def present(room: IO[bytes]) -> Document:
    """The current contents of a file, which stay accessible once it is closed."""
    return Document(OpenFile(room.fileno()), os.fstat(room.fileno()).st_size)


def _extracted(file: IO[bytes], path: str) -> Stored:
    """The trace in a zip as a file of its own. Raises CannotReadError or NotATraceError."""
    from fusetui.trace.read.archive import Archive  # rarely needed

    with closing(file):
        archive = Archive(file, path)
        room = _unnamed_file(archive.size)
        with _closed_on_error(room):
            cut = archive.extract(room)
    return replace(stored_in(path, room), cut=cut)


class Filled(NamedTuple):
    """How filling a file with a document ended."""

    cut: str | None = None  # as Source.cut
    taken: int | None = None  # as Source.taken


def _unpack_into(stored: Stored, room: IO[bytes], grown: Grown, stop: Stop) -> Filled:
    """Unpacks a compressed file. Raises CannotReadError."""
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
                return Filled(taken=taken)
    except TooLargeError:
        raise too_large(stored.path, limit) from None
    except DamagedError as damage:
        return Filled(cut=str(damage))
    except OSError as error:
        raise CannotReadError(
            f"{stored.path} cannot be unpacked: {reason(error)}."
        ) from None
    return Filled()


def _fetch_into(stored: Stored, room: IO[bytes], grown: Grown, stop: Stop) -> Filled:
    """Waits until all of a plain file that is being fetched is in `room`, which holds
    any other plain file anyway. Raises CannotReadError."""
    here = 0
    while stored.arriving and here < stored.size and not stored.arriving.cut:
        here = stored.arriving.fetch(here + 1)
        grown(here, here)
        if stop():
            return Filled(taken=here)
    return Filled()


def _opened(path: str) -> tuple[IO[bytes], str | None]:
    """A file, standard input, or what a URL gives, in memory; and how what a URL gives
    is cut short. Raises OSError and CannotReadError."""
    if path == "-":
        return sys.stdin.buffer, None
    if not is_remote(path):
        return Path(path).open("rb"), None
    from fusetui.trace.read.remote import copied_to  # only for URLs

    file = file_in_memory()
    with _closed_on_error(file):
        return file, copied_to(path, file)


@contextmanager
def _closed_on_error(file: IO[bytes]) -> Iterator[None]:
    """Closes the file if the block raises."""
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


def _copied(pipe: IO[bytes], path: str) -> IO[bytes]:
    """The whole content of a pipe, in memory or, if it is too large, on disk.

    Raises CannotReadError if it begins with more than any trace has before its first event.
    """
    copy = file_in_memory()
    size = 0
    max_memory_bytes = memory_left() // SHARE
    while piece := pipe.read(COPY_BYTES):
        copy.write(piece)
        copy.flush()
        size_before = size
        size += len(piece)
        if size_before < MAX_PIPE_BYTES_BEFORE_EVENT <= size and not _has_event(
            Document(copy.fileno(), size)
        ):
            copy.close()
            raise CannotReadError(
                f"{path} contains no trace event in its first "
                f"{MAX_PIPE_BYTES_BEFORE_EVENT >> 20} MB."
            )
        if size_before < max_memory_bytes <= size:
            copy = _moved_to_disk(copy)
    return copy


def _moved_to_disk(file: IO[bytes]) -> IO[bytes]:
    """A copy of a file, which is closed."""
    with file:
        file.seek(0)
        on_disk = file_on_disk()
        shutil.copyfileobj(file, on_disk, COPY_BYTES)
    on_disk.flush()
    return on_disk


def _has_event(document: Document) -> bool:
    """Whether the beginning of a document has something like an event, or may hold
    events that are not text."""
    packing = packing_of(document[:4])
    if may_hold_events(b"".join(first_pieces(document, packing, HEAD))):
        return True
    end_of_last = b""
    for piece in first_pieces(document, packing, MAX_PIPE_BYTES_BEFORE_EVENT):
        if EVENT.search(end_of_last + piece):
            return True
        end_of_last = piece[-MAX_EVENT_BYTES:]
    return False


def reason(error: OSError) -> str:
    """Why a system call failed, in a few words."""
    return (error.strerror or str(error)).lower()


def beginning(path: str, most: int = MIN_BEGINNING_BYTES) -> bytes:
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
            head = file.read(most) or b""
        if head.startswith(GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, most)
    except (OSError, zlib.error):
        return b""
    if head.lstrip()[:1] in (b"{", b"["):
        return head
    return beginning(path, most)[:most]
