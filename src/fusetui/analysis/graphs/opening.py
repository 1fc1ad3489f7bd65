"""From the trace of replays to one that is joined with its captures, named or found.

They are found by what is in them, only for a trace with graph replays that have no op.
The files of its folder, and of folders in it that servers write captures to, are looked
at in this order:

1. the beginning of each, once: only those in which the process of the replays appears
   may hold the capture, as a graph lives in the process that captured it;
2. of these the bytes, once, up to BUDGET: for the begin of a stream capture, for
   annotations that say for how many requests it is, and for the names of kernels, which
   must be those of the replays where the calls have any;
3. at most OPENED of those left are read as captures, those of the right size first.

What was found out about a file is remembered in the cache, in one record for each
folder, and used while its size, time of change and inode are the same: to find nothing
again costs one listing and one small file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.graphs.annotations import BY_ANNOTATIONS, with_annotations
from fusetui.analysis.graphs.captures import has_captures, replays
from fusetui.analysis.graphs.join import join
from fusetui.analysis.questions.launches import graph_calls, wants_capture
from fusetui.analysis.questions.server_steps import server_steps
from fusetui.trace.cache import record_for
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.ids import Id
from fusetui.trace.model.joined import CAPTURE, Join
from fusetui.trace.read.source import beginning, glimpse

ENDINGS = (".json", ".json.gz", ".json.zst")
FOLDERS = re.compile(r"capture", re.IGNORECASE)
"""Folders beside traces that servers write captures to: capture_traces (vLLM, SGLang)
and graph_capture_profile (SGLang)."""
MOST_FOLDERS = 4
NEIGHBORS = 64
LISTED = 4096  # entries of a folder that are looked at
KEPT_AS = "graphs"

HEAD = 1 << 13  # bytes of a document
# if there is no event in the head: of large jobs, the metadata is long
LONG_HEAD = 1 << 18
BUDGET = 1 << 27  # bytes of documents that are searched whole
PACKED = 15  # the usual compression ratio of traces
PACKINGS = (".gz", ".zst")
OPENED = 4
_PROCESS = re.compile(rb'"pid": ?"?([^\\",}\s]{1,64})')
_BEGIN = b"StreamBeginCapture"
_NAMED = re.compile(
    rb'"name": ?"(?:[a-z]{1,40}_)?capture_([0-9]{1,9})(?:_[A-Za-z_]{1,40})?"'
)
_KERNEL = re.compile(rb'"kernel": ?"([^"\\]{1,8000})"')
PLAIN = re.compile(r'[^"\\]{1,8000}', re.ASCII)  # names that stand in JSON as they are

SOME = 8
MOST_TOLD = 4
Open = Callable[[str], Trace]

# size in bytes, modification time in ns, and inode of a file
FileState = tuple[int, int, int]


class Graphs(msgspec.Struct, frozen=True):
    """What a search of a file found."""

    captures: bool
    sizes: tuple[int, ...] = ()  # requests or tokens, as annotations say
    # hashes of the names of the kernels that calls launch
    kernels: tuple[bytes, ...] = ()


class ScannedFile(msgspec.Struct, frozen=True):
    """What is known of a file in that state; None: it was not looked at, or not
    searched."""

    state: FileState
    pids: tuple[str, ...] | None = None  # the processes of its first events
    graphs: Graphs | None = None


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

    files: dict[str, ScannedFile]


def _looked_at(
    files: Sequence[File],
    field: Literal["pids", "graphs"],
    look: Callable[[File], object],
) -> list[ScannedFile]:
    """What is known of each file; `look` finds what is not, or None. Of a file that has
    changed nothing is known. The records in which anything is new are written."""
    records = {
        folder: record_for(folder, KEPT_AS)
        for folder in {file.folder for file in files}
    }
    loaded = {of: record and record.load(Index) for of, record in records.items()}
    known = {folder: found.files if found else {} for folder, found in loaded.items()}
    found, changed = list[ScannedFile](), set[str]()
    for file in files:
        seen = known[file.folder].get(file.name)
        if seen is None or seen.state != file.state:
            seen = ScannedFile(file.state)
        if getattr(seen, field) is None and (new := look(file)) is not None:
            seen = known[file.folder][file.name] = replace(seen, **{field: new})
            changed.add(file.folder)
        found.append(seen)
    for folder in changed:
        if record := records[folder]:
            record.store(Index(dict(list(known[folder].items())[-LISTED:])))
    return found


def with_captures(
    trace: Trace, named: Sequence[str], open_trace: Open
) -> tuple[Trace, tuple[Join, ...]]:
    """The trace, joined with the captures that are named; or if none is, with those in
    the trace itself, and then with those found in its folder. What is left gets the
    modules that annotations name (see annotations.py); `named` may have files of
    annotations, after BY_ANNOTATIONS.

    Raises TraceError if a named file cannot be read.
    """
    joins: list[Join] = []
    if not named and (trace.report.prefix is not None or not wants_capture(trace)):
        return trace, ()
    begin = BY_ANNOTATIONS
    files = [name.removeprefix(begin) for name in named if name.startswith(begin)]
    named = [name for name in named if not name.startswith(begin)]
    if not named and has_captures(trace):
        trace, record = join(trace, trace, found=True)
        joins.append(record)
    for path in _in_order(named, trace) if named else _found(trace):
        if joins and not wants_capture(trace):
            break
        try:
            trace, record = join(trace, open_trace(path), found=not named)
        except TraceError:
            if named:
                raise
            continue  # nobody asked for this file
        joins.append(record)
    trace, annotated = with_annotations(trace, files)
    return trace, (*joins, *annotated)


def _in_order(named: Sequence[str], trace: Trace) -> list[str]:
    """The files that a user names, of several those first that are likely to fit."""
    if len(named) < 2:
        return list(named)
    files = []
    for path in named:
        with suppress(OSError):
            folder, name = os.path.split(path)
            files.append(File(folder or ".", name, _state(os.stat(path))))
    first = set(map(os.path.realpath, _likely(files, trace)))
    return sorted(named, key=lambda path: os.path.realpath(path) not in first)


def _found(trace: Trace) -> list[str]:
    """The files beside the trace that may hold what it replays. Only processes that
    launch graphs count: other tracks have names that are in every trace."""
    if not wants_capture(trace):
        return []
    tracks = np.unique(trace.track[graph_calls(trace)]).tolist()
    files = same_process(
        trace.report.path, {trace.tracks[track].pid for track in tracks}
    )
    return _likely(files, trace) if files else []


def _likely(files: Sequence[File], trace: Trace) -> list[str]:
    """Those that may hold what the trace replays: by the sizes of its steps, in
    requests and in tokens, as captures count either, and by the names of a few
    kernels."""
    asked = [one for one in server_steps(trace).asked if one]
    sizes = dict.fromkeys(size for one in asked for size in (one.batch, one.new_tokens))
    rows = [row for nodes in replays(trace) for row in nodes.rows[:SOME].tolist()]
    names = dict.fromkeys(
        trace.name_of(r) for r in rows if trace.role[r] == Role.KERNEL
    )
    return candidates(files, [size for size in sizes if size], list(names)[:SOME])


def said(joins: Sequence[Join]) -> list[str]:
    """What to tell a user who opened the trace: what could not be joined in the end. A
    capture that was found and fits nothing is not worth a word, nor is one of several
    for which another fits."""
    captures = [join for join in joins if join.joined_by == CAPTURE]
    whole = (
        captures and sum(join.replays for join in captures) == captures[0].of_replays
    )
    told = (join.refused for join in joins if join.replays or not (join.found or whole))
    distinct = list(dict.fromkeys(text for texts in told for text in texts))
    rest = len(distinct) - MOST_TOLD
    return [
        *distinct[:MOST_TOLD],
        *([f"... and {rest} more reasons."] if rest > 0 else []),
    ]


def files_beside(path: str) -> list[File]:
    """Other traces in the folder of a trace, and in folders in it that are named after
    captures: the NEIGHBORS nearest in time of each."""
    folder = os.path.dirname(path) or "."
    try:
        own = _state(os.stat(path))
    except OSError:
        return []
    here, folders = _listed(folder)
    inside = (
        _listed(os.path.join(folder, name))[0]
        for name in sorted(folders)[:MOST_FOLDERS]
    )
    found: list[File] = []
    for files in (here, *inside):
        others = (file for file in files if file.state != own)  # not the trace itself
        nearest = sorted(others, key=lambda f: (abs(f.state[1] - own[1]), f.name))
        found += nearest[:NEIGHBORS]
    return found


def _state(state: os.stat_result) -> FileState:
    return state.st_size, state.st_mtime_ns, state.st_ino


def _listed(folder: str) -> tuple[list[File], list[str]]:
    """The traces in a folder, and the names of folders of captures; none if it cannot
    be read."""
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


def same_process(path: str, pids: Collection[Id]) -> list[File]:
    """The files beside a trace that events of these processes are in, the nearest in
    time first."""
    own, files = {str(pid) for pid in pids}, files_beside(path)
    each = zip(
        files,
        _looked_at(files, "pids", lambda file: _processes(file.path)),
        strict=True,
    )
    return [file for file, seen in each if not own.isdisjoint(seen.pids or ())]


def candidates(
    files: Sequence[File], batches: Sequence[int], kernels: Sequence[str] = ()
) -> list[str]:
    """Those of these files that capture graphs, at most OPENED: first those of the
    smallest size that is enough for each of the batches, then those that do not say
    their size. `kernels`: names of some that are replayed."""
    asked = {_hash(name.encode()) for name in kernels if PLAIN.fullmatch(name)}
    budget = BUDGET

    def search(file: File) -> Graphs | None:
        """What its bytes tell, as far as the budget goes."""
        nonlocal budget
        size = file.state[0] * (PACKED if file.name.endswith(PACKINGS) else 1)
        if size > budget:
            return None
        budget -= size
        text = beginning(file.path, BUDGET)
        if _BEGIN not in text:
            return Graphs(False)
        sizes, kernels = (
            map(int, _NAMED.findall(text)),
            map(_hash, _KERNEL.findall(text)),
        )
        return Graphs(True, tuple(sorted({*sizes})), tuple(sorted({*kernels})))

    each = zip(files, _looked_at(files, "graphs", search), strict=True)
    searched = [(file.path, seen.graphs) for file, seen in each if seen.graphs]
    fits = [
        (path, own)
        for path, own in searched
        if not own.kernels or asked <= set(own.kernels)
    ]
    found = [(path, own) for path, own in fits if own.captures]
    sizes = {size for _, graphs in found for size in graphs.sizes}
    wanted = {min((s for s in sizes if s >= batch), default=-1) for batch in batches}
    sure = [one for one, graphs in found if wanted & set(graphs.sizes)]
    open_ = [one for one, graphs in found if not graphs.sizes or not batches]
    return list(dict.fromkeys((*sure, *open_)))[:OPENED]


def _processes(path: str) -> tuple[str, ...]:
    """The processes of the first events."""
    for most in (HEAD, LONG_HEAD):
        text = glimpse(path, most) if most == HEAD else beginning(path, most)
        if found := set(_PROCESS.findall(text)):
            return tuple(sorted(pid.decode(errors="replace") for pid in found))
        if len(text) < most:
            break
    return ()


def _hash(name: bytes) -> bytes:
    return blake2b(name, digest_size=8).digest()
