"""The text on the screen of a terminal, from the bytes that were written to it."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
CONTROL = re.compile(
    r"\x1b\[[0-9;:<=>?$ ]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b."
)


class Screen:
    """A screen of cells. It obeys only the sequences that Textual sends for a frame:
    those that move the cursor. Others are ignored, and every character takes a cell."""

    def __init__(self, size: tuple[int, int], written: bytes = b"") -> None:
        """`size` is in columns and lines."""
        columns, lines = size
        self._lines = [[" "] * columns for _ in range(lines)]
        self._x = 0
        self._y = 0
        self._decode = getincrementaldecoder("utf-8")().decode
        self.feed(written)

    def feed(self, written: bytes) -> None:
        """Write bytes to the screen. They may end within a character, but not within a
        control sequence."""
        text = self._decode(written)
        printed_from = 0
        for sequence in CONTROL.finditer(text):
            self._put(text[printed_from : sequence.start()])
            printed_from = sequence.end()
            move = MOVE.fullmatch(sequence[0])
            if move:  # lines and columns are counted from 1
                self._y = int(move[1]) - 1
                self._x = int(move[2]) - 1

        self._put(text[printed_from:])

    @property
    def text(self) -> str:
        """The lines of the screen."""
        return "\n".join("".join(line) for line in self._lines)

    def _put(self, text: str) -> None:
        """Write text at the cursor; characters outside of the screen are dropped."""
        for character in text:
            if character == "\r":
                self._x = 0
            elif character == "\n":
                self._y += 1
            elif self._y < len(self._lines) and self._x < len(self._lines[self._y]):
                self._lines[self._y][self._x] = character
                self._x += 1
