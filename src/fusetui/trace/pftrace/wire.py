"""The wire format of protobuf, in bulk: reads the same field of many messages at once.

Nothing here loops over messages: a loop goes from one field to the next, in all
messages that have one more. So time and memory depend on the bytes, and on the most
fields that a message has, which is bounded. Source:
protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int64s, Rows

Words = NDArray[np.uint64]
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # types of fields
PADDING_BYTES = 32  # behind the data, so that any byte of it begins a word
MAX_FIELDS = 1000  # of a message; one with more is unreadable
MAX_VARINT_BYTES = 10
MAX_PACKET_BYTES = 1 << 28  # of a packet, and of anything in it
NO_END = 2 * MAX_PACKET_BYTES  # where what is no packet ends
PACKET = b"\x0a"  # how each packet of a trace begins: bytes, as field 1

# as words, so that what numpy computes with them stays one
ONE = np.uint64(1)
SEVEN_BITS = np.uint64(7)
BYTE_BITS = np.uint64(8)
LAST_BYTE = np.uint64(56)  # its place in a word, in bits
LOW_BYTE = np.uint64(0xFF)
LOW_SEVEN_BITS = np.uint64(0x7F)

# Each byte of a varint has seven bits of the number, the lowest ones first, and in its
# highest bit whether another byte follows.
FOLLOWED = np.uint64(0x8080808080808080)
DIGITS = np.uint64(0x7F7F7F7F7F7F7F7F)
SIZES = np.uint64(0x0102030405060708)
"""Multiplied with 1 << 8 * n, the highest byte is n + 1."""
JOINS = np.array(
    [
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ],
    np.uint64,
)
"""How to join 8 groups of 7 bits to 4 of 14, those to 2 of 28, those to one of 56: the
bits of the lower ones, the bits of the higher ones, and by how much these move."""


class Repeated(msgspec.Struct, frozen=True, eq=False):
    """All fields with one number, in the order of the document; arrays of shape
    [fields]."""

    message: Rows
    at: Int64s  # the first byte of the value
    value: Int64s  # of bytes the size


NO_FIELDS = Repeated(
    message=np.empty(0, np.intp), at=np.empty(0, np.int64), value=np.empty(0, np.int64)
)


class Fields(msgspec.Struct, frozen=True, eq=False):
    """The fields of messages; arrays of shape [messages]."""

    # by number: of a varint its value, -1 if absent; of bytes the size
    value: Mapping[int, Int64s]
    at: Mapping[int, Int64s]  # the first byte of the value, -1 if absent
    repeated: Mapping[int, Repeated]
    whole: Flags  # read to its end

    def has(self, number: int) -> Flags:
        """A flag for each message: whether it has the field with this number."""
        return self.at[number] >= 0


class Packets(NamedTuple):
    """The whole packets at the beginning of some bytes."""

    start: Int64s  # where the content of each begins
    end: Int64s  # and ends
    rest: int  # where the next packet begins, or what is none
    next_end: int  # where that one ends, -1 if it is none


def words_of(data: bytes) -> Words:
    """Return for each byte the number that it and the next seven bytes are.

    The first byte is the lowest: bytes 1, 2, 0, 0, ... give 513. PADDING_BYTES zeros
    are added, so that the last bytes begin a number too. The array overlaps itself, and
    takes no more memory than the bytes.
    """
    padded = data + bytes(PADDING_BYTES)
    return np.ndarray((len(padded) - 8,), "<u8", padded, strides=(1,))


def varints(words: Words, at: Int64s) -> tuple[Int64s, Int64s]:
    """Decode the varints that begin at some bytes.

    The bytes 0x96 0x01 are the number 150, of size 2.

    Args:
        words: The data, see `words_of`.
        at: The first byte of each varint.

    Returns:
        The numbers, negative ones from two's complement; and how many bytes each takes,
        0 for one that does not end within MAX_VARINT_BYTES.
    """
    number = words[at]
    # Isolate the highest bit of the first byte that has it clear: the last byte.
    unfollowed = ~number & FOLLOWED
    last = unfollowed & -unfollowed
    size = ((last >> SEVEN_BITS) * SIZES) >> LAST_BYTE
    # Keep the seven bits of each byte up to that one, and move them together.
    number &= (last - ONE) & DIGITS
    for lower, higher, moves_by in JOINS:
        number = (number & lower) | ((number & higher) >> moves_by)
    if not last.all():
        long = np.flatnonzero(last == 0)
        number[long], size[long] = _long_varints(words, at[long], number[long])
    return number.view(np.int64), size.view(np.int64)


def _long_varints(words: Words, at: Int64s, low_56_bits: Words) -> tuple[Words, Words]:
    """Decode varints of nine or ten bytes.

    Args:
        words: The data, see `words_of`.
        at: The first byte of each.
        low_56_bits: What the first eight bytes of each give.

    Returns:
        The numbers; and how many bytes each takes, 0 if it has more than ten.
    """
    rest = words[at + 8]
    ninth = rest & LOW_BYTE
    tenth = (rest >> BYTE_BITS) & LOW_BYTE
    is_nine = ninth < 0x80
    is_ten = ~is_nine & (tenth < 0x80)
    number = low_56_bits | ((ninth & LOW_SEVEN_BITS) << np.uint64(56))
    number |= np.where(is_ten, tenth << np.uint64(63), np.uint64(0))
    size = np.zeros(len(at), np.uint64)
    size[is_nine] = 9
    size[is_ten] = 10
    return number, size


class _NextFields(NamedTuple):
    """One field of each of some messages; arrays of shape [messages]."""

    tag: Int64s  # its number and its type
    value: Int64s  # of a varint the number, of bytes the size
    value_at: Int64s  # the first byte of the value
    after: Int64s  # the byte behind the field
    is_good: Flags  # whether it can be read, and ends within its message


def fields(
    words: Words,
    start: Int64s,
    end: Int64s,
    single: Mapping[int, int],
    repeated: Mapping[int, int] | None = None,
) -> Fields:
    """Read some fields of many messages.

    For single={8: VARINT} the result has, for each message, the number in its field 8,
    or -1. Fields with other numbers or types are skipped.

    Args:
        words: The data, see `words_of`.
        start: The first byte of each message.
        end: The byte after each message.
        single: The type of each field to read by its number. If a message has the field
            several times, the last one counts, as protobuf says.
        repeated: The same of fields of which all are wanted.

    Returns:
        The fields. A message that cannot be read to its end, or has more than
        MAX_FIELDS, is not `whole`; what was read of it before is there.
    """
    collected = _CollectedFields(len(start), single, repeated or {})
    # the messages that have one more field, where it begins, and where they end
    message = np.arange(len(start))
    place = start
    until = end
    has_more = place < until
    for _ in range(MAX_FIELDS):
        if not has_more.all():
            message = message[has_more]
            place = place[has_more]
            until = until[has_more]
        if not len(message):
            break
        field = _next_fields(words, place, until)
        collected.add(message, field)
        place = field.after
        has_more = field.is_good & (place < until)
    else:
        collected.whole[message[has_more]] = False  # more than MAX_FIELDS
    return collected.fields()


def _next_fields(words: Words, place: Int64s, until: Int64s) -> _NextFields:
    """Read one field of each message.

    A field is a tag (number << 3 | type), and then a varint, 8 or 4 bytes, or a size
    and so many bytes.

    Args:
        words: The data, see `words_of`.
        place: The byte where the field begins, of each message.
        until: The byte after each message.
    """
    tag, tag_size = varints(words, place)
    begin = place + tag_size
    varint, varint_size = varints(words, begin)
    kind = tag & 7
    is_bytes = kind == BYTES
    is_fixed = (kind == FIXED64) | (kind == FIXED32)

    # behind the value; of bytes, behind their size
    after_head = begin + varint_size
    if is_fixed.any():
        after_head = np.where(kind == FIXED64, begin + 8, after_head)
        after_head = np.where(kind == FIXED32, begin + 4, after_head)
    size = np.where(is_bytes, varint, 0)
    is_possible = (size >= 0) & (size < MAX_PACKET_BYTES)
    # an impossible size ends behind any message
    after = np.where(is_possible, after_head + size, MAX_PACKET_BYTES)

    has_value = is_fixed | ((varint_size > 0) & (kind <= BYTES))
    is_good = (tag_size > 0) & has_value & (after <= until)
    value_at = np.where(is_bytes, begin + varint_size, begin)
    return _NextFields(
        tag=tag, value=varint, value_at=value_at, after=after, is_good=is_good
    )


class _CollectedFields:
    """What `fields` returns, to which one field of each message is added at a time."""

    def __init__(
        self, count: int, single: Mapping[int, int], repeated: Mapping[int, int]
    ) -> None:
        """Prepare to collect the fields of `count` messages. `single` and `repeated`
        have the type of each wanted field by its number."""
        self.whole = np.ones(count, np.bool_)  # the messages that can be read so far
        self._single = single
        self._repeated = repeated
        self._value = {number: np.full(count, -1, np.int64) for number in single}
        self._at = {number: np.full(count, -1, np.int64) for number in single}
        self._batches: dict[int, list[Repeated]] = {number: [] for number in repeated}

    def add(self, message: Rows, field: _NextFields) -> None:
        """Add one field of each of some messages.

        Args:
            message: The numbers of the messages.
            field: The field of each. One that cannot be read makes its message not
                `whole`; one that nobody asked for is ignored.
        """
        if not field.is_good.all():
            self.whole[message[~field.is_good]] = False
        for number, kind in self._single.items():
            rows = _rows_with_tag(field, number, kind)
            if len(rows):
                self._value[number][message[rows]] = field.value[rows]
                self._at[number][message[rows]] = field.value_at[rows]
        for number, kind in self._repeated.items():
            rows = _rows_with_tag(field, number, kind)
            if len(rows):
                batch = Repeated(
                    message=message[rows],
                    at=field.value_at[rows],
                    value=field.value[rows],
                )
                self._batches[number].append(batch)

    def fields(self) -> Fields:
        """Everything that was added."""
        return Fields(
            value=self._value,
            at=self._at,
            repeated={
                number: _in_order(batches) for number, batches in self._batches.items()
            },
            whole=self.whole,
        )


def _rows_with_tag(field: _NextFields, number: int, kind: int) -> Rows:
    """The rows of the readable fields with this number and type."""
    tag = number << 3 | kind
    return np.flatnonzero((field.tag == tag) & field.is_good)


def _in_order(batches: list[Repeated]) -> Repeated:
    """Concatenate fields, and sort them by their place in the data.

    A batch has the first field of each message, the next batch the second of each.
    """
    if not batches:
        return NO_FIELDS
    message = np.concatenate([batch.message for batch in batches])
    at = np.concatenate([batch.at for batch in batches])
    value = np.concatenate([batch.value for batch in batches])
    order = np.argsort(at, kind="stable")
    return Repeated(message=message[order], at=at[order], value=value[order])


def find_packets(words: Words, data: bytes) -> Packets:
    """Find the whole packets at the beginning of some data.

    A packet is the byte PACKET, a size, and so many bytes; the next one follows. To
    find them without a loop, every byte that equals PACKET is taken for the begin of a
    packet at first. Those that the first packet leads to, directly or through others,
    are real.

    Args:
        words: The data, see `words_of`.
        data: The data, which begins with a packet.
    """
    size = len(data)
    first = _packet_bounds(words, np.zeros(1, np.int64))
    first_end = int(first.end[0])
    if data[:1] == PACKET and size <= first_end < MAX_PACKET_BYTES:
        first_content = int(first.content[0])
        return _only_packet(first_content, first_end, is_whole=first_end <= size)
    candidates = np.flatnonzero(np.frombuffer(data, "S1") == PACKET)
    bounds = _packet_bounds(words, candidates)
    chain = _reached_from_begin(candidates, bounds.end, size)
    whole = chain[bounds.end[chain] <= size]
    rest = int(bounds.end[whole[-1]]) if len(whole) else 0
    return Packets(
        start=bounds.content[whole],
        end=bounds.end[whole],
        rest=rest,
        next_end=_next_end(words, data, rest),
    )


def _next_end(words: Words, data: bytes, rest: int) -> int:
    """Return where the packet ends that begins at byte `rest`: perhaps behind `data`.

    It is -1 if no packet begins there.
    """
    next_end = int(_packet_bounds(words, np.array([rest])).end[0])
    is_at_end = rest == len(data)
    begins_packet = is_at_end or data[rest : rest + 1] == PACKET
    is_possible = next_end < MAX_PACKET_BYTES
    return next_end if begins_packet and is_possible else -1


def _only_packet(content: int, end: int, is_whole: bool) -> Packets:
    """Return the packets of data that has no more than one.

    Args:
        content: The byte where the content of the packet begins.
        end: The byte after the packet.
        is_whole: Whether the data has all of it; if not, there are no packets.
    """
    if not is_whole:
        nothing = np.empty(0, np.int64)
        return Packets(start=nothing, end=nothing, rest=0, next_end=end)
    return Packets(
        start=np.array([content], np.int64),
        end=np.array([end], np.int64),
        rest=end,
        next_end=end,
    )


def _reached_from_begin(candidates: Int64s, end: Int64s, size: int) -> Rows:
    """Find the candidates that byte 0 leads to: each leads to the one at its end.

    Of candidates at the bytes 0, 3, 5 and 9 that end at 5, 6, 9 and 12, these are
    numbers 0, 2 and 3.

    Args:
        candidates: The byte where each possible packet begins, ascending.
        end: The byte after each.
        size: How many bytes there are.

    Returns:
        Their numbers, ascending.
    """
    nowhere = len(candidates)
    number_at_byte = np.full(size + 1, nowhere, np.int32)
    number_at_byte[candidates] = np.arange(len(candidates))
    leads_to = number_at_byte[np.where(end <= size, end, size)]
    leads_to = np.append(leads_to, nowhere)

    reached = np.zeros(len(leads_to), np.bool_)
    reached[number_at_byte[0]] = True
    reached_before = 0
    # In each round, everything reached so far takes twice as many steps as before: a
    # million packets take 20 rounds.
    while (reached_now := int(reached.sum())) != reached_before:
        reached_before = reached_now
        reached[leads_to[np.flatnonzero(reached)]] = True
        leads_to = leads_to[leads_to]
    return np.flatnonzero(reached[:-1])


class _PacketBounds(NamedTuple):
    """Where possible packets lie; arrays of shape [packets]."""

    content: Int64s  # where the content begins
    end: Int64s  # where content and packet end; NO_END if it is no packet


def _packet_bounds(words: Words, places: Int64s) -> _PacketBounds:
    """The bounds of the packets that begin at these bytes. Where none can begin, the
    end is NO_END."""
    size, width = varints(words, places + 1)
    content = places + 1 + width
    is_possible = (width > 0) & (size >= 0) & (size < MAX_PACKET_BYTES)
    end = np.where(is_possible, content + size, NO_END)
    return _PacketBounds(content=content, end=end)


def decoded(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the fields of one message, in order.

    Each is its number, its value if it is a varint (else 0), and its bytes (b"" of a
    varint). The bytes 08 96 01 12 01 41 yield (1, 150, b"") and (2, 0, b"A").

    Raises ValueError where the message is damaged.
    """
    at = 0
    while at < len(data):
        tag, at = decode_varint(data, at)
        number = tag >> 3
        kind = tag & 7
        if kind == VARINT:
            value, at = decode_varint(data, at)
            yield number, value, b""
            continue
        if kind == BYTES:
            size, at = decode_varint(data, at)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise ValueError("unknown type of a field")
        if at + size > len(data):
            raise ValueError("a field ends behind its message")
        yield number, 0, data[at : at + size]
        at += size


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint that begins at a byte, and the byte after it.

    The bytes 96 01 give 150. Only the lower 64 bits count. Raises ValueError for one
    that does not end within MAX_VARINT_BYTES.
    """
    number = 0
    for place, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        seven_bits = byte & 0x7F
        number |= seven_bits << (7 * place)
        is_last = byte < 0x80
        if is_last:
            low_64_bits = number & (1 << 64) - 1
            return low_64_bits, at + place + 1
    raise ValueError("a number without an end")
