"""The packets of a piece of the document -> tables of its begins, ends, GPU stages and
counters.

What is no readable event is left out of the tables and counted, here and nowhere else:
so the columns and the text that is written later agree on which events there are.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.report import Skipped
from fusetui.trace.pftrace.wire import (
    BYTES,
    FIXED64,
    VARINT,
    Fields,
    Repeated,
    Words,
    fields,
    packets,
    varints,
    words_of,
)
from fusetui.trace.read.batch import MOST_LISTED
from fusetui.trace.read.times import LIMIT_NS

TIME, CLOCK, EVENT, INTERNED, COUNTER, STAGE, TRACK = 8, 6, 11, 12, 52, 53, 60
"""Fields of a packet (trace_packet.proto)."""
CONTENTS = (EVENT, STAGE, COUNTER, INTERNED, TRACK, CLOCK)
"""What a packet may hold; of several in one packet the first of these counts."""
TABLES = (CLOCK, TRACK, INTERNED)
BEGIN, END = 1, 2  # EventField.TYPE
MAX_DIGITS = 18  # of a number that is written as text


class EventField(IntEnum):
    """Fields of an EVENT (track_event.proto)."""

    CATEGORY = 3
    ARGS = 4
    TYPE = 9
    NAME = 10
    TRACK = 11


class StageField(IntEnum):
    """Fields of a STAGE (gpu_render_stage_event.proto)."""

    ID = 1
    DURATION = 2
    EXTRA = 6
    GPU = 11
    QUEUE = 13
    KIND = 14
    WAITS = 18
    NAME = 20
    LAUNCH = 21


class CounterField(IntEnum):
    """Fields of a COUNTER (gpu_counter_event.proto)."""

    VALUES = 2
    DESCRIPTOR = 4


class ValueField(IntEnum):
    """Fields of one of the values of a COUNTER."""

    ID = 1
    INTEGER = 2
    DOUBLE = 3


# Tags of fields, with their types, in an arg (debug_annotation.proto) and in an extra
# of a stage.
ARG_NAME, ARG_INTEGER, ARG_TEXT = b"\x52", b"\x20", b"\x32"
EXTRA_KEY, EXTRA_VALUE = b"\x0a", b"\x12"


class Placed(msgspec.Struct, frozen=True, eq=False):
    """Where events are, and when."""

    at: Int64s  # the byte where its packet begins
    end: Int64s  # and ends
    time: Int64s  # ns since the epoch


class SliceMarks(Placed, frozen=True, eq=False):
    """Begins or ends of slices; arrays of shape [marks]."""

    track: Int64s


class Begins(SliceMarks, frozen=True, eq=False):
    """Begins of slices; arrays of shape [begins]."""

    name: Int64s  # interned, -1 if absent
    category: Int64s  # interned, -1 if absent
    correlation: Int64s  # -1 if absent
    external_id: Int64s  # -1 if absent
    is_sync: Flags  # a wait for the GPU
    args: Repeated  # in the bytes of the piece; `message` is the number of the begin


class Stages(Placed, frozen=True, eq=False):
    """Events of GPUs; arrays of shape [stages]."""

    dur: Int64s
    id: Int64s
    gpu: Int64s
    queue: Int64s  # interned, like kind and name
    kind: Int64s
    name: Int64s  # -1 if absent
    correlation: Int64s  # 0 if absent
    memory: Int64s  # kind of it, 0 if absent
    stream: Int64s  # that it ran on, -1 if absent: the queue may be a lane for display
    launch: Int64s  # its place in the piece, -1 if absent
    launch_size: Int64s
    extra: Repeated  # in the bytes of the piece
    waits: Repeated  # for the stages with these ids


class Counters(Placed, frozen=True, eq=False):
    """Values of counters; arrays of shape [values]."""

    descriptor: Int64s
    id: Int64s  # of the counter in the descriptor
    bits: Int64s  # a whole number, or those of a float64
    is_whole: Flags


class TracePiece(msgspec.Struct, frozen=True, eq=False):
    """What some bytes hold."""

    data: bytes
    begins: Begins
    ends: SliceMarks
    stages: Stages
    counters: Counters
    # packets that are few: byte, field and content
    tables: tuple[tuple[int, int, bytes], ...]
    lost: tuple[Skipped, ...]  # the first packets that are no readable event
    lost_in_all: int
    rest: int  # the bytes that were used
    # where the next packet ends, from the first byte on, -1 if there can be none
    next_end: int


class PacketsOfKind(Placed, frozen=True, eq=False):
    """The packets with one of the CONTENTS; arrays of shape [packets]."""

    is_in_time: Flags  # has a time, of a range that is read
    content: Int64s  # the byte of the piece where the content begins
    content_end: Int64s


class Lost:
    """Packets that are no readable event."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Skipped] = []

    def add(self, at: Int64s, reason: str) -> None:
        """Packets that begin at these bytes, in order."""
        self.count += len(at)
        self._first += [Skipped(byte, reason) for byte in at[:MOST_LISTED].tolist()]

    def first(self) -> tuple[Skipped, ...]:
        """The first of them, as many as are listed."""
        in_order = sorted(self._first, key=lambda skipped: skipped.byte)
        return tuple(in_order[:MOST_LISTED])


