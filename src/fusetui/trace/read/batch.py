"""Decodes neighboring elements that do not decode as a plain list of events: all of
them together if they are valid JSON, and otherwise one by one, repaired where that is
safe.
"""

from __future__ import annotations

import json  # which reads NaN and control characters
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

# kinds of elements, by their first bytes
EMPTY_OBJECT = 0  # some writers end a list with one
OBJECT = 1
NO_OBJECT = 2
REASON_NO_OBJECT = "not an object"
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
        is_filled = firsts < window.ends
        self.begins = firsts[is_filled]
        self.ends = window.ends[is_filled]
        self._text = window.text
        self._offset = window.start
        self._events: list[ExactEvent] = []
        self._event_numbers: list[int] = []  # of the elements that are events
        self._unreadable = 0
        self._skipped: list[Skipped] = []
        self._listed_left = listed
        self._keeps_others = others
        self._other_numbers: list[int] = []  # of elements that are JSON, but no events

    def __len__(self) -> int:
        return len(self.begins)

    def damaged(self) -> Iterator[tuple[int, str]]:
        """Decodes all elements; gives the number of each whose syntax is damaged, and
        what is wrong with it. The caller settles it before the next one."""
        kinds = self._kinds()
        changes = np.flatnonzero(np.diff(kinds)) + 1
        for first, stop in pairwise([0, *changes.tolist(), len(self)]):
            if first == stop:
                continue
            kind = kinds[first]
            if kind == EMPTY_OBJECT:
                self._keep_others(range(first, stop))
            elif kind == OBJECT:
                yield from self._objects(first, stop)
            else:
                yield from self._no_objects(first, stop)

    def settle(self, number: int, event: ExactEvent | None, reason: str) -> None:
        """Adds this event as element `number`, or marks that as unreadable."""
        if event is None:
            self._skip(number, number + 1, reason)
        else:
            self._events.append(event)
            self._event_numbers.append(number)

    def text_of(self, number: int) -> bytes:
        return self._text[int(self.begins[number]) : int(self.ends[number])]

    def place_of(self, number: int) -> tuple[int, int]:
        """The bytes [begin, end) of the document that hold element `number`."""
        begin = self._offset + int(self.begins[number])
        end = self._offset + int(self.ends[number])
        return begin, end

    def chunk(
        self, end: int, count: int, after: int = -1, too_damaged: bool = False
    ) -> Chunk:
        """What was read, as the chunk of the first `count` elements, up to this
        byte."""
        event_numbers = np.array(self._event_numbers, dtype=np.int64)
        other_numbers = np.array(self._other_numbers, dtype=np.int64)
        numbers = np.union1d(event_numbers, other_numbers)
        begins = self._offset + self.begins[numbers]
        ends = self._offset + self.ends[numbers]
        return Chunk(
            start=self._offset,
            end=end,
            events=count,
            columns=gather(self._events, event_numbers),
            unreadable=self._unreadable,
            skipped=tuple(self._skipped),
            places=np.stack((numbers, begins, ends), axis=1),
            after=after,
            too_damaged=too_damaged,
        )

    def _kinds(self) -> Places:
        """The kind of each element."""
        text = np.frombuffer(self._text, dtype=np.uint8)
        first_byte = text[self.begins]
        second_byte = text[np.minimum(self.begins + 1, len(text) - 1)]
        is_object = first_byte == ord("{")
        is_empty = is_object & (second_byte == ord("}"))
        kinds = np.where(is_object, OBJECT, NO_OBJECT)
        return np.where(is_empty, EMPTY_OBJECT, kinds)

    def _skip(self, first: int, stop: int, reason: str) -> None:
        """Counts these elements as unreadable, and lists as many as may be."""
        count = stop - first
        listed = min(count, self._listed_left)
        self._unreadable += count
        self._listed_left -= listed
        for begin in self.begins[first : first + listed].tolist():
            skipped = Skipped(byte=self._offset + begin, reason=reason)
            self._skipped.append(skipped)

    def _keep_others(self, numbers: Iterable[int]) -> None:
        """Locates those of these elements that are JSON, if the chunk locates them."""
        if self._keeps_others:
            for number in numbers:
                if _is_json(self.text_of(number)):
                    self._other_numbers.append(number)

    def _no_objects(self, first: int, stop: int) -> Iterator[tuple[int, str]]:
        """Skips what is no object. Behind a quote too many, an event may be in what
        seems a string: elements with a brace that are not even loose JSON are given as
        damaged."""
        for number in self._with_braces(first, stop):
            if _is_loose_json(self.text_of(number)):
                continue
            self._keep_others(range(first, number))
            self._skip(first, number, REASON_NO_OBJECT)
            yield number, REASON_NO_OBJECT
            first = number + 1
        self._keep_others(range(first, stop))
        self._skip(first, stop, REASON_NO_OBJECT)

    def _with_braces(self, first: int, stop: int) -> list[int]:
        """The numbers of those of these elements that contain an opening brace."""
        is_brace = np.frombuffer(self._text, dtype=np.uint8) == ord("{")
        braces = np.flatnonzero(is_brace)
        begins = self.begins[first:stop]
        ends = self.ends[first:stop]
        braces_before_begin = np.searchsorted(braces, begins)
        braces_before_end = np.searchsorted(braces, ends)
        has_brace = braces_before_begin < braces_before_end
        numbers: list[int] = (first + np.flatnonzero(has_brace)).tolist()
        return numbers

    def _objects(self, first: int, stop: int) -> Iterator[tuple[int, str]]:
        """Adds the events of these elements, which are objects; yields the number of
        each that is no event, with the reason."""
        texts = [self.text_of(number) for number in range(first, stop)]
        events: Sequence[LooseEvent | None] | None = _decoded(texts)
        if events is None:
            events = _decoded([repaired(text) for text in texts])
        if events is None:
            events = [_decoded_alone(text) for text in texts]
        for number, event, text in zip(range(first, stop), events, texts, strict=True):
            if event is None:
                yield number, problem_of(text)
            else:
                self._add(number, event, text)

    def _add(self, number: int, event: LooseEvent, text: bytes) -> None:
        """Adds an object, if it is an event."""
        try:
            self.settle(number, coerced(event), "")
        except (ValueError, RecursionError) as error:
            if self._keeps_others:
                self._other_numbers.append(number)
            is_empty = not event.ph and b"".join(text.split()) == b"{}"
            if not is_empty:  # some writers end a list with an empty object
                self._skip(number, number + 1, str(error))


def event_in(text: bytes) -> ExactEvent | None:
    """The event that this text contains, repaired where that is safe."""
    event = _decoded_alone(text)
    if event is None:
        return None
    try:
        return coerced(event)
    except (ValueError, RecursionError):
        return None


def _is_json(text: bytes) -> bool:
    """Whether a text is one element of JSON."""
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


def _decoded_alone(text: bytes) -> LooseEvent | None:
    """One element, by any decoder that can read it; None if none can, or if it is not
    an object."""
    if not text.startswith(b"{"):
        return None
    if events := _decoded([text]) or _decoded([repaired(text)]):
        return events[0]
    try:
        element = loads(text)
        return loose(element) if isinstance(element, dict) else None
    except (ValueError, RecursionError):
        return None


def _decoded(texts: Sequence[bytes]) -> Sequence[LooseEvent] | None:
    """Elements from their texts; None if they are not JSON."""
    try:
        events = decode_loose(b"[%b]" % b",".join(texts))
    except UNDECODABLE:
        return None
    return events if len(events) == len(texts) else None
