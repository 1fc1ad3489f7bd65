"""Indexes the whole document: joins its chunks, pairs begins and ends, and divides it
into ranges of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arrays import Flags, Int64s, distinct
from fusetui.trace.model.report import Skipped
from fusetui.trace.pftrace.scan import (
    Begins,
    Counters,
    Placed,
    SliceMarks,
    Stages,
    TracePiece,
    scan,
)
from fusetui.trace.pftrace.tables import EXPORTER, Tables, key_and_text
from fusetui.trace.pftrace.wire import NO_FIELDS, Repeated
from fusetui.trace.read.batch import MOST_LISTED

# bytes that are scanned at once: what is made of them stays in the caches
PIECE_BYTES = 1 << 20
STRETCH_EVENTS = 1 << 10
STRETCH_BITS = 22  # a stretch begins and ends in one of the blocks of 1 << 22 bytes
MAX_GAP_BYTES = 1 << 16
"""Between two events of a stretch, and of one packet: more are between them where the
ends of a group stand."""
NESTED = "so begins and ends are paired by nesting, which may be inexact"
Table = TypeVar("Table", bound=Placed)


class Pairs(NamedTuple):
    """Which end belongs to which begin."""

    end: Int64s  # the number of the end of each begin, -1 if it has none
    by_runs: bool  # whether they match by runs, which is exact


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


class EventNumbers(msgspec.Struct, frozen=True, eq=False):
    """The number of each begin, stage and value among all events, in the order of their
    packets."""

    begins: Int64s
    stages: Int64s
    values: Int64s


class PacketIndex(msgspec.Struct, frozen=True, eq=False):
    """A scanned document, in the order of its packets."""

    tables: Tables
    layout: StretchLayout
    begins: Begins  # without args
    stages: Stages
    counters: Counters
    unmatched: int  # ends
    order: EventNumbers
    lost: tuple[Skipped, ...]  # the first packets that are no readable event
    lost_in_all: int
    read: int  # bytes
    damaged: bool  # no packet can begin at byte `read`


def paired(begins: Begins, ends: SliceMarks, cut: bool) -> Pairs:
    """Which end belongs to which begin: the ends carry no id. If the file may be `cut`,
    the last ends may be missing.

    torch writes n begins, then their n ends in the same order, in one group after the
    other: the i-th begin of a run belongs to the i-th end of the next run, on the same
    track. Other writers nest the slices of a track like brackets, which would be wrong
    here where slices overlap partly.
    """
    if not _match_by_runs(begins, ends, cut):
        return Pairs(end=_nested(begins, ends), by_runs=False)
    number = np.arange(len(begins.at))
    return Pairs(end=np.where(number < len(ends.at), number, -1), by_runs=True)


def _match_by_runs(begins: Begins, ends: SliceMarks, cut: bool) -> bool:
    """Whether begins and ends come in groups of n begins and then their n ends, each
    group in the same order of tracks; of a `cut` file, the last ends may be missing."""
    begin_count = len(begins.at)
    end_count = len(ends.at)
    if begin_count == 0:
        return end_count == 0
    if end_count > begin_count or (end_count < begin_count and not cut):
        return False
    if not np.array_equal(begins.track[:end_count], ends.track):
        return False
    ends_before_begin = np.searchsorted(ends.at, begins.at)
    if ends_before_begin[0] > 0:
        return False
    # how many begins stand before each run of ends, and how many ends before each
    # run of begins but the first: in a whole file both are the sums of the groups
    begins_before_runs = distinct(np.searchsorted(begins.at, ends.at))
    ends_before_runs = distinct(ends_before_begin)[1:]
    if cut:
        complete = len(ends_before_runs)
        return np.array_equal(begins_before_runs[:complete], ends_before_runs)
    return np.array_equal(begins_before_runs, np.append(ends_before_runs, begin_count))


def _nested(begins: Begins, ends: SliceMarks) -> Int64s:
    """The number of the end of each begin, -1 if it has none, if the slices of a track
    nest like brackets in the order of time. Shape [begins]."""
    begin_count = len(begins.at)
    # marks are the begins, then the ends
    track = np.concatenate((begins.track, ends.track))
    time = np.concatenate((begins.time, ends.time))
    at = np.concatenate((begins.at, ends.at))
    marks = np.lexsort((at, time, track))

    end_of = np.full(begin_count, -1, np.int64)
    open_begins: dict[int, list[int]] = {}  # by track
    for mark, track_id in zip(marks.tolist(), track[marks].tolist(), strict=True):
        if mark < begin_count:
            open_begins.setdefault(track_id, []).append(mark)
        elif open_begins.get(track_id):
            innermost = open_begins[track_id].pop()
            end_of[innermost] = mark - begin_count
    return end_of


class _PieceReader:
    """Scans a document piece by piece, and keeps what its pieces hold."""

    def __init__(self, part: Callable[[int, int], Any]) -> None:
        """`part` returns the bytes of the document from one byte to another."""
        self.tables = Tables()
        self.pieces = [_without_text(scan(b""))]
        self.lost: list[Skipped] = []  # the first packets that are no readable event
        self.lost_in_all = 0
        self.read = 0  # bytes
        self.damaged = False  # no packet can begin at byte `read`
        self._part = part

    def read_until(self, progress: Callable[[int], bool]) -> None:
        """Scans up to the end of the document, or to damage behind which no packet can
        be found, or until `progress`, called with the bytes read, returns True."""
        wanted_bytes = PIECE_BYTES
        while not self.damaged and not progress(self.read):
            data = bytes(self._part(self.read, self.read + wanted_bytes))
            if not data:
                return
            piece = scan(data, self.read)
            self._add(piece)
            is_at_end = len(data) < wanted_bytes
            if is_at_end and not piece.rest:  # the end of the last packet is missing
                return
            self.read += piece.rest
            # a packet that is larger than a piece is read as one
            wanted_bytes = max(PIECE_BYTES, piece.next_end - piece.rest)

    def _add(self, piece: TracePiece) -> None:
        """Keeps what a piece holds, except its text."""
        skipped_tables, skipped_count = self.tables.add(piece.tables)
        self.lost = [*self.lost, *skipped_tables, *piece.lost][:MOST_LISTED]
        self.lost_in_all += skipped_count + piece.lost_in_all
        if not self.tables.exporter:
            self.tables.exporter = _exporter(piece)
        self.damaged = piece.next_end < 0
        self.pieces.append(_without_text(piece))


def index(
    part: Callable[[int, int], Any],
    progress: Callable[[int], bool] = lambda read: False,
) -> PacketIndex:
    """Scans a document, of which `part` gives some bytes, until `progress`, called with
    the bytes read, returns True. Raises TraceError or OSError."""
    reader = _PieceReader(part)
    reader.read_until(progress)
    begins = _joined(Begins, [piece.begins for piece in reader.pieces])
    ends = _joined(SliceMarks, [piece.ends for piece in reader.pieces])
    stages = _joined(Stages, [piece.stages for piece in reader.pieces])
    counters = _joined(Counters, [piece.counters for piece in reader.pieces])
    # a file that has lost no packet may still be cut, so that only last ends are missing
    pairs = paired(begins, ends, cut=not reader.lost_in_all)
    lost = reader.lost
    if lost and not pairs.by_runs:
        lost[0] = replace(lost[0], reason=f"{lost[0].reason}; {NESTED}")

    order, layout = _laid_out(begins, ends, stages, counters, pairs)
    return PacketIndex(
        tables=reader.tables,
        layout=layout,
        begins=begins,
        stages=stages,
        counters=counters,
        unmatched=len(ends.at) - int(layout.has_end.sum()),
        order=order,
        lost=tuple(lost),
        lost_in_all=reader.lost_in_all,
        read=reader.read,
        damaged=reader.damaged,
    )


def _laid_out(
    begins: Begins, ends: SliceMarks, stages: Stages, counters: Counters, pairs: Pairs
) -> tuple[EventNumbers, StretchLayout]:
    """The number of each event in the order of the packets, and the stretches that
    these events are divided into."""
    at = np.concatenate((begins.at, stages.at, counters.at))
    end = np.concatenate((begins.end, stages.end, counters.end))
    in_order = np.argsort(at, kind="stable")
    at = at[in_order]
    end = end[in_order]
    order = _event_numbers(in_order, begins=len(begins.at), stages=len(stages.at))
    first_events = _first_events(at, end)
    bounds = np.append(first_events, len(at))
    last_events = bounds[1:] - 1
    begins_before = np.searchsorted(order.begins, first_events)
    stages_before = np.searchsorted(order.stages, first_events)
    layout = StretchLayout(
        begins=len(begins.at),
        dur=_durations(begins, ends, pairs.end),
        has_end=pairs.end >= 0,
        flows=_flows(stages),
        bounds=bounds,
        places=np.stack((at[first_events], end[last_events]), axis=1),
        firsts=np.stack((begins_before, stages_before), axis=1),
    )
    return order, layout


def _exporter(piece: TracePiece) -> dict[str, str]:
    """What the first event of a GPU says of the process that exported, by the keys
    EXPORTER; empty if the piece has no such event."""
    extra = piece.stages.extra
    is_of_first_stage = extra.message == 0
    starts = extra.at[is_of_first_stage]
    ends = starts + extra.value[is_of_first_stage]
    texts: dict[str, str] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key, text = key_and_text(piece.data[start:end])
        texts[key] = text
    return {key: texts[key] for key in EXPORTER if key in texts}


def _without_text(piece: TracePiece) -> TracePiece:
    """The piece without what is needed only while the text of a stretch is written."""
    return replace(
        piece,
        data=b"",
        tables=(),
        begins=replace(piece.begins, args=NO_FIELDS),
        stages=replace(piece.stages, extra=NO_FIELDS),
    )


def _joined(kind: type[Table], parts: Sequence[Table]) -> Table:
    """The tables of all pieces as one; messages are numbered on."""
    rows = np.array([len(part.at) for part in parts])
    rows_before = np.cumsum(rows) - rows
    columns: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        values = [getattr(part, field) for part in parts]
        if isinstance(values[0], Repeated):
            columns[field] = _joined_fields(values, rows_before.tolist())
        else:
            columns[field] = np.concatenate(values)
    return kind(**columns)


def _joined_fields(
    parts: Sequence[Repeated], messages_before: Sequence[int]
) -> Repeated:
    """The fields of all parts; the messages of a part are numbered from the number of
    messages before it on."""
    messages = [
        part.message + before
        for part, before in zip(parts, messages_before, strict=True)
    ]
    return Repeated(
        message=np.concatenate(messages),
        at=np.concatenate([part.at for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )


def _flows(stages: Stages) -> GraphFlows:
    """The arrows from the stages that others wait for, where they are in the file, in
    the order of those that wait."""
    waits = stages.waits
    by_id = np.argsort(stages.id, kind="stable")
    ids = stages.id[by_id]
    place = np.searchsorted(ids, waits.value)
    id_at_place = np.append(ids, -1)[place]  # -1: all ids are smaller
    is_in_file = id_at_place == waits.value
    source = by_id[place[is_in_file]]
    target = waits.message[is_in_file]
    return GraphFlows(
        source=source,
        target=target,
        leaves=stages.time[source] + stages.dur[source],
        arrives=stages.time[target],
    )


def _event_numbers(in_order: Int64s, begins: int, stages: int) -> EventNumbers:
    """The number of each event in the order of the packets.

    `in_order` lists the events in that order, as numbers in the sequence of all
    `begins` begins, then all `stages` stages, then all values.
    """
    number = np.empty(len(in_order), np.int64)
    number[in_order] = np.arange(len(in_order))
    of_begins, of_stages, of_values = np.split(number, (begins, begins + stages))
    return EventNumbers(begins=of_begins, stages=of_stages, values=of_values)


def _durations(begins: Begins, ends: SliceMarks, end: Int64s) -> Int64s:
    """From each begin to its end, -1 without one."""
    end_time = np.append(ends.time, 0)[end]  # what -1 chooses is not used
    return np.where(end >= 0, end_time - begins.time, -1)


def _first_events(at: Int64s, end: Int64s) -> Int64s:
    """The numbers of the events with which stretches begin, in ascending order; the
    packets of all events, in order, begin at the bytes `at` and end at `end`."""
    is_first = np.arange(len(at)) % STRETCH_EVENTS == 0
    block = at >> STRETCH_BITS
    is_in_new_block = block[1:] != block[:-1]
    is_behind_gap = at[1:] - end[:-1] > MAX_GAP_BYTES
    is_large = end - at > MAX_GAP_BYTES
    is_in_same_packet = at[1:] == at[:-1]
    is_first[1:] |= is_in_new_block | is_behind_gap
    is_first |= is_large
    is_first[1:] &= ~is_in_same_packet  # values of one packet stay together
    return np.flatnonzero(is_first)
