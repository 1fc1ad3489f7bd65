"""An export of Nsight Systems -> its columns; the text behind them is written on demand
(writing.py)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from msgspec.structs import replace

from fusetui.text.figures import plural
from fusetui.trace.model.errors import NotATrace, NothingRead
from fusetui.trace.model.events import Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.model.report import Report
from fusetui.trace.nsys.columns import TableEvents, check_memory, events_of, slices_of, unnamed
from fusetui.trace.nsys.database import Export, ExportFile, opened, place_of
from fusetui.trace.nsys.nvtx import DECLARED, NVTX, SHOWN
from fusetui.trace.nsys.plan import plan
from fusetui.trace.nsys.processes import Processes, keys_of
from fusetui.trace.nsys.tables import GRAPHS, present, words_of
from fusetui.trace.nsys.writing import ExportWriter
from fusetui.trace.read import Callbacks
from fusetui.trace.read.assemble import check_durations
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.gather import Interner
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.reading import without_collector
from fusetui.trace.read.rendered import Rendered, stretches_of
from fusetui.trace.read.source import State, Stored, has_changed, reason
from fusetui.trace.read.unpack import Damaged, TooLarge, limit_for, too_large, unpack

TIMES = ("start", "timestamp", "rawTimestamp")
"""A table with one of these columns holds events, whatever they are."""
WITH_LOG, WITHOUT = b"\2\2", b"\1\1"
"""Bytes 18 and 19 of a database with a write-ahead log, which one in memory cannot have."""


def read(stored: Stored, callbacks: Callbacks, process: int | None = None) -> Raw:
    """Reads all tables of events, of all processes or of the one with this pid.

    Raises CannotRead or NotATrace with one plain sentence, and NothingRead if it is stopped: some
    of the tables would be launches without their kernels.
    """
    place, cut = _place(stored)
    place = replace(place, process=process)
    with without_collector(), opened(place, callbacks.stop) as db:
        raw = _read(db, place, stored, callbacks.progress)
        if process is not None and not len(raw.start):
            raise NotATrace(f"{place.path} has no event of a process {process}.")
        if db.stopped:
            raise NothingRead
    whole, changed = raw.report.complete and cut is None, has_changed(stored)
    return replace(raw, report=replace(raw.report, cut=cut, complete=whole, changed=changed))


def text(path: str, file: OpenFile, state: State) -> Text:
    """The text of a file that had this state when it was read."""
    return Rendered(ExportWriter(place_of(path, state[0])), partial(_problem, path, state))


def processes(path: str) -> list[int]:
    """The pids of the processes that have work of a GPU. Raises CannotRead or OSError."""
    with opened(place_of(path, os.stat(path).st_size)) as db:
        return Processes(db, present(db)).working


def _read(
    db: Export, place: ExportFile, stored: Stored, progress: Callable[[int, int], None]
) -> Raw:
    sources = present(db)
    if not sources:
        raise NotATrace(
            f"{place.path} is a database without events of Nsight Systems: record with nsys "
            "profile -t cuda,nvtx, and export with nsys export --type sqlite."
        )
    batches = plan(db, sources)
    check_memory(place, batches)
    texts, parts = Interner(), list[TableEvents]()
    for number, one in enumerate(batches):
        progress(stored.size * number // len(batches), stored.size)
        parts.append(events_of(db, one, texts))
        if db.stopped:
            raise NothingRead
    words, who = words_of(db), Processes(db, sources)
    labels = tuple(who.labels(words.strings))
    slices, negative, unfinished = slices_of(parts, len(labels), list(texts), words, who)
    start, dur = slices["start"], slices["dur"]
    check_durations(place.path, dur)
    counts = [part.batches.counts(part.columns["row"]) for part in parts]
    values = [
        n if p.source.is_metrics else [0] * len(n) for p, n in zip(parts, counts, strict=True)
    ]
    phases = Counter(X=len(start) - unfinished, B=unfinished, M=len(labels))
    phases["C"] = sum(chain.from_iterable(values))
    stretches = stretches_of([len(labels), *chain(*counts)], [0, *chain(*values)])
    unreadable = sum(part.unreadable for part in parts)
    problem = partial(_problem, place.path, stored.state) if place.data is None else str
    times = (int(start.min()), int((start + dur).max())) if len(start) else (0, 0)
    left_out, keys = _left_out(db), keys_of(db, *times)
    remarks, pending = _remarks(parts, unnamed(parts, words), unreadable), _pending(place)
    report = Report(
        path=stored.path,
        bytes=stored.size,
        events=phases.total() + unreadable,
        phases=+phases,
        unreadable=unreadable,
        skipped=(),
        complete=not db.damage,
        cut=None,
        negative_durations=negative,
        unfinished=unfinished,
        format="nsys",
        left_out=left_out,
        remarks=(*db.damage, *remarks, *pending),
        pending=bool(pending),
    )
    written = Rendered(ExportWriter(place), problem)
    elements = Elements(written, [one for one in stretches if one.events])  # rowids may be far off
    return Raw(
        **slices, report=report, elements=elements, labels=labels, keys=keys, copies_named=True
    )


def _place(stored: Stored) -> tuple[ExportFile, str | None]:
    """Where the database is, and how it is cut: SQLite opens a plain file itself; the bytes of all
    others are held in memory. Raises CannotRead."""
    if stored.packing is None and stored.arriving is None:
        with suppress(OSError):
            own, named = os.fstat(stored.file.fileno()), os.stat(stored.path)
            if (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino):
                return place_of(stored.path, stored.size), stored.cut
    limit = min(limit_for(stored.size), memory_left() // 2)
    found, cut = bytearray(), stored.cut
    try:
        if stored.packing is None:
            found += stored.document[: stored.size]
        else:
            for piece, _ in unpack(stored.document, stored.packing, limit):
                found += piece
    except TooLarge:
        raise too_large(stored.path, limit) from None
    except Damaged as damage:
        cut = str(damage)
    if found[18:20] == WITH_LOG:
        found[18:20] = WITHOUT
    return place_of(stored.path, len(found), bytes(found)), cut


def _problem(path: str, state: State) -> str:
    """Why the file cannot be read any more."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} cannot be read any more: {reason(error)}"
    same = (found.st_size, found.st_mtime_ns) == state
    return "" if same else f"{path} has changed since it was read"


