"""Scans the packets of a chunk into tables of begins, ends, GPU stages and counters.

What is no readable event is left out of the tables and counted, here and nowhere else:
so the columns and the text that is written later agree on which events there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

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
    find_packets,
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


class TablePacket(NamedTuple):
    """A packet with a table of names and the like."""

    byte: int  # of the document, where it begins
    kind: int  # the field that has the content, one of TABLES
    content: bytes


class TracePiece(msgspec.Struct, frozen=True, eq=False):
    """What some bytes hold."""

    data: bytes
    begins: Begins
    ends: SliceMarks
    stages: Stages
    counters: Counters
    tables: tuple[TablePacket, ...]  # they are few
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
        """Start without lost packets."""
        self.count = 0
        self._first: list[Skipped] = []

    def add(self, at: Int64s, reason: str) -> None:
        """Count packets that begin at these bytes, in order, as lost for one reason."""
        self.count += len(at)
        self._first += [Skipped(byte, reason) for byte in at[:MOST_LISTED].tolist()]

    def first(self) -> tuple[Skipped, ...]:
        """The first lost packets, sorted by their place; at most MOST_LISTED."""
        in_order = sorted(self._first, key=lambda skipped: skipped.byte)
        return tuple(in_order[:MOST_LISTED])


def scan(data: bytes, first: int = 0) -> TracePiece:
    """Read the events of the whole packets at the beginning of some bytes.

    Args:
        data: The bytes, which begin with a packet.
        first: Which byte of the document is the first of them.
    """
    words = words_of(data)
    bounds = find_packets(words, data)
    packet = fields(
        words,
        bounds.start,
        bounds.end,
        {TIME: VARINT, **dict.fromkeys(CONTENTS, BYTES)},
    )
    lost = Lost()
    by_kind = _packets_by_kind(packet, bounds.end, first, lost)
    begins, ends = _read_begins_and_ends(words, by_kind[EVENT], lost)
    stages = _read_stages(words, by_kind[STAGE], lost)
    counters = _read_counters(words, by_kind[COUNTER], lost)
    return TracePiece(
        data=data,
        begins=begins,
        ends=ends,
        stages=stages,
        counters=counters,
        tables=_table_packets(data, by_kind),
        lost=lost.first(),
        lost_in_all=lost.count,
        rest=bounds.rest,
        next_end=bounds.next_end,
    )


def _table_packets(
    data: bytes, by_kind: Mapping[int, PacketsOfKind]
) -> tuple[TablePacket, ...]:
    """The packets with tables of names and the like: kind by kind, each kind in the
    order of the document."""
    tables: list[TablePacket] = []
    for kind in TABLES:
        rows = by_kind[kind]
        starts_of_packets = rows.at.tolist()
        contents = zip(rows.content.tolist(), rows.content_end.tolist(), strict=True)
        for byte, (start, end) in zip(starts_of_packets, contents, strict=True):
            packet = TablePacket(byte=byte, kind=kind, content=data[start:end])
            tables.append(packet)
    return tuple(tables)


def _packets_by_kind(
    packet: Fields, end: Int64s, first: int, lost: Lost
) -> dict[int, PacketsOfKind]:
    """Divide packets by what they hold.

    Args:
        packet: The fields of all packets of a piece.
        end: The byte of the piece after each packet, where the next one begins.
        first: Which byte of the document is the first of the piece.
        lost: Damaged packets, and those that hold nothing of CONTENTS, are added here.

    Returns:
        The packets by the field that has the content, for each of CONTENTS.
    """
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


def _readable_rows(events: PacketsOfKind, is_good: Flags, lost: Lost) -> Rows:
    """Return the rows of the packets that are events, ascending.

    Args:
        events: The packets.
        is_good: Whether the content of each could be read. It also needs a time.
        lost: The other packets are added here.
    """
    is_readable = is_good & events.is_in_time
    lost.add(events.at[~is_readable], "a damaged event")
    return np.flatnonzero(is_readable)


def _renumber_fields(parts: Repeated, rows: Rows, count: int) -> Repeated:
    """Keep the repeated fields of some messages, and number these messages anew.

    For the rows [2, 5], fields of message 5 become those of message 1; fields of
    message 3 are left out.

    Args:
        parts: The fields.
        rows: The messages to keep.
        count: How many messages there are.
    """
    new_number = np.full(count, -1, np.intp)  # -1: the message is left out
    new_number[rows] = np.arange(len(rows))
    message = new_number[parts.message]
    is_kept = message >= 0
    return Repeated(
        message=message[is_kept], at=parts.at[is_kept], value=parts.value[is_kept]
    )


def _read_begins_and_ends(
    words: Words, events: PacketsOfKind, lost: Lost
) -> tuple[Begins, SliceMarks]:
    """The begins and the ends of slices. Packets that cannot be read are added to
    `lost`."""
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
    marks = _readable_rows(events, event.whole & is_begin_or_end, lost)
    type_of_mark = event_type[marks]
    begins = _read_begins(words, events, event, marks[type_of_mark == BEGIN])
    ends = _read_ends(events, event, marks[type_of_mark == END])
    return begins, ends


def _read_begins(
    words: Words, events: PacketsOfKind, event: Fields, rows: Rows
) -> Begins:
    """The begins of slices in the packets `rows`; arrays of shape [rows]."""
    count = len(rows)
    args = _renumber_fields(event.repeated[EventField.ARGS], rows, len(event.whole))
    has_category = event.has(EventField.CATEGORY)[rows]
    return Begins(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        track=event.value[EventField.TRACK][rows],
        name=event.value[EventField.NAME][rows],
        category=event.value[EventField.CATEGORY][rows],
        correlation=_integer_args(words, args, count, b"correlation"),
        external_id=_integer_args(words, args, count, b"External id", b"external id"),
        is_sync=_has_sync_kind(words, args, count) & ~has_category,
        args=args,
    )


def _has_sync_kind(words: Words, args: Repeated, count: int) -> Flags:
    """A flag for each of `count` slices: whether it has the arg `cuda_sync_kind`, as
    waits for the GPU do."""
    is_sync_kind = _has_key(words, args, ARG_NAME, b"cuda_sync_kind", ARG_TEXT)
    has_sync_kind = np.zeros(count, np.bool_)
    has_sync_kind[args.message[is_sync_kind]] = True
    return has_sync_kind


def _read_ends(events: PacketsOfKind, event: Fields, rows: Rows) -> SliceMarks:
    """The ends of slices in the packets `rows`; arrays of shape [rows]."""
    return SliceMarks(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        track=event.value[EventField.TRACK][rows],
    )


def _read_stages(words: Words, events: PacketsOfKind, lost: Lost) -> Stages:
    """The events of GPUs, called render stages in the file. Packets that cannot be read
    are added to `lost`."""
    stage = _read_stage_fields(words, events)
    has_duration = stage.has(StageField.DURATION)
    dur = np.where(has_duration, stage.value[StageField.DURATION], 0)
    ends = events.time + np.clip(dur, -1, LIMIT_NS)
    is_in_range = (dur >= 0) & (ends <= LIMIT_NS)
    rows = _readable_rows(events, stage.whole & is_in_range, lost)

    count = len(rows)
    messages = len(stage.whole)
    extra = _renumber_fields(stage.repeated[StageField.EXTRA], rows, messages)
    waits = _renumber_fields(stage.repeated[StageField.WAITS], rows, messages)
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
        correlation=_number_extras(words, extra, count, b"correlation"),
        memory=_number_extras(words, extra, count, b"memory kind"),
        stream=_number_extras(words, extra, count, b"stream id", missing=-1),
        launch=stage.at[StageField.LAUNCH][rows],
        launch_size=stage.value[StageField.LAUNCH][rows],
        extra=extra,
        waits=waits,
    )


def _read_stage_fields(words: Words, events: PacketsOfKind) -> Fields:
    """The fields of all packets that hold an event of a GPU."""
    return fields(
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


def _read_counters(words: Words, events: PacketsOfKind, lost: Lost) -> Counters:
    """The values of counters, of which a packet may have several. Those that cannot be
    read are added to `lost`."""
    counter = fields(
        words,
        events.content,
        events.content_end,
        single={CounterField.DESCRIPTOR: VARINT},
        repeated={CounterField.VALUES: BYTES},
    )
    readable = _readable_rows(events, counter.whole, lost)
    values = _renumber_fields(
        counter.repeated[CounterField.VALUES], readable, len(counter.whole)
    )
    row_of_value = readable[values.message]
    value = fields(
        words,
        values.at,
        values.at + values.value,
        {ValueField.ID: VARINT, ValueField.INTEGER: VARINT, ValueField.DOUBLE: FIXED64},
    )
    is_integer = value.has(ValueField.INTEGER)
    is_good = value.whole & (is_integer | value.has(ValueField.DOUBLE))
    lost.add(events.at[row_of_value[~is_good]], "a damaged value")
    rows = row_of_value[is_good]
    return Counters(
        at=events.at[rows],
        end=events.end[rows],
        time=events.time[rows],
        descriptor=counter.value[CounterField.DESCRIPTOR][rows],
        id=np.maximum(value.value[ValueField.ID], 0)[is_good],
        bits=_bits_of_values(words, value)[is_good],
        is_whole=is_integer[is_good],
    )


def _bits_of_values(words: Words, value: Fields) -> Int64s:
    """Return the integer of each value of a counter, or the 64 bits of its float."""
    # a value without a float has the place -1, for which any word will do
    double_at = np.maximum(value.at[ValueField.DOUBLE], 0)
    bits_of_double = words[double_at].view(np.int64)
    is_integer = value.has(ValueField.INTEGER)
    return np.where(is_integer, value.value[ValueField.INTEGER], bits_of_double)


def _has_key(
    words: Words, messages: Repeated, key_tag: bytes, key: bytes, value_tag: bytes
) -> Flags:
    """Tell of each message whether it is a pair of a given key and some value.

    Its first bytes must be the tag of the key, the size of the key, the key and the tag
    of the value. Eight bytes are compared at a time.

    Args:
        words: The data, see `words_of`.
        messages: The messages.
        key_tag: The tag of the field with the key.
        key: The key, of at most 22 bytes.
        value_tag: The tag of the field with the value.
    """
    beginning = key_tag + bytes([len(key)]) + key + value_tag
    is_same = messages.value > len(beginning)
    for offset in range(0, len(beginning), 8):
        expected_bytes = beginning[offset : offset + 8]
        expected = np.uint64(int.from_bytes(expected_bytes, "little"))
        mask = np.uint64((1 << 8 * len(expected_bytes)) - 1)
        rows = np.flatnonzero(is_same)
        word = words[messages.at[rows] + offset]
        is_same[rows] = (word & mask) == expected
    return is_same


def _integer_args(words: Words, args: Repeated, count: int, *keys: bytes) -> Int64s:
    """Return the integer that each slice has in an arg, -1 if it has none.

    Args:
        words: The data, see `words_of`.
        args: The args of the slices: a name and a value each.
        count: How many slices there are.
        keys: The names that the arg may have. If a slice has several, the last counts.
    """
    numbers = np.full(count, -1, np.int64)
    for key in keys:
        arg = _keep_marked(args, _has_key(words, args, ARG_NAME, key, ARG_INTEGER))
        number_at = arg.at + len(ARG_NAME) + 1 + len(key) + len(ARG_INTEGER)
        number, size = varints(words, number_at)
        arg_end = arg.at + arg.value
        is_good = (size > 0) & (number_at + size <= arg_end)
        numbers[arg.message[is_good]] = number[is_good]
    return numbers


def _number_extras(
    words: Words, extra: Repeated, count: int, key: bytes, missing: int = 0
) -> Int64s:
    """Return the number that each GPU event has in an extra: a text, such as "42".

    Extras after `process_id` do not count. There stand keys of the user, which may have
    any name, also this one.

    Args:
        words: The data, see `words_of`.
        extra: The extras of the events: a key and a text each.
        count: How many events there are.
        key: The key.
        missing: What an event without the extra gets. torch leaves out most zeros.

    Returns:
        A number for each event, -1 if the text is none.
    """
    with_key = _keep_marked(extra, _has_key(words, extra, EXTRA_KEY, key, EXTRA_VALUE))
    end_of_torch = _ends_of_torchs_extras(words, extra, count)
    of_torch = _keep_marked(with_key, with_key.at < end_of_torch[with_key.message])
    size_at = of_torch.at + len(EXTRA_KEY) + 1 + len(key) + len(EXTRA_VALUE)
    size, width = varints(words, size_at)
    text_at = size_at + width
    extra_end = of_torch.at + of_torch.value
    is_possible = (width > 0) & (size > 0) & (size <= MAX_DIGITS)
    is_good = is_possible & (text_at + size <= extra_end)
    numbers = np.full(count, missing, np.int64)
    decimals = _parse_decimals(words, text_at[is_good], size[is_good])
    numbers[of_torch.message[is_good]] = decimals
    return numbers


def _keep_marked(messages: Repeated, which: Flags) -> Repeated:
    """The repeated fields whose flag in `which` is set."""
    rows = np.flatnonzero(which)
    return Repeated(
        message=messages.message[rows],
        at=messages.at[rows],
        value=messages.value[rows],
    )


def _ends_of_torchs_extras(words: Words, extra: Repeated, count: int) -> Int64s:
    """Return where the extras end that torch writes itself, of each GPU event.

    It is the byte of the first extra `process_id`; the largest int64 if there is none.

    Args:
        words: The data, see `words_of`.
        extra: The extras of the events.
        count: How many events there are.
    """
    is_process = _has_key(words, extra, EXTRA_KEY, b"process_id", EXTRA_VALUE)
    # backwards, so that the first one of an event is written last and stays
    backwards = np.flatnonzero(is_process)[::-1]
    ends = np.full(count, np.iinfo(np.int64).max)
    ends[extra.message[backwards]] = extra.at[backwards]
    return ends


def _parse_decimals(words: Words, at: Int64s, size: Int64s) -> Int64s:
    """Return texts as numbers: 42 for the bytes "42", -1 for "4x".

    Args:
        words: The data, see `words_of`.
        at: The first byte of each text.
        size: How many bytes each has, at most MAX_DIGITS.
    """
    number = np.zeros(len(at), np.int64)
    is_plain = np.ones(len(at), np.bool_)
    longest = int(size.max(initial=0))
    for place in range(longest):
        character = words[at + place] & 0xFF
        digit = character.view(np.int64) - ord("0")
        is_digit = (digit >= 0) & (digit < 10)
        is_inside = place < size
        number = np.where(is_inside, number * 10 + digit, number)
        is_plain &= ~is_inside | is_digit
    return np.where(is_plain, number, -1)
