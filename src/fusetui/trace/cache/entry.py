"""The cached data of one file: its trace, later results from the document, and small
records about files and folders.

A file in the cache holds one record. Its arrays are columns, each aligned for memory
mapping; the rest is a header:

    bytes 0-7     MAGIC
    bytes 8-11    CRC-32 of all that follows
    bytes 12-15   length of the header
    then          the header (msgpack), and the columns
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np
from isal import isal_zlib
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.debug_log import debug
from fusetui.trace.cache.folder import (
    MAGIC,
    cache_folder,
    make_room,
    open_own,
    replace_file,
)
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Events, Stretch, Text
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.foreign import is_archive
from fusetui.trace.read.source import State, is_remote, open_stored

VERSION = 16
"""Incremented with every change of what a Trace, what is beside it, or this format
means."""

COLUMN_ALIGNMENT = 64  # bytes
MIN_DOCUMENT_BYTES = 8 << 20  # a smaller document is read as fast as an entry
COMPARED_BYTES = 1 << 16  # of the head and of the tail of a file
TextOf = Callable[..., Text]  # see formats.text_of
T = TypeVar("T")


class Origin(msgspec.Struct, frozen=True):
    """A state of the file that something was made from: enough to notice that it has
    changed."""

    path: str  # absolute, links resolved
    size: int  # bytes
    mtime_ns: int
    ends: bytes  # a hash of head and tail; of a URL what tells its state
    ctime_ns: int = 0  # no program can set it
    inode: int = 0


class ColumnForm(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """Everything in a file except the columns."""

    version: int
    origin: Origin
    rest: msgspec.Raw  # the fields that are not columns, as `rest_of` types them
    columns: dict[str, ColumnForm]  # in file order


class StoredStretch(NamedTuple):
    """A Stretch as msgpack holds it."""

    start: int
    end: int
    events: int
    samples: int
    places: bytes | None  # the numbers of the array
    reach: tuple[int, int]


# The records


@lru_cache
def columns_of(record: type) -> tuple[str, ...]:
    """Return the names of the fields of a record that are arrays: ("start", "dur", ...)
    for Trace."""
    hints = get_type_hints(record)
    return tuple(name for name, hint in hints.items() if _is_array(hint))


def _is_array(hint: Any) -> bool:
    """Whether the type of a field is a numpy array."""
    kind = get_origin(hint) or hint
    # From numpy 2.5 on NDArray is a `type` statement, whose meaning is its value.
    meaning = getattr(kind, "__value__", kind)
    return (get_origin(meaning) or meaning) is np.ndarray


@lru_cache
def rest_of(record: type) -> type[msgspec.Struct]:
    """Make the type of the other fields of a record, which the header holds.

    The events of a trace are stored as the places of their stretches.
    """
    columns = columns_of(record)
    fields: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(record).items():
        if name not in columns:
            fields.append((name, tuple[StoredStretch, ...] if hint is Events else hint))
    return msgspec.defstruct("Rest", fields, frozen=True)


def write(record: msgspec.Struct, origin: Origin, out: IO[bytes]) -> None:
    """Write an entry of the cache.

    It is MAGIC, a checksum of what follows, the size of the header, the header, and the
    columns, each at a multiple of COLUMN_ALIGNMENT bytes so that it can be mapped.

    Args:
        record: What is kept: a record with columns. Raises ValueError for what cannot
            be stored.
        origin: The file that it was made of.
        out: Where to write. Raises OSError.
    """
    columns = {
        name: np.ascontiguousarray(getattr(record, name))
        for name in columns_of(type(record))
    }
    header = _encode_header(record, origin, columns)
    body: list[bytes | memoryview] = [len(header).to_bytes(4, "little"), header]
    position = len(MAGIC) + 4 + 4 + len(header)  # in the file
    for column in columns.values():
        padding = -position % COLUMN_ALIGNMENT
        body.append(bytes(padding))
        body.append(column.reshape(-1).view(np.uint8).data)
        position += padding + column.nbytes
    crc = 0
    for part in body:
        crc = isal_zlib.crc32(part, crc)
    out.writelines([MAGIC, crc.to_bytes(4, "little"), *body])


def _encode_header(
    record: msgspec.Struct, origin: Origin, columns: Mapping[str, NDArray[Any]]
) -> bytes:
    """The encoded header of an entry: everything but the values of its columns."""
    names = rest_of(type(record)).__struct_fields__
    rest = {name: getattr(record, name) for name in names}
    encoded_rest = msgspec.msgpack.encode(rest, enc_hook=_encode_stretches)
    forms = {
        name: ColumnForm(dtype=column.dtype.str, shape=column.shape)
        for name, column in columns.items()
    }
    header = Header(
        version=VERSION, origin=origin, rest=msgspec.Raw(encoded_rest), columns=forms
    )
    return msgspec.msgpack.encode(header)


def read(file: IO[bytes], origin: Origin, kind: type) -> dict[str, Any]:
    """Read the fields of a record from the cache, by name. Its columns are mapped, so
    they are read when they are used.

    Raises an Exception if the file is damaged, or of another version, record or state
    of the original file.
    """
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = memoryview(mapped)
    crc_at = len(MAGIC)
    length_at = crc_at + 4
    header_at = length_at + 4
    if data[:crc_at] != MAGIC:
        raise ValueError("it was not written by fusetui")
    crc = int.from_bytes(data[crc_at:length_at], "little")
    if crc != isal_zlib.crc32(data[length_at:]):
        raise ValueError("it is damaged")
    header_end = header_at + int.from_bytes(data[length_at:header_at], "little")
    header = msgspec.msgpack.decode(data[header_at:header_end], type=Header)
    if header.version != VERSION:
        raise ValueError("it is from another version of fusetui")
    if header.origin != origin:
        raise ValueError("it was made from another state of the file")
    rest = msgspec.msgpack.decode(
        header.rest, type=rest_of(kind), dec_hook=_convert_value
    )
    return asdict(rest) | _map_columns(mapped, header.columns, header_end)


def _convert_value(kind: type, value: Any) -> Any:
    """A decoded value as the type that msgpack does not know: the Counter of a report."""
    return kind(value)


def _map_columns(
    mapped: mmap.mmap, forms: Mapping[str, ColumnForm], header_end: int
) -> dict[str, NDArray[Any]]:
    """The columns of an entry by name, mapped from the file. They begin at multiples of
    COLUMN_ALIGNMENT after the header."""
    columns: dict[str, NDArray[Any]] = {}
    at = header_end
    for name, form in forms.items():
        at += -at % COLUMN_ALIGNMENT
        dtype = np.dtype(form.dtype)
        count = int(np.prod(form.shape))
        flat: NDArray[Any] = np.empty(0, dtype)
        if count:
            flat = np.frombuffer(mapped, dtype, count, offset=at)
        columns[name] = flat.reshape(form.shape)
        at += count * dtype.itemsize
    return columns


def _encode_stretches(events: Events) -> list[StoredStretch]:
    """The stretches of events, which are ranges of the document, in the form in which
    an entry has them."""
    return [
        StoredStretch(
            start=stretch.start,
            end=stretch.end,
            events=stretch.events,
            samples=stretch.samples,
            places=None if stretch.places is None else stretch.places.tobytes(),
            reach=stretch.reach,
        )
        for stretch in events.stretches
    ]


def _decode_stretch(stored: StoredStretch) -> Stretch:
    """A stretch made from the form in which an entry has it."""
    places: Int64s | None = None
    if stored.places is not None:
        places = np.frombuffer(stored.places, np.int64).reshape(-1, 3)
    return Stretch(
        start=stored.start,
        end=stored.end,
        events=stored.events,
        samples=stored.samples,
        places=places,
        reach=stored.reach,
    )


# The files of the cache


class CacheRecord(msgspec.Struct, frozen=True):
    """One file in the cache, and the current state of the file that it is about."""

    path: str  # as the user gave it
    origin: Origin
    place: Path

    def beside(self, name: str) -> CacheRecord:
        """The record that is kept beside this one under a name of folder.BESIDE."""
        return CacheRecord(
            path=self.path,
            origin=self.origin,
            place=self.place.with_name(f"{self.place.name}.{name}"),
        )

    def load(self, kind: type[T]) -> T | None:
        """The record of this type, if there is one for the present state of the file;
        else None."""
        return self._load(lambda file: kind(**read(file, self.origin, kind)))

    def _load(self, make: Callable[[IO[bytes]], T]) -> T | None:
        """Read the file of the cache.

        Whatever is wrong with it, reading goes on without the cache, as everything in
        it can be worked out again; the debug log says what it was.

        Args:
            make: Makes a record of the open file.

        Returns:
            The record; None if there is no file, or `make` raises anything.
        """
        try:
            with open_own(self.place) as file:
                record = make(file)
                with suppress(OSError):  # the least recently used is removed first
                    os.utime(
                        file.fileno() if os.utime in os.supports_fd else self.place
                    )
        except FileNotFoundError:
            debug("cache: nothing is kept of %s as %s", self.path, self.place)
        except Exception as error:
            debug("cache: %s is not used for %s: %s", self.place, self.path, error)
        else:
            debug("cache: %s is used for %s", self.place, self.path)
            return record
        return None

    def store(self, record: msgspec.Struct) -> None:
        """Write the record to the cache. Nothing is written if the file has changed, or
        there is no space, permission or memory."""
        try:
            if _describe_origin(self.path) != self.origin:
                debug("cache: %s has changed, so nothing is kept of it", self.path)
                return
            replace_file(self.place, partial(write, record, self.origin))
        except Exception as error:
            debug("cache: %s could not be written: %s", self.place, error)
        else:
            debug("cache: %s was written for %s", self.place, self.path)


class Entry(CacheRecord, frozen=True):
    """The file of a trace."""

    def trace(self, text_of: TextOf) -> Trace | None:
        """The trace, if there is a valid entry for the present state of the file; else
        None. `text_of` makes the text of its events."""
        return self._load(lambda file: self._read_trace(file, text_of))

    def _read_trace(self, file: IO[bytes], text_of: TextOf) -> Trace:
        """The trace in an open entry. Raises an Exception if there is none."""
        fields = read(file, self.origin, Trace)
        stored_stretches = fields.pop("elements")
        report = replace(fields.pop("report"), path=self.path)
        stretches = [_decode_stretch(stored) for stored in stored_stretches]
        state = State(size=self.origin.size, mtime_ns=self.origin.mtime_ns)
        with Path(self.path).open("rb") as original:
            file_of_text = OpenFile(original.fileno())
            text = text_of(report.format, self.path, file_of_text, state)
        return Trace(report=report, elements=Elements(text, stretches), **fields)

    def recall(self, name: str, kind: type[T]) -> T | None:
        """The record that is kept beside the trace under a name; None if there is none."""
        return self.beside(name).load(kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keep a record beside the trace under a name, and remove old entries if the
        cache is full."""
        self.beside(name).store(found)
        tidy(self.place.parent)

    def store(self, record: msgspec.Struct) -> None:
        """Write the trace to the cache, and remove old entries if the cache is full."""
        super().store(record)
        tidy(self.place.parent)


