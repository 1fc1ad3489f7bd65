"""Goes from value to value of many events at once; see pickletools of Python for the opcodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.snapshot.memo import ROW, Memo
from fusetui.trace.snapshot.tables import Wrong


def _by_opcode(values: dict[bytes, int]) -> NDArray[np.int64]:
    found = np.zeros(256, np.int64)
    for code, value in values.items():
        found[code[0]] = value
    return found


PUTS = _by_opcode({b"\x94": 1, b"q": 2, b"r": 5})  # bytes of MEMOIZE, BINPUT, LONG_BINPUT
GETS = _by_opcode({b"h": 2, b"j": 5})
DIGITS = _by_opcode({b"K": 1, b"M": 2, b"J": 4})
HEADS = _by_opcode({b"\x8c": 2, b"X": 5})  # bytes before those of a text


class Walk:
    """`at` is the place in the file where the next value of each event begins, `ends` that of its
    last opcode."""

    def __init__(self, data: bytes, starts: Int64s, ends: Int64s) -> None:
        """At least 8 bytes follow the last end, before which a new batch of the list may begin."""
        self.data, self.at = data, starts + 1
        self._bytes = np.frombuffer(data, np.uint8)
        self._words = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))
        self.ends = ends - np.where(self._bytes[ends - 1] == ord("("), 3, 1)
        self._puts: list[tuple[Int64s, Int32s]] = []

    def opcode(self) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self._bytes[self.at]
        return found

    def put(self, codes: Int32s | int = ROW, among: Flags | bool = True) -> None:
        """Passes what numbers the value before, if anything does; `codes` are those values."""
        length = np.where(among, PUTS[self.opcode()], 0)
        places = np.where(length > 0, self.at, -1)
        self._puts.append((places, np.broadcast_to(np.asarray(codes, np.int32), places.shape)))
        self.at = self.at + length

    def number(self, among: Flags | bool = True) -> Int64s:
        """An integer of at most 8 bytes."""
        opcode, is_long = self.opcode(), self.opcode() == 0x8A
        head = 1 + is_long
        digits = np.where(is_long, self._bytes[self.at + 1], DIGITS[opcode])
        spare = 64 - 8 * digits
        word = self._words[self.at + head] << spare
        unsigned = (word.view(np.uint64) >> spare.astype(np.uint64)).view(np.int64)
        self.at = self.at + np.where(among, head + digits, 0)
        found: Int64s = np.where(digits <= 2, unsigned, word >> spare)
        return found

    def reference(self) -> Int64s:
        """The number that is referred to; -1 where something else stands."""
        length = GETS[self.opcode()]
        word = self._words[self.at + 1]
        self.at = self.at + length
        return np.where(length == 5, word & 0xFFFFFFFF, np.where(length == 2, word & 0xFF, -1))

    def text(self, among: Flags) -> list[bytes]:
        """The bytes of a text of less than 256, of those events only."""
        head = np.where(among, HEADS[self.opcode()], 0)
        size = np.where(among, self._bytes[self.at + 1], 0)
        start = self.at + head
        self.at = start + size
        return self.pieces(start[among], self.at[among])

    def pieces(self, starts: Int64s, ends: Int64s) -> list[bytes]:
        data = self.data
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def numbered(self, memo: Memo) -> None:
        """Gives all values that were passed their numbers, in the order of the file."""
        places = np.array([one for one, _ in self._puts]).T
        there = places >= 0
        codes = np.array([one for _, one in self._puts]).T[there]
        at = places[there]
        numbers = np.arange(len(memo), len(memo) + len(at))
        opcode, word = self._bytes[at], self._words[at + 1]
        given = np.where(opcode == ord("r"), word & 0xFFFFFFFF, word & 0xFF)
        if bool(np.any((given != numbers) & (opcode != 0x94))):
            raise Wrong("its parts are not numbered as Python does")
        memo.codes.frombytes(codes.tobytes())
