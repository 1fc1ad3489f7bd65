"""Where to go on in a document behind an element whose syntax is damaged."""

from __future__ import annotations

import re
from functools import cached_property

from fusetui.trace.read.chunks import KEYS
from fusetui.trace.read.document import Document
from fusetui.trace.read.structure import split

EVENT_START = re.compile(rb'\{(?<![:\[]\{)\s*+"(?:' + KEYS + rb')"\s*+:')
ANY_START = re.compile(rb'\{(?<![:\[]\{)\s*+"[^"\\]{0,200}"\s*+:')
BLANKS = b" \t\r\n"
WINDOW = 1 << 18  # bytes whose starts are found at once
AROUND = 1 << 10  # bytes before and behind them that are looked at as well


class Starts:
    """Finds the next start of an event; asked for ever later places, it searches no byte twice."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def after(self, place: int) -> int | None:
        """The next start behind a place: of an object whose first key is one that events have; or
        of any object, where no event of the document begins with such a key."""
        return self._kind.after(place)

    @cached_property
    def _kind(self) -> _Kind:
        usual = _Kind(self._document, EVENT_START)
        return usual if usual.after(-1) is not None else _Kind(self._document, ANY_START)


class _Kind:
    """The starts that look like one pattern."""

    def __init__(self, document: Document, pattern: re.Pattern[bytes]) -> None:
        self._document = document
        self._pattern = pattern
        self._first = 0  # byte of the document where the text begins
        self._text = b""
        self._asked = -2
        self._answer: int | None = -1

    def after(self, place: int) -> int | None:
        if self._asked <= place and (self._answer is None or self._answer > place):
            return self._answer
        self._asked, self._answer = place, self._search(place + 1)
        return self._answer

    def _search(self, place: int) -> int | None:
        """The first start at a place or behind it."""
        size = len(self._document)
        for begin in range(place - place % WINDOW, size, WINDOW):
            self._look(begin)
            end = begin + WINDOW - self._first
            for found in self._pattern.finditer(self._text, max(place - self._first, 0)):
                if found.start() >= end:
                    break
                if _is_element(self._text, found.start()):
                    return self._first + found.start()
            place = begin + WINDOW
        return None

    def _look(self, begin: int) -> None:
        """Have the text of the window at hand, with what is around it."""
        first = max(begin - AROUND, 0)
        if not self._text or first != self._first:
            self._first = first
            self._text = self._document[first : begin + WINDOW + AROUND]


def _is_element(text: bytes, at: int) -> bool:
    """Not if it is the value of a key or the first item of a list."""
    return text[max(at - AROUND, 0) : at].rstrip(BLANKS)[-1:] not in (b":", b"[")


def first_object(text: bytes) -> int:
    """Where the object ends with which a text begins; -1 when it does not end in it."""
    close = split(text[1:]).close if text[:1] == b"{" else -1
    return close + 2 if close >= 0 else -1
