"""Which files lie beside a trace, and what was found out about each.

That is remembered in the cache, in one record for each folder, and used for a file while its size,
time of change and inode are the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from fusetui.trace.cache import Record, record_for

ENDINGS = (".json", ".json.gz", ".json.zst")
FOLDERS = re.compile(r"capture", re.IGNORECASE)
"""Folders beside traces that servers write captures to: capture_traces (vLLM, SGLang) and
graph_capture_profile (SGLang)."""
MOST_FOLDERS = 4
NEIGHBORS = 64
LISTED = 4096  # entries of a folder that are looked at
KEPT_AS = "graphs"

State = tuple[int, int, int]
"""Size in bytes, modification time in ns, and inode of a file."""


class Graphs(msgspec.Struct, frozen=True):
    """What a search of a file found."""

    captures: bool
    sizes: tuple[int, ...] = ()  # requests or tokens, as annotations say
    kernels: tuple[bytes, ...] = ()  # hashes of the names of the kernels that calls launch


class Seen(msgspec.Struct, frozen=True):
    """What is known of a file in that state."""

    state: State
    pids: tuple[str, ...]  # the processes of its first events
    graphs: Graphs | None = None  # None: it was not searched


class File(msgspec.Struct, frozen=True):
    """A file beside a trace."""

    folder: str
    name: str
    state: State

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)


class Index(msgspec.Struct, frozen=True):
    """The record of a folder, by the names of its files."""

    files: dict[str, Seen]


class Remembered(msgspec.Struct, eq=False):
    """Some files of one folder, with what is known of all files of it."""

    files: list[File]
    record: Record | None  # None: the cache is off
    known: dict[str, Seen]
    changed: bool = False

    def seen(self, file: File) -> Seen | None:
        """What is known of a file, if it has not changed."""
        found = self.known.get(file.name)
        return found if found is not None and found.state == file.state else None

    def put(self, file: File, seen: Seen) -> None:
        self.known[file.name] = seen
        self.changed = True

    def keep(self) -> None:
        """Writes the record, if anything is new."""
        if self.record is not None and self.changed:
            self.record.store(Index(dict(list(self.known.items())[-LISTED:])))


def remembered(files: Sequence[File]) -> Iterator[Remembered]:
    """The files by folder, with what is remembered of them."""
    by_folder: dict[str, list[File]] = {}
    for file in files:
        by_folder.setdefault(file.folder, []).append(file)
    for folder, own in by_folder.items():
        record = record_for(folder, KEPT_AS)
        found = record.load(Index) if record else None
        yield Remembered(own, record, found.files if found else {})


def files_beside(path: str) -> list[File]:
    """Other traces in the folder of a trace, and in folders in it that are named after captures:
    the NEIGHBORS nearest in time of each."""
    folder = os.path.dirname(path) or "."
    try:
        own = os.stat(path)
        here, folders = _listed(folder)
    except OSError:
        return []
    found = _nearest(here, own)
    for name in sorted(folders)[:MOST_FOLDERS]:
        try:
            found += _nearest(_listed(os.path.join(folder, name))[0], own)
        except OSError:
            continue
    return found


def files_named(paths: Sequence[str]) -> list[File]:
    """Those of these files that are there."""
    found = []
    for path in paths:
        with suppress(OSError):
            folder, name = os.path.split(path)
            found.append(File(folder or ".", name, _state(os.stat(path))))
    return found


def _state(state: os.stat_result) -> State:
    return state.st_size, state.st_mtime_ns, state.st_ino


def _listed(folder: str) -> tuple[list[File], list[str]]:
    """The traces in a folder, and the names of folders of captures. Raises OSError."""
    files, folders = [], []
    with os.scandir(folder) as items:
        for item, _ in zip(items, range(LISTED), strict=False):
            if item.name.endswith(ENDINGS) and item.is_file():
                files.append(File(folder, item.name, _state(item.stat())))
            elif FOLDERS.search(item.name) and item.is_dir():
                folders.append(item.name)
    return files, folders


def _nearest(files: list[File], own: os.stat_result) -> list[File]:
    """Without the trace itself."""
    others = [file for file in files if file.state != _state(own)]
    others.sort(key=lambda file: (abs(file.state[1] - own.st_mtime_ns), file.name))
    return others[:NEIGHBORS]
