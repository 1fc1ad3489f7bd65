"""The entry of one trace in the cache: loads what is there, stores what was read, and keeps beside
it what was worked out from the document later."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from fusetui.trace.cache import pack, sidecar
from fusetui.trace.cache.folder import cache_folder, make_room, replace_file
from fusetui.trace.cache.origin import Origin, origin_of
from fusetui.trace.cache.own import open_own
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.document_text import Filed
from fusetui.trace.read.foreign import is_archive
from fusetui.trace.read.source import likely_size, open_stored

SMALLEST = 8 << 20  # bytes of a document; smaller ones are read just as fast
T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True):
    """Where the trace of a file is kept, and the current state of the file."""

    path: str  # of the trace, as the user gave it
    origin: Origin
    place: Path

    def load(self) -> Trace | None:
        """The trace, if there is a valid entry for this state of the file."""
        try:
            with open_own(self.place) as file, Path(self.path).open("rb") as original:
                state = (self.origin.size, self.origin.mtime_ns)
                text = Filed(self.path, OpenFile(original.fileno()), state)
                trace = pack.read(file, self.origin, self.path, text)
                with suppress(OSError):  # the least recently used is removed first
                    os.utime(file.fileno() if os.utime in os.supports_fd else self.place)
        except Exception:  # whatever is wrong with an entry, the file itself can be read
            return None
        return trace

    def store(self, trace: Trace) -> None:
        """Stores the trace, unless the file has changed since, or there is no space."""
        self._store(self.place, partial(pack.write, trace, self.origin))

    def recall(self, name: str, kind: type[T]) -> T | None:
        """What was kept beside the trace for this state of the file; `name` is one of BESIDE."""
        try:
            with open_own(self._beside(name)) as file:
                found = sidecar.read(file, self.origin, kind)
                with suppress(OSError):
                    os.utime(file.fileno())
        except Exception:  # whatever is wrong, it can be worked out again
            return None
        return found

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keeps a record beside the trace, unless the file has changed, or there is no space."""
        self._store(self._beside(name), partial(sidecar.write, found, self.origin))

    def _beside(self, name: str) -> Path:
        return self.place.with_name(f"{self.place.name}.{name}")

    def _store(self, place: Path, write: Callable[[IO[bytes]], None]) -> None:
        try:
            if origin_of(self.path) != self.origin:
                return
            replace_file(place, write)
            make_room(self.place.parent)
        except Exception:  # no space, permission or memory: it is available anyway
            return


def entry_for(path: str) -> Entry | None:
    """None for what is not cached: small files, standard input, or if the cache is off."""
    if path == "-":
        return None
    try:
        folder = cache_folder()
        if folder is None or not _is_large(path):
            return None
        origin = origin_of(path)
        return Entry(path, origin, place_in(folder, origin.path))
    except (OSError, ImportError, TraceError):  # reading the file will report it
        return None


def place_in(folder: Path, path: str) -> Path:
    """A distinct file for each path and user, so that several users can share a folder."""
    from hashlib import blake2b

    user = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    hashed = blake2b(os.fsencode(path), digest_size=16, key=user.encode())
    return folder / f"{hashed.hexdigest()}.v{pack.VERSION}"


def _is_large(path: str) -> bool:
    """An archive is not: what is kept would be the text of the archive, not of the trace in it."""
    if not os.path.isfile(path) or _is_archive(path):
        return False
    stored = open_stored(path)
    stored.file.close()
    return likely_size(stored) >= SMALLEST


def _is_archive(path: str) -> bool:
    with Path(path).open("rb") as file:
        return is_archive(file.read(4))
