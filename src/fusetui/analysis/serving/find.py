"""Finds the traces of captures beside the trace of their replays, by what is in them.

Only for a trace with graph replays that have no op. The files of its folder, and of folders in it
that servers write captures to, are looked at in this order:

1. the beginning of each, once: only those in which the process of the replays appears may hold the
   capture, as a graph lives in the process that captured it;
2. of these the bytes, once, up to BUDGET: for the begin of a stream capture, for annotations that
   say for how many requests it is, and for the names of kernels, which must be those of the replays
   where the calls have any;
3. at most OPENED of those left are read as captures, those of the right size first.

What was found out about a file is remembered in the cache, in one record for each folder, and used
while its size, time of change and inode are the same: to find nothing again costs one listing and
one small file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from fusetui.trace.cache import Record, record_for
from fusetui.trace.model.ids import Id
from fusetui.trace.read.source import beginning, glimpse

ENDINGS = (".json", ".json.gz", ".json.zst")
FOLDERS = re.compile(r"capture", re.IGNORECASE)
"""Folders beside traces that servers write captures to: capture_traces (vLLM, SGLang) and
graph_capture_profile (SGLang)."""
MOST_FOLDERS = 4
NEIGHBORS = 64
LISTED = 4096  # entries of a folder that are looked at
KEPT_AS = "graphs"

HEAD = 1 << 13  # bytes of a document
LONG_HEAD = 1 << 18  # if there is no event in the head: of large jobs, the metadata is long
BUDGET = 1 << 27  # bytes of documents that are searched whole
PACKED = 15  # the usual compression ratio of traces
PACKINGS = (".gz", ".zst")
OPENED = 4
_PROCESS = re.compile(rb'"pid": ?"?([^\\",}\s]{1,64})')
_BEGIN = b"StreamBeginCapture"
_NAMED = re.compile(rb'"name": ?"(?:[a-z]{1,40}_)?capture_([0-9]{1,9})(?:_[A-Za-z_]{1,40})?"')
_KERNEL = re.compile(rb'"kernel": ?"([^"\\]{1,8000})"')
PLAIN = re.compile(r'[^"\\]{1,8000}', re.ASCII)
"""Names that stand in JSON as they are."""

FileState = tuple[int, int, int]
"""Size in bytes, modification time in ns, and inode of a file."""


class Graphs(msgspec.Struct, frozen=True):
    """What a search of a file found."""

    captures: bool
    sizes: tuple[int, ...] = ()  # requests or tokens, as annotations say
    kernels: tuple[bytes, ...] = ()  # hashes of the names of the kernels that calls launch


class Seen(msgspec.Struct, frozen=True):
    """What is known of a file in that state."""

    state: FileState
    pids: tuple[str, ...]  # the processes of its first events
    graphs: Graphs | None = None  # None: it was not searched


class File(msgspec.Struct, frozen=True):
    """A file beside a trace."""

    folder: str
    name: str
    state: FileState

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
    for folder in dict.fromkeys(file.folder for file in files):
        record = record_for(folder, KEPT_AS)
        found = record.load(Index) if record else None
        own = [file for file in files if file.folder == folder]
        yield Remembered(own, record, found.files if found else {})


def files_beside(path: str) -> list[File]:
    """Other traces in the folder of a trace, and in folders in it that are named after captures:
    the NEIGHBORS nearest in time of each."""
    folder = os.path.dirname(path) or "."
    try:
        own = _state(os.stat(path))
    except OSError:
        return []
    here, folders = _listed(folder)
    inside = (_listed(os.path.join(folder, name))[0] for name in sorted(folders)[:MOST_FOLDERS])
    return [file for files in (here, *inside) for file in _nearest(files, own)]


def files_named(paths: Sequence[str]) -> list[File]:
    """Those of these files that are there."""
    found = []
    for path in paths:
        with suppress(OSError):
            folder, name = os.path.split(path)
            found.append(File(folder or ".", name, _state(os.stat(path))))
    return found


def _state(state: os.stat_result) -> FileState:
    return state.st_size, state.st_mtime_ns, state.st_ino


def _listed(folder: str) -> tuple[list[File], list[str]]:
    """The traces in a folder, and the names of folders of captures; none if it cannot be read."""
    files, folders = [], []
    try:
        with os.scandir(folder) as items:
            for item, _ in zip(items, range(LISTED), strict=False):
                if item.name.endswith(ENDINGS) and item.is_file():
                    files.append(File(folder, item.name, _state(item.stat())))
                elif FOLDERS.search(item.name) and item.is_dir():
                    folders.append(item.name)
    except OSError:
        return [], []
    return files, folders


def _nearest(files: Sequence[File], own: FileState) -> list[File]:
    """Without the trace itself."""
    others = [file for file in files if file.state != own]
    return sorted(others, key=lambda f: (abs(f.state[1] - own[1]), f.name))[:NEIGHBORS]


def same_process(path: str, pids: Collection[Id]) -> list[Remembered]:
    """The files beside a trace that events of these processes are in, by folder, the nearest in
    time first."""
    own = {str(pid) for pid in pids}
    found = []
    for folder in remembered(files_beside(path)):
        files = []
        for file in folder.files:
            seen = folder.seen(file)
            if seen is None:
                seen = Seen(file.state, _processes(file.path))
                folder.put(file, seen)
            if not own.isdisjoint(seen.pids):
                files.append(file)
        folder.keep()
        if files:
            found.append(replace(folder, files=files, changed=False))
    return found


def candidates(
    folders: Sequence[Remembered], batches: Sequence[int], kernels: Sequence[str] = ()
) -> list[str]:
    """Those of their files that capture graphs, at most OPENED: first those of the smallest size
    that is enough for each of the batches, then those that do not say their size. `kernels`: names
    of some that are replayed."""
    asked = {_hash(name.encode()) for name in kernels if PLAIN.fullmatch(name)}
    found = [
        (file.path, graphs)
        for file, graphs in _searched(folders)
        if graphs.captures and (not graphs.kernels or asked <= set(graphs.kernels))
    ]
    wanted = set()
    for batch in set(batches):
        enough = [s for _, graphs in found for s in graphs.sizes if s >= batch]
        wanted |= {min(enough)} if enough else set()
    sure = [one for one, graphs in found if wanted & set(graphs.sizes)]
    open_ = [one for one, graphs in found if not graphs.sizes or not batches]
    return list(dict.fromkeys((*sure, *open_)))[:OPENED]


def _searched(folders: Sequence[Remembered]) -> list[tuple[File, Graphs]]:
    """What the bytes of the files tell, as far as the budget goes."""
    budget = BUDGET
    found = []
    for folder in folders:
        for file in folder.files:
            seen = folder.seen(file)
            graphs = seen.graphs if seen else None
            if graphs is None:
                size = file.state[0] * (PACKED if file.name.endswith(PACKINGS) else 1)
                if size > budget:
                    continue
                budget -= size
                graphs = _judged(beginning(file.path, BUDGET))
                folder.put(file, Seen(file.state, seen.pids if seen else (), graphs))
            found.append((file, graphs))
        folder.keep()
    return found


def _processes(path: str) -> tuple[str, ...]:
    """The processes of the first events."""
    for most in (HEAD, LONG_HEAD):
        text = glimpse(path, most) if most == HEAD else beginning(path, most)
        if found := set(_PROCESS.findall(text)):
            return tuple(sorted(pid.decode(errors="replace") for pid in found))
        if len(text) < most:
            break
    return ()


def _judged(text: bytes) -> Graphs:
    if _BEGIN not in text:
        return Graphs(False)
    sizes = {int(size) for size in _NAMED.findall(text)}
    kernels = {_hash(name) for name in set(_KERNEL.findall(text))}
    return Graphs(True, tuple(sorted(sizes)), tuple(sorted(kernels)))


def _hash(name: bytes) -> bytes:
    return blake2b(name, digest_size=8).digest()
