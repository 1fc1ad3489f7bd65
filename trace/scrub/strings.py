"""The strings of JSON text, each changed once however often it occurs."""

from __future__ import annotations

import re
from collections.abc import Callable
from json import dumps, loads

from fusetui.trace.scrub.keys import TELLING, kind_of

STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
MOST = 256 << 20  # bytes of different strings that are remembered
EACH = 200  # bytes that it takes to remember one, beyond its text
LONGEST_KEY = 80  # characters


class Strings(dict[bytes, bytes]):
    """What stands between the quotes of a JSON string -> what stands there afterwards.

    `before` is what the strings were changed to already.
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


def parts(text: bytes) -> list[bytes]:
    """JSON divided at its quotes: what stands in strings has odd places."""
    return STRING.split(text) if b"\\" in text else text.split(b'"')


def changed(text: bytes, strings: Strings) -> bytes:
    """JSON with all its strings changed."""
    found = parts(text)
    found[1::2] = map(strings.__getitem__, found[1::2])
    return b'"'.join(found)


def _tells(text: str) -> bool:
    """May what follows be private because of this key; also an item such as `HOME=/root`."""
    if len(text) > LONGEST_KEY:
        return text.partition("=")[0] in TELLING
    return kind_of(text) is not None or text in TELLING or text.partition("=")[0] in TELLING
