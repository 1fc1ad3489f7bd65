"""Walks through the values of many events at once; see Python's pickletools for the
opcodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.snapshot.tables import ROW, MalformedError, PickleMemo


def _table_by_opcode(values: dict[bytes, int]) -> NDArray[np.int64]:
    """A table with the value of each byte that an opcode may be; 0 for bytes that
    `values` does not have."""
    by_opcode = np.zeros(256, np.int64)
    for opcode, value in values.items():
        by_opcode[opcode[0]] = value
    return by_opcode


MEMOIZE = 0x94
LONG_BINPUT = ord("r")
LONG1 = 0x8A
PUT_BYTES = _table_by_opcode({b"\x94": 1, b"q": 2, b"r": 5})
"""Bytes of MEMOIZE, BINPUT and LONG_BINPUT, with their number."""
GET_BYTES = _table_by_opcode({b"h": 2, b"j": 5})
"""Bytes of BINGET and LONG_BINGET, with their number."""
INT_BYTES = _table_by_opcode({b"K": 1, b"M": 2, b"J": 4})
"""Bytes of the number after BININT1, BININT2 and BININT."""
MAX_UNSIGNED_BYTES = 2
"""BININT1 and BININT2 have no sign."""
TEXT_HEAD_BYTES = _table_by_opcode({b"\x8c": 2, b"X": 5})
"""Bytes before those of a text."""


class _Puts(NamedTuple):
    """What numbers one value of each event; arrays of shape [events]."""

    places: Int64s  # in the file; -1 where nothing numbers it
    codes: Int32s  # of the values


class EventWalk:
    """Goes through many events at once.

    `at` is the place in the file where the next value of each event begins. `fits` says
    of each event whether all values so far are what was expected. Methods with `among`
    read the value of those events only, and leave the others where they are.
    """

    def __init__(self, data: bytes, at: Int64s) -> None:
        """Begin at these places of `data`, one for each event; shape [events]."""
        self.data = data
        self.at = at
        self.fits: Flags = np.ones(len(at), np.bool_)
        self._bytes = np.frombuffer(data, np.uint8)
        # the eight bytes from each place on
        self._words = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))
        self._puts: list[_Puts] = []

    def step(self, length: Int64s | int) -> None:
        """Go on by some bytes, with every event.

        Events that do not fit may be anywhere, so a step never leads beyond the end.
        """
        self.at = np.minimum(self.at + length, len(self._words) - 3)

    def cut(self) -> int:
        """Forget the first event that does not fit and all events after it; return how
        many are left."""
        count = len(self.fits) if self.fits.all() else int(self.fits.argmin())
        self.at = self.at[:count]
        self.fits = self.fits[:count]
        return count

    def byte(self) -> NDArray[np.uint8]:
        """The byte at the present place of each event."""
        return self._bytes[self.at]

    def ends(self, nexts: Int64s, put: int, opcode: bytes) -> Int64s:
        """Find the last opcode of each event, from where the next event begins.

        An event ends with SETITEMS. Between two batches of the list, APPENDS and MARK
        follow. The next event begins with EMPTY_DICT, perhaps an opcode that numbers
        the dict, and MARK. Whatever has another form clears `fits`.

        Args:
            nexts: The place of the MARK of the next event, of each event.
            put: How many bytes the opcode has that numbers a dict; 0 without one.
            opcode: That opcode.

        Returns:
            The place of SETITEMS, of each event.
        """
        empty_dict = nexts - put - 1
        self.fits &= self._bytes[empty_dict] == ord("}")
        if put:
            self.fits &= self._bytes[empty_dict + 1] == opcode[0]
        ends_batch = self._bytes[empty_dict - 1] == ord("(")
        has_appends = self._bytes[empty_dict - 2] == ord("e")
        bytes_between = np.where(ends_batch, 3, 1)
        last = empty_dict - bytes_between
        is_setitems = self._bytes[last] == ord("u")
        self.fits &= is_setitems & (~ends_batch | has_appends)
        return last

    def pass_key(self, raw: bytes, among: Flags | bool = True) -> None:
        """Pass the key of a field.

        Args:
            raw: The bytes of the key, at most 7. An event with other bytes does not fit.
            among: Which events have the field; the others stay where they are.
        """
        word = self._words[self.at] & ((1 << 8 * len(raw)) - 1)
        is_key = word == int.from_bytes(raw, "little")
        self.fits &= is_key | ~np.asarray(among)
        self.step(np.where(among, len(raw), 0))

    def put(
        self,
        codes: Int32s | int = ROW,
        among: Flags | bool = True,
        at: Int64s | None = None,
    ) -> None:
        """Pass the opcode that numbers the value before it, where there is one.

        Args:
            codes: The codes of the values (see PickleMemo). They are remembered by
                reference, and may still change.
            among: Which events have the value; the others stay where they are.
            at: The place of the opcode, if that is not where the walk is; then nothing
                is passed.
        """
        places = self.at if at is None else at
        length = np.where(among, PUT_BYTES[self._bytes[places]], 0)
        self._puts.append(
            _Puts(
                places=np.where(length > 0, places, -1),
                codes=np.broadcast_to(np.asarray(codes, np.int32), places.shape),
            )
        )
        if at is None:
            self.step(length)

    def number(self, among: Flags | bool = True) -> Int64s:
        """Read the integer that stands here in each event, and pass it.

        The opcodes BININT1 and BININT2 have 1 and 2 bytes without a sign, BININT has 4
        with one, LONG1 up to 8 with one after a byte with their number. Anything else
        clears `fits`.

        Args:
            among: Which events have the integer; the others stay where they are, and
                their numbers mean nothing.
        """
        opcode = self.byte()  # the step comes at the end
        is_long = opcode == LONG1  # whose size stands in a byte of its own
        size = np.where(is_long, self._bytes[self.at + 1], INT_BYTES[opcode])
        is_integer = (size > 0) & (size <= 8)
        self.fits &= is_integer | ~np.asarray(among)
        number_at = self.at + 1 + is_long
        numbers = _integers_of(self._words[number_at], size)
        self.step(np.where(among, 1 + is_long + size, 0))
        return numbers

    def reference(self) -> Int64s:
        """Read the number of the earlier value that each event refers to here, and pass
        it: 5 for the bytes of BINGET 5. It is -1 where something else stands, which is
        not passed."""
        word = self._words[self.at]
        length = GET_BYTES[word & 0xFF]
        self.step(length)
        number = word >> 8
        of_short = np.where(length == 2, number & 0xFF, -1)
        return np.where(length == 5, number & 0xFFFFFFFF, of_short)

    def text(self, among: Flags) -> list[bytes]:
        """Read a text of less than 256 bytes in some events, and pass it.

        Args:
            among: Which events have the text. Those that have something else there do
                not fit.

        Returns:
            The bytes of the text of each of these events, and of no others.
        """
        head = np.where(among, TEXT_HEAD_BYTES[self.byte()], 0)
        size = np.where(among, self._bytes[self.at + 1], 0)
        upper_bytes = self._words[self.at + 1] & 0xFFFFFF00  # of a size of four bytes
        has_short_size = (head == 5) & (upper_bytes == 0)
        is_short = (head == 2) | has_short_size
        self.fits &= ~among | is_short
        self.step(head)
        start = self.at
        self.step(size)
        return self.pieces(start[among], self.at[among])

    def pieces(self, starts: Int64s, ends: Int64s) -> list[bytes]:
        """The bytes of the file from each start to its end."""
        data = self.data
        ranges = zip(starts.tolist(), ends.tolist(), strict=True)
        return [data[start:end] for start, end in ranges]

    def number_values(self, memo: PickleMemo, count: int) -> None:
        """Put all values that were passed into the memo, in the order of the file.

        Args:
            memo: The numbered values so far.
            count: Only the values of so many events, from the first on, are put there.

        Raises MalformedError if the file numbers them otherwise than Python does: one
        after the other.
        """
        # a row for each event, a column for each of its values
        places = np.array([puts.places[:count] for puts in self._puts]).T
        codes = np.array([puts.codes[:count] for puts in self._puts]).T
        is_numbered = places >= 0
        at = places[is_numbered]
        expected_number = np.arange(len(memo), len(memo) + len(at))
        opcode = self._bytes[at]
        bytes_behind = self._words[at + 1]  # eight, as one integer
        is_long = opcode == LONG_BINPUT  # it has a number of four bytes, others of one
        number_in_file = np.where(
            is_long, bytes_behind & 0xFFFFFFFF, bytes_behind & 0xFF
        )
        has_number = opcode != MEMOIZE
        is_wrong = has_number & (number_in_file != expected_number)
        if is_wrong.any():
            raise MalformedError("its parts are not numbered as Python does")
        memo.codes.frombytes(codes[is_numbered].tobytes())


def _integers_of(words: Int64s, size: Int64s) -> Int64s:
    """Return the integer in the first bytes of each word, the lowest byte first.

    The first byte of 0x...05FF is 255, since 1 or 2 bytes have no sign; the first four
    of 0x...FFFFFFFF are -1.

    Args:
        words: Eight bytes each.
        size: How many bytes the integer has; more than 8 count as 8.
    """
    # moved to the upper end of the word, and back, which drops what follows it
    spare_bits = 64 - 8 * np.minimum(size, 8)
    moved = words << spare_bits
    signed = moved >> spare_bits
    unsigned = (moved.view(np.uint64) >> spare_bits.view(np.uint64)).view(np.int64)
    is_unsigned = size <= MAX_UNSIGNED_BYTES
    integers: Int64s = np.where(is_unsigned, unsigned, signed)
    return integers
