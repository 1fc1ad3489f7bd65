"""The packets of a piece of the document -> tables of its begins, ends, GPU stages and
counters.

What is no readable event is left out of the tables and counted, here and nowhere else:
so the columns and the text that is written later agree on which events there are.
"""

from __future__ import annotations

from typing import Any

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
BEGIN, END = 1, 2  # TrackEvent.type
LONGEST_NUMBER = 18  # digits


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


def scan(data: bytes, first: int = 0) -> TracePiece:
    """The events in whole packets at the beginning of `data`, which is at byte
    `first`."""
    words = words_of(data)
    start, end, rest, next_end = packets(words, data)
    outer = np.concatenate(([0], end[:-1])) + first
    packet = fields(words, start, end, {TIME: VARINT, **dict.fromkeys(CONTENTS, BYTES)})
    left = packet.whole.copy()
    rows: dict[int, Rows] = {}
    for number in CONTENTS:
        rows[number] = np.flatnonzero(left & (packet.at[number] >= 0))
        left[rows[number]] = False
    lost = [
        (outer[~packet.whole], "a damaged packet"),
        (outer[left], "a packet of another kind"),
    ]
    time = packet.value[TIME]
    in_time = (packet.at[TIME] >= 0) & (time >= 0) & (time <= LIMIT_NS)

    def within(number: int) -> tuple[Int64s, Int64s]:
        at = packet.at[number][rows[number]]
        return at, at + packet.value[number][rows[number]]

    tables = [
        (byte, number, data[at:until])
        for number in (CLOCK, TRACK, INTERNED)
        for byte, at, until in np.stack(
            (outer[rows[number]], *within(number)), 1
        ).tolist()
    ]

    def readable(number: int, good: Flags) -> Rows:
        good = good & in_time[rows[number]]
        lost.append((outer[rows[number]][~good], "a damaged event"))
        return np.flatnonzero(good)

    single = {9: VARINT, 10: VARINT, 11: VARINT, 3: VARINT}
    event = fields(words, *within(EVENT), single, {4: BYTES})
    good = readable(EVENT, event.whole & np.isin(event.value[9], (BEGIN, END)))
    begun, ended = (good[event.value[9][good] == kind] for kind in (BEGIN, END))
    single = dict.fromkeys((1, 2, 11, 13, 14, 20), VARINT) | {21: BYTES}
    stage = fields(words, *within(STAGE), single, {6: BYTES, 18: VARINT})
    dur = np.where(stage.at[2] >= 0, stage.value[2], 0)
    ends = time[rows[STAGE]] + np.clip(dur, -1, LIMIT_NS)
    staged = readable(STAGE, stage.whole & (dur >= 0) & (ends <= LIMIT_NS))
    counter = fields(words, *within(COUNTER), {4: VARINT}, {2: BYTES})
    places = {
        n: (outer[rows[n]], end[rows[n]] + first, time[rows[n]]) for n in CONTENTS
    }
    counters, damaged = _counters(
        words, counter, readable(COUNTER, counter.whole), places[COUNTER]
    )
    lost.append((damaged, "a damaged value"))
    told = (
        Skipped(byte, what) for at, what in lost for byte in at[:MOST_LISTED].tolist()
    )
    return TracePiece(
        data=data,
        begins=_begins(words, event, begun, places[EVENT]),
        ends=SliceMarks(**_placed(places[EVENT], ended), track=event.value[11][ended]),
        stages=_stages(words, stage, staged, places[STAGE], dur),
        counters=counters,
        tables=tuple(tables),
        lost=tuple(sorted(told, key=lambda one: one.byte)[:MOST_LISTED]),
        lost_in_all=sum(len(at) for at, _ in lost),
        rest=rest,
        next_end=next_end,
    )


def _of(found: Repeated, rows: Rows, count: int) -> Repeated:
    """Those of some messages, which are numbered anew."""
    number = np.full(count, -1, np.intp)
    number[rows] = np.arange(len(rows))
    message = number[found.message]
    keep = message >= 0
    return Repeated(message[keep], found.at[keep], found.value[keep])


Places = tuple[Int64s, Int64s, Int64s]
"""Of packets of a kind: the byte where each begins, and ends, and its time."""


def _placed(places: Places, rows: Rows) -> dict[str, Any]:
    return dict(
        zip(("at", "end", "time"), (place[rows] for place in places), strict=True)
    )


def _begins(words: Words, event: Fields, rows: Rows, places: Places) -> Begins:
    args = _of(event.repeated[4], rows, len(event.whole))
    sync = np.zeros(len(rows), np.bool_)
    sync[args.message[_keyed(words, args, b"\x52", b"cuda_sync_kind", b"\x32")]] = True
    return Begins(
        **_placed(places, rows),
        track=event.value[11][rows],
        name=event.value[10][rows],
        category=event.value[3][rows],
        correlation=_integers(words, args, len(rows), b"correlation"),
        external_id=_integers(words, args, len(rows), b"External id", b"external id"),
        is_sync=sync & (event.at[3][rows] < 0),
        args=args,
    )


