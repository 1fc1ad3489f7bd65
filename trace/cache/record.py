"""Small records about files, of any size and on any machine, and about folders, kept without a
trace beside them."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from fusetui.trace.cache import sidecar
from fusetui.trace.cache.entry import place_in
from fusetui.trace.cache.folder import cache_folder, make_room, replace_file
from fusetui.trace.cache.origin import Origin, origin_of
from fusetui.trace.cache.own import open_own
from fusetui.trace.read.remote import is_remote, state_of_url

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """Where one record is kept, and the state of the file that it is about."""

    path: str
    origin: Origin
    place: Path

    def load(self, kind: type[T]) -> T | None:
        """The record, if there is one for this state of the file."""
        try:
            with open_own(self.place) as file:
                found = sidecar.read(file, self.origin, kind)
                with suppress(OSError):  # the least recently used is removed first
                    os.utime(file.fileno() if os.utime in os.supports_fd else self.place)
        except Exception:  # whatever is wrong, it can be worked out again
            return None
        return found

    def store(self, found: msgspec.Struct) -> None:
        """Keeps the record, unless the file has changed, or there is no space. See `tidy`."""
        with suppress(Exception):
            if _origin(self.path) == self.origin:
                replace_file(self.place, partial(sidecar.write, found, self.origin))


def record_for(path: str, name: str) -> Record | None:
    """`name` is one of own.BESIDE. None if the cache is off, or nothing tells one state of the file
    from another: standard input, and servers that say neither when it was changed nor its etag. The
    record of a folder holds whatever is in it: it has to tell itself what became of each file."""
    try:
        folder = cache_folder()
        if folder is None or path == "-":
            return None
        origin = _origin(path)
        place = place_in(folder, origin.path)
        return Record(path, origin, place.with_name(f"{place.name}.{name}"))
    except Exception:  # reading the file will report it
        return None


def tidy() -> None:
    """Removes what was not used for longest if the cache is too large. To be called after storing:
    not for each of thousands of records."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):
            make_room(folder)


def _origin(path: str) -> Origin:
    """Raises OSError, or ValueError if the state of a remote file is not known."""
    if not is_remote(path):
        return Origin(os.path.realpath(path), 0, 0, b"") if os.path.isdir(path) else origin_of(path)
    size, tag = state_of_url(path)
    return Origin(path, size, 0, tag)
