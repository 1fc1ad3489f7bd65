"""Where to continue in a document after an element whose syntax is damaged."""

from __future__ import annotations

import re
from functools import cached_property

from fusetui.trace.read.chunks import KEYS
from fusetui.trace.read.document import Document
from fusetui.trace.read.structure import split

EVENT_START = re.compile(rb'\{(?<![:\[]\{)\s*+"(?:' + KEYS + rb')"\s*+:')
ANY_START = re.compile(rb'\{(?<![:\[]\{)\s*+"[^"\\]{0,200}"\s*+:')
BLANKS = b" \t\r\n"
WINDOW = 1 << 18  # bytes in which starts are searched at once
AROUND = 1 << 10  # bytes before and after them that are taken into account


class Starts:
    """Finds the next start of an event. If the places asked for ascend, no byte is searched
    twice."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def after(self, place: int) -> int | None:
        """The next start after a place: of an object whose first key is typical of events; or of
        any object, if no event of the document begins with such a key."""
        return self._kind.after(place)

    @cached_property
    def _kind(self) -> _Kind:
        usual = _Kind(self._document, EVENT_START)
        return usual if usual.after(-1) is not None else _Kind(self._document, ANY_START)


class _Kind:
    """The starts that match one pattern."""

    def __init__(self, document: Document, pattern: re.Pattern[bytes]) -> None:
        self._document = document
        self._pattern = pattern
        self._first = 0  # byte of the document at which the text begins
        self._text = b""
        self._asked = -2
        self._answer: int | None = -1

    def after(self, place: int) -> int | None:
        if self._asked <= place and (self._answer is None or self._answer > place):
            return self._answer
        self._asked, self._answer = place, self._search(place + 1)
        return self._answer

    def _search(self, place: int) -> int | None:
        """The first start at or after a place."""
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
        """Reads the text of the window, with some context around it."""
        first = max(begin - AROUND, 0)
        if not self._text or first != self._first:
            self._first = first
            self._text = self._document[first : begin + WINDOW + AROUND]


def _is_element(text: bytes, at: int) -> bool:
    """Whether it is an element: not the value of a key, nor the first item of a list."""
    return text[max(at - AROUND, 0) : at].rstrip(BLANKS)[-1:] not in (b":", b"[")


def first_object(text: bytes) -> int:
    """The end of the object at the beginning of a text; -1 if it does not end in the text."""
    close = split(text[1:]).close if text[:1] == b"{" else -1
    return close + 2 if close >= 0 else -1