def _stages(
    words: Words, stage: Fields, rows: Rows, places: Places, dur: Int64s
) -> Stages:
    extra = _of(stage.repeated[6], rows, len(stage.whole))
    return Stages(
        **_placed(places, rows),
        dur=dur[rows],
        **{
            name: stage.value[number][rows]
            for name, number in (
                ("id", 1),
                ("gpu", 11),
                ("queue", 13),
                ("kind", 14),
                ("name", 20),
            )
        },
        correlation=_numbers(words, extra, len(rows), b"correlation"),
        memory=_numbers(words, extra, len(rows), b"memory kind"),
        stream=_numbers(words, extra, len(rows), b"stream id", missing=-1),
        launch=stage.at[21][rows],
        launch_size=stage.value[21][rows],
        extra=extra,
        waits=_of(stage.repeated[18], rows, len(stage.whole)),
    )


def _counters(
    words: Words, counter: Fields, rows: Rows, places: Places
) -> tuple[Counters, Int64s]:
    """The values, and the packets of those that are damaged."""
    values = _of(counter.repeated[2], rows, len(counter.whole))
    packet = rows[values.message]
    inner = fields(
        words, values.at, values.at + values.value, {1: VARINT, 2: VARINT, 3: FIXED64}
    )
    is_whole = inner.at[2] >= 0
    good = np.flatnonzero(inner.whole & (is_whole | (inner.at[3] >= 0)))
    bits = np.where(
        is_whole, inner.value[2], words[np.maximum(inner.at[3], 0)].view(np.int64)
    )
    here = packet[good]
    counters = Counters(
        **_placed(places, here),
        descriptor=counter.value[4][here],
        id=np.maximum(inner.value[1], 0)[good],
        bits=bits[good],
        is_whole=is_whole[good],
    )
    return counters, places[0][np.delete(packet, good)]


def _keyed(words: Words, found: Repeated, tag: bytes, key: bytes, then: bytes) -> Flags:
    """Which messages begin with this key, at most 22 bytes, and the tag of a value
    behind it."""
    text = tag + bytes([len(key)]) + key + then
    same = found.value > len(text)
    for at in range(0, len(text), 8):
        part = text[at : at + 8]
        mask = np.uint64((1 << 8 * len(part)) - 1)
        rows = np.flatnonzero(same)
        word = words[found.at[rows] + at] & mask
        same[rows] = word == np.uint64(int.from_bytes(part, "little"))
    return same


def _integers(words: Words, args: Repeated, count: int, *keys: bytes) -> Int64s:
    """The int args with one of these keys, -1 where there is none."""
    found = np.full(count, -1, np.int64)
    for key in keys:
        rows = np.flatnonzero(_keyed(words, args, b"\x52", key, b"\x20"))
        at = args.at[rows] + len(key) + 3
        value, size = varints(words, at)
        good = (size > 0) & (at + size <= args.at[rows] + args.value[rows])
        found[args.message[rows[good]]] = value[good]
    return found


def _numbers(
    words: Words, extra: Repeated, count: int, key: bytes, missing: int = 0
) -> Int64s:
    """The text of this extra as a number, -1 if it is none, `missing` where it is
    absent: torch leaves out zeros of most. Behind `process_id` any key may follow, also
    this one, with another meaning."""
    until = np.full(count, np.iinfo(np.int64).max)
    ends = np.flatnonzero(_keyed(words, extra, b"\x0a", b"process_id", b"\x12"))
    until[extra.message[ends[::-1]]] = extra.at[ends[::-1]]
    rows = np.flatnonzero(_keyed(words, extra, b"\x0a", key, b"\x12"))
    rows = rows[extra.at[rows] < until[extra.message[rows]]]
    at = extra.at[rows] + len(key) + 3
    size, width = varints(words, at)
    good = (width > 0) & (size > 0) & (size <= LONGEST_NUMBER)
    good &= at + width + size <= extra.at[rows] + extra.value[rows]
    rows, at, size = rows[good], (at + width)[good], size[good]
    number, plain = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
    for place in range(int(size.max(initial=0))):
        digit = (words[at + place] & 0xFF).view(np.int64) - 48
        inside = place < size
        number = np.where(inside, number * 10 + digit, number)
        plain &= ~inside | ((digit >= 0) & (digit < 10))
    found = np.full(count, missing, np.int64)
    found[extra.message[rows]] = np.where(plain, number, -1)
    return found
