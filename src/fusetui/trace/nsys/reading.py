"""An export of Nsight Systems -> its columns, in the order of its stretches; the text
behind them is written on demand (writing.py)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.own_memory import without_collector
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Rows, distinct_rows
from fusetui.trace.model.errors import CannotReadError, NotATraceError, NothingReadError
from fusetui.trace.model.events import Text
from fusetui.trace.model.raw import Raw
from fusetui.trace.model.report import Report
from fusetui.trace.nsys.database import NONE, Export, ExportFile, place_of
from fusetui.trace.nsys.nvtx import BASE, DECLARED, NVTX, SHOWN, category
from fusetui.trace.nsys.processes import Processes, keys_of
from fusetui.trace.nsys.tables import (
    FIELDS,
    GRAPHS,
    PID,
    Batches,
    EventTable,
    Words,
    fields,
    plan,
    present,
    with_owner,
    words_of,
)
from fusetui.trace.nsys.writing import writer
from fusetui.trace.read import Callbacks
from fusetui.trace.read.assemble import (
    BYTES_PER_SLICE,
    MIN_CHECKED_SLICES,
    check_durations,
)
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.document_text import (
    Rendered,
    remarks_of_cut_names,
    stretches_of,
)
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.gather import Interner
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.source import State, Stored, reason
from fusetui.trace.read.unpack import (
    DamagedError,
    TooLargeError,
    limit_for,
    too_large,
    unpack,
)

TIMES = {"start", "timestamp", "rawTimestamp"}
"""A table with one of these columns holds events, whatever they are."""
OWNERS = ("globalTid", "globalPid")  # the columns that say whose a row is
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
"""What the profiler has to say of its own work."""
SEVERITIES = {2: "a warning", 3: "an error"}
"""Those that matter, by the numbers of ENUM_DIAGNOSTIC_SEVERITY_LEVEL."""
MOST_DIAGNOSTICS = 5  # texts
LONGEST_DIAGNOSTIC = 300  # characters of a text
WITH_LOG, WITHOUT = b"\2\2", b"\1\1"
"""Bytes 18 and 19 of a database with a write-ahead log, which one in memory cannot
have."""


def read(stored: Stored, callbacks: Callbacks, process: int | None = None) -> Raw:
    """Reads all tables of events, of all processes or of the one with this pid.

    Raises CannotReadError or NotATraceError with one plain sentence, and
    NothingReadError if it is stopped: some of the tables would be launches without
    their kernels."""
    place, cut = _place(stored)
    place = with_owner(replace(place, process=process))
    with without_collector(), closing(Export(place, callbacks.stop)) as db:
        raw = _read(db, place, stored, callbacks.progress)
        if process is not None and not len(raw.start):
            raise NotATraceError(f"{place.path} has no event of a process {process}.")
        if db.stopped:
            raise NothingReadError
    whole, changed = raw.report.complete and cut is None, stored.has_changed()
    return replace(
        raw, report=replace(raw.report, cut=cut, complete=whole, changed=changed)
    )


def text(path: str, file: OpenFile, state: State) -> Text:
    """The text of a file that had this state when it was read."""
    return Rendered(writer(place_of(path, state[0])), partial(_problem, path, state))


def processes(path: str) -> list[int]:
    """The pids of the processes that have work of a GPU. Raises CannotReadError or
    OSError."""
    with closing(Export(with_owner(place_of(path, os.stat(path).st_size)))) as db:
        return Processes(db, present(db)).working


def _read(
    db: Export, place: ExportFile, stored: Stored, progress: Callable[[int, int], None]
) -> Raw:
    sources = present(db)
    if not sources:
        raise NotATraceError(
            f"{place.path} is a database without events of Nsight Systems: record with nsys "
            "profile -t cuda,nvtx, and export with nsys export --type sqlite."
        )
    batches = plan(db, sources)
    rows = min(sum(one.rows * one.count for one in batches), place.size // SMALLEST_ROW)
    if rows > MIN_CHECKED_SLICES and rows * BYTES_PER_SLICE > memory_left():
        raise CannotReadError(
            f"{place.path} has about {rows:,} rows: there is not enough memory."
        )
    texts, parts = Interner(), list[TableEvents]()
    for number, one in enumerate(batches):
        progress(stored.size * number // len(batches), stored.size)
        parts.append(events_of(db, one, texts))
        if db.stopped:
            raise NothingReadError
    words, who = words_of(db), Processes(db, sources)
    labels = tuple(who.labels(words.strings))
    slices, negative, unfinished = slices_of(
        parts, len(labels), list(texts), words, who
    )
    start, dur = slices["start"], slices["dur"]
    check_durations(place.path, dur)
    counts, values = [len(labels)], [0]
    for part in parts:
        counts += part.counts
        values += part.counts if part.source.is_metrics else [0] * len(part.counts)
    metrics, unreadable = sum(values), sum(part.unreadable for part in parts)
    phases = Counter(X=len(start) - unfinished, B=unfinished, M=len(labels), C=metrics)
    problem = partial(_problem, place.path, stored.state) if place.data is None else str
    times = (int(start.min()), int((start + dur).max())) if len(start) else (0, 0)
    left_out, keys = _left_out(db), keys_of(db, *times)
    remarks, pending = _remarks(parts, words, unreadable), _pending(place)
    diagnostics = tuple(_diagnostics(db))
    from_table = set(words.strings.values()) & set(slices["names"])
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
        remarks=(
            *db.damage,
            *remarks,
            *remarks_of_cut_names(from_table),
            *diagnostics,
            *pending,
        ),
        pending=bool(pending),
    )
    # rowids may be far off
    stretches = [one for one in stretches_of(counts, values) if one.events]
    elements = Elements(Rendered(writer(place), problem), stretches)
    return Raw(
        **slices,
        report=report,
        elements=elements,
        labels=labels,
        keys=keys,
        copies_named=True,
    )


def _place(stored: Stored) -> tuple[ExportFile, str | None]:
    """Where the database is, and how it is cut: SQLite opens a plain file itself; the
    bytes of all others are held in memory. Raises CannotReadError."""
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
    except TooLargeError:
        raise too_large(stored.path, limit) from None
    except DamagedError as damage:
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
    """The rows of events that have no place in a trace, by table; only those of the
    process that is read, where a table says whose its rows are."""
    read = {source.table for source in present(db)}
    counts: dict[str, int] = {}
    for table, columns in db.tables.items():
        conditions = [_of_process(db, table)]
        if table == NVTX and NVTX in read and db.has(NVTX, "eventType"):
            conditions.append(f"not {SHOWN} and not ifnull({DECLARED}, 0)")
        elif table in read or table == DIAGNOSTICS or not columns & TIMES:
            continue
        asked = f"where {' and '.join(conditions)}"
        counts[table] = sum(n or 0 for (n,) in db.rows(table, ("sum(1)",), asked))
    return {table: count for table, count in counts.items() if count}


def _diagnostics(db: Export) -> Iterator[str]:
    """What Nsight Systems itself warned of, errors first, each text once: that it could
    not trace the GPU, or lost events. What it merely informs of is left out."""
    if not db.has(DIAGNOSTICS, "severity", "text"):
        return
    severity, text = (
        db.integer(DIAGNOSTICS, "severity"),
        db.typed(DIAGNOSTICS, "text", "'text'", "NULL"),
    )
    levels = ", ".join(map(str, SEVERITIES))
    own = f"where {severity} in ({levels}) and ({_of_process(db, DIAGNOSTICS)}{_of_none(db)})"
    rows = db.rows(
        DIAGNOSTICS, (severity, f"substr({text}, 1, {LONGEST_DIAGNOSTIC})"), own
    )
    told = Counter((level, " ".join(text.split())) for level, text in rows if text)
    ordered = sorted(told.items(), key=lambda one: -one[0][0])
    for (level, said), times in ordered[:MOST_DIAGNOSTICS]:
        often = f" ({times:,} times)" if times > 1 else ""
        yield f"Nsight Systems recorded {SEVERITIES[level]}{often}: {printable(said)}"
    more = len(ordered) - MOST_DIAGNOSTICS
    if more > 0:
        yield f"Nsight Systems recorded {plural(more, 'more warning')}."


def _of_none(db: Export) -> str:
    """The rest of a condition, for rows that are of no process."""
    if not db.has(DIAGNOSTICS, "globalPid"):
        return ""
    return f" or ({db.integer(DIAGNOSTICS, 'globalPid')}) in ({NONE}, 0)"


def _of_process(db: Export, table: str) -> str:
    """The condition for a row to be one of the process that is read."""
    owner = next((column for column in OWNERS if db.has(table, column)), None)
    if db.process is None or owner is None:
        return "1"
    return f"(({db.integer(table, owner)}) >> 24) & {PID} = {db.process}"


def _remarks(
    parts: Sequence[TableEvents], words: Words, unreadable: int
) -> Iterator[str]:
    """What has to be known of what was read, in sentences without the name of the
    file."""
    if unreadable:
        rows = plural(unreadable, "row")
        yield f"{rows} without a start or an end, or with one that is out of range, left out."
    known = np.fromiter(words.strings, np.int64, len(words.strings))
    for part in (part for part in parts if part.source.by_string):
        lost = ~np.isin(part.columns["name"], known) & (part.text == NO_TEXT)
        if lost.any():
            rows = plural(int(lost.sum()), "row")
            yield f"The names of {rows} of {part.source.table} are missing from StringIds."
    if graphs := sum(
        len(part) for part in parts if part.source.categories == (GRAPHS,)
    ):
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


SMALLEST_ROW = 16  # bytes
OF_PROCESSES = ("correlation", "external")  # numbers that are unique within one
NO_TEXT = -1


class TableEvents(msgspec.Struct, frozen=True, eq=False):
    """The events of one table, in order of their rowids; arrays of shape [events]."""

    batches: Batches
    columns: dict[str, NDArray[np.int64]]  # FIELDS
    text: NDArray[np.int32]  # into the texts of ranges, NO_TEXT for none
    counts: list[int]  # events of each batch
    unreadable: int  # rows that should be events

    @property
    def source(self) -> EventTable:
        return self.batches.source

    def __len__(self) -> int:
        return len(self.text)


def events_of(db: Export, batches: Batches, texts: Interner) -> TableEvents:
    """Reads the events of a table as far as that is possible.

    They are read batch by batch, as they are when their args are asked for: in a
    damaged table a row that one query finds may be hidden from another.
    """
    source = batches.source
    damage_before = len(db.damage)
    parts = [np.empty((len(FIELDS), 0), np.int64)]
    ids = [np.empty(0, np.int32)]
    counts = [0] * batches.count
    for number in _with_rows(db, batches):
        found, text = _batch_of(db, batches, number, texts)
        parts.append(found)
        ids.append(text)
        counts[number] = len(text)
        if len(db.damage) > damage_before or db.stopped:
            break
    columns = np.concatenate(parts, axis=1)
    every = db.rows(
        source.table,
        (f"sum({batches.is_sound})", "sum(1)"),
        f"where {batches.is_shown}",
    )
    readable, rows = next(every, (None, None))
    lost = (rows or 0) - (readable or 0)
    hidden = (readable or 0) - columns.shape[1]
    if hidden and len(db.damage) == damage_before:
        db.hidden(source.table, hidden)
    return TableEvents(
        batches=batches,
        columns=dict(zip(FIELDS, columns, strict=True)),
        text=np.concatenate(ids),
        counts=counts,
        unreadable=lost,
    )


def _with_rows(db: Export, batches: Batches) -> Iterator[int]:
    """The batches that have rows, in ascending order: rowids may be far apart."""
    number = 0
    while True:
        yield number
        _, last = batches.bounds(number)
        next_row = db.rows(
            batches.source.table, ("min(rowid)",), "where rowid > ?", (last,)
        )
        (rowid,) = next(next_row, (None,))
        if rowid is None or rowid <= last:
            return
        number = batches.number_of(rowid)


def _batch_of(
    db: Export, batches: Batches, number: int, texts: Interner
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The columns of the events of one batch, shape [FIELDS, events], and their texts,
    up to the first row that is out of order: nowhere in a sound table."""
    source = batches.source
    asked = fields(db, source)
    bounds = batches.bounds(number)
    columns = [*(asked[name] for name in FIELDS), db.header(source.table)]
    found = db.integers(source.table, columns, batches.condition, bounds)[:-1]
    text = np.full(found.shape[1], NO_TEXT, np.int32)
    if source.is_nvtx and db.has(NVTX, "text"):
        # its pages may be damaged
        payload = db.typed(NVTX, "jsonText", "'text'", "NULL")
        rows = db.rows(NVTX, (BASE, f"length({payload})"), batches.condition, bounds)
        text = texts.ids(name for name, _ in rows)
        text[text == texts.get(None, NO_TEXT)] = NO_TEXT
    whole = min(_ascending(found[0], bounds[0]), len(text))
    if whole < found.shape[1]:
        db.damaged(source.table, "its rows are out of order")
    return found[:, :whole], text[:whole]


