"""Walks through the values of many events at once; see Python's pickletools for the
opcodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.snapshot.tables import ROW, MalformedError, PickleMemo


def _by_opcode(values: dict[bytes, int]) -> NDArray[np.int64]:
    """The value of each byte; 0 for others."""
    by_opcode = np.zeros(256, np.int64)
    for opcode, value in values.items():
        by_opcode[opcode[0]] = value
    return by_opcode


MEMOIZE = 0x94
LONG_BINPUT = ord("r")
LONG1 = 0x8A
PUT_BYTES = _by_opcode({b"\x94": 1, b"q": 2, b"r": 5})
"""Bytes of MEMOIZE, BINPUT and LONG_BINPUT, with their number."""
GET_BYTES = _by_opcode({b"h": 2, b"j": 5})
"""Bytes of BINGET and LONG_BINGET, with their number."""
INT_BYTES = _by_opcode({b"K": 1, b"M": 2, b"J": 4})
"""Bytes of the number after BININT1, BININT2 and BININT."""
MAX_UNSIGNED_BYTES = 2
"""BININT1 and BININT2 have no sign."""
TEXT_HEAD_BYTES = _by_opcode({b"\x8c": 2, b"X": 5})
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
        """Begins at these places of `data`; shape [events]."""
        self.data = data
        self.at = at
        self.fits: Flags = np.ones(len(at), np.bool_)
        self._bytes = np.frombuffer(data, np.uint8)
        # the eight bytes from each place on
        self._words = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))
        self._puts: list[_Puts] = []

    def step(self, length: Int64s | int) -> None:
        """Goes on by so many bytes; events that do not fit may lead beyond the end."""
        self.at = np.minimum(self.at + length, len(self._words) - 3)

    def cut(self) -> int:
        """Forgets all events from the first on that does not fit; returns how many are
        left."""
        count = len(self.fits) if self.fits.all() else int(self.fits.argmin())
        self.at = self.at[:count]
        self.fits = self.fits[:count]
        return count

    def byte(self) -> NDArray[np.uint8]:
        """The byte at `at`."""
        return self._bytes[self.at]

    def ends(self, nexts: Int64s, put: int, opcode: bytes) -> Int64s:
        """Where the last opcode of each is, before the next event or the next batch of
        the list.

        `nexts`: where the MARK of the next event is, after the `put` bytes of the
        opcode that numbers its dict. An event ends with SETITEMS; then there may be
        APPENDS and MARK, between two batches; then comes EMPTY_DICT."""
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
        """Passes these bytes, at most 7."""
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
        """Passes what numbers the value before, if anything does; `codes` are those
        values, and may still change. `at`: it stands elsewhere."""
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
        """The integers that stand here, shape [events]; those of events that are not
        `among` mean nothing.

        An integer has 1, 2 or 4 bytes, or up to 8 behind LONG1. One of more than 8, and
        anything else, clears `fits` of its event. Those of 1 and 2 bytes have no sign
        (BININT1, BININT2); all others have.
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
        """The number that is referred to; -1 where something else stands."""
        word = self._words[self.at]
        length = GET_BYTES[word & 0xFF]
        self.step(length)
        number = word >> 8
        of_short = np.where(length == 2, number & 0xFF, -1)
        return np.where(length == 5, number & 0xFFFFFFFF, of_short)

    def text(self, among: Flags) -> list[bytes]:
        """The bytes of a text of less than 256, of those events only."""
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
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def number_values(self, memo: PickleMemo, count: int) -> None:
        """Gives all values of the first `count` events their numbers, as in the file.
        Raises MalformedError if the file numbers them otherwise than Python does."""
        # shape [events, values]: in the order of the file
        places = np.array([puts.places[:count] for puts in self._puts]).T
        codes = np.array([puts.codes[:count] for puts in self._puts]).T
        is_numbered = places >= 0
        at = places[is_numbered]
        expected = np.arange(len(memo), len(memo) + len(at))
        opcode = self._bytes[at]
        word = self._words[at + 1]
        is_long = opcode == LONG_BINPUT
        number_in_file = np.where(is_long, word & 0xFFFFFFFF, word & 0xFF)
        has_number = opcode != MEMOIZE
        if bool((has_number & (number_in_file != expected)).any()):
            raise MalformedError("its parts are not numbered as Python does")
        memo.codes.frombytes(codes[is_numbered].tobytes())


def _integers_of(words: Int64s, size: Int64s) -> Int64s:
    """The integers of the first `size` bytes of each word, 8 at most."""
    # moved to the upper end of the word, and back, which drops what follows it
    spare_bits = 64 - 8 * np.minimum(size, 8)
    moved = words << spare_bits
    signed = moved >> spare_bits
    unsigned = (moved.view(np.uint64) >> spare_bits.view(np.uint64)).view(np.int64)
    is_unsigned = size <= MAX_UNSIGNED_BYTES
    integers: Int64s = np.where(is_unsigned, unsigned, signed)
    return integers
