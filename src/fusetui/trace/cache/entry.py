"""What is kept of one file: its trace, what was worked out from the document later, and
small records about files, of any size and on any machine, and about folders.

The arrays of a record are columns, each aligned for memory mapping; the rest is a
header: bytes 0-7 magic, 8-11 CRC-32 of all that follows, 12-15 length of the header,
header, columns
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np
from isal import isal_zlib
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.trace.cache.folder import (
    MAGIC,
    cache_folder,
    make_room,
    open_own,
    replace_file,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Events, Stretch, Text
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.foreign import is_archive
from fusetui.trace.read.remote import is_remote, state_of_url
from fusetui.trace.read.source import open_stored

VERSION = 16
"""Incremented with every change of what a Trace, what is beside it, or this format
means."""

ALIGNED = 64  # bytes
STRETCHES = tuple[tuple[int, int, int, int, bytes | None, tuple[int, int]], ...]
"""What is written of the events of a trace: the fields of each Stretch, its places as
bytes."""
T = TypeVar("T")


class Origin(msgspec.Struct, frozen=True):
    """A state of the file that something was made from: enough to notice that it has
    changed."""

    path: str  # absolute, links resolved
    size: int  # bytes
    mtime_ns: int
    ends: bytes  # a hash of head and tail
    ctime_ns: int = 0  # no program can set it
    inode: int = 0


class ColumnForm(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """Everything in a file except the columns."""

    version: int
    origin: Origin
    rest: msgspec.Raw  # the fields that are not columns
    columns: dict[str, ColumnForm]  # in file order


@lru_cache
def columns_of(record: type) -> tuple[str, ...]:
    """The fields of a record that are arrays, however their type is spelled."""
    return tuple(
        name for name, hint in get_type_hints(record).items() if _is_array(hint)
    )


def _is_array(hint: Any) -> bool:
    """Also where NDArray is a `type` statement, as from numpy 2.5 on."""
    kind = get_origin(hint) or hint
    meant = getattr(kind, "__value__", kind)
    return (get_origin(meant) or meant) is np.ndarray


@lru_cache
def rest_of(record: type) -> type[msgspec.Struct]:
    """A record of the fields that the header holds."""
    hints = get_type_hints(record).items()
    rest = [
        (n, STRETCHES if h is Events else h)
        for n, h in hints
        if n not in columns_of(record)
    ]
    return msgspec.defstruct("Rest", rest, frozen=True)


def write(found: msgspec.Struct, origin: Origin, out: IO[bytes]) -> None:
    """Raises OSError, or ValueError for what cannot be stored."""
    kind = type(found)
    columns = {
        name: np.ascontiguousarray(getattr(found, name)) for name in columns_of(kind)
    }
    forms = {
        name: ColumnForm(column.dtype.str, column.shape)
        for name, column in columns.items()
    }
    rest = {name: getattr(found, name) for name in rest_of(kind).__struct_fields__}
    packed = msgspec.Raw(msgspec.msgpack.encode(rest, enc_hook=_stretches))
    header = msgspec.msgpack.encode(Header(VERSION, origin, packed, forms))
    body: list[bytes | memoryview] = [len(header).to_bytes(4, "little"), header]
    position = len(MAGIC) + 4 + 4 + len(header)
    for column in columns.values():
        body += [bytes(-position % ALIGNED), column.reshape(-1).view(np.uint8).data]
        position += -position % ALIGNED + column.nbytes
    crc = 0
    for part in body:
        crc = isal_zlib.crc32(part, crc)
    out.writelines([MAGIC, crc.to_bytes(4, "little"), *body])


def read(file: IO[bytes], origin: Origin, kind: type) -> dict[str, Any]:
    """The fields of a record; its columns are mapped. Raises an Exception if the file
    is damaged, or of another version, record or state of the origin."""
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data, at = memoryview(mapped), len(MAGIC)
    if data[:at] != MAGIC:
        raise ValueError("no file of ours")
    if int.from_bytes(data[at : at + 4], "little") != isal_zlib.crc32(data[at + 4 :]):
        raise ValueError("damaged")
    end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    header = msgspec.msgpack.decode(data[at + 8 : end], type=Header)
    if header.version != VERSION or header.origin != origin:
        raise ValueError("of another version, or of another state of the file")
    rest = msgspec.msgpack.decode(
        header.rest, type=rest_of(kind), dec_hook=lambda known, value: known(value)
    )  # the Counter of a report
    return asdict(rest) | dict(_columns(mapped, header.columns, end))


def _columns(
    data: mmap.mmap, forms: Mapping[str, ColumnForm], at: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, form in forms.items():
        at += -at % ALIGNED
        dtype = np.dtype(form.dtype)
        count = int(np.prod(form.shape))
        flat = np.frombuffer(data, dtype, count, at) if count else np.empty(0, dtype)
        yield name, flat.reshape(form.shape)
        at += count * dtype.itemsize


def _stretches(events: Events) -> list[tuple[object, ...]]:
    """What STRETCHES has of the events of a trace."""
    places = (
        s.places if s.places is None else s.places.tobytes() for s in events.stretches
    )
    return [
        (s.start, s.end, s.events, s.samples, next(places), s.reach)
        for s in events.stretches
    ]


SMALLEST = 8 << 20  # bytes of a document; smaller ones are read just as fast
ENDS = 1 << 16  # bytes of the head and of the tail of a file that are compared
TextOf = Callable[..., Text]  # see formats.text_of


class CacheRecord(msgspec.Struct, frozen=True):
    """One file in the cache, and the current state of the file that it is about."""

    path: str  # as the user gave it
    origin: Origin
    place: Path

    def beside(self, name: str) -> CacheRecord:
        """The file beside it; `name` is one of folder.BESIDE."""
        return CacheRecord(
            self.path, self.origin, self.place.with_name(f"{self.place.name}.{name}")
        )

    def load(self, kind: type[T]) -> T | None:
        """The record, if there is one for this state of the file."""
        return self._load(lambda file: kind(**read(file, self.origin, kind)))

    def _load(self, made: Callable[[IO[bytes]], T]) -> T | None:
        """What is kept; whatever is wrong with it, it can be read or worked out
        again."""
        with suppress(Exception), open_own(self.place) as file:
            found = made(file)
            with suppress(OSError):  # the least recently used is removed first
                os.utime(file.fileno() if os.utime in os.supports_fd else self.place)
            return found
        return None

    def store(self, found: msgspec.Struct) -> None:
        """Keeps it, unless the file has changed, or there is no space, permission or
        memory."""
        with suppress(Exception):
            if _origin(self.path) == self.origin:
                replace_file(self.place, partial(write, found, self.origin))


class Entry(CacheRecord, frozen=True):
    """The file of a trace."""

    def trace(self, text_of: TextOf) -> Trace | None:
        """The trace, if there is a valid entry for this state of the file."""

        def made(file: IO[bytes]) -> Trace:
            fields = read(file, self.origin, Trace)
            stretches = []
            for start, end, events, samples, places, reach in fields.pop("elements"):
                own = (
                    None
                    if places is None
                    else np.frombuffer(places, np.int64).reshape(-1, 3)
                )
                stretches.append(Stretch(start, end, events, samples, own, reach))
            report = fields["report"] = replace(fields["report"], path=self.path)
            with Path(self.path).open("rb") as original:
                state = (self.origin.size, self.origin.mtime_ns)
                text = text_of(
                    report.format, self.path, OpenFile(original.fileno()), state
                )
            return Trace(elements=Elements(text, stretches), **fields)

        return self._load(made)

    def recall(self, name: str, kind: type[T]) -> T | None:
        return self.beside(name).load(kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        self.beside(name).store(found)
        tidy(self.place.parent)

    def store(self, found: msgspec.Struct) -> None:
        super().store(found)
        tidy(self.place.parent)


def entry_for(path: str) -> Entry | None:
    """None for what is not cached: small files, standard input, or if the cache is
    off."""
    with suppress(OSError, ImportError, TraceError):  # reading the file will report it
        if (folder := cache_folder()) is not None and path != "-" and _is_large(path):
            origin = _origin_of_file(path)
            return Entry(path, origin, _place_in(folder, origin.path))
    return None


def record_for(path: str, name: str) -> CacheRecord | None:
    """`name` is one of folder.BESIDE. None if the cache is off, or nothing tells one
    state of the file from another: standard input, and servers that say neither when it
    was changed nor its etag. The record of a folder holds whatever is in it: it has to
    tell itself what became of each file."""
    with suppress(Exception):  # reading the file will report it
        if (folder := cache_folder()) is not None and path != "-":
            origin = _origin(path)
            return CacheRecord(path, origin, _place_in(folder, origin.path)).beside(
                name
            )
    return None


def tidy(folder: Path | None = None) -> None:
    """Removes what was not used for longest if the cache is too large. To be called
    after storing records: not for each of thousands."""
    with suppress(OSError):
        if folder := folder or cache_folder():
            make_room(folder)


def _place_in(folder: Path, path: str) -> Path:
    """A distinct file for each path and user, so that several users can share a
    folder."""
    from hashlib import blake2b

    user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    hashed = blake2b(os.fsencode(path), digest_size=16, key=user.encode())
    return folder / f"{hashed.hexdigest()}.v{VERSION}"


def _is_large(path: str) -> bool:
    """An archive is not: what is kept would be the text of the archive, not of the
    trace in it."""
    if not os.path.isfile(path):
        return False
    with Path(path).open("rb") as file:
        if is_archive(file.read(4)):
            return False
    stored = open_stored(path)
    stored.file.close()
    return stored.likely_size >= SMALLEST


def _origin(path: str) -> Origin:
    """The state of a file, folder or URL. Raises OSError, or ValueError if it is not
    known."""
    if is_remote(path):
        size, tag = state_of_url(path)
        return Origin(path, size, 0, tag)
    if os.path.isdir(path):
        return Origin(os.path.realpath(path), 0, 0, b"")
    return _origin_of_file(path)


def _origin_of_file(path: str) -> Origin:
    """Raises OSError."""
    from hashlib import blake2b  # not needed if the cache is off

    with Path(path).open("rb") as file:
        state = os.fstat(file.fileno())
        hashed = blake2b(file.read(ENDS), digest_size=16)
        file.seek(max(0, state.st_size - ENDS))
        hashed.update(file.read(ENDS))
    times = state.st_mtime_ns, hashed.digest(), state.st_ctime_ns, state.st_ino
    return Origin(os.path.realpath(path), state.st_size, *times)
