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
    decode_loose,
    decode_raw,
    make_event,
    make_loose_event,
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
        """Find the elements of a window that are not blank.

        Args:
            window: The window.
            listed: How many unreadable elements may be listed.
            others: Whether the chunk also says where elements are that are JSON, but
                not events.
        """
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
        """Decode all elements.

        Yields:
            The number of each element whose syntax is damaged, and what is wrong with
            it. The caller has to `settle` it before it asks for the next one.
        """
        kinds = self._kinds()
        changes = np.flatnonzero(np.diff(kinds)) + 1
        for first, stop in pairwise([0, *changes.tolist(), len(self)]):
            if first == stop:
                continue
            kind = kinds[first]
            if kind == EMPTY_OBJECT:
                self._keep_others(range(first, stop))
            elif kind == OBJECT:
                yield from self._decode_objects(first, stop)
            else:
                yield from self._skip_non_objects(first, stop)

    def settle(self, number: int, event: ExactEvent | None, reason: str) -> None:
        """Decide what a damaged element is: the event that was made of it, or
        unreadable for this reason if `event` is None."""
        if event is None:
            self._skip(number, number + 1, reason)
        else:
            self._events.append(event)
            self._event_numbers.append(number)

    def text_of(self, number: int) -> bytes:
        """The text of the element with this number."""
        return self._text[int(self.begins[number]) : int(self.ends[number])]

    def place_of(self, number: int) -> tuple[int, int]:
        """The bytes [begin, end) of the document that hold element `number`."""
        begin = self._offset + int(self.begins[number])
        end = self._offset + int(self.ends[number])
        return begin, end

    def chunk(
        self, end: int, count: int, after: int = -1, too_damaged: bool = False
    ) -> Chunk:
        """Return what was decoded as a chunk.

        Args:
            end: The byte of the document after the chunk.
            count: How many elements it has, from the first on.
            after: The byte after the bracket that closes the list, if that follows.
            too_damaged: Whether reading ends here because of too much damage.
        """
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
        """Return the kind of each element: EMPTY_OBJECT for `{}`, OBJECT for what else
        begins with a brace, NO_OBJECT for the rest."""
        text = np.frombuffer(self._text, dtype=np.uint8)
        first_byte = text[self.begins]
        second_byte = text[np.minimum(self.begins + 1, len(text) - 1)]
        is_object = first_byte == ord("{")
        is_empty = is_object & (second_byte == ord("}"))
        kinds = np.where(is_object, OBJECT, NO_OBJECT)
        return np.where(is_empty, EMPTY_OBJECT, kinds)

    def _skip(self, first: int, stop: int, reason: str) -> None:
        """Count the elements [first, stop) as unreadable, and list as many of them as
        may be."""
        count = stop - first
        listed = min(count, self._listed_left)
        self._unreadable += count
        self._listed_left -= listed
        for begin in self.begins[first : first + listed].tolist():
            skipped = Skipped(byte=self._offset + begin, reason=reason)
            self._skipped.append(skipped)

    def _keep_others(self, numbers: Iterable[int]) -> None:
        """Remember which of these elements are JSON though not events, if the chunk is
        to say where they are."""
        if self._keeps_others:
            for number in numbers:
                if _is_json(self.text_of(number)):
                    self._other_numbers.append(number)

    def _skip_non_objects(self, first: int, stop: int) -> Iterator[tuple[int, str]]:
        """Skip the elements [first, stop), which are no objects.

        Behind a quote too many, an event may be in what seems a string. So an element
        with a brace that is not even loose JSON is yielded as damaged.
        """
        for number in self._numbers_with_brace(first, stop):
            if _is_loose_json(self.text_of(number)):
                continue
            self._keep_others(range(first, number))
            self._skip(first, number, REASON_NO_OBJECT)
            yield number, REASON_NO_OBJECT
            first = number + 1
        self._keep_others(range(first, stop))
        self._skip(first, stop, REASON_NO_OBJECT)

    def _numbers_with_brace(self, first: int, stop: int) -> list[int]:
        """Return the numbers of those of the elements [first, stop) that contain an
        opening brace."""
        is_brace = np.frombuffer(self._text, dtype=np.uint8) == ord("{")
        braces = np.flatnonzero(is_brace)
        begins = self.begins[first:stop]
        ends = self.ends[first:stop]
        braces_before_begin = np.searchsorted(braces, begins)
        braces_before_end = np.searchsorted(braces, ends)
        has_brace = braces_before_begin < braces_before_end
        numbers: list[int] = (first + np.flatnonzero(has_brace)).tolist()
        return numbers

    def _decode_objects(self, first: int, stop: int) -> Iterator[tuple[int, str]]:
        """Decode the elements [first, stop), which are objects.

        They are tried as one list, then as one list with each repaired, then each
        alone. What cannot be decoded at all is yielded as damaged.
        """
        element_texts = [self.text_of(number) for number in range(first, stop)]
        events: Sequence[LooseEvent | None] | None = _decode_together(element_texts)
        if events is None:
            events = _decode_together([repaired(text) for text in element_texts])
        if events is None:
            events = [_decode_alone(text) for text in element_texts]
        for number, event, text in zip(
            range(first, stop), events, element_texts, strict=True
        ):
            if event is None:
                yield number, problem_of(text)
            else:
                self._add(number, event, text)

    def _add(self, number: int, event: LooseEvent, text: bytes) -> None:
        """Add a decoded object if it is an event. One that is not counts as unreadable,
        except an empty object."""
        try:
            self.settle(number, make_event(event), "")
        except (ValueError, RecursionError) as error:
            if self._keeps_others:
                self._other_numbers.append(number)
            is_empty = not event.ph and b"".join(text.split()) == b"{}"
            if not is_empty:  # some writers end a list with an empty object
                self._skip(number, number + 1, str(error))


def event_in(text: bytes) -> ExactEvent | None:
    """The event in a text, repaired where that is safe; None if there is none."""
    event = _decode_alone(text)
    if event is None:
        return None
    try:
        return make_event(event)
    except (ValueError, RecursionError):
        return None


def _is_json(text: bytes) -> bool:
    """Whether a text is exactly one JSON value."""
    try:
        return len(decode_raw(b"[%b]" % text)) == 1
    except UNDECODABLE:
        return False


def _is_loose_json(text: bytes) -> bool:
    """Whether Python reads a text as JSON: also with NaN and control characters, but
    without repairs."""
    if _is_json(text):
        return True
    try:
        json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _decode_alone(text: bytes) -> LooseEvent | None:
    """One object, by the first decoder that can read it, repaired where that is safe.
    None if no decoder can, or it is not an object."""
    if not text.startswith(b"{"):
        return None
    if events := _decode_together([text]) or _decode_together([repaired(text)]):
        return events[0]
    try:
        element = loads(text)
        return make_loose_event(element) if isinstance(element, dict) else None
    except (ValueError, RecursionError):
        return None


def _decode_together(texts: Sequence[bytes]) -> Sequence[LooseEvent] | None:
    """Objects from their texts, decoded in one call; None if one of them is not JSON."""
    try:
        events = decode_loose(b"[%b]" % b",".join(texts))
    except UNDECODABLE:
        return None
    # a text may hold several values with commas between them
    return events if len(events) == len(texts) else None