def entry_for(path: str) -> Entry | None:
    """The place of a trace in the cache. None if the cache is off, and for small files,
    archives, URLs and standard input."""
    with suppress(OSError, ImportError, TraceError):  # reading the file will report it
        folder = cache_folder()
        if folder is None:
            debug("cache: it is off")
        elif path != "-" and _is_worth_an_entry(path):
            origin = _describe_file(path)
            place = _entry_path(folder, origin.path)
            return Entry(path=path, origin=origin, place=place)
        else:
            debug(
                "cache: %s is not kept: no file, an archive, or smaller than %d MB",
                path,
                MIN_DOCUMENT_BYTES >> 20,
            )
    return None


def record_for(path: str, name: str) -> CacheRecord | None:
    """The place in the cache of a record about a file, folder or URL; `name` is one of
    folder.BESIDE.

    None if the cache is off, for standard input, and for servers that tell no state of
    a file from another. A folder has no states: its record has to say itself what
    became of each file.
    """
    with suppress(Exception):  # reading the file will report it
        folder = cache_folder()
        if folder is not None and path != "-":
            origin = _describe_origin(path)
            place = _entry_path(folder, origin.path)
            return CacheRecord(path=path, origin=origin, place=place).beside(name)
    return None


def tidy(folder: Path | None = None) -> None:
    """Remove what was not used for longest if the cache is too large. Call it after
    storing several records, not after each of thousands."""
    with suppress(OSError):
        folder = folder or cache_folder()
        if folder:
            make_room(folder)


