"""What stands on a terminal of which only the bytes are known."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
CONTROL = re.compile(
    r"\x1b\[[0-9;:<=>?$ ]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b."
)


class Screen:
    """Knows only the sequences that Textual sends for a frame."""

    def __init__(self, size: tuple[int, int], written: bytes = b"") -> None:
        """`size`: columns and lines."""
        width, height = size
        self._lines = [[" "] * width for _ in range(height)]
        self._x = self._y = 0
        self._decode = getincrementaldecoder("utf-8")().decode
        self.feed(written)

    def feed(self, written: bytes) -> None:
        text, at = self._decode(written), 0
        for found in CONTROL.finditer(text):
            self._put(text[at : found.start()])
            at = found.end()
            if moved := MOVE.fullmatch(found[0]):
                self._y, self._x = int(moved[1]) - 1, int(moved[2]) - 1
        self._put(text[at:])

    @property
    def text(self) -> str:
        return "\n".join("".join(line) for line in self._lines)

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._x = 0
            elif character == "\n":
                self._y += 1
            elif self._y < len(self._lines) and self._x < len(self._lines[self._y]):
                self._lines[self._y][self._x] = character
                self._x += 1