def scan(data: bytes, first: int = 0) -> TracePiece:
    """The events in whole packets at the beginning of `data`, which is at byte
    `first`."""
    words = words_of(data)
    bounds = packets(words, data)
    packet = fields(
        words,
        bounds.start,
        bounds.end,
        {TIME: VARINT, **dict.fromkeys(CONTENTS, BYTES)},
    )
    lost = Lost()
    by_kind = _packets_by_kind(packet, bounds.end, first, lost)

    events = by_kind[EVENT]
    event = fields(
        words,
        events.content,
        events.content_end,
        single={
            EventField.TYPE: VARINT,
            EventField.NAME: VARINT,
            EventField.TRACK: VARINT,
            EventField.CATEGORY: VARINT,
        },
        repeated={EventField.ARGS: BYTES},
    )
    event_type = event.value[EventField.TYPE]
    is_begin_or_end = np.isin(event_type, (BEGIN, END))
    marks = _readable(events, event.whole & is_begin_or_end, lost)
    stages = _stages(words, by_kind[STAGE], lost)
    counters = _counters(words, by_kind[COUNTER], lost)
    return TracePiece(
        data=data,
        begins=_begins(words, events, event, marks[event_type[marks] == BEGIN]),
        ends=_ends(events, event, marks[event_type[marks] == END]),
        stages=stages,
        counters=counters,
        tables=tuple(
            (byte, kind, data[content:content_end])
            for kind in TABLES
            for byte, content, content_end in zip(
                by_kind[kind].at.tolist(),
                by_kind[kind].content.tolist(),
                by_kind[kind].content_end.tolist(),
                strict=True,
            )
        ),
        lost=lost.first(),
        lost_in_all=lost.count,
        rest=bounds.rest,
        next_end=bounds.next_end,
    )


def _packets_by_kind(
    packet: Fields, end: Int64s, first: int, lost: Lost
) -> dict[int, PacketsOfKind]:
    """The packets with each of the CONTENTS; those with none are lost. They end at
    these bytes of the piece, one behind the other; the piece begins at `first`."""
    packet_at = np.concatenate(([0], end[:-1])) + first
    packet_end = end + first
    time = packet.value[TIME]
    is_in_time = packet.has(TIME) & (time >= 0) & (time <= LIMIT_NS)
    is_left = packet.whole.copy()
    by_kind: dict[int, PacketsOfKind] = {}
    for kind in CONTENTS:
        rows = np.flatnonzero(is_left & packet.has(kind))
        is_left[rows] = False
        content = packet.at[kind][rows]
        by_kind[kind] = PacketsOfKind(
            at=packet_at[rows],
            end=packet_end[rows],
            time=time[rows],
            is_in_time=is_in_time[rows],
            content=content,
            content_end=content + packet.value[kind][rows],
        )
    lost.add(packet_at[~packet.whole], "a damaged packet")
    lost.add(packet_at[is_left], "a packet of another kind")
    return by_kind


