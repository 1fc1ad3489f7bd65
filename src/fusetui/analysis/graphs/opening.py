"""Joins a trace with captures when it is opened, from the user's options or by search.

Captures are searched only for a trace with graph replays that have no op. They are
recognized by their contents. The files of the folder of the trace, and of folders in it
to which servers write captures, are looked at in this order:

1. The beginning of each file is read, once. Only files in which the process of the
   replays appears may hold the capture, as a graph lives in the process that captured
   it.
2. Of these files the bytes are searched, once, up to MAX_SEARCHED_BYTES: for the begin
   of a stream capture, for annotations that say for how many requests it is, and for
   the names of kernels, which must be those of the replays where the calls have any.
3. At most _MAX_CANDIDATES of the files that are left are read as captures, those of the
   right size first.

The cache remembers what is known about each file, in one record for each folder, as
long as the size, the time of change and the inode of the file are the same. A second
search that finds nothing then costs one listing and one small file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.analysis.graphs.annotations import BY_ANNOTATIONS, add_annotated_modules
from fusetui.analysis.graphs.captures import has_captures, replays
from fusetui.analysis.graphs.join import join
from fusetui.analysis.questions.launches import mark_graph_calls, wants_capture
from fusetui.analysis.questions.server_steps import find_server_steps
from fusetui.trace.cache import CacheRecord, record_for
from fusetui.trace.model.arrays import distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.ids import Id
from fusetui.trace.model.joined import CAPTURE, Join
from fusetui.trace.read.source import beginning, glimpse

_TRACE_ENDINGS: Final = (".json", ".json.gz", ".json.zst")
_CAPTURE_FOLDER = re.compile(r"capture", re.IGNORECASE)
"""Folders beside traces that servers write captures to: capture_traces (vLLM, SGLang)
and graph_capture_profile (SGLang)."""

_MAX_FOLDERS: Final = 4
_MAX_NEIGHBORS: Final = 64  # files of a folder
_MAX_ENTRIES: Final = 4096  # of a folder that are looked at
_RECORD_NAME: Final = "graphs"

_HEAD_BYTES: Final = 1 << 13  # of a document
# if there is no event in the head: of large jobs, the metadata is long
_LONG_HEAD_BYTES: Final = 1 << 18
MAX_SEARCHED_BYTES = 1 << 27  # of documents that are searched whole
_USUAL_COMPRESSION: Final = 15  # of traces
_COMPRESSED_ENDINGS: Final = (".gz", ".zst")
_MAX_CANDIDATES: Final = 4
_PROCESS = re.compile(rb'"pid": ?"?([^\\",}\s]{1,64})')
_CAPTURE_CALL: Final = b"StreamBeginCapture"
_SIZE_ANNOTATION = re.compile(
    rb'"name": ?"(?:[a-z]{1,40}_)?capture_([0-9]{1,9})(?:_[A-Za-z_]{1,40})?"'
)
_KERNEL_ARG = re.compile(rb'"kernel": ?"([^"\\]{1,8000})"')
_PLAIN_NAME = re.compile(r'[^"\\]{1,8000}', re.ASCII)
"""Matches names that need no escapes in JSON."""

_HASH_BYTES: Final = 8
_KERNELS_COMPARED: Final = 8
_MAX_REASONS: Final = 4  # that a user is told

Open = Callable[[str], Trace]
"""Opens the trace of a path."""


class FileState(NamedTuple):
    """A state of a file; if it is the same as before, so are its contents."""

    bytes: int
    modified_ns: int
    inode: int


class Graphs(msgspec.Struct, frozen=True):
    """What a search of the bytes of a file says about captures of graphs."""

    captures: bool  # whether a capture begins in it
    sizes: tuple[int, ...] = ()  # requests or tokens, as annotations say
    # hashes of the names of the kernels that calls launch
    kernels: tuple[bytes, ...] = ()

    def may_capture(self, kernel_hashes: set[bytes]) -> bool:
        """Decide whether the file may capture a graph with all of these kernels.

        If it names no kernels, it may, because calls of CUDA never name them.
        """
        if not self.captures:
            return False
        return not self.kernels or kernel_hashes.issubset(self.kernels)


class ScannedFile(msgspec.Struct, frozen=True):
    """What is known of the contents of a file in a certain state.

    A field is None if the file was not read for it so far.
    """

    state: FileState
    pids: tuple[str, ...] | None = None  # the processes of its first events
    graphs: Graphs | None = None


class File(msgspec.Struct, frozen=True):
    """A trace file in the folder of another trace, or in a folder within that."""

    folder: str
    name: str
    state: FileState

    @property
    def path(self) -> str:
        """The path of the file."""
        return os.path.join(self.folder, self.name)


class Index(msgspec.Struct, frozen=True):
    """The record of a folder in the cache, with what is known of its files."""

    files: dict[str, ScannedFile]  # by name


class _Listing(NamedTuple):
    """The contents of a folder, as far as they matter."""

    files: list[File]  # traces
    folders: list[str]  # names of those folders to which servers write captures


class _SearchedFile(NamedTuple):
    """A file, with what a search of its bytes says about captures."""

    path: str
    graphs: Graphs


def _scan_files(
    files: Sequence[File],
    field: Literal["pids", "graphs"],
    scan: Callable[[File], object],
) -> list[ScannedFile]:
    """Return what the bytes of each file say about processes or graphs, from the cache
    if possible.

    A file whose size or time has changed is searched again. The cache has one record
    for each folder, which is written again if a file of the folder was searched.

    Args:
        files: The files.
        field: The field of ScannedFile that the caller needs.
        scan: Computes this field for a file that is new or has changed; None if
            it cannot.

    Returns:
        One result per file, in their order.
    """
    records = {file.folder: record_for(file.folder, _RECORD_NAME) for file in files}
    known_files = {folder: _load_record(record) for folder, record in records.items()}
    scanned_files = []
    changed_folders = set()
    for file in files:
        files_of_folder = known_files[file.folder]
        scanned = files_of_folder.get(file.name)
        if scanned is None or scanned.state != file.state:
            scanned = ScannedFile(file.state)

        is_known = getattr(scanned, field) is not None
        value = None if is_known else scan(file)
        if value is not None:
            scanned = replace(scanned, **{field: value})
            files_of_folder[file.name] = scanned
            changed_folders.add(file.folder)
        scanned_files.append(scanned)

    for folder in changed_folders:
        _store_record(records[folder], known_files[folder])
    return scanned_files


def _load_record(record: CacheRecord | None) -> dict[str, ScannedFile]:
    """Read what the cache knows about the files of a folder, by their names.

    Returns {} if there is no cache, or if it knows nothing.
    """
    index = record.load(Index) if record is not None else None
    return index.files if index is not None else {}


def _store_record(record: CacheRecord | None, files: dict[str, ScannedFile]) -> None:
    """Write the record of a folder to the cache, with the last _MAX_ENTRIES files.

    Nothing is written if there is no cache.
    """
    if record is None:
        return
    latest = list(files.items())[-_MAX_ENTRIES:]
    record.store(Index(files=dict(latest)))


def with_captures(
    trace: Trace, named: Sequence[str], open_trace: Open
) -> tuple[Trace, tuple[Join, ...]]:
    """Join the replays of a trace with the captures of their graphs.

    If the user named no capture, those in the trace itself are used, and then those
    that are found in its folder. Replays that are left get the modules that annotations
    of their nodes name (see annotations.py).

    Args:
        trace: The trace of the replays.
        named: The files that the user named. Files of annotations have BY_ANNOTATIONS
            before their paths.
        open_trace: Opens the trace of a path.

    Returns:
        The joined trace, and a record of each join that was tried.

    Raises:
        TraceError: A file that the user named cannot be read.
    """
    is_part = trace.report.prefix is not None
    if not named and (is_part or not wants_capture(trace)):
        return trace, ()

    annotation_files = []
    named_captures = []
    for name in named:
        if name.startswith(BY_ANNOTATIONS):
            annotation_files.append(name.removeprefix(BY_ANNOTATIONS))
        else:
            named_captures.append(name)

    if named_captures:
        trace, capture_joins = _join_with_named_captures(
            trace, named_captures, open_trace
        )
    else:
        trace, capture_joins = _join_with_found_captures(trace, open_trace)
    trace, annotation_joins = add_annotated_modules(trace, annotation_files)
    return trace, (*capture_joins, *annotation_joins)


def _join_with_named_captures(
    trace: Trace, named: Sequence[str], open_trace: Open
) -> tuple[Trace, list[Join]]:
    """Join the replays of a trace with the captures in files that the user named.

    The likeliest file comes first, and the search ends when all replays are joined.

    Args:
        trace: The trace of the replays.
        named: The paths of the files.
        open_trace: Opens the trace of a path.

    Returns:
        The joined trace, and a record of each join that was tried.

    Raises:
        TraceError: A file cannot be read.
    """
    joins: list[Join] = []
    for path in _sort_by_likelihood(named, trace):
        if joins and not wants_capture(trace):
            break
        trace, record = join(trace, open_trace(path), found=False)
        joins.append(record)
    return trace, joins


def _join_with_found_captures(
    trace: Trace, open_trace: Open
) -> tuple[Trace, list[Join]]:
    """Join the replays of a trace with captures in it, then with those in other files
    nearby.

    The search ends when all replays are joined. A file that cannot be read is skipped.

    Args:
        trace: The trace of the replays.
        open_trace: Opens the trace of a path.

    Returns:
        The joined trace, and a record of each join that was tried.
    """
    joins: list[Join] = []
    if has_captures(trace):
        trace, record = join(trace, trace, found=True)
        joins.append(record)

    for path in _find_capture_files_nearby(trace):
        if joins and not wants_capture(trace):
            break
        try:
            capture_trace = open_trace(path)
        except TraceError:
            continue  # the user did not name this file, and does not miss it
        trace, record = join(trace, capture_trace, found=True)
        joins.append(record)
    return trace, joins


def _sort_by_likelihood(named: Sequence[str], trace: Trace) -> list[str]:
    """Sort the files that a user named, so that those likely to hold the captures come
    first.

    Files of either group keep their order. What cannot be read counts as unlikely; its
    error is reported when it is opened.
    """
    if len(named) < 2:
        return list(named)

    files = []
    for path in named:
        with suppress(OSError):
            folder, name = os.path.split(path)
            state = _make_file_state(os.stat(path))
            files.append(File(folder=folder or ".", name=name, state=state))
    likely_paths = set(map(os.path.realpath, _list_likely_captures(files, trace)))

    likely: list[str] = []
    unlikely: list[str] = []
    for path in named:
        group = likely if os.path.realpath(path) in likely_paths else unlikely
        group.append(path)
    return likely + unlikely


def _find_capture_files_nearby(trace: Trace) -> list[str]:
    """Find the files beside the trace that may hold what it replays.

    Only files with a process that launches graphs in the trace count. Other tracks have
    names that are in every trace.
    """
    if not wants_capture(trace):
        return []
    tracks = distinct(trace.track[mark_graph_calls(trace)]).tolist()
    pids = {trace.tracks[track].pid for track in tracks}
    files = same_process(trace.report.path, pids)
    return _list_likely_captures(files, trace) if files else []


def _list_likely_captures(files: Sequence[File], trace: Trace) -> list[str]:
    """Return the paths of files that may hold the captures of what a trace replays.

    The likeliest file comes first. Sizes of captures are compared with the batches of
    steps, and names of captured kernels with those of the first replayed ones.
    """
    kernels = _list_first_kernels(trace)[:_KERNELS_COMPARED]
    return choose_candidates(files, _list_sizes_of_steps(trace), kernels)


def _list_sizes_of_steps(trace: Trace) -> list[int]:
    """List the distinct batch sizes of the steps of an inference server, in the order
    of the steps.

    Each step counts with its requests and with its new tokens, because captures of
    graphs may be sized by either.
    """
    sizes: list[int] = []
    for requested in find_server_steps(trace).requested:
        if requested is not None:
            for size in (requested.batch, requested.new_tokens):
                if size:
                    sizes.append(size)
    return list(dict.fromkeys(sizes))


def _list_first_kernels(trace: Trace) -> list[str]:
    """List the distinct names of the kernels among the first nodes of each replay."""
    names: list[str] = []
    for nodes in replays(trace):
        first_nodes = nodes.rows[:_KERNELS_COMPARED]
        is_kernel = trace.role[first_nodes] == Role.KERNEL
        names += [trace.name_of(row) for row in first_nodes[is_kernel].tolist()]
    return list(dict.fromkeys(names))


def join_sentences(joins: Sequence[Join]) -> list[str]:
    """Say why replays of CUDA graphs have no ops, for a user who opened the trace.

    Reasons are listed for captures that fitted some replay. Those for other captures
    that the user named are listed too, unless all replays have ops in the end.

    Args:
        joins: The records of all attempts to find the captures of the replays.

    Returns:
        At most _MAX_REASONS sentences, and a last one if there are more reasons.
    """
    capture_joins = [record for record in joins if record.joined_by == CAPTURE]
    joined_replays = sum(record.replays for record in capture_joins)
    # The first attempt was for all replays, each later one for those that were left.
    all_replays = capture_joins[0].of_replays if capture_joins else None
    is_complete = joined_replays == all_replays

    reasons: dict[str, None] = {}  # an ordered set
    for record in joins:
        fitted = record.replays > 0
        user_named_it = not record.found
        if fitted or (user_named_it and not is_complete):
            reasons |= dict.fromkeys(record.refused)

    sentences = list(reasons)[:_MAX_REASONS]
    omitted_reasons = len(reasons) - len(sentences)
    if omitted_reasons:
        sentences.append(f"... and {omitted_reasons} more reasons")
    return sentences


def list_files_beside(path: str) -> list[File]:
    """List other traces in the folder of a trace and in its folders of captures.

    Of each folder the _MAX_NEIGHBORS files are listed that are the nearest in time.
    Returns [] if the trace is no file.
    """
    try:
        state = _make_file_state(os.stat(path))
    except OSError:
        return []

    folder = os.path.dirname(path) or "."
    listing = _list_folder(folder)
    neighbors = _select_nearest_in_time(listing.files, state)
    for name in sorted(listing.folders)[:_MAX_FOLDERS]:
        inner_listing = _list_folder(os.path.join(folder, name))
        neighbors += _select_nearest_in_time(inner_listing.files, state)
    return neighbors


def _select_nearest_in_time(files: Sequence[File], state: FileState) -> list[File]:
    """Return the _MAX_NEIGHBORS files that were changed nearest to another file.

    Args:
        files: The files to choose from.
        state: The state of the other file, which is left out if it is among them.
    """

    def distance(file: File) -> tuple[int, str]:
        return abs(file.state.modified_ns - state.modified_ns), file.name

    others = [file for file in files if file.state != state]
    return sorted(others, key=distance)[:_MAX_NEIGHBORS]


def _make_file_state(state: os.stat_result) -> FileState:
    """Take the state of a file from what os.stat reports about it."""
    return FileState(
        bytes=state.st_size, modified_ns=state.st_mtime_ns, inode=state.st_ino
    )


def _list_folder(folder: str) -> _Listing:
    """List the trace files and the folders of captures in a folder.

    At most _MAX_ENTRIES entries of the folder are looked at. Nothing is listed if the
    folder cannot be read.
    """
    files = []
    folders = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MAX_ENTRIES):
                is_trace_name = entry.name.endswith(_TRACE_ENDINGS)
                is_capture_name = _CAPTURE_FOLDER.search(entry.name) is not None
                if is_trace_name and entry.is_file():
                    state = _make_file_state(entry.stat())
                    files.append(File(folder=folder, name=entry.name, state=state))
                elif is_capture_name and entry.is_dir():
                    folders.append(entry.name)
    except OSError:
        return _Listing(files=[], folders=[])
    return _Listing(files=files, folders=folders)


def same_process(path: str, pids: Collection[Id]) -> list[File]:
    """Find the files beside a trace that have events of the same processes.

    A graph lives in the process that captured it, so only these may hold the capture.

    Args:
        path: The path of the trace.
        pids: The processes of the trace that replay graphs.

    Returns:
        The files, the nearest in time first.
    """
    pid_texts = {str(pid) for pid in pids}
    files = list_files_beside(path)
    scanned_files = _scan_files(
        files, "pids", lambda file: _read_first_processes(file.path)
    )
    matching = []
    for file, scanned in zip(files, scanned_files, strict=True):
        pids_of_file = scanned.pids or ()
        if any(pid in pid_texts for pid in pids_of_file):
            matching.append(file)
    return matching


class _Search:
    """Searches the bytes of documents, until MAX_SEARCHED_BYTES were searched."""

    def __init__(self) -> None:
        self._bytes_left = MAX_SEARCHED_BYTES

    def graphs_in(self, file: File) -> Graphs | None:
        """Find out from the bytes of a file which captures of CUDA graphs it has.

        Returns None if the file is larger than what may still be searched. The result
        names the sizes of captures and the kernels in them, as far as they are
        recorded.
        """
        document_bytes = file.state.bytes
        if file.name.endswith(_COMPRESSED_ENDINGS):
            document_bytes *= _USUAL_COMPRESSION
        if document_bytes > self._bytes_left:
            return None
        self._bytes_left -= document_bytes

        text = beginning(file.path, MAX_SEARCHED_BYTES)
        if _CAPTURE_CALL not in text:
            return Graphs(captures=False)
        sizes = {int(digits) for digits in _SIZE_ANNOTATION.findall(text)}
        kernels = {_hash_name(name) for name in _KERNEL_ARG.findall(text)}
        return Graphs(
            captures=True, sizes=tuple(sorted(sizes)), kernels=tuple(sorted(kernels))
        )


def choose_candidates(
    files: Sequence[File], batches: Sequence[int], kernels: Sequence[str] = ()
) -> list[str]:
    """Choose the files that may hold the captures of what a trace replays.

    Args:
        files: The files to choose from.
        batches: The batches of the steps, in requests and in tokens.
        kernels: Names of some replayed kernels. A file that names only other kernels is
            left out.

    Returns:
        At most _MAX_CANDIDATES paths: first those with the smallest size that is enough
        for one of the batches, then those that do not say their size.
    """
    capturing = _select_capturing(files, kernels)
    captured_sizes: set[int] = set()
    for file in capturing:
        captured_sizes.update(file.graphs.sizes)

    # A server pads each batch to the next size that it captured.
    wanted_sizes: set[int] = set()
    for batch in batches:
        large_enough = [size for size in captured_sizes if size >= batch]
        if large_enough:
            wanted_sizes.add(min(large_enough))

    right_size = []
    unknown_size = []
    for file in capturing:
        if any(size in wanted_sizes for size in file.graphs.sizes):
            right_size.append(file.path)
        if not file.graphs.sizes or not batches:
            unknown_size.append(file.path)

    paths = dict.fromkeys((*right_size, *unknown_size))  # an ordered set
    return list(paths)[:_MAX_CANDIDATES]


def _select_capturing(
    files: Sequence[File], kernels: Sequence[str]
) -> list[_SearchedFile]:
    """Return the files that may capture graphs with all of these kernels.

    A file that records no names of kernels is kept, because calls of CUDA never record
    them.

    Args:
        files: The files to choose from.
        kernels: The names of the kernels.
    """
    kernel_hashes = set()
    for name in kernels:
        # A name with escapes stands in the file otherwise than it is here.
        if _PLAIN_NAME.fullmatch(name):
            kernel_hashes.add(_hash_name(name.encode()))

    scanned_files = _scan_files(files, "graphs", _Search().graphs_in)
    capturing = []
    for file, scanned in zip(files, scanned_files, strict=True):
        graphs = scanned.graphs
        if graphs is not None and graphs.may_capture(kernel_hashes):
            capturing.append(_SearchedFile(file.path, graphs))
    return capturing


def _read_first_processes(path: str) -> tuple[str, ...]:
    """Return the processes that the beginning of a file names, sorted.

    If the head of the file names none, a longer beginning is read. Returns () if that
    names none either.
    """
    head = glimpse(path, _HEAD_BYTES)
    pids = _find_pids(head)
    is_longer = len(head) >= _HEAD_BYTES
    if pids or not is_longer:
        return pids
    return _find_pids(beginning(path, _LONG_HEAD_BYTES))


def _find_pids(text: bytes) -> tuple[str, ...]:
    """Return the processes that a part of a document names, sorted."""
    distinct_pids = set(_PROCESS.findall(text))
    return tuple(sorted(pid.decode(errors="replace") for pid in distinct_pids))


def _hash_name(name: bytes) -> bytes:
    """Return a short hash of the name of a kernel."""
    return blake2b(name, digest_size=_HASH_BYTES).digest()
