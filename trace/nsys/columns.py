"""The rows of the tables of events -> the columns of a trace, in the order of its stretches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.errors import CannotRead
from fusetui.trace.nsys.database import NONE, Export, ExportFile, distinct
from fusetui.trace.nsys.nvtx import BASE, NVTX, category
from fusetui.trace.nsys.plan import Batches
from fusetui.trace.nsys.processes import Processes
from fusetui.trace.nsys.tables import FIELDS, EventTable, Words, fields, shown
from fusetui.trace.read.assemble import BYTES_A_SLICE, MANY
from fusetui.trace.read.gather import Interner
from fusetui.trace.read.memory import memory_left

SMALLEST_ROW = 16  # bytes
NO_TEXT = -1


class TableEvents(msgspec.Struct, frozen=True, eq=False):
    """The events of one table, in order of their rowids; arrays of shape [events]."""

    batches: Batches
    columns: dict[str, NDArray[np.int64]]  # FIELDS
    text: NDArray[np.int32]  # into the texts of ranges, NO_TEXT for none
    unreadable: int  # rows that should be events

    @property
    def source(self) -> EventTable:
        return self.batches.source

    def __len__(self) -> int:
        return len(self.text)


def events_of(db: Export, batches: Batches, texts: Interner) -> TableEvents:
    """Reads the events of a table as far as that is possible."""
    source = batches.source
    asked = fields(db, source)
    rest = f"where {batches.readable} order by rowid"
    found = db.integers(source.table, [asked[name] for name in FIELDS], rest)
    text = np.full(found.shape[1], NO_TEXT, np.int32)
    if source.is_nvtx and db.has(NVTX, "text"):
        text = texts.ids(chain.from_iterable(db.rows(NVTX, (BASE,), rest)))
        text[text == texts.get(None, NO_TEXT)] = NO_TEXT
    whole = min(_ascending(found[0]), len(text))
    if whole < found.shape[1]:
        db.damaged(source.table, f"row {whole + 1} is out of order")
    columns = dict(zip(FIELDS, np.ascontiguousarray(found[:, :whole]), strict=True))
    condition = f"where {shown(db, source)} and not ({batches.readable})"
    lost = sum(n or 0 for (n,) in db.rows(source.table, ("sum(1)",), condition))
    return TableEvents(batches, columns, text[:whole], lost)


def slices_of(
    parts: Sequence[TableEvents], first: int, texts: Sequence[str], words: Words, who: Processes
) -> tuple[dict[str, Any], int, int]:
    """The columns of Raw of the slices of all parts, and how many have a negative duration or no
    end; `first` is the index of their first event in traceEvents."""
    begins = np.cumsum([first, *map(len, parts)]).tolist()
    placed = [(p, b) for p, b in zip(parts, begins, strict=False) if not p.source.is_metrics]
    parts = [part for part, _ in placed]
    start, end = (_joined([part.columns[c] for part in parts], np.int64) for c in ("start", "end"))
    is_open = end == NONE
    last = int(np.maximum(start, end).max(initial=NONE))
    dur = np.where(is_open, last, end) - start
    names, categories, lanes = Interner(), Interner(), Interner()
    tables = [_tables(part, texts, words, who, (names, categories, lanes)) for part in parts]
    name, category, thread = (_joined([t[n] for t in tables], np.int32) for n in range(3))
    correlation, external = (
        _joined([who.unique(p.columns["owner"], p.columns[c]) for p in parts], np.int64)
        for c in ("correlation", "external")
    )
    columns = {
        "names": tuple(names),
        "categories": tuple(categories),
        "threads": tuple(lanes),
        "start": start,
        "dur": np.maximum(dur, 0),
        "name": name,
        "category": category,
        "thread": thread,
        "correlation": correlation,
        "external_id": external,
        "order": _joined([begin + np.arange(len(part)) for part, begin in placed], np.int64),
    }
    return columns, int((dur < 0).sum()), int(is_open.sum())


def unnamed(parts: Sequence[TableEvents], words: Words) -> Iterator[tuple[str, int]]:
    """The tables with rows whose names are missing from StringIds, and how many."""
    known = np.fromiter(words.strings, np.int64, len(words.strings))
    for part in parts:
        if part.source.by_string:
            lost = ~np.isin(part.columns["name"], known) & (part.text == NO_TEXT)
            if lost.any():
                yield part.source.table, int(lost.sum())


def check_memory(place: ExportFile, batches: Sequence[Batches]) -> None:
    """Raises CannotRead if memory does not suffice, rather than being killed by the system."""
    rows = min(sum(one.rows * one.count for one in batches), place.size // SMALLEST_ROW)
    if rows > MANY and rows * BYTES_A_SLICE > memory_left():
        raise CannotRead(f"{place.path} has about {rows:,} rows: there is not enough memory.")


def _ascending(row: NDArray[np.int64]) -> int:
    """How many rows have ascending rowids, as all do in a sound table."""
    wrong = np.flatnonzero(row[1:] <= row[:-1])
    return int(wrong[0]) + 1 if len(wrong) else len(row)


def _tables(
    part: TableEvents,
    texts: Sequence[str],
    words: Words,
    who: Processes,
    into: tuple[Interner, Interner, Interner],
) -> list[NDArray[np.int32]]:
    """The names, categories and lanes of the events of a part, each met once."""
    source, columns = part.source, part.columns
    kinds, kind = distinct(part.text.astype(np.int64), columns["name"], columns["kind"])
    named = [
        texts[text] if text != NO_TEXT else source.named(words, number) for text, number, _ in kinds
    ]
    categories = [
        category(k, name) if source.is_nvtx else source.categories[k]
        for (_, _, k), name in zip(kinds, named, strict=True)
    ]
    places, place = distinct(*(columns[c] for c in ("owner", "device", "stream", "context")))
    lanes = [who.lane(source, *where) for where in places]
    return [into[0].ids(named)[kind], into[1].ids(categories)[kind], into[2].ids(lanes)[place]]


def _joined(parts: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)
