"""Reads files into the dumps of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from fusetui.own_memory import without_collector
from fusetui.own_process import calls
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.flight.columns import UNKNOWN, FlightDumps, Unread
from fusetui.trace.flight.entries import MAX_RANKS, DumpTables, is_dump, joined
from fusetui.trace.flight.pickles import plain_value
from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.foreign import is_pickle
from fusetui.trace.read.source import open_stored, reason, unpacked
from fusetui.trace.read.workers import core_count
from fusetui.trace.snapshot.tables import MalformedError

RANK_IN_NAME = lazy_pattern(r"rank[_-]?([0-9]{1,7})(?![0-9])")
"""`rank_3`, `nccl_trace_rank_3`, `node1-rank3.pickle`: the last one counts."""
LAST_NUMBER = lazy_pattern(r"([0-9]{1,7})\Z")
"""`PREFIX3`: torch appends the rank to the prefix of its environment variable."""
FILES_PER_PART = 256  # that a process reads; fewer are read here
ENDINGS = (".gz", ".zst", ".json", ".pickle", ".pkl", ".bin", ".dump")


class PlannedDump(msgspec.Struct, frozen=True):
    """A file and the rank that it is of."""

    rank: int
    path: str


class JobFiles(msgspec.Struct, frozen=True):
    """The files of a job."""

    planned: list[PlannedDump]  # by rank
    left_out: list[Unread]  # those that can have no rank
    ranks_from_order: bool  # no name has a number


def read_dumps(paths: Sequence[str], progress: Progress = silent) -> FlightDumps:
    """Read the dumps of a job, in several processes if there are many.

    Args:
        paths: A file for each rank, which may be compressed (see `files_of_job`).
        progress: Is called with how many files were read, and how many there are.

    Returns:
        The dumps by rank. What cannot be read is in `unread`, with the reason.
    """
    job = files_of_job(paths)
    parts: list[Sequence[PlannedDump]] = []
    for first in range(0, len(job.planned), FILES_PER_PART):
        parts.append(job.planned[first : first + FILES_PER_PART])
    if not parts:
        parts.append([])
    read: dict[int, FlightDumps] = {}  # by the number of the part
    files_read = 0
    for number, part in _read_parts(parts):
        read[number] = part
        files_read += len(parts[number])
        progress(files_read, len(job.planned))
    dumps = joined([read[number] for number in range(len(parts))])
    unread = [*dumps.unread, *job.left_out]
    unread.sort(key=lambda file: (file.rank, file.path))
    return msgspec.structs.replace(
        dumps, unread=tuple(unread), ranks_from_order=job.ranks_from_order
    )


def read_part(planned: Sequence[PlannedDump]) -> FlightDumps:
    """Read the dumps of some ranks in this process. Files that cannot be read are
    listed with the reason."""
    tables = DumpTables()
    unread = []
    with without_collector():
        for dump in planned:
            try:
                tables.add(_load_value(dump.path), rank=dump.rank, path=dump.path)
            except (TraceError, MalformedError) as error:
                why = _describe_error(dump.path, error)
                unread.append(Unread(dump.path, dump.rank, why))
    return tables.dumps(unread, ranks_from_order=False)


def _read_parts(
    parts: Sequence[Sequence[PlannedDump]],
) -> Iterator[tuple[int, FlightDumps]]:
    """Read groups of dumps, and yield each with its number as soon as it is there.

    Other processes of this machine read them if there are several groups and cores.
    What these leave, because they failed or could not be started, is read here.
    """
    left = set(range(len(parts)))
    process_count = min(core_count(), len(parts))
    if process_count > 1:
        arguments = [(part,) for part in parts]
        for number, dumps in calls(read_part, arguments, process_count):
            left.discard(number)
            yield number, dumps
    for number in sorted(left):
        yield number, read_part(parts[number])


def files_of_job(paths: Sequence[str]) -> JobFiles:
    """Find out the rank of each file of a job.

    It is the number in the name: rank_3 and dump-3.json.gz are of rank 3. If no name
    has a number, the files are the ranks 0, 1, ... in the order of the paths. A file
    without a number beside others that have one is left out; so is the second file of a
    rank.
    """
    rank_of_name = {path: rank_in_name(path) for path in paths}
    from_order = all(rank == UNKNOWN for rank in rank_of_name.values())
    planned: dict[int, PlannedDump] = {}
    left_out = []
    for place, path in enumerate(paths):
        rank = place if from_order else rank_of_name[path]
        if rank == UNKNOWN:
            why = "its name has no number, unlike the others, so its rank is unknown"
        elif rank in planned:
            why = f"{planned[rank].path} is also of rank {rank}"
        else:
            planned[rank] = PlannedDump(rank=rank, path=path)
            continue
        sentence = f"{path} is skipped: {why}."
        left_out.append(Unread(path=path, rank=rank, reason=sentence))
    return JobFiles(
        planned=[planned[rank] for rank in sorted(planned)],
        left_out=left_out,
        ranks_from_order=from_order,
    )


def rank_in_name(path: str) -> int:
    """Return the rank in the name of a file: 3 for logs/rank_3.json and dump3; UNKNOWN
    without a number, or with one that no rank has."""
    name = _strip_endings(os.path.basename(path))
    after_word = RANK_IN_NAME.findall(name)
    at_end = LAST_NUMBER.search(name)
    if after_word:
        rank = int(after_word[-1])
    elif at_end:
        rank = int(at_end[1])
    else:
        return UNKNOWN
    return rank if rank < MAX_RANKS else UNKNOWN


def _strip_endings(name: str) -> str:
    """The name of a file without its endings: `dump_3` for `dump_3.json.gz`."""
    shorter = name
    for ending in ENDINGS:
        shorter = shorter.removesuffix(ending)
    return name if shorter == name else _strip_endings(shorter)


def _load_value(path: str) -> Any:
    """The value that a dump file holds. Raises CannotReadError, NotATraceError or
    MalformedError."""
    data = _load_bytes(path)
    if is_pickle(data[:2]):
        return plain_value(data)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedError("it is neither a pickle nor JSON") from None
    if not isinstance(value, dict) or not is_dump(value):
        raise MalformedError("it contains neither entries nor groups")
    return value


def _load_bytes(path: str) -> bytes:
    """The unpacked bytes of a file. Raises CannotReadError if it cannot be read to its
    end, or is empty."""
    stored = open_stored(path)
    try:
        with closing(stored.file), closing(stored.room()) as room:
            source = unpacked(stored, room, is_meant=lambda head: True)
            data = source.document[:]
    except OSError as error:
        raise CannotReadError(f"{path} cannot be read: {reason(error)}.") from None
    if source.cut:
        raise CannotReadError(f"{path} cannot be read to the end: {source.cut}.")
    return bytes(data)


def _describe_error(path: str, error: TraceError | MalformedError) -> str:
    """A sentence that says why a file could not be read."""
    if isinstance(error, MalformedError):
        return f"{path} is not a flight-recorder dump: {error}."
    return str(error)
