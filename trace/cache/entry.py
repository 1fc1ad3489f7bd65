"""What is kept of one file: its trace, what was worked out from the document later, and small
records about files, of any size and on any machine, and about folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from fusetui.trace.cache import pack
from fusetui.trace.cache.folder import cache_folder, make_room, open_own, replace_file
from fusetui.trace.cache.pack import Origin
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Text
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.foreign import is_archive
from fusetui.trace.read.remote import is_remote, state_of_url
from fusetui.trace.read.source import likely_size, open_stored

SMALLEST = 8 << 20  # bytes of a document; smaller ones are read just as fast
ENDS = 1 << 16  # bytes of the head and of the tail of a file that are compared
T = TypeVar("T")
TextOf = Callable[..., Text]  # see formats.text_of


class Record(msgspec.Struct, frozen=True):
    """One file in the cache, and the current state of the file that it is about."""

    path: str  # as the user gave it
    origin: Origin
    place: Path

    def beside(self, name: str) -> Record:
        """The file beside it; `name` is one of folder.BESIDE."""
        return Record(self.path, self.origin, self.place.with_name(f"{self.place.name}.{name}"))

    def load(self, kind: type[T]) -> T | None:
        """The record, if there is one for this state of the file."""
        return self._load(lambda file: pack.read(file, self.origin, kind))

    def _load(self, read: Callable[[IO[bytes]], T]) -> T | None:
        """What is kept; whatever is wrong with it, it can be read or worked out again."""
        with suppress(Exception), open_own(self.place) as file:
            found = read(file)
            with suppress(OSError):  # the least recently used is removed first
                os.utime(file.fileno() if os.utime in os.supports_fd else self.place)
            return found
        return None

    def store(self, found: msgspec.Struct) -> None:
        """Keeps it, unless the file has changed, or there is no space, permission or memory."""
        with suppress(Exception):
            if _origin(self.path) == self.origin:
                replace_file(self.place, partial(pack.write, found, self.origin))


class Entry(Record, frozen=True):
    """The file of a trace."""

    def trace(self, text_of: TextOf) -> Trace | None:
        """The trace, if there is a valid entry for this state of the file."""

        def read(file: IO[bytes]) -> Trace:
            with Path(self.path).open("rb") as original:
                state = (self.origin.size, self.origin.mtime_ns)
                opened = OpenFile(original.fileno())
                return pack.read_trace(
                    file,
                    self.origin,
                    self.path,
                    lambda form: text_of(form, self.path, opened, state),
                )

        return self._load(read)

    def recall(self, name: str, kind: type[T]) -> T | None:
        return self.beside(name).load(kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        self.beside(name).store(found)
        tidy(self.place.parent)

    def store(self, found: msgspec.Struct) -> None:
        super().store(found)
        tidy(self.place.parent)


def entry_for(path: str) -> Entry | None:
    """None for what is not cached: small files, standard input, or if the cache is off."""
    with suppress(OSError, ImportError, TraceError):  # reading the file will report it
        if (folder := cache_folder()) is not None and path != "-" and _is_large(path):
            origin = _origin_of_file(path)
            return Entry(path, origin, _place_in(folder, origin.path))
    return None


def record_for(path: str, name: str) -> Record | None:
    """`name` is one of folder.BESIDE. None if the cache is off, or nothing tells one state of the
    file from another: standard input, and servers that say neither when it was changed nor its
    etag. The record of a folder holds whatever is in it: it has to tell itself what became of each
    file."""
    with suppress(Exception):  # reading the file will report it
        if (folder := cache_folder()) is not None and path != "-":
            origin = _origin(path)
            return Record(path, origin, _place_in(folder, origin.path)).beside(name)
    return None


def tidy(folder: Path | None = None) -> None:
    """Removes what was not used for longest if the cache is too large. To be called after storing
    records: not for each of thousands."""
    with suppress(OSError):
        if folder := folder or cache_folder():
            make_room(folder)


def _place_in(folder: Path, path: str) -> Path:
    """A distinct file for each path and user, so that several users can share a folder."""
    from hashlib import blake2b

    user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    hashed = blake2b(os.fsencode(path), digest_size=16, key=user.encode())
    return folder / f"{hashed.hexdigest()}.v{pack.VERSION}"


def _is_large(path: str) -> bool:
    """An archive is not: what is kept would be the text of the archive, not of the trace in it."""
    if not os.path.isfile(path):
        return False
    with Path(path).open("rb") as file:
        if is_archive(file.read(4)):
            return False
    stored = open_stored(path)
    stored.file.close()
    return likely_size(stored) >= SMALLEST


def _origin(path: str) -> Origin:
    """The state of a file, folder or URL. Raises OSError, or ValueError if it is not known."""
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
