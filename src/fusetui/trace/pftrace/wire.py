"""The wire format of protobuf, in bulk: the same field of many messages is read at
once.

Nothing here loops over messages: a loop goes from one field to the next, in all
messages that have one more. So time and memory depend on the bytes, and on the most
fields that a message has, which is bounded. Source:
protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int64s, Rows

Words = NDArray[np.uint64]
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
PADDING = 32  # bytes behind the data, so that any of them begins a word
MOST_FIELDS = 1000  # of a message; one with more is unreadable
PACKET = b"\x0a"  # how each packet of a trace begins: bytes, as field 1
LARGEST = 1 << 28  # bytes of a packet, and of anything in it

STOPS, DIGITS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
SIZES = np.uint64(0x0102030405060708)
SHIFTS = np.array(
    [
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ],
    np.uint64,
)
ONE, SEVEN, BYTE, LAST, LOW = (np.uint64(number) for number in (1, 7, 8, 56, 0xFF))


class Repeated(msgspec.Struct, frozen=True, eq=False):
    """All fields with one number, in the order of the document."""

    message: Rows
    at: Int64s  # the first byte of the value
    value: Int64s  # of bytes the size


class Fields(msgspec.Struct, frozen=True, eq=False):
    """The fields of messages; arrays of shape [messages]."""

    # by number: of a varint its value, -1 if absent; of bytes the size
    value: Mapping[int, Int64s]
    at: Mapping[int, Int64s]  # the first byte of the value, -1 if absent
    repeated: Mapping[int, Repeated]
    whole: Flags  # read to its end


def words_of(data: bytes) -> Words:
    """The eight bytes from each byte on, little endian; `data` gets PADDING."""
    padded = data + bytes(PADDING)
    return np.ndarray((len(padded) - 8,), "<u8", padded, strides=(1,))


def varints(words: Words, at: Int64s) -> tuple[Int64s, Int64s]:
    """The numbers that begin at these bytes, in two's complement, and how many bytes
    they have; 0 if more than ten."""
    word = words[at]
    stop = ~word & STOPS
    stop &= -stop  # the highest bit of the last byte
    size = ((stop >> SEVEN) * SIZES) >> LAST
    word &= (stop - ONE) & DIGITS
    for low, high, by in SHIFTS:
        word = (word & low) | ((word & high) >> by)
    if not stop.all():
        long = np.flatnonzero(stop == 0)
        word[long], size[long] = _long(words, at[long], word[long])
    return word.view(np.int64), size.view(np.int64)


def _long(words: Words, at: Int64s, low: Words) -> tuple[Words, Words]:
    """Of nine or ten bytes; `low` is the number that the first eight give."""
    rest = words[at + 8]
    ninth, tenth = rest & LOW, (rest >> BYTE) & LOW
    is_nine, is_ten = ninth < 0x80, (ninth >= 0x80) & (tenth < 0x80)
    value = low | ((ninth & np.uint64(0x7F)) << LAST)
    value |= np.where(is_ten, tenth << np.uint64(63), np.uint64(0))
    return value, np.where(
        is_nine, np.uint64(9), np.where(is_ten, np.uint64(10), np.uint64(0))
    )


def fields(
    words: Words,
    start: Int64s,
    end: Int64s,
    single: Mapping[int, int],
    repeated: Mapping[int, int] | None = None,
) -> Fields:
    """Some fields of the messages [start, end), by number, each with its type. Of those
    in `single` the last one counts; other fields are skipped, as protobuf says.
    """
    several = repeated or {}
    count = len(start)
    value = {number: np.full(count, -1, np.int64) for number in single}
    at = {number: np.full(count, -1, np.int64) for number in single}
    found: dict[int, list[tuple[Rows, Int64s, Int64s]]] = {
        number: [] for number in several
    }
    whole = np.ones(count, np.bool_)
    message, place, until = np.arange(count), start, end
    going = place < until
    for _ in range(MOST_FIELDS):
        if not going.all():
            message, place, until = message[going], place[going], until[going]
        if not len(message):
            break
        tag, width = varints(words, place)
        begin = place + width
        number, size = varints(words, begin)
        kind = tag & 7
        after = begin + size
        if not ((kind == VARINT) | (kind == BYTES)).all():
            after = np.where(kind == FIXED64, begin + 8, after)
            after = np.where(kind == FIXED32, begin + 4, after)
        bytes_ = kind == BYTES
        longer = np.where(bytes_, number, 0)
        after = np.where((longer >= 0) & (longer < LARGEST), after + longer, LARGEST)
        is_fixed = (kind == FIXED64) | (kind == FIXED32)
        good = (
            (width > 0) & (after <= until) & (is_fixed | (size > 0) & (kind <= BYTES))
        )
        if not good.all():
            whole[message[~good]] = False
        begin = np.where(bytes_, begin + size, begin)
        for wanted, form in single.items():
            here = np.flatnonzero((tag == wanted << 3 | form) & good)
            if len(here):
                rows = message[here]
                value[wanted][rows], at[wanted][rows] = number[here], begin[here]
        for wanted, places in found.items():
            here = np.flatnonzero((tag == wanted << 3 | several[wanted]) & good)
            if len(here):
                places.append((message[here], begin[here], number[here]))
        place = after
        going = good & (after < until)
    whole[message] = False  # more than MOST_FIELDS
    return Fields(value, at, {n: _in_order(parts) for n, parts in found.items()}, whole)


NO_FIELDS = Repeated(np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.int64))


def _in_order(parts: list[tuple[Rows, Int64s, Int64s]]) -> Repeated:
    if not parts:
        return NO_FIELDS
    message, at, size = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    order = np.argsort(at, kind="stable")
    return Repeated(message[order], at[order], size[order])


def packets(words: Words, data: bytes) -> tuple[Int64s, Int64s, int, int]:
    """The whole packets in `data`, one behind the other: where the content of each
    begins, and ends; where the next one begins, or what is none; and where that one
    ends, -1 if it is none.

    Any byte PACKET might begin one: where each would end, and which of them the chain
    from byte 0 reaches, is found by doubling the steps.
    """
    size = len(data)
    (begin,), (after,) = _ends(words, np.zeros(1, np.int64))
    if data[:1] == PACKET and size <= after < LARGEST:  # one, perhaps a large one
        one = np.array([begin] if after <= size else [], np.int64)
        return one, one - begin + after, int(after) * len(one), int(after)
    places = np.flatnonzero(np.frombuffer(data, "S1") == PACKET)
    begin, after = _ends(words, places)
    number = np.full(size + 1, len(places), np.int32)  # by place
    number[places] = np.arange(len(places))
    jump = number[np.where(after <= size, after, size)]
    jump = np.append(jump, len(places))
    reached = np.zeros(len(jump), np.bool_)
    reached[number[0]] = True
    known = 0
    while (now := int(reached.sum())) != known:
        known = now
        reached[jump[np.flatnonzero(reached)]] = True
        jump = jump[jump]
    chain = np.flatnonzero(reached[:-1])
    chain = chain[after[chain] <= size]
    rest = int(after[chain[-1]]) if len(chain) else 0
    next_end = int(_ends(words, np.array([rest]))[1][0])
    is_one = data[rest : rest + 1] in (PACKET, b"") and next_end < LARGEST
    return begin[chain], after[chain], rest, next_end if is_one else -1


def _ends(words: Words, places: Int64s) -> tuple[Int64s, Int64s]:
    """The content of packets that begin at these bytes; the end of what is none is
    LARGEST."""
    size, width = varints(words, places + 1)
    begin = places + 1 + width
    fits = (width > 0) & (size >= 0) & (size < LARGEST)
    return begin, np.where(fits, begin + size, 2 * LARGEST)


def decoded(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of one message: number, value (of bytes 0), and bytes (of 8 or 4 as
    they stand).

    Raises ValueError where it is damaged.
    """
    at = 0
    while at < len(data):
        tag, at = one_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = one_varint(data, at)
            yield tag >> 3, value, b""
            continue
        if kind == BYTES:
            size, at = one_varint(data, at)
        elif (size := {FIXED64: 8, FIXED32: 4}.get(kind, -1)) < 0:
            raise ValueError("unknown type of a field")
        if at + size > len(data):
            raise ValueError("a field ends behind its message")
        yield tag >> 3, 0, data[at : at + size]
        at += size


def one_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, of 64 bits, and the byte behind it. Raises ValueError."""
    found = 0
    for place, byte in enumerate(data[at : at + 10]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found & (1 << 64) - 1, at + place + 1
    raise ValueError("a number without an end")
