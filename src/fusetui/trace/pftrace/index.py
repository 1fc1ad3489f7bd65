"""Indexes the whole document: joins its chunks, pairs begins and ends, and divides it
into ranges of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arrays import Flags, Int64s, distinct, equal_ranges
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


def pair_begins(begins: Begins, ends: SliceMarks, cut: bool) -> Pairs:
    """Find the end of each begin of a slice: ends carry no id.

    torch writes n begins and then their n ends in the same order, group after group: B1
    B2 E1 E2 B3 E3. If the file has this form, the i-th end belongs to the i-th begin.
    Other writers nest the slices of a track like brackets (B1 B2 E2 E1), which would be
    wrong for torch's where slices overlap partly.

    Args:
        begins: The begins in the order of the file.
        ends: The ends in the order of the file.
        cut: Whether the end of the file may be missing, and the last ends with it.
    """
    if not _are_in_groups(begins, ends, cut):
        return Pairs(end=_pair_by_nesting(begins, ends), by_runs=False)
    number = np.arange(len(begins.at))
    return Pairs(end=np.where(number < len(ends.at), number, -1), by_runs=True)


def _are_in_groups(begins: Begins, ends: SliceMarks, cut: bool) -> bool:
    """Tell whether begins and ends come in groups: n begins, then n ends on the same
    tracks in the same order.

    B1 B2 E1 E2 B3 E3 does. B1 B2 E1 B3 E2 E3 does not: the first run of ends is shorter
    than the run of begins before it.

    The arguments are those of `pair_begins`.
    """
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
    # After each group there have been as many ends as begins. So the numbers of begins
    # before each run of ends must be the numbers of ends before each run of begins,
    # except the first run, before which there are none.
    begins_before_runs = distinct(np.searchsorted(begins.at, ends.at))
    ends_before_runs = distinct(ends_before_begin)[1:]
    if cut:
        complete = len(ends_before_runs)
        return np.array_equal(begins_before_runs[:complete], ends_before_runs)
    return np.array_equal(begins_before_runs, np.append(ends_before_runs, begin_count))


def _pair_by_nesting(begins: Begins, ends: SliceMarks) -> Int64s:
    """Find the end of each begin if the slices of a track nest like brackets.

    In the order of their times, an end closes the last begin that is open on its track:
    of B1 B2 E1 E2 on one track, the first begin has the end number 1, the second has 0.

    Returns:
        The number of the end of each begin, -1 if it has none.
    """
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
        """Read pieces up to the end of the document.

        Reading ends earlier at damage behind which no packet can be found, and once
        `progress`, which is called with the bytes read so far, returns True.
        """
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
        """Keep what a piece holds, except its text, which would be the whole file."""
        skipped_tables, skipped_count = self.tables.add(piece.tables)
        self.lost = [*self.lost, *skipped_tables, *piece.lost][:MOST_LISTED]
        self.lost_in_all += skipped_count + piece.lost_in_all
        if not self.tables.exporter:
            self.tables.exporter = _read_exporter(piece)
        self.damaged = piece.next_end < 0
        self.pieces.append(_without_text(piece))


def index(
    part: Callable[[int, int], Any],
    progress: Callable[[int], bool] = lambda read: False,
) -> PacketIndex:
    """Scan a document.

    Args:
        part: Returns the bytes of the document from one byte to before another. What it
            raises (TraceError, OSError) is passed on.
        progress: Is called with the bytes read so far. Once it returns True, scanning
            ends with what was found by then.
    """
    reader = _PieceReader(part)
    reader.read_until(progress)
    begins = _join_tables(Begins, [piece.begins for piece in reader.pieces])
    ends = _join_tables(SliceMarks, [piece.ends for piece in reader.pieces])
    stages = _join_tables(Stages, [piece.stages for piece in reader.pieces])
    counters = _join_tables(Counters, [piece.counters for piece in reader.pieces])
    # a file that has lost no packet may still be cut, so that only last ends are missing
    pairs = pair_begins(begins, ends, cut=not reader.lost_in_all)
    lost = reader.lost
    if lost and not pairs.by_runs:
        lost[0] = replace(lost[0], reason=f"{lost[0].reason}; {NESTED}")

    order, layout = _lay_out_events(begins, ends, stages, counters, pairs)
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


def _lay_out_events(
    begins: Begins, ends: SliceMarks, stages: Stages, counters: Counters, pairs: Pairs
) -> tuple[EventNumbers, StretchLayout]:
    """Number all events in the order of their packets, and divide them into stretches.

    Args:
        begins: The begins of slices.
        ends: Their ends, which are no events of their own.
        stages: The events of GPUs.
        counters: The values of counters.
        pairs: The end of each begin.
    """
    at = np.concatenate((begins.at, stages.at, counters.at))
    end = np.concatenate((begins.end, stages.end, counters.end))
    by_packet = np.argsort(at, kind="stable")
    at = at[by_packet]
    end = end[by_packet]
    order = _event_numbers(by_packet, begins=len(begins.at), stages=len(stages.at))

    first_events = _first_events(at, end)
    bounds = np.append(first_events, len(at))
    last_events = bounds[1:] - 1
    begins_before = np.searchsorted(order.begins, first_events)
    stages_before = np.searchsorted(order.stages, first_events)
    layout = StretchLayout(
        begins=len(begins.at),
        dur=_durations(begins, ends, pairs.end),
        has_end=pairs.end >= 0,
        flows=_find_flows(stages),
        bounds=bounds,
        places=np.stack((at[first_events], end[last_events]), axis=1),
        firsts=np.stack((begins_before, stages_before), axis=1),
    )
    return order, layout


def _read_exporter(piece: TracePiece) -> dict[str, str]:
    """Return what a piece says about the process that exported the trace.

    The first GPU event of the piece has it among its extras: {"arch": "sm_90",
    "process_id": "7", "process_name": "python"}. {} if the piece has no GPU event.
    """
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
    """Return a piece without its bytes, and without the columns that point into them.

    These are only needed to write the text of a stretch, for which the piece is scanned
    again.
    """
    return replace(
        piece,
        data=b"",
        tables=(),
        begins=replace(piece.begins, args=NO_FIELDS),
        stages=replace(piece.stages, extra=NO_FIELDS),
    )


def _join_tables(kind: type[Table], parts: Sequence[Table]) -> Table:
    """Concatenate the tables of all pieces, column by column.

    Args:
        kind: The class of the table: Begins, Stages, ...
        parts: The table of each piece, in order; at least one.
    """
    rows_before = [0, *accumulate(len(part.at) for part in parts[:-1])]
    columns: dict[str, Any] = {}
    for field in kind.__struct_fields__:
        values = [getattr(part, field) for part in parts]
        if isinstance(values[0], Repeated):
            columns[field] = _join_repeated(values, rows_before)
        else:
            columns[field] = np.concatenate(values)
    return kind(**columns)


def _join_repeated(
    parts: Sequence[Repeated], messages_before: Sequence[int]
) -> Repeated:
    """Concatenate repeated fields of messages of all pieces.

    If the first piece has 10 messages, message 2 of the second piece becomes 12.

    Args:
        parts: The fields of each piece.
        messages_before: How many messages stand before each piece.
    """
    messages = [
        part.message + before
        for part, before in zip(parts, messages_before, strict=True)
    ]
    return Repeated(
        message=np.concatenate(messages),
        at=np.concatenate([part.at for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )


def _find_flows(stages: Stages) -> GraphFlows:
    """Return an arrow for each pair of GPU events of which one waits for the other.

    An event names the ids of the events that it waits for. Arrows from events that are
    not in the file are left out. They are in the order of the events that wait.
    """
    waits = stages.waits
    by_id = np.argsort(stages.id, kind="stable")
    with_id = equal_ranges(stages.id[by_id], waits.value)
    is_in_file = with_id.first < with_id.end
    source = by_id[with_id.first[is_in_file]]
    target = waits.message[is_in_file]
    return GraphFlows(
        source=source,
        target=target,
        leaves=stages.time[source] + stages.dur[source],
        arrives=stages.time[target],
    )


def _event_numbers(by_packet: Int64s, begins: int, stages: int) -> EventNumbers:
    """Number all events in the order of their packets.

    With 2 begins, 1 stage and 1 value, and by_packet [0, 2, 3, 1], the begins have the
    numbers 0 and 3, the stage 1, the value 2.

    Args:
        by_packet: The events in that order, as indices into all begins, then all
            stages, then all values.
        begins: How many begins there are.
        stages: How many stages there are.
    """
    number = np.empty(len(by_packet), np.int64)
    number[by_packet] = np.arange(len(by_packet))
    of_begins, of_stages, of_values = np.split(number, (begins, begins + stages))
    return EventNumbers(begins=of_begins, stages=of_stages, values=of_values)


def _durations(begins: Begins, ends: SliceMarks, end: Int64s) -> Int64s:
    """Return how long each slice is in ns; -1 if it has no end.

    Args:
        begins: The begins.
        ends: The ends.
        end: The number of the end of each begin; -1 for none.
    """
    end_time = np.append(ends.time, 0)[end]  # what -1 chooses is not used
    return np.where(end >= 0, end_time - begins.time, -1)


def _first_events(at: Int64s, end: Int64s) -> Int64s:
    """Choose the events with which stretches begin, so that a stretch is quick to read.

    A stretch begins after STRETCH_EVENTS events, where a new block of 1 << STRETCH_BITS
    bytes begins, and where more than MAX_GAP_BYTES lie between two events or an event
    is larger than that; but never within a packet.

    Args:
        at: The byte where the packet of each event begins, ascending. Events may share
            a packet.
        end: The byte where it ends.

    Returns:
        The numbers of these events, ascending; the first is 0 if there is any event.
    """
    is_first = np.arange(len(at)) % STRETCH_EVENTS == 0
    block = at >> STRETCH_BITS
    is_in_new_block = block[1:] != block[:-1]
    is_behind_gap = at[1:] - end[:-1] > MAX_GAP_BYTES
    is_large = end - at > MAX_GAP_BYTES
    is_in_same_packet = at[1:] == at[:-1]
    is_first[1:] |= is_in_new_block | is_behind_gap
    is_first |= is_large
    is_first[1:] &= ~is_in_same_packet
    return np.flatnonzero(is_first)
