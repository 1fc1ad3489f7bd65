"""Decodes neighbouring elements that do not decode as a plain list of events.

What is valid JSON is decoded in few calls, whatever the types of its fields. Where the syntax is
damaged, the elements are halved until the damage is alone, and repaired where that is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fusetui.trace.read.chunks import UNDECODABLE, Chunk, Skipped
from fusetui.trace.read.events import ExactEvent, LooseEvent, coerced, decode_loose
from fusetui.trace.read.gather import gather
from fusetui.trace.read.repair import BadSyntax, parse, repaired
from fusetui.trace.read.structure import Places, first_bytes

FEW = 16  # elements that are not halved any more, but repaired
BLANKS = b" \t\r\n"
MOST_LISTED = 10_000
"""Unreadable elements of which the place and the reason are kept; all of them are counted."""


class Damaged(Exception):  # noqa: N818
    """The syntax of element `number` cannot be repaired; those before it are read."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


class Batch:
    """The elements in the bytes [begins, ends) of a text, which begins at byte `offset` of the
    document. Blank ones do not count."""

    def __init__(self, text: bytes, offset: int, begins: Places, ends: Places) -> None:
        firsts = first_bytes(text, begins, ends)
        filled = firsts < ends
        self.begins, self.ends = firsts[filled], ends[filled]
        self._text = text
        self._offset = offset
        self._events: list[ExactEvent] = []
        self._numbers: list[int] = []  # of the events
        self._unreadable = 0
        self._skipped: list[Skipped] = []

    def __len__(self) -> int:
        return len(self.begins)

    def read(self, first: int) -> None:
        """Decode the elements from the first on. Raises Damaged."""
        bytes_ = np.frombuffer(self._text, dtype=np.uint8)
        is_object = bytes_[self.begins[first:]] == ord("{")
        cuts = np.flatnonzero(np.diff(is_object)) + 1
        for a, b in pairwise([0, *cuts.tolist(), len(is_object)]):
            if a < b and is_object[a]:
                self._read_objects(first + a, first + b)
            else:
                self._skip_all(first + a, first + b, "not an object")

    def add(self, number: int, event: ExactEvent) -> None:
        """Element `number` is this event."""
        self._events.append(event)
        self._numbers.append(number)

    def skip(self, number: int, reason: str) -> None:
        """Element `number` cannot be read."""
        self._skip_all(number, number + 1, reason)

    def text_of(self, number: int) -> bytes:
        return self._text[int(self.begins[number]) : int(self.ends[number])]

    def place_of(self, number: int) -> tuple[int, int]:
        """The bytes [begin, end) of the document."""
        return self._offset + int(self.begins[number]), self._offset + int(self.ends[number])

    def chunk(
        self, start: int, end: int, count: int, after: int = -1, *, too_damaged: bool = False
    ) -> Chunk:
        """What was read, as the chunk of the bytes [start, end) with the first `count` elements."""
        numbers = np.array(self._numbers, dtype=np.int64)
        places = (numbers, self._offset + self.begins[numbers], self._offset + self.ends[numbers])
        return Chunk(
            start,
            end,
            count,
            gather(self._events, numbers),
            self._unreadable,
            tuple(self._skipped),
            np.stack(places, axis=1),
            after,
            too_damaged,
        )

    def _skip_all(self, first: int, last: int, reason: str) -> None:
        self._unreadable += last - first
        room = MOST_LISTED - len(self._skipped)
        for begin in self.begins[first : min(last, first + room)].tolist():
            self._skipped.append(Skipped(self._offset + begin, reason))

    def _read_objects(self, first: int, last: int) -> None:
        """Halve the elements [first, last) until they decode."""
        texts = [self.text_of(number) for number in range(first, last)]
        if (found := _decoded(texts)) is not None:
            self._settle_all(first, found)
        elif len(texts) > FEW:
            middle = (first + last) // 2
            self._read_objects(first, middle)
            self._read_objects(middle, last)
        elif (found := _decoded([repaired(text) for text in texts])) is not None:
            self._settle_all(first, found)
        else:
            for number in range(first, last):
                self._read_alone(number)

    def _settle_all(self, first: int, found: Sequence[LooseEvent]) -> None:
        for number, event in enumerate(found, first):
            try:
                self.add(number, coerced(event))
            except (ValueError, RecursionError) as error:
                if event.ph or self.text_of(number).translate(None, BLANKS) != b"{}":
                    self.skip(number, str(error))  # some writers end the list with an empty object

    def _read_alone(self, number: int) -> None:
        text = self.text_of(number)
        if (found := _decoded([text])) is not None:
            self._settle_all(number, found)
            return
        try:
            self.add(number, parse(text))
        except BadSyntax as error:
            raise Damaged(number, str(error)) from None
        except (ValueError, RecursionError) as error:
            self.skip(number, str(error))


def _decoded(texts: Sequence[bytes]) -> Sequence[LooseEvent] | None:
    """Elements from their texts; None when they are no JSON."""
    try:
        found = decode_loose(b"[%b]" % b",".join(texts))
    except UNDECODABLE:
        return None
    return found if len(found) == len(texts) else None
