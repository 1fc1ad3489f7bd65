"""Reads an export of Nsight Systems into columns; writing.py writes the text of events
on demand."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

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
from fusetui.trace.model.raw import Lane, Raw
from fusetui.trace.model.report import Report
from fusetui.trace.nsys.database import NONE, Export, ExportFile, locate_database
from fusetui.trace.nsys.nvtx import BASE, DECLARED, NVTX, SHOWN, category
from fusetui.trace.nsys.processes import Processes, keys_of
from fusetui.trace.nsys.tables import (
    FIELDS,
    GRAPHS,
    PID_MASK,
    Batches,
    EventTable,
    Words,
    fields,
    plan_batches,
    present_tables,
    read_words,
    with_owner,
)
from fusetui.trace.nsys.writing import make_writer
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
from fusetui.trace.read.foreign import explain_foreign_database
from fusetui.trace.read.gather import Interner
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.source import State, Stored, reason
from fusetui.trace.read.unpack import (
    DamagedError,
    TooLargeError,
    limit_for,
    too_large_error,
    unpack,
)

TIMES = {"start", "timestamp", "rawTimestamp"}
"""A table with one of these columns holds events, whatever they are."""
OWNER_COLUMNS = ("globalTid", "globalPid")  # which say whose a row is
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
"""What the profiler has to say of its own work."""
SEVERITIES = {2: "a warning", 3: "an error"}
"""Those that matter, by the numbers of ENUM_DIAGNOSTIC_SEVERITY_LEVEL."""
MAX_DIAGNOSTICS = 5
MAX_DIAGNOSTIC_CHARS = 300
VERSIONS_AT = slice(18, 20)
WITH_LOG = b"\2\2"
WITHOUT_LOG = b"\1\1"
"""The bytes VERSIONS_AT say whether a database has a write-ahead log, which one in
memory cannot have (sqlite.org/fileformat.html)."""
MIN_ROW_BYTES = 16
NO_TEXT = -1


def read(stored: Stored, callbacks: Callbacks, process: int | None = None) -> Raw:
    """Read all tables of events of an export.

    Args:
        stored: The file. Raises CannotReadError or NotATraceError with one plain
            sentence if it cannot be read.
        callbacks: Raises NothingReadError if `stop` returns True: with only some of the
            tables there would be launches without their kernels.
        process: The pid of the process to read; all are read if left out.
    """
    place, cut = _locate_database(stored)
    place = with_owner(replace(place, process=process))
    with without_collector(), closing(Export(place, callbacks.stop)) as db:
        raw = _read_tables(db, place, stored, callbacks.progress)
        if process is not None and not len(raw.start):
            raise NotATraceError(f"{place.path} has no events of process {process}.")
        if db.stopped:
            raise NothingReadError
    report = replace(
        raw.report,
        cut=cut,
        complete=raw.report.complete and cut is None,
        changed=stored.has_changed(),
    )
    return replace(raw, report=report)


def text(path: str, file: OpenFile, state: State) -> Text:
    """The JSON text of an export that was read earlier and had this `state` then. It is
    written when somebody looks at it."""
    return Rendered(
        make_writer(locate_database(path, state[0])),
        partial(_describe_problem, path, state),
    )


def processes(path: str) -> list[int]:
    """The pids of the processes that have GPU work. Raises CannotReadError or OSError."""
    with closing(
        Export(with_owner(locate_database(path, os.stat(path).st_size)))
    ) as db:
        return Processes(db, present_tables(db)).working


def _read_tables(
    db: Export, place: ExportFile, stored: Stored, progress: Callable[[int, int], None]
) -> Raw:
    """Read all tables of events of an open database into columns.

    Raises NotATraceError if there are none, CannotReadError if memory does not suffice,
    and NothingReadError if reading is stopped.
    """
    sources = present_tables(db)
    if not sources:
        foreign = explain_foreign_database(place.path, db.tables)
        if foreign is not None:
            raise NotATraceError(foreign)
        raise NotATraceError(
            f"{place.path} is a database without Nsight Systems events. Record with "
            "nsys profile -t cuda,nvtx, and export with nsys export --type sqlite."
        )
    plans = plan_batches(db, sources)
    _check_memory(place, plans)
    range_texts = Interner()
    tables: list[TableEvents] = []
    for tables_done, batches in enumerate(plans):
        progress(stored.size * tables_done // len(plans), stored.size)
        tables.append(read_events(db, batches, range_texts))
        if db.stopped:
            raise NothingReadError

    words = read_words(db)
    processes = Processes(db, sources)
    labels = tuple(processes.labels(words.strings))
    slices = combine_slices(tables, len(labels), list(range_texts), words, processes)
    check_durations(place.path, slices.dur)
    counts = _count_stretches(len(labels), tables)

    # the report comes last, as each of these queries may find more damage
    left_out = _count_left_out(db)
    keys = _read_keys(db, slices)
    report = _make_report(db, place, stored, tables, words, slices, counts)
    return Raw(
        report=replace(report, left_out=left_out),
        elements=_make_elements(place, stored, counts),
        names=slices.names,
        categories=slices.categories,
        threads=slices.threads,
        labels=labels,
        start=slices.start,
        dur=slices.dur,
        name=slices.name,
        category=slices.category,
        thread=slices.thread,
        correlation=slices.correlation,
        external_id=slices.external_id,
        order=slices.order,
        keys=keys,
        copies_named=True,
    )


class _StretchCounts(NamedTuple):
    """How many events each stretch has, and how many of them are values of counters;
    the first stretch has the labels."""

    events: list[int]
    values: list[int]


def _count_stretches(label_count: int, tables: Sequence[TableEvents]) -> _StretchCounts:
    """Count the events of each stretch of the text that is written on demand.

    The first stretch has the labels. Then there is one for each batch of each table:
    with 4 labels and a table of two batches with 100 and 30 events, [4, 100, 30].
    """
    counts = _StretchCounts(events=[label_count], values=[0])
    for table in tables:
        no_values = [0] * len(table.counts)
        counts.events.extend(table.counts)
        counts.values.extend(table.counts if table.source.is_metrics else no_values)
    return counts


def _make_elements(
    place: ExportFile, stored: Stored, counts: _StretchCounts
) -> Elements:
    """The elements of the trace, whose text is written from the database on demand."""
    problem: Callable[[], str] = str  # none: it is held in memory
    if place.data is None:
        problem = partial(_describe_problem, place.path, stored.state)
    # rowids may be far apart, with batches without events between them
    stretches = [
        stretch
        for stretch in stretches_of(counts.events, counts.values)
        if stretch.events
    ]
    return Elements(Rendered(make_writer(place), problem), stretches)


def _read_keys(db: Export, slices: Slices) -> dict[str, Any]:
    """The keys around the events. They depend on when the first slice begins and the
    last one ends."""
    if not len(slices.start):
        return keys_of(db, 0, 0)
    first_ns = int(slices.start.min())
    last_ns = int((slices.start + slices.dur).max())
    return keys_of(db, first_ns, last_ns)


def _make_report(
    db: Export,
    place: ExportFile,
    stored: Stored,
    tables: Sequence[TableEvents],
    words: Words,
    slices: Slices,
    counts: _StretchCounts,
) -> Report:
    """The report of this reading: the counts of events, and sentences about what was
    lost. What was left out is added later."""
    label_count = counts.events[0]
    phases = Counter(
        X=len(slices.start) - slices.unfinished,
        B=slices.unfinished,
        M=label_count,
        C=sum(counts.values),
    )
    unreadable = sum(table.unreadable for table in tables)
    pending = _describe_pending_changes(place)
    shared_names = set(words.strings.values()) & set(slices.names)
    remarks = [
        *_describe_losses(tables, words, unreadable),
        *remarks_of_cut_names(shared_names),
        *_describe_diagnostics(db),
        *pending,
    ]
    return Report(
        path=stored.path,
        bytes=stored.size,
        events=phases.total() + unreadable,
        phases=+phases,  # without zeros
        unreadable=unreadable,
        skipped=(),
        complete=not db.damage,
        cut=None,
        negative_durations=slices.negative,
        unfinished=slices.unfinished,
        format="nsys",
        remarks=(*db.damage, *remarks),
        pending=bool(pending),
    )


def _check_memory(place: ExportFile, plans: Sequence[Batches]) -> None:
    """Raise CannotReadError if the tables have so many rows that the system might end
    the process for its memory."""
    rows_by_rowids = sum(batches.rows * batches.count for batches in plans)
    rows = min(rows_by_rowids, place.size // MIN_ROW_BYTES)
    if rows > MIN_CHECKED_SLICES and rows * BYTES_PER_SLICE > memory_left():
        raise CannotReadError(
            f"{place.path} has about {rows:,} rows: there is not enough memory."
        )


def _locate_database(stored: Stored) -> tuple[ExportFile, str | None]:
    """Where the database is, and how it is cut short, or None. SQLite opens a plain
    file itself; any other is unpacked into memory.

    Raises CannotReadError.
    """
    if stored.packing is None and stored.arriving is None:
        with suppress(OSError):
            opened = os.fstat(stored.file.fileno())
            named = os.stat(stored.path)
            if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino):
                return locate_database(stored.path, stored.size), stored.cut
    data, cut = _load_bytes(stored)
    if data[VERSIONS_AT] == WITH_LOG:
        # SQLite would look for a write-ahead log, which a database in memory cannot
        # have
        data[VERSIONS_AT] = WITHOUT_LOG
    return locate_database(stored.path, len(data), bytes(data)), cut


def _load_bytes(stored: Stored) -> tuple[bytearray, str | None]:
    """The unpacked bytes of a file, and how it is cut short, or None. Raises
    CannotReadError if they do not fit into memory."""
    max_bytes = min(limit_for(stored.size), memory_left() // 2)
    data = bytearray()
    try:
        if stored.packing is None:
            data += stored.document[: stored.size]
        else:
            for piece, _ in unpack(stored.document, stored.packing, max_bytes):
                data += piece
    except TooLargeError:
        raise too_large_error(stored.path, max_bytes) from None
    except DamagedError as damage:
        return data, str(damage)
    return data, stored.cut


def _describe_problem(path: str, state: State) -> str:
    """Why a file cannot be read again: it is gone, or has changed. "" if it can."""
    try:
        stat = os.stat(path)
    except OSError as error:
        return f"{path} can no longer be read: {reason(error)}"
    is_same = (stat.st_size, stat.st_mtime_ns) == state
    return "" if is_same else f"{path} has changed since it was read"


def _count_left_out(db: Export) -> dict[str, int]:
    """Count the rows of events that have no place in a trace: {"SCHED_EVENTS": 812}.

    Tables with a column of times hold events. Of NVTX, which is read, these are the
    kinds of events that are not shown. If only one process is read, only its rows count
    where a table says whose its rows are.
    """
    read_tables = {source.table for source in present_tables(db)}
    counts: dict[str, int] = {}
    for table, columns in db.tables.items():
        condition = _process_condition(db, table)
        if table == NVTX and NVTX in read_tables and db.has(NVTX, "eventType"):
            condition += f" and not {SHOWN} and not ifnull({DECLARED}, 0)"
        elif table in read_tables or table == DIAGNOSTICS or not columns & TIMES:
            continue
        # no row at all if the table cannot be read
        sums = db.rows(table, ("sum(1)",), f"where {condition}")
        count = sum(rows or 0 for (rows,) in sums)
        if count:
            counts[table] = count
    return counts


def _describe_diagnostics(db: Export) -> Iterator[str]:
    """Yield a sentence for each warning or error that Nsight Systems recorded about its
    own work, errors first. Each text comes once, and the rest is counted."""
    if not db.has(DIAGNOSTICS, "severity", "text"):
        return
    times = _count_diagnostics(db)
    # sorted() keeps the order of equal levels
    diagnostics = sorted(times, key=lambda diagnostic: -diagnostic[0])
    for level, sentence in diagnostics[:MAX_DIAGNOSTICS]:
        count = times[level, sentence]
        how_often = f" ({count:,} times)" if count > 1 else ""
        stop = "" if sentence.endswith((".", "!", "?")) else "."
        yield (
            f"Nsight Systems recorded {SEVERITIES[level]}{how_often}: "
            f"{printable(sentence)}{stop}"
        )
    more = len(diagnostics) - MAX_DIAGNOSTICS
    if more > 0:
        yield f"Nsight Systems recorded {plural(more, 'more warning')}."


def _count_diagnostics(db: Export) -> Counter[tuple[int, str]]:
    """Count how often Nsight Systems recorded each warning and error.

    Returns:
        The count by severity (see SEVERITIES) and text, in the order of the table:
        {(3, "Events were lost."): 2}.
    """
    severity = db.integer(DIAGNOSTICS, "severity")
    text = db.typed(DIAGNOSTICS, "text", "'text'", "NULL")
    beginning = f"substr({text}, 1, {MAX_DIAGNOSTIC_CHARS})"
    severities = ", ".join(map(str, SEVERITIES))
    is_of_process = f"{_process_condition(db, DIAGNOSTICS)}{_no_process_condition(db)}"
    condition = f"where {severity} in ({severities}) and ({is_of_process})"
    times: Counter[tuple[int, str]] = Counter()
    for level, message in db.rows(DIAGNOSTICS, (severity, beginning), condition):
        if message:
            sentence = " ".join(message.split())
            times[level, sentence] += 1
    return times


def _no_process_condition(db: Export) -> str:
    """The part of an SQL condition that also accepts diagnostics of no process; "" if
    the table does not tell processes apart."""
    if not db.has(DIAGNOSTICS, "globalPid"):
        return ""
    return f" or ({db.integer(DIAGNOSTICS, 'globalPid')}) in ({NONE}, 0)"


def _process_condition(db: Export, table: str) -> str:
    """Return an SQL condition for a row to be of the process that is read.

    It is "1", which all rows meet, if all processes are read or the table does not say
    whose its rows are.
    """
    owner = next((column for column in OWNER_COLUMNS if db.has(table, column)), None)
    if db.process is None or owner is None:
        return "1"
    # the pid is 24 bits of these ids
    return f"(({db.integer(table, owner)}) >> 24) & {PID_MASK} = {db.process}"


def _describe_losses(
    tables: Sequence[TableEvents], words: Words, unreadable: int
) -> Iterator[str]:
    """Yield sentences about what was lost in reading, without the name of the file:
    unreadable rows, missing names, graphs without kernels."""
    if unreadable:
        rows = plural(unreadable, "row")
        yield f"Skipped {rows} whose start or end is missing or out of range."
    known_strings = np.fromiter(words.strings, np.int64, len(words.strings))
    for table in tables:
        if not table.source.has_names_in_strings:
            continue
        has_string = np.isin(table.columns["name"], known_strings)
        is_unnamed = ~has_string & (table.text == NO_TEXT)
        if is_unnamed.any():
            rows = plural(int(is_unnamed.sum()), "row")
            yield f"The names of {rows} of {table.source.table} are missing from StringIds."
    graphs = sum(len(table) for table in tables if table.source.categories == (GRAPHS,))
    if graphs:
        yield (
            f"Each CUDA graph launch was recorded as one event ({graphs}), without "
            "its kernels. To see the kernels, record with nsys profile "
            "--cuda-graph-trace=node."
        )


def _describe_pending_changes(place: ExportFile) -> list[str]:
    """A sentence for each journal beside the file that has changes which are not in it
    yet."""
    if place.data is not None:
        return []
    sentences = []
    for ending in ("-wal", "-journal"):
        with suppress(OSError):
            if os.stat(place.path + ending).st_size:
                sentences.append(
                    f"Changes in {os.path.basename(place.path)}{ending} are not read: "
                    "the export is still being written, or was interrupted."
                )
    return sentences


class TableEvents(msgspec.Struct, frozen=True, eq=False):
    """The events of one table, in order of their rowids; arrays of shape [events]."""

    batches: Batches
    columns: dict[str, NDArray[np.int64]]  # FIELDS
    text: NDArray[np.int32]  # into the texts of ranges, NO_TEXT for none
    counts: list[int]  # events of each batch
    unreadable: int  # rows that should be events

    @property
    def source(self) -> EventTable:
        """The table that the events are of."""
        return self.batches.source

    def __len__(self) -> int:
        return len(self.text)


def read_events(db: Export, batches: Batches, texts: Interner) -> TableEvents:
    """Read the events of a table, as far as the database is sound.

    They are read batch by batch, just as they are when their args are asked for: in a
    damaged table, a row that one query finds may be hidden from another.

    Args:
        db: The database. Damage that is found is reported there.
        batches: The table, divided by its rowids.
        texts: The texts of ranges are added here.
    """
    damage_before = len(db.damage)
    read_batches = [_NO_EVENTS]
    event_counts = [0] * batches.count
    for number in _batches_with_rows(db, batches):
        batch = _read_batch(db, batches, number, texts)
        read_batches.append(batch)
        event_counts[number] = len(batch.text)
        if len(db.damage) > damage_before or db.stopped:
            break
    columns = np.concatenate([batch.columns for batch in read_batches], axis=1)
    text = np.concatenate([batch.text for batch in read_batches])

    row_counts = _count_rows(db, batches)
    missing_rows = row_counts.sound - len(text)
    # found damage already explains rows that are missing
    if missing_rows and len(db.damage) == damage_before:
        db.hidden(batches.source.table, missing_rows)
    return TableEvents(
        batches=batches,
        columns=dict(zip(FIELDS, columns, strict=True)),
        text=text,
        counts=event_counts,
        unreadable=row_counts.shown - row_counts.sound,
    )


class _RowCounts(NamedTuple):
    """How many rows a table has."""

    shown: int  # that should be events
    sound: int  # that can be read as events


def _count_rows(db: Export, batches: Batches) -> _RowCounts:
    """Count the rows of a table; both counts are 0 if it cannot be read."""
    sums = db.rows(
        batches.source.table,
        (f"sum({batches.sound_condition})", "sum(1)"),
        f"where {batches.shown_condition}",
    )
    # each sum is None without rows, and both are missing if the table cannot be read
    sound, shown = next(sums, (None, None))
    return _RowCounts(shown=shown or 0, sound=sound or 0)


def _batches_with_rows(db: Export, batches: Batches) -> Iterator[int]:
    """Yield the numbers of the batches that have rows, ascending.

    Rowids may be far apart, so after each batch the next row is asked for instead of
    trying all batches. The first batch is always yielded.
    """
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


class _BatchEvents(NamedTuple):
    """The events of one batch."""

    columns: NDArray[np.int64]  # shape [FIELDS, events]
    text: NDArray[np.int32]  # as in TableEvents; shape [events]


_NO_EVENTS = _BatchEvents(
    columns=np.empty((len(FIELDS), 0), np.int64), text=np.empty(0, np.int32)
)


def _read_batch(
    db: Export, batches: Batches, number: int, texts: Interner
) -> _BatchEvents:
    """Read the events of one batch, up to the first row whose rowid does not ascend.

    In a sound table all rowids do; otherwise the table is reported as damaged.

    Args:
        db: The database.
        batches: The table.
        number: The number of the batch.
        texts: The texts of ranges are added here.
    """
    source = batches.source
    expressions = fields(db, source)
    bounds = batches.bounds(number)
    queried = [*(expressions[name] for name in FIELDS), db.header(source.table)]
    columns = db.integers(source.table, queried, batches.condition, bounds)[:-1]
    row_count = columns.shape[1]
    if source.is_nvtx and db.has(NVTX, "text"):
        text = _number_range_texts(db, batches, bounds, texts)
    else:
        text = np.full(row_count, NO_TEXT, np.int32)
    first_rowid, _ = bounds
    ascending = _count_ascending(columns[FIELDS.index("row")], first_rowid)
    sound_rows = min(ascending, len(text))
    if sound_rows < row_count:
        db.damaged(source.table, "its rows are out of order")
    return _BatchEvents(columns=columns[:, :sound_rows], text=text[:sound_rows])


def _number_range_texts(
    db: Export, batches: Batches, bounds: tuple[int, int], texts: Interner
) -> NDArray[np.int32]:
    """Return the number of the text of each NVTX range of a batch; NO_TEXT for none.

    Args:
        db: The database.
        batches: The table of ranges.
        bounds: The rowids between which the batch is.
        texts: The table that the numbers point into, which texts are added to.
    """
    # the length of the payload is asked for because its pages may be damaged
    payload = db.typed(NVTX, "jsonText", "'text'", "NULL")
    rows = db.rows(NVTX, (BASE, f"length({payload})"), batches.condition, bounds)
    text = texts.ids(name for name, _ in rows)
    number_of_none = texts.get(None, NO_TEXT)
    text[text == number_of_none] = NO_TEXT
    return text


def _count_ascending(rowids: NDArray[np.int64], least: int) -> int:
    """Count the rows up to the first whose rowid does not ascend.

    [3, 4, 7, 5, 9] from 3 on gives 3; from 4 on it gives 0, as the first is below it.
    """
    if len(rowids) and rowids[0] < least:
        return 0
    falls = np.flatnonzero(rowids[1:] <= rowids[:-1])
    return int(falls[0]) + 1 if len(falls) else len(rowids)


class Slices(msgspec.Struct, frozen=True, eq=False):
    """The columns of Raw, of the slices of all tables."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Lane, ...]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    order: NDArray[np.int64]
    correlation: NDArray[np.int64]
    external_id: NDArray[np.int64]
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    thread: NDArray[np.int32]
    negative: int  # slices with a negative duration, which have 0 in `dur`
    unfinished: int  # slices without an end, which end with the last event