def _readable(events: PacketsOfKind, is_good: Flags, lost: Lost) -> Rows:
    """The rows of events that are good and have a time; the others are lost."""
    is_good = is_good & events.is_in_time
    lost.add(events.at[~is_good], "a damaged event")
    return np.flatnonzero(is_good)


def _of_messages(parts: Repeated, rows: Rows, count: int) -> Repeated:
    """Those fields that are of these of `count` messages, which are numbered anew."""
    new_number = np.full(count, -1, np.intp)
    new_number[rows] = np.arange(len(rows))
    message = new_number[parts.message]
    keep = message >= 0
    return Repeated(message=message[keep], at=parts.at[keep], value=parts.value[keep])


def _begins(words: Words, events: PacketsOfKind, event: Fields, rows: Rows) -> Begins:
    args = _of_messages(event.repeated[EventField.ARGS], rows, len(event.whole))
    has_sync_kind = np.zeros(len(rows), np.bool_)
    sync_kinds = _keyed(words, args, ARG_NAME, b"cuda_sync_kind", ARG_TEXT)
    has_sync_kind[args.message[sync_kinds]] = True
    has_category = event.has(EventField.CATEGORY)[rows]
    return Begins(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        track=event.value[EventField.TRACK][rows],
        name=event.value[EventField.NAME][rows],
        category=event.value[EventField.CATEGORY][rows],
        correlation=_integers(words, args, len(rows), b"correlation"),
        external_id=_integers(words, args, len(rows), b"External id", b"external id"),
        is_sync=has_sync_kind & ~has_category,
        args=args,
    )


def _ends(events: PacketsOfKind, event: Fields, rows: Rows) -> SliceMarks:
    return SliceMarks(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        track=event.value[EventField.TRACK][rows],
    )


def _stages(words: Words, events: PacketsOfKind, lost: Lost) -> Stages:
    stage = fields(
        words,
        events.content,
        events.content_end,
        single={
            StageField.ID: VARINT,
            StageField.DURATION: VARINT,
            StageField.GPU: VARINT,
            StageField.QUEUE: VARINT,
            StageField.KIND: VARINT,
            StageField.NAME: VARINT,
            StageField.LAUNCH: BYTES,
        },
        repeated={StageField.EXTRA: BYTES, StageField.WAITS: VARINT},
    )
    dur = np.where(stage.has(StageField.DURATION), stage.value[StageField.DURATION], 0)
    ends = events.time + np.clip(dur, -1, LIMIT_NS)
    rows = _readable(events, stage.whole & (dur >= 0) & (ends <= LIMIT_NS), lost)
    count = len(stage.whole)
    extra = _of_messages(stage.repeated[StageField.EXTRA], rows, count)
    return Stages(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        dur=dur[rows],
        id=stage.value[StageField.ID][rows],
        gpu=stage.value[StageField.GPU][rows],
        queue=stage.value[StageField.QUEUE][rows],
        kind=stage.value[StageField.KIND][rows],
        name=stage.value[StageField.NAME][rows],
        correlation=_numbers(words, extra, len(rows), b"correlation"),
        memory=_numbers(words, extra, len(rows), b"memory kind"),
        stream=_numbers(words, extra, len(rows), b"stream id", missing=-1),
        launch=stage.at[StageField.LAUNCH][rows],
        launch_size=stage.value[StageField.LAUNCH][rows],
        extra=extra,
        waits=_of_messages(stage.repeated[StageField.WAITS], rows, count),
    )


def _counters(words: Words, events: PacketsOfKind, lost: Lost) -> Counters:
    """The values of all packets, which may have several each."""
    counter = fields(
        words,
        events.content,
        events.content_end,
        single={CounterField.DESCRIPTOR: VARINT},
        repeated={CounterField.VALUES: BYTES},
    )
    readable = _readable(events, counter.whole, lost)
    values = _of_messages(
        counter.repeated[CounterField.VALUES], readable, len(counter.whole)
    )
    row_of_value = readable[values.message]
    value = fields(
        words,
        values.at,
        values.at + values.value,
        {ValueField.ID: VARINT, ValueField.INTEGER: VARINT, ValueField.DOUBLE: FIXED64},
    )
    is_whole = value.has(ValueField.INTEGER)
    is_good = value.whole & (is_whole | value.has(ValueField.DOUBLE))
    lost.add(events.at[row_of_value[~is_good]], "a damaged value")
    double_at = np.maximum(value.at[ValueField.DOUBLE], 0)
    bits = np.where(
        is_whole, value.value[ValueField.INTEGER], words[double_at].view(np.int64)
    )
    rows = row_of_value[is_good]
    return Counters(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        descriptor=counter.value[CounterField.DESCRIPTOR][rows],
        id=np.maximum(value.value[ValueField.ID], 0)[is_good],
        bits=bits[is_good],
        is_whole=is_whole[is_good],
    )


