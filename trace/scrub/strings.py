"""The strings of JSON text, each changed only once however often it occurs."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from json import dumps, loads

from fusetui.trace.scrub.keys import TELLING, kind_of

STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
MOST = 256 << 20  # bytes of distinct strings that are cached
EACH = 200  # bytes of memory for each, in addition to its text
LONGEST_KEY = 80  # characters
FEW = 24  # strings of a piece that are replaced one by one
MOST_NUMBERS = 20_000_000  # strings of all pieces whose use is recorded: 80 MB
PLAIN = re.compile(rb"[^\s,:{}\[\]0-9.eE+truefalsn-]")


class Strings(dict[bytes, bytes]):
    """The content of a JSON string -> its content afterwards.

    `before` maps strings to what they were already changed to.
    """

    def __init__(self, change: Callable[[str], str], before: Strings | None = None) -> None:
        super().__init__()
        self._change = change
        self._before = before
        self._size = 0
        self.telling: set[bytes] = set()  # keys whose value may be private

    def __missing__(self, raw: bytes) -> bytes:
        known = raw if self._before is None else self._before[raw]
        text = loads(b'"%b"' % known) if b"\\" in known else known.decode()
        if self._before is None and _tells(text):
            self.telling.add(raw)
        new = self._change(text)
        self._size += EACH + 2 * len(raw)
        if self._size > MOST:
            self.clear()
            self._size = 0
        found = self[raw] = known if new == text else dumps(new)[1:-1].encode()
        return found


class Used:
    """Which strings each piece uses, by number: in most pieces few of them change."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._of_piece: dict[int, array[int]] = {}
        self._left = MOST_NUMBERS
        self._differing: dict[int, tuple[bytes, bytes]] | None = None

    def add(self, piece: int, strings: set[bytes]) -> None:
        """Records the strings of the piece that begins at this byte, unless there are too many."""
        self._left -= len(strings)
        if self._left > 0:
            number = self._numbers
            found = array("I", (number.setdefault(raw, len(number)) for raw in strings))
            self._of_piece[piece] = found

    def differing(self, piece: int, final: Strings) -> list[tuple[bytes, bytes]] | None:
        """The strings of a piece that change, and to what; None if that is not known."""
        if self._differing is None:
            pairs = ((number, raw, final[raw]) for raw, number in self._numbers.items())
            self._differing = {number: (raw, new) for number, raw, new in pairs if new != raw}
        used = self._of_piece.get(piece)
        if used is None:
            return None
        return [self._differing[number] for number in used if number in self._differing]


def swapped(text: bytes, differing: list[tuple[bytes, bytes]]) -> bytes | None:
    """JSON with these strings replaced; None if `changed` is faster or safer."""
    if len(differing) > FEW or (differing and b"\\" in text):
        return None
    for raw, new in differing:
        if not PLAIN.search(raw):  # might also be the text between two strings
            return None
        text = text.replace(b'"%b"' % raw, b'"%b"' % new)
    return text


def parts(text: bytes) -> list[bytes]:
    """JSON split at its quotes: the contents of strings have odd indices."""
    return STRING.split(text) if b"\\" in text else text.split(b'"')


def changed(text: bytes, strings: Strings) -> bytes:
    """JSON with all its strings changed."""
    found = parts(text)
    found[1::2] = map(strings.__getitem__, found[1::2])
    return b'"'.join(found)


def _tells(text: str) -> bool:
    """Whether the value of this key may be private; also for an item such as `HOME=/root`."""
    if len(text) > LONGEST_KEY:
        return text.partition("=")[0] in TELLING
    return kind_of(text) is not None or text in TELLING or text.partition("=")[0] in TELLING