class Numbers:
    """The numbers of the names, categories and lanes of all slices."""

    def __init__(self, texts: Sequence[str], words: Words, processes: Processes):
        """Start without numbers. `texts` has the texts of NVTX ranges by number."""
        self.names = Interner()
        self.categories = Interner()
        self.threads = Interner()
        self._texts = texts
        self._words = words
        self._processes = processes

    def of_names(
        self, table: TableEvents
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Number the name and the category of each event of a table.

        Each distinct combination of text, string and kind is looked up once.

        Returns:
            For each event an index into `names`, and one into `categories`.
        """
        distinct_rows_of_table, row_number = _distinct_tuples(
            table.text, table.columns["name"], table.columns["kind"]
        )
        names = []
        categories = []
        for text, string, kind in distinct_rows_of_table:
            if text != NO_TEXT:
                name = self._texts[text]
            else:
                name = table.source.name_of(self._words, string)
            names.append(name)
            if table.source.is_nvtx:
                categories.append(category(kind, name))
            else:
                categories.append(table.source.categories[kind])
        name_number = self.names.ids(names)[row_number]
        category_number = self.categories.ids(categories)[row_number]
        return name_number, category_number

    def of_lanes(self, table: TableEvents) -> NDArray[np.int32]:
        """Number the lane of each event of a table: an index into `threads`.

        The lane follows from the process and thread that own the event, or from its
        device, stream and context. Each distinct combination is looked up once.
        """
        columns = table.columns
        distinct_places, place_number = _distinct_tuples(
            columns["owner"], columns["device"], columns["stream"], columns["context"]
        )
        lanes = [
            self._processes.lane(table.source, owner, device, stream, context)
            for owner, device, stream, context in distinct_places
        ]
        return self.threads.ids(lanes)[place_number]


def combine_slices(
    tables: Sequence[TableEvents],
    first: int,
    texts: Sequence[str],
    words: Words,
    processes: Processes,
) -> Slices:
    """Combine the slices of all tables into one set of columns.

    A slice without an end lasts until the last start or end of all slices.

    Args:
        tables: The tables; those of counters have no slices.
        first: The index in traceEvents of the first event of the first table.
        texts: The texts of ranges.
        words: The names that the database refers to by number.
        processes: The processes and devices.
    """
    numbers = Numbers(texts, words, processes)
    columns_of_tables: list[dict[str, NDArray[Any]]] = [_NO_SLICES]
    first_of_table = first
    for table in tables:
        order = first_of_table + np.arange(len(table))
        first_of_table += len(table)
        if not table.source.is_metrics:
            columns = _columns_of_slices(table, order, numbers, processes)
            columns_of_tables.append(columns)
    joined = {}
    for name in _NO_SLICES:
        parts = [columns[name] for columns in columns_of_tables]
        joined[name] = np.concatenate(parts)

    start = joined["start"]
    end = joined.pop("end")
    has_no_end = end == NONE
    last_ns = int(np.maximum(start, end).max(initial=NONE))
    dur = np.where(has_no_end, last_ns, end) - start
    return Slices(
        **joined,
        dur=np.maximum(dur, 0),
        names=tuple(numbers.names),
        categories=tuple(numbers.categories),
        threads=tuple(numbers.threads),
        negative=int((dur < 0).sum()),
        unfinished=int(has_no_end.sum()),
    )


_NO_SLICES: dict[str, NDArray[Any]] = {
    "start": np.empty(0, np.int64),
    "end": np.empty(0, np.int64),  # NONE if the slice has no end
    "order": np.empty(0, np.int64),
    "correlation": np.empty(0, np.int64),
    "external_id": np.empty(0, np.int64),
    "name": np.empty(0, np.int32),
    "category": np.empty(0, np.int32),
    "thread": np.empty(0, np.int32),
}
"""The columns of slices, of none."""


def _columns_of_slices(
    table: TableEvents, order: NDArray[np.int64], numbers: Numbers, processes: Processes
) -> dict[str, NDArray[Any]]:
    """Return the columns of the slices of one table, named as in _NO_SLICES.

    Args:
        table: The table.
        order: The index in traceEvents of each of its events.
        numbers: New names, categories and lanes are added here.
        processes: Makes correlations of several processes distinct.
    """
    columns = table.columns
    owner = columns["owner"]
    name, category_number = numbers.of_names(table)
    return {
        "start": columns["start"],
        "end": columns["end"],
        "order": order,
        "correlation": processes.unique(owner, columns["correlation"]),
        "external_id": processes.unique(owner, columns["external"]),
        "name": name,
        "category": category_number,
        "thread": numbers.of_lanes(table),
    }


def _distinct_tuples(*columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], Rows]:
    """Return the distinct rows of some columns, and the number of each row among them.

    The columns [7, 5, 7] and [1, 2, 1] give [(5, 2), (7, 1)] and [1, 0, 1].
    """
    first, row_number = distinct_rows(columns)
    values = [column[first].tolist() for column in columns]
    return list(zip(*values, strict=True)), row_number
