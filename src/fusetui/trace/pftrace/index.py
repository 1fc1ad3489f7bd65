"""The whole document: its pieces joined, begins and ends paired, and divided into
stretches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arrays import Flags, Int64s, distinct
from fusetui.trace.model.report import Skipped
from fusetui.trace.pftrace.scan import (
    Begins,
    Counters,
    SliceMarks,
    Stages,
    TracePiece,
    scan,
)
from fusetui.trace.pftrace.tables import EXPORTER, Tables, key_and_text
from fusetui.trace.pftrace.wire import NO_FIELDS, Repeated
from fusetui.trace.read.batch import MOST_LISTED


def paired(begins: Begins, ends: SliceMarks, cut: bool) -> tuple[Int64s, bool]:
    """The number of the end of each begin, -1 if it has none, and whether they match by
    runs: the ends carry no id. If the file may be `cut`, the last ends may be missing.

    torch writes n begins, then their n ends in the same order, in one group after the
    other: the i-th begin of a run belongs to the i-th end of the next run, on the same
    track. Other writers nest the slices of a track like brackets, which would be wrong
    here where slices overlap partly.
    """
    if _match(begins, ends, cut):
        number = np.arange(len(begins.at))
        return np.where(number < len(ends.at), number, -1), True
    return _nested(begins, ends), False


def _match(begins: Begins, ends: SliceMarks, cut: bool) -> bool:
    count, whole = len(ends.at), len(begins.at)
    if count > whole or (count < whole and not cut) or not whole:
        return not count and not whole
    before_begin = np.searchsorted(ends.at, begins.at)  # ends that stand before it
    if before_begin[0] or not np.array_equal(begins.track[:count], ends.track):
        return False
    # begins when each run of ends starts
    started = distinct(np.searchsorted(begins.at, ends.at))
    ended = distinct(before_begin)[1:]  # ends when each later run of begins starts
    if cut:
        return np.array_equal(started[: len(ended)], ended)
    return np.array_equal(started, np.append(ended, whole))


def _nested(begins: Begins, ends: SliceMarks) -> Int64s:
    """Like brackets, per track in the order of time."""
    count = len(begins.at)
    found = np.full(count, -1, np.int64)
    track, time, at = (
        np.concatenate((getattr(begins, name), getattr(ends, name)))
        for name in ("track", "time", "at")
    )
    order = np.lexsort((at, time, track))
    open_ones: dict[int, list[int]] = {}
    for mark, of in zip(order.tolist(), track[order].tolist(), strict=True):
        if mark < count:
            open_ones.setdefault(of, []).append(mark)
        elif open_ones.get(of):
            found[open_ones[of].pop()] = mark - count
    return found


# bytes that are scanned at once: what is made of them stays in the caches
PIECE = 1 << 20
EACH = 1 << 10  # events of a stretch
MOST_BYTES = 22  # bits: bytes of a stretch
FAR = 1 << 16  # bytes between events, as there are where the ends of a group stand
NESTED = "so begins and ends are paired by nesting, which is not exact"
Table = TypeVar("Table", bound=msgspec.Struct)


class GraphFlows(msgspec.Struct, frozen=True, eq=False):
    """Arrows between nodes of graphs: rows in Stages, and times in ns since the epoch;
    arrays of shape [flows]."""

    source: Int64s
    target: Int64s
    leaves: Int64s
    arrives: Int64s


class StretchLayout(msgspec.Struct, frozen=True, eq=False):
    """What has to be known to write the text of a stretch from its bytes."""

    begins: int  # in all
    dur: Int64s  # of each begin in ns; of one without an end -1, see `has_end`
    has_end: Flags
    flows: GraphFlows
    bounds: Int64s  # the first event of each stretch, and the number of events
    places: Int64s  # shape [stretches, 2]: the byte where each begins and ends
    firsts: Int64s  # shape [stretches, 2]: the begins and the stages before each


class PacketIndex(msgspec.Struct, frozen=True, eq=False):
    """A scanned document, in the order of its packets."""

    tables: Tables
    layout: StretchLayout
    begins: Begins  # without args
    stages: Stages
    counters: Counters
    unmatched: int  # ends
    # the number of each begin, stage, value among all events
    order: tuple[Int64s, Int64s, Int64s]
    lost: tuple[Skipped, ...]  # the first packets that are no readable event
    lost_in_all: int
    read: int  # bytes
    damaged: bool  # no packet can begin at byte `read`


def index(
    part: Callable[[int, int], Any],
    progress: Callable[[int], bool] = lambda read: False,
) -> PacketIndex:
    """Scans a document, of which `part` gives some bytes, until `progress`, called with
    the bytes read, returns True. Raises TraceError or OSError."""
    tables, pieces, at, most, damaged = Tables(), [_columns(scan(b""))], 0, PIECE, False
    lost: list[Skipped] = []
    lost_in_all = 0
    while not damaged and not progress(at) and (data := bytes(part(at, at + most))):
        piece = scan(data, at)
        damaged = piece.next_end < 0
        wrong, unread = tables.add(piece.tables)
        lost = [*lost, *wrong, *piece.lost][:MOST_LISTED]
        lost_in_all += unread + piece.lost_in_all
        tables.exporter = tables.exporter or _exporter(piece)
        pieces.append(_columns(piece))
        if not piece.rest and len(data) < most:  # the end is missing
            break
        at, most = at + piece.rest, max(PIECE, piece.next_end - piece.rest)
    begins, ends = (
        _joined(Begins, pieces, "begins"),
        _joined(SliceMarks, pieces, "ends"),
    )
    stages, counters = (
        _joined(Stages, pieces, "stages"),
        _joined(Counters, pieces, "counters"),
    )
    end, by_runs = paired(begins, ends, cut=not lost_in_all)
    if lost and not by_runs:
        lost[0] = replace(lost[0], reason=f"{lost[0].reason}; {NESTED}")
    has_end = end >= 0
    dur = np.where(has_end, (ends.time[end] if len(ends.time) else 0) - begins.time, -1)
    order, bounds, places = _stretches((begins, stages, counters))
    firsts = np.stack(
        [np.searchsorted(numbers, bounds[:-1]) for numbers in order[:2]], 1
    )
    return PacketIndex(
        tables=tables,
        layout=StretchLayout(
            len(begins.at), dur, has_end, _flows(stages), bounds, places, firsts
        ),
        begins=begins,
        stages=stages,
        counters=counters,
        unmatched=len(ends.at) - int(has_end.sum()),
        order=order,
        lost=tuple(lost),
        lost_in_all=lost_in_all,
        read=at,
        damaged=damaged,
    )


def _exporter(piece: TracePiece) -> dict[str, str]:
    """What the first event of a GPU says of the process that exported."""
    extra = piece.stages.extra
    last = int(np.searchsorted(extra.message, 0, side="right"))
    places = zip(extra.at[:last].tolist(), extra.value[:last].tolist(), strict=True)
    found = dict(key_and_text(piece.data[at : at + size]) for at, size in places)
    return {key: found[key] for key in EXPORTER if key in found}


def _columns(piece: TracePiece) -> TracePiece:
    """Without what only the text needs."""
    begins, stages = (
        replace(piece.begins, args=NO_FIELDS),
        replace(piece.stages, extra=NO_FIELDS),
    )
    return replace(piece, data=b"", tables=(), begins=begins, stages=stages)


def _joined(kind: type[Table], pieces: list[TracePiece], name: str) -> Table:
    """The tables of all pieces as one; messages are numbered on."""
    parts = [getattr(piece, name) for piece in pieces]
    columns: dict[str, Any] = {}
    rows = [0, *np.cumsum([len(part.at) for part in parts]).tolist()]
    for field in kind.__struct_fields__:
        values = [getattr(part, field) for part in parts]
        if isinstance(values[0], Repeated):
            each = zip(values, rows, strict=False)
            numbered = [(one.message + row, one.at, one.value) for one, row in each]
            columns[field] = Repeated(*map(np.concatenate, zip(*numbered, strict=True)))
        else:
            columns[field] = np.concatenate(values)
    return kind(**columns)


def _flows(stages: Stages) -> GraphFlows:
    """From the events that others wait for, where they are in the file, in the order of
    those that wait."""
    waits, by_id = stages.waits, np.argsort(stages.id, kind="stable")
    ids = np.append(stages.id[by_id], -1)
    place = np.searchsorted(ids[:-1], waits.value)
    known = ids[place] == waits.value
    source, target = by_id[place[known]], waits.message[known]
    return GraphFlows(
        source, target, stages.time[source] + stages.dur[source], stages.time[target]
    )


def _stretches(
    tables: tuple[Begins, Stages, Counters],
) -> tuple[tuple[Int64s, Int64s, Int64s], Int64s, Int64s]:
    """Index.order, Layout.bounds and Layout.places."""
    at = np.concatenate([table.at for table in tables])
    sequence = np.argsort(at, kind="stable")
    number = np.empty(len(at), np.int64)
    number[sequence] = np.arange(len(at))
    at, end = at[sequence], np.concatenate([table.end for table in tables])[sequence]
    starts = np.arange(len(at)) % EACH == 0
    starts[1:] |= (at[1:] >> MOST_BYTES != at[:-1] >> MOST_BYTES) | (
        at[1:] - end[:-1] > FAR
    )
    starts |= end - at > FAR
    starts[1:] &= at[1:] != at[:-1]  # values of one packet stay together
    firsts = np.flatnonzero(starts)
    bounds = np.append(firsts, len(at))
    parts = np.split(number, np.cumsum([len(table.at) for table in tables[:2]]))
    return (
        (parts[0], parts[1], parts[2]),
        bounds,
        np.stack((at[firsts], end[bounds[1:] - 1]), 1),
    )