def _keyed(
    words: Words, messages: Repeated, key_tag: bytes, key: bytes, value_tag: bytes
) -> Flags:
    """Which messages begin with this key, of at most 22 bytes, and then have a value;
    both with these tags."""
    text = key_tag + bytes([len(key)]) + key + value_tag
    is_same = messages.value > len(text)
    for offset in range(0, len(text), 8):
        eight = text[offset : offset + 8]
        mask = np.uint64((1 << 8 * len(eight)) - 1)
        rows = np.flatnonzero(is_same)
        word = words[messages.at[rows] + offset] & mask
        is_same[rows] = word == np.uint64(int.from_bytes(eight, "little"))
    return is_same


def _integers(words: Words, args: Repeated, count: int, *keys: bytes) -> Int64s:
    """For each of `count` slices its int arg with one of these keys, -1 if it has
    none."""
    numbers = np.full(count, -1, np.int64)
    for key in keys:
        rows = np.flatnonzero(_keyed(words, args, ARG_NAME, key, ARG_INTEGER))
        at = args.at[rows] + len(ARG_NAME) + 1 + len(key) + len(ARG_INTEGER)
        number, size = varints(words, at)
        arg_end = args.at[rows] + args.value[rows]
        is_good = (size > 0) & (at + size <= arg_end)
        numbers[args.message[rows[is_good]]] = number[is_good]
    return numbers


def _numbers(
    words: Words, extra: Repeated, count: int, key: bytes, missing: int = 0
) -> Int64s:
    """For each of `count` stages the text of its extra with this key as a number: -1 if
    it is none, `missing` where it is absent, as torch leaves out zeros of most.

    Only extras before `process_id` count: behind it any key may follow, also this one,
    with another meaning.
    """
    first_other = np.full(count, np.iinfo(np.int64).max)  # its byte, by stage
    others = np.flatnonzero(_keyed(words, extra, EXTRA_KEY, b"process_id", EXTRA_VALUE))
    backwards = others[::-1]  # so that the first one of a stage is kept
    first_other[extra.message[backwards]] = extra.at[backwards]

    rows = np.flatnonzero(_keyed(words, extra, EXTRA_KEY, key, EXTRA_VALUE))
    rows = rows[extra.at[rows] < first_other[extra.message[rows]]]
    size_at = extra.at[rows] + len(EXTRA_KEY) + 1 + len(key) + len(EXTRA_VALUE)
    size, width = varints(words, size_at)
    text_at = size_at + width
    extra_end = extra.at[rows] + extra.value[rows]
    is_good = (width > 0) & (size > 0) & (size <= MAX_DIGITS)
    is_good &= text_at + size <= extra_end
    rows = rows[is_good]
    numbers = np.full(count, missing, np.int64)
    numbers[extra.message[rows]] = _decimals(words, text_at[is_good], size[is_good])
    return numbers


def _decimals(words: Words, at: Int64s, size: Int64s) -> Int64s:
    """The texts of these sizes at these bytes as numbers, -1 where one has anything but
    digits."""
    number = np.zeros(len(at), np.int64)
    is_plain = np.ones(len(at), np.bool_)
    for place in range(int(size.max(initial=0))):
        digit = (words[at + place] & 0xFF).view(np.int64) - ord("0")
        is_inside = place < size
        number = np.where(is_inside, number * 10 + digit, number)
        is_plain &= ~is_inside | ((digit >= 0) & (digit < 10))
    return np.where(is_plain, number, -1)