def _entry_path(folder: Path, path: str) -> Path:
    """The file of the cache for a path. It differs for each user, so that several users
    can share a folder."""
    from hashlib import blake2b

    user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    digest = blake2b(os.fsencode(path), digest_size=16, key=user.encode()).hexdigest()
    return folder / f"{digest}.v{VERSION}"


def _is_worth_an_entry(path: str) -> bool:
    """Whether a path is a large file that is not an archive. Of an archive the wrong
    text would be kept: its own, not that of the trace in it."""
    if not os.path.isfile(path):
        return False
    with Path(path).open("rb") as file:
        if is_archive(file.read(4)):
            return False
    stored = open_stored(path)
    stored.file.close()
    return stored.likely_size >= MIN_DOCUMENT_BYTES


def _describe_origin(path: str) -> Origin:
    """The state of a file, folder or URL, by which a change is noticed. Raises OSError,
    or ValueError if a server does not tell it."""
    if is_remote(path):
        from fusetui.trace.read.remote import state_of_url  # only for URLs

        size, tag = state_of_url(path)
        return Origin(path=path, size=size, mtime_ns=0, ends=tag)
    if os.path.isdir(path):
        return Origin(path=os.path.realpath(path), size=0, mtime_ns=0, ends=b"")
    return _describe_file(path)


def _describe_file(path: str) -> Origin:
    """The state of a file: size, times, inode, and a hash of its first and last bytes.
    Raises OSError."""
    from hashlib import blake2b  # not needed if the cache is off

    with Path(path).open("rb") as file:
        state = os.fstat(file.fileno())
        head_and_tail = blake2b(file.read(COMPARED_BYTES), digest_size=16)
        file.seek(max(0, state.st_size - COMPARED_BYTES))
        head_and_tail.update(file.read(COMPARED_BYTES))
    return Origin(
        path=os.path.realpath(path),
        size=state.st_size,
        mtime_ns=state.st_mtime_ns,
        ends=head_and_tail.digest(),
        ctime_ns=state.st_ctime_ns,
        inode=state.st_ino,
    )