def _left_out(db: Export) -> dict[str, int]:
    """The rows of events that have no place in a trace, by table."""
    read = {source.table for source in present(db)}
    asked = {t: "" for t, columns in db.tables.items() if columns.intersection(TIMES)}
    asked = {table: "" for table in asked if table not in read}
    if NVTX in read and db.has(NVTX, "eventType"):
        asked[NVTX] = f"where not {SHOWN} and not ifnull({DECLARED}, 0)"
    found = {t: sum(n or 0 for (n,) in db.rows(t, ("sum(1)",), r)) for t, r in asked.items()}
    return {table: count for table, count in found.items() if count}


def _remarks(
    parts: Sequence[TableEvents],
    unnamed: Iterator[tuple[str, int]],
    unreadable: int,
) -> Iterator[str]:
    """What has to be known of what was read, in sentences without the name of the file."""
    if unreadable:
        rows = plural(unreadable, "row")
        yield f"{rows} without a start or an end, or with one that is out of range, left out."
    for table, count in unnamed:
        yield f"The names of {plural(count, 'row')} of {table} are missing from StringIds."
    if graphs := sum(len(part) for part in parts if part.source.categories == (GRAPHS,)):
        yield (
            f"Launches of CUDA graphs were recorded as one event each ({graphs}), without their "
            "kernels: record with nsys profile --cuda-graph-trace=node to see those."
        )


def _pending(place: ExportFile) -> list[str]:
    """A sentence for each file beside it with changes that are not in it."""
    found = []
    for ending in ("-wal", "-journal") if place.data is None else ():
        with suppress(OSError):
            if os.stat(place.path + ending).st_size:
                found.append(
                    f"Changes in {os.path.basename(place.path)}{ending} are not read: something"
                    " still writes the export, or was stopped."
                )
    return found
