"""Decodes neighboring elements that do not decode as a plain list of events: together
what is JSON, whatever the types of its fields, else one by one, repaired where that is
safe.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.report import Skipped
from fusetui.trace.read.chunks import UNDECODABLE, Chunk
from fusetui.trace.read.events import (
    ExactEvent,
    LooseEvent,
    coerced,
    decode_loose,
    decode_raw,
    loose,
)
from fusetui.trace.read.gather import gather
from fusetui.trace.read.repair import loads, problem_of, repaired
from fusetui.trace.read.structure import Places, first_bytes

# kinds of elements; some writers end a list with an empty object
EMPTY, OBJECT, OTHER = 0, 1, 2
NO_OBJECT = "not an object"
MOST_LISTED = 10_000
"""Unreadable elements whose place and reason are kept; all of them are counted."""


class ByteWindow(NamedTuple):
    """Elements in the bytes [begins, ends) of a text that begins at byte `start` of the
    document.

    `after` is as in Chunk.
    """

    start: int
    text: bytes
    begins: Places
    ends: Places
    after: int = -1


class Batch:
    """The elements of a window. Blank ones do not count."""

    def __init__(self, window: ByteWindow, listed: int, others: bool = False) -> None:
        """`listed`: how many unreadable elements may be listed. With `others` the chunk
        also locates elements that are JSON, but not events."""
        firsts = first_bytes(window.text, window.begins, window.ends)
        filled = firsts < window.ends
        self.begins, self.ends = firsts[filled], window.ends[filled]
        self._text, self._offset = window.text, window.start
        self._events: list[ExactEvent] = []
        self._numbers: list[int] = []  # of the events
        self._unreadable = 0
        self._skipped: list[Skipped] = []
        self._room = listed
        self._others: list[int] = []  # those that are JSON, but not events
        self._keeps_others = others

    def __len__(self) -> int:
        return len(self.begins)

    def damaged(self) -> Iterator[tuple[int, str]]:
        """Decodes all elements; gives the number of each whose syntax is damaged, and
        what is wrong with it: the caller settles it."""
        text = np.frombuffer(self._text, dtype=np.uint8)
        is_object = text[self.begins] == ord("{")
        empty = is_object & (
            text[np.minimum(self.begins + 1, len(text) - 1)] == ord("}")
        )
        kinds = np.where(empty, EMPTY, np.where(is_object, OBJECT, OTHER))
        cuts = np.flatnonzero(np.diff(kinds)) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(self)]):
            kind = kinds[first] if first < last else EMPTY
            if kind == EMPTY:
                self._keep(range(first, last))
            else:
                yield from (self._objects if kind == OBJECT else self._rest)(
                    first, last
                )

    def settle(self, number: int, event: ExactEvent | None, reason: str) -> None:
        """Adds this event as element `number`, or marks that as unreadable."""
        if event is None:
            self._skip(number, number + 1, reason)
        else:
            self._events.append(event)
            self._numbers.append(number)

    def text_of(self, number: int) -> bytes:
        return self._text[int(self.begins[number]) : int(self.ends[number])]

    def place_of(self, number: int) -> tuple[int, int]:
        """The bytes [begin, end) of the document that hold element `number`."""
        return self._offset + int(self.begins[number]), self._offset + int(
            self.ends[number]
        )

    def chunk(
        self, end: int, count: int, after: int = -1, too_damaged: bool = False
    ) -> Chunk:
        """What was read, as the chunk of the first `count` elements, up to this
        byte."""
        events = np.array(self._numbers, dtype=np.int64)
        numbers = np.union1d(events, np.array(self._others, dtype=np.int64))
        bounds = (
            self._offset + self.begins[numbers],
            self._offset + self.ends[numbers],
        )
        return Chunk(
            self._offset,
            end,
            count,
            gather(self._events, events),
            self._unreadable,
            tuple(self._skipped),
            np.stack((numbers, *bounds), axis=1),
            after,
            too_damaged,
        )

    def _skip(self, first: int, last: int, reason: str) -> None:
        self._unreadable += last - first
        listed = self.begins[first : min(last, first + self._room)].tolist()
        self._skipped += [Skipped(self._offset + begin, reason) for begin in listed]
        self._room -= len(listed)

    def _keep(self, numbers: Iterable[int]) -> None:
        """Elements that are no events, as places of the chunk."""
        if self._keeps_others:
            self._others += [
                number for number in numbers if _is_json(self.text_of(number))
            ]

    def _rest(self, first: int, last: int) -> Iterator[tuple[int, str]]:
        """What is no object; behind a quote too many, an event may be in what seems a
        string."""
        braces = np.flatnonzero(np.frombuffer(self._text, dtype=np.uint8) == ord("{"))
        before = np.searchsorted(
            braces, (self.begins[first:last], self.ends[first:last])
        )
        holding = (first + np.flatnonzero(before[0] < before[1])).tolist()
        for number in (*holding, last):
            if number == last or not _is_loose_json(self.text_of(number)):
                self._keep(range(first, number))
                self._skip(first, number, NO_OBJECT)
                first = number + 1
                if number < last:
                    yield number, NO_OBJECT

    def _objects(self, first: int, last: int) -> Iterator[tuple[int, str]]:
        texts = [self.text_of(number) for number in range(first, last)]
        together = _decoded(texts) or _decoded([*map(repaired, texts)])
        found = map(_alone, texts) if together is None else together
        for number, event, text in zip(range(first, last), found, texts, strict=True):
            if event is None:
                yield number, problem_of(text)
                continue
            try:
                self.settle(number, coerced(event), "")
            except (ValueError, RecursionError) as error:
                if self._keeps_others:
                    self._others.append(number)
                # some writers end a list with it
                if event.ph or b"".join(text.split()) != b"{}":
                    self._skip(number, number + 1, str(error))


def event_in(text: bytes) -> ExactEvent | None:
    """The event that this text contains, repaired where that is safe."""
    found = _alone(text)
    try:
        return coerced(found) if found else None
    except (ValueError, RecursionError):
        return None


def _is_json(text: bytes) -> bool:
    try:
        return len(decode_raw(b"[%b]" % text)) == 1
    except UNDECODABLE:
        return False


def _is_loose_json(text: bytes) -> bool:
    """As Python reads it: NaN and control characters too, but nothing is repaired."""
    if _is_json(text):
        return True
    try:
        json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _alone(text: bytes) -> LooseEvent | None:
    """One element, by any decoder that can read it; None if none can, or if it is not
    an object."""
    if not text.startswith(b"{"):
        return None
    if found := _decoded([text]) or _decoded([repaired(text)]):
        return found[0]
    try:
        element = loads(text)
        return loose(element) if isinstance(element, dict) else None
    except (ValueError, RecursionError):
        return None


def _decoded(texts: Sequence[bytes]) -> Sequence[LooseEvent] | None:
    """Elements from their texts; None if they are not JSON."""
    try:
        found = decode_loose(b"[%b]" % b",".join(texts))
    except UNDECODABLE:
        return None
    return found if len(found) == len(texts) else None
