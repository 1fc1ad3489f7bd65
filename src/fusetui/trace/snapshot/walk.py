"""Goes from value to value of many events at once; see pickletools of Python for the
opcodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.snapshot.tables import ROW, MalformedError, Memo


def _by_opcode(values: dict[bytes, int]) -> NDArray[np.int64]:
    found = np.zeros(256, np.int64)
    for code, value in values.items():
        found[code[0]] = value
    return found


# bytes of MEMOIZE, BINPUT, LONG_BINPUT
PUTS = _by_opcode({b"\x94": 1, b"q": 2, b"r": 5})
GETS = _by_opcode({b"h": 2, b"j": 5})
DIGITS = _by_opcode({b"K": 1, b"M": 2, b"J": 4})
HEADS = _by_opcode({b"\x8c": 2, b"X": 5})  # bytes before those of a text
LONG1 = 0x8A


class Walk:
    """`at` is the place in the file where the next value of each event begins; `ok`
    says of which all values so far are what was expected."""

    def __init__(self, data: bytes, at: Int64s) -> None:
        self.data, self.at = data, at
        self.ok: Flags = np.ones(len(at), np.bool_)
        self._bytes = np.frombuffer(data, np.uint8)
        # from any place
        self._words = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))
        self._puts: list[tuple[Int64s, Int32s]] = []

    def step(self, length: Int64s | int) -> None:
        """Goes on by so many bytes; events that are not ok may lead beyond the end."""
        self.at = np.minimum(self.at + length, len(self._words) - 3)

    def cut(self) -> int:
        """Forgets all events from the first on that is not ok; returns how many are
        left."""
        count = len(self.ok) if self.ok.all() else int(self.ok.argmin())
        self.at, self.ok = self.at[:count], self.ok[:count]
        return count

    def byte(self) -> NDArray[np.uint8]:
        return self._bytes[self.at]

    def ends(self, nexts: Int64s, put: int, opcode: bytes) -> Int64s:
        """Where the last opcode of each is, before the next event or the next batch of
        the list.

        `nexts`: where the MARK of the next is, after an opcode that numbers it, of
        `put` bytes."""
        brace = nexts - put - 1
        self.ok &= self._bytes[brace] == ord("}")
        if put:
            self.ok &= self._bytes[brace + 1] == opcode[0]
        batch = self._bytes[brace - 1] == ord("(")
        last = brace - np.where(batch, 3, 1)
        self.ok &= (self._bytes[last] == ord("u")) & (
            ~batch | (self._bytes[brace - 2] == ord("e"))
        )
        return last

    def pass_key(self, raw: bytes, among: Flags | bool = True) -> None:
        """Passes these bytes, at most 7."""
        word = self._words[self.at] & ((1 << 8 * len(raw)) - 1)
        self.ok &= (word == int.from_bytes(raw, "little")) | ~np.asarray(among)
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
        length = np.where(among, PUTS[self._bytes[places]], 0)
        found = np.broadcast_to(np.asarray(codes, np.int32), places.shape)
        self._puts.append((np.where(length > 0, places, -1), found))
        if at is None:
            self.step(length)

    def number(self, among: Flags | bool = True) -> Int64s:
        """An integer of at most 8 bytes, of those events only."""
        opcode = self.byte()
        is_long = opcode == LONG1
        digits = np.where(is_long, self._bytes[self.at + 1], DIGITS[opcode])
        self.ok &= ((digits > 0) & (digits <= 8)) | ~np.asarray(among)
        spare = 64 - 8 * np.minimum(digits, 8)
        word = self._words[self.at + 1 + is_long] << spare
        unsigned = (word.view(np.uint64) >> spare.view(np.uint64)).view(np.int64)
        self.step(np.where(among, 1 + is_long + digits, 0))
        found: Int64s = np.where(digits <= 2, unsigned, word >> spare)
        return found

    def reference(self) -> Int64s:
        """The number that is referred to; -1 where something else stands."""
        word = self._words[self.at]
        length = GETS[word & 0xFF]
        self.step(length)
        short = np.where(length == 2, (word >> 8) & 0xFF, -1)
        return np.where(length == 5, (word >> 8) & 0xFFFFFFFF, short)

    def text(self, among: Flags) -> list[bytes]:
        """The bytes of a text of less than 256, of those events only."""
        head = np.where(among, HEADS[self.byte()], 0)
        size = np.where(among, self._bytes[self.at + 1], 0)
        rest = self._words[self.at + 1] & 0xFFFFFF00  # of a size of four bytes
        self.ok &= ~among | (head == 2) | ((head == 5) & (rest == 0))
        self.step(head)
        start = self.at
        self.step(size)
        return self.pieces(start[among], self.at[among])

    def pieces(self, starts: Int64s, ends: Int64s) -> list[bytes]:
        data = self.data
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def numbered(self, memo: Memo, count: int) -> None:
        """Gives all values of the first events that were passed their numbers, as in
        the file."""
        places = np.array([one[:count] for one, _ in self._puts]).T
        there = places >= 0
        codes = np.array([one[:count] for _, one in self._puts]).T[there]
        at = places[there]
        numbers = np.arange(len(memo), len(memo) + len(at))
        opcode, word = self._bytes[at], self._words[at + 1]
        given = np.where(opcode == ord("r"), word & 0xFFFFFFFF, word & 0xFF)
        if bool(np.any((given != numbers) & (opcode != 0x94))):
            raise MalformedError("its parts are not numbered as Python does")
        memo.codes.frombytes(codes.tobytes())
