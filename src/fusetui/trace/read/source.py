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
from fusetui.trace.read.foreign import (
    HEAD,
    explain_foreign,
    is_archive,
    may_hold_events,
)
from fusetui.trace.read.memory import SHARE, file_in_memory, file_on_disk, memory_left
from fusetui.trace.read.unpack import (
    GZIP,
    DamagedError,
    Packing,
    TooLargeError,
    first_pieces,
    limit_for,
    packing_of,
    too_large_error,
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
        """The bytes of the file, compressed if it is; they may still be arriving."""
        return self.arriving or Document(self.file.fileno(), self.size)

    @property
    def likely_size(self) -> int:
        """The size of the unpacked document in bytes; an estimate if the file is
        compressed."""
        return self.size * (TYPICAL_RATIO if self.packing else 1)

    def has_changed(self) -> bool:
        """Whether the file changed since it was opened. False for a file that is
        fetched, which is watched while it arrives."""
        return self.arriving is None and state_of(self.file.fileno()) != self.state

    def room(self) -> IO[bytes]:
        """The file that will hold the unpacked document. It is this file if it is not
        compressed, otherwise an empty, unnamed one."""
        if self.packing is None:
            return self.file
        if is_remote(self.path):
            return file_in_memory()
        return _make_unnamed_file(self.likely_size)


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
    """Whether a path is a URL, which is fetched through fsspec."""
    return URL.match(path) is not None


def open_source(path: str) -> Source:
    """Open a file and unpack its whole document. Raises CannotReadError or
    NotATraceError."""
    stored = open_stored(path)
    with closing(stored.file), closing(stored.room()) as room:
        return replace(unpacked(stored, room), document=present(room))


def open_stored(path: str) -> Stored:
    """Open a file.

    A URL is fetched completely, a pipe is copied, and a zip is unpacked.

    Args:
        path: A path or a URL; "-" is standard input. Raises CannotReadError with one
            plain sentence if it cannot be opened, or is empty.
    """
    shown = "standard input" if path == "-" else path
    try:
        opened, cut = _opened(path)
        file = _make_seekable(opened, shown)
        if is_archive(read_at(file.fileno(), 0, 4)):
            stored = _extract_trace(file, shown)
        else:
            stored = describe_file(shown, file)
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
    """Open a file; one behind a URL can be read while it is fetched.

    It is fetched completely first if it is an archive, or if the server does not say
    how large it is. Raises CannotReadError.
    """
    if not is_remote(path):
        return open_stored(path)
    from fusetui.trace.read import remote  # only for URLs

    size = remote.size_of_url(path)
    if not size:
        return open_stored(path)
    file = file_in_memory()
    with _close_on_error(file):
        arriving = remote.Arriving(path, file, size)
        head = arriving[:4]
        if is_archive(head):
            arriving.fetch(size)
            return _extract_trace(file, path)
        return Stored(
            path=path,
            size=size,
            file=file,
            packing=packing_of(head),
            state=State(size=size, mtime_ns=0),
            arriving=arriving,
        )


def describe_file(path: str, file: IO[bytes]) -> Stored:
    """Describe an open file: its size, state and compression. `path` is its name in
    messages."""
    state = state_of(file.fileno())
    packing = packing_of(read_at(file.fileno(), 0, 4))
    return Stored(path=path, size=state.size, file=file, packing=packing, state=state)


def state_of(file: int) -> State:
    """The state of an open file, given its descriptor: if it is the same later, the
    file has not changed."""
    stat_result = os.fstat(file)
    return State(size=stat_result.st_size, mtime_ns=stat_result.st_mtime_ns)


def _make_unnamed_file(size: int) -> IO[bytes]:
    """An unnamed file for so many bytes: in memory if they take only a small share of
    what is left, else on disk."""
    return file_in_memory() if size < memory_left() // SHARE else file_on_disk()


def unpacked(
    stored: Stored,
    room: IO[bytes],
    grown: Grown = silent,
    stop: Stop = never,
    is_meant: Callable[[bytes], bool] = lambda head: False,
) -> Source:
    """Return the document of a file, unpacked or fetched if it has to be.

    Args:
        stored: The file. Raises CannotReadError if it cannot be unpacked, and
            NotATraceError if nothing comes out or it is of another program.
        room: What `Stored.room` returned: the file that the document is put into.
        grown: Is called with the bytes of the document that are there, and the bytes of
            the file that they took.
        stop: Once it returns True, the document is what is there by then.
        is_meant: Accepts a file of another program, by the first HEAD bytes.
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
    if not is_meant(head) and (sentence := explain_foreign(stored.path, head)):
        raise NotATraceError(sentence)
    taken_bytes = stored.size if filled.taken is None else filled.taken
    grown(size, taken_bytes)

    is_whole = filled.taken is None
    # A large document is not kept. Later its file is read, and unpacked, once more.
    is_read_again = is_whole and (stored.packing is None or size >= LARGE)
    if is_read_again:
        document = Document(room.fileno(), size)
    else:  # it stays readable after `room` is closed
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
    """The current contents of a file as a document, which stays readable after the file
    is closed."""
    return Document(OpenFile(room.fileno()), os.fstat(room.fileno()).st_size)


def _extract_trace(file: IO[bytes], path: str) -> Stored:
    """The only trace of a zip, unpacked into a file of its own. Raises CannotReadError
    or NotATraceError."""
    from fusetui.trace.read.archive import Archive  # rarely needed

    with closing(file):
        archive = Archive(file, path)
        room = _make_unnamed_file(archive.size)
        with _close_on_error(room):
            cut = archive.extract(room)
    return replace(describe_file(path, room), cut=cut)


class Filled(NamedTuple):
    """How filling a file with a document ended."""

    cut: str | None = None  # as Source.cut
    taken: int | None = None  # as Source.taken


def _unpack_into(stored: Stored, room: IO[bytes], grown: Grown, stop: Stop) -> Filled:
    """Unpack a compressed file; the arguments are those of `unpacked`.

    A damaged file gives what can be unpacked before the damage. Raises CannotReadError
    if it unpacks to more than the limit (FUSETUI_UNPACK_LIMIT).
    """
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
        raise too_large_error(stored.path, limit) from None
    except DamagedError as damage:
        return Filled(cut=str(damage))
    except OSError as error:
        raise CannotReadError(
            f"{stored.path} cannot be unpacked: {reason(error)}."
        ) from None
    return Filled()


def _fetch_into(stored: Stored, room: IO[bytes], grown: Grown, stop: Stop) -> Filled:
    """Wait until all of a plain file has arrived in `room`; a local one is there
    already. Raises CannotReadError.

    `grown` is called with the bytes that are there. If `stop` returns True, the result
    says how many bytes arrived.
    """
    arrived_bytes = 0
    while stored.arriving and arrived_bytes < stored.size and not stored.arriving.cut:
        arrived_bytes = stored.arriving.fetch(arrived_bytes + 1)
        grown(arrived_bytes, arrived_bytes)
        if stop():
            return Filled(taken=arrived_bytes)
    return Filled()


def _opened(path: str) -> tuple[IO[bytes], str | None]:
    """Open a path, standard input or a URL, whose contents are fetched into memory. The
    second value says how a URL was cut short; None if it was not.

    Raises OSError and CannotReadError.
    """
    if path == "-":
        return sys.stdin.buffer, None
    if not is_remote(path):
        return Path(path).open("rb"), None
    from fusetui.trace.read.remote import copy_url  # only for URLs

    file = file_in_memory()
    with _close_on_error(file):
        return file, copy_url(path, file)


@contextmanager
def _close_on_error(file: IO[bytes]) -> Iterator[None]:
    """Close the file if the block raises, and only then."""
    try:
        yield
    except BaseException:
        file.close()
        raise


def _make_seekable(file: IO[bytes], path: str) -> IO[bytes]:
    """Return a file that can be read anywhere, as often as necessary.

    It is the file itself; of a pipe, which can be read only once and in order, it is a
    copy, and the pipe is closed unless it is standard input.

    Args:
        file: The open file or pipe.
        path: Its name, for messages.
    """
    with suppress(UnsupportedOperation):  # a stream that is not a file of the system
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
    try:
        return _copy_pipe(file, path)
    finally:
        if file is not sys.stdin.buffer:
            file.close()


def _copy_pipe(pipe: IO[bytes], path: str) -> IO[bytes]:
    """Copy everything that comes out of a pipe, into memory or if it is large to disk.

    Args:
        pipe: The pipe.
        path: Its name, for messages.

    Raises CannotReadError if there is no event in its first
    MAX_PIPE_BYTES_BEFORE_EVENT, so that a pipe without end is not read for ever.
    """
    copy = file_in_memory()
    size = 0
    max_memory_bytes = memory_left() // SHARE
    while piece := pipe.read(COPY_BYTES):
        copy.write(piece)
        copy.flush()
        size_before = size
        size += len(piece)
        must_show_event = size_before < MAX_PIPE_BYTES_BEFORE_EVENT <= size
        if must_show_event and not _has_event(Document(copy.fileno(), size)):
            copy.close()
            raise CannotReadError(
                f"{path} contains no trace event in its first "
                f"{MAX_PIPE_BYTES_BEFORE_EVENT >> 20} MB."
            )
        is_too_large_for_memory = size_before < max_memory_bytes <= size
        if is_too_large_for_memory:
            copy = _move_to_disk(copy)
    return copy


def _move_to_disk(file: IO[bytes]) -> IO[bytes]:
    """Copy a file to disk, and close the original."""
    with file:
        file.seek(0)
        on_disk = file_on_disk()
        shutil.copyfileobj(file, on_disk, COPY_BYTES)
    on_disk.flush()
    return on_disk


def _has_event(document: Document) -> bool:
    """Tell whether the beginning of a document contains something like an event,
    `"ph":`. True also for formats whose events are not text."""
    packing = packing_of(document[:4])
    if may_hold_events(b"".join(first_pieces(document, packing, HEAD))):
        return True
    end_of_last = b""
    for piece in first_pieces(document, packing, MAX_PIPE_BYTES_BEFORE_EVENT):
        if EVENT.search(end_of_last + piece):
            return True
        # what is sought may lie across two pieces
        end_of_last = piece[-MAX_EVENT_BYTES:]
    return False


def reason(error: OSError) -> str:
    """Why a system call failed, in a few words in lower case."""
    return (error.strerror or str(error)).lower()


def beginning(path: str, most: int = MIN_BEGINNING_BYTES) -> bytes:
    """The first `most` bytes of the unpacked document or somewhat more, if it has them.
    b"" if it cannot be read."""
    try:
        stored = open_stored(path)
        with closing(stored.file):
            return b"".join(first_pieces(stored.document, stored.packing, most))
    except (TraceError, OSError):
        return b""


def glimpse(path: str, most: int) -> bytes:
    """At most the first `most` bytes of a document, read as fast as possible to look at
    many files. b"" if it cannot be read.

    A plain file or gzip is read at once; others are opened like any trace.
    """
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