def _ascending(rowids: NDArray[np.int64], least: int) -> int:
    """How many of them ascend from `least` on."""
    if len(rowids) and rowids[0] < least:
        return 0
    falls = np.flatnonzero(rowids[1:] <= rowids[:-1])
    return int(falls[0]) + 1 if len(falls) else len(rowids)


def slices_of(
    parts: Sequence[TableEvents],
    first: int,
    texts: Sequence[str],
    words: Words,
    who: Processes,
) -> tuple[dict[str, Any], int, int]:
    """The columns of Raw of the slices of all parts, and how many have a negative
    duration or no end; `first` is the index of their first event in traceEvents."""
    begins = np.cumsum([first, *map(len, parts)]).tolist()
    placed = [
        (p, b) for p, b in zip(parts, begins, strict=False) if not p.source.is_metrics
    ]
    into = [Interner(), Interner(), Interner()]
    nothing = [np.empty(0, np.int64)] * 5 + [np.empty(0, np.int32)] * 3
    each = [
        (
            *(part.columns["start"], part.columns["end"], begin + np.arange(len(part))),
            *(who.unique(part.columns["owner"], part.columns[c]) for c in OF_PROCESSES),
            *_tables(part, texts, words, who, into),
        )
        for part, begin in placed
    ]
    numbers = map(np.concatenate, zip(nothing, *each, strict=True))
    names = (
        "start",
        "end",
        "order",
        "correlation",
        "external_id",
        "name",
        "category",
        "thread",
    )
    columns: dict[str, Any] = dict(zip(names, numbers, strict=True))
    start, end = columns["start"], columns.pop("end")
    is_open = end == NONE
    last = int(np.maximum(start, end).max(initial=NONE))
    dur = np.where(is_open, last, end) - start
    columns["dur"] = np.maximum(dur, 0)
    columns |= zip(("names", "categories", "threads"), map(tuple, into), strict=True)
    return columns, int((dur < 0).sum()), int(is_open.sum())


def _tables(
    part: TableEvents,
    texts: Sequence[str],
    words: Words,
    who: Processes,
    into: list[Interner],
) -> list[NDArray[np.int32]]:
    """The names, categories and lanes of the events of a part, each met once."""
    source, columns = part.source, part.columns
    kinds, kind = _met(part.text, columns["name"], columns["kind"])
    named = [
        texts[text] if text != NO_TEXT else source.named(words, number)
        for text, number, _ in kinds
    ]
    categories = [
        category(k, name) if source.is_nvtx else source.categories[k]
        for (_, _, k), name in zip(kinds, named, strict=True)
    ]
    places, place = _met(
        *(columns[c] for c in ("owner", "device", "stream", "context"))
    )
    lanes = [who.lane(source, *where) for where in places]
    return [
        into[0].ids(named)[kind],
        into[1].ids(categories)[kind],
        into[2].ids(lanes)[place],
    ]


def _met(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], Rows]:
    """The distinct rows of some columns, and which of them each row is."""
    first, which = distinct_rows(columns)
    return list(
        zip(*(column[first].tolist() for column in columns), strict=True)
    ), which
