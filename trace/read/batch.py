"""Decodes neighboring elements that do not decode as a plain list of events.

What is valid JSON is decoded in few calls, whatever the types of its fields. Where the syntax is
damaged, the elements are halved until the damage is alone, and repaired where that is safe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
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

FEW = 16  # elements that are read one by one instead of being halved further
EMPTY, OBJECT, OTHER = 0, 1, 2  # kinds of elements; some writers end a list with an empty object
NO_OBJECT = "not an object"
MOST_LISTED = 10_000  # Unreadable elements whose place and reason are kept; all of them are counted


class GoOn(Exception):  # noqa: N818
    """The elements after `number` are doubtful: continue at this byte of the document, unless it is
    too damaged to read the rest."""

    def __init__(self, number: int, place: int, too_damaged: bool = False) -> None:
        super().__init__()
        self.number = number
        self.place = place
        self.too_damaged = too_damaged


class Window(msgspec.Struct, frozen=True, eq=False):
    """Elements in the bytes [begins, ends) of a text that begins at byte `start` of the document.

    `after` is as in Chunk.
    """

    start: int
    text: bytes
    begins: Places
    ends: Places
    after: int = -1


class Batch:
    """The elements of a window. Blank ones do not count."""

    def __init__(
        self,
        window: Window,
        mend: Callable[[Batch, int, str], None],
        listed: int,
        others: bool = False,
    ) -> None:
        """`mend` is called with an element whose syntax is damaged, and what is wrong with it: it
        adds an event or skips the element, and may raise GoOn. `listed`: how many unreadable
        elements may be listed. With `others` the chunk also locates elements that are JSON, but not
        events."""
        firsts = first_bytes(window.text, window.begins, window.ends)
        filled = firsts < window.ends
        self.begins, self.ends = firsts[filled], window.ends[filled]
        self._text, self._offset = window.text, window.start
        self._mend = mend
        self._events: list[ExactEvent] = []
        self._numbers: list[int] = []  # of the events
        self._unreadable = 0
        self._skipped: list[Skipped] = []
        self._room = listed
        self._others: list[int] = []  # those that are JSON, but not events
        self._keeps_others = others

    def __len__(self) -> int:
        return len(self.begins)

    def read(self) -> None:
        """Decodes all elements. Raises GoOn."""
        text = np.frombuffer(self._text, dtype=np.uint8)
        is_object = text[self.begins] == ord("{")
        empty = is_object & (text[np.minimum(self.begins + 1, len(text) - 1)] == ord("}"))
        kinds = np.where(empty, EMPTY, np.where(is_object, OBJECT, OTHER))
        cuts = np.flatnonzero(np.diff(kinds)) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(self)]):
            kind = kinds[first] if first < last else EMPTY
            if kind == OBJECT:
                self._read_objects(first, last)
            elif kind == OTHER:
                self._read_others(first, last)
            else:
                self._keep(range(first, last))

    def add(self, number: int, event: ExactEvent) -> None:
        """Adds this event as element `number`."""
        self._events.append(event)
        self._numbers.append(number)

    def skip(self, first: int, reason: str, last: int = -1) -> None:
        """Marks element `first`, or those up to `last`, as unreadable."""
        last = first + 1 if last < 0 else last
        self._unreadable += last - first
        listed = self.begins[first : min(last, first + self._room)].tolist()
        self._skipped += [Skipped(self._offset + begin, reason) for begin in listed]
        self._room -= len(listed)

    def text_of(self, number: int) -> bytes:
        return self._text[int(self.begins[number]) : int(self.ends[number])]

    def place_of(self, number: int) -> tuple[int, int]:
        """The bytes [begin, end) of the document that hold element `number`."""
        return self._offset + int(self.begins[number]), self._offset + int(self.ends[number])

    def chunk(self, end: int, count: int, after: int = -1, too_damaged: bool = False) -> Chunk:
        """What was read, as the chunk of the first `count` elements, up to this byte."""
        events = np.array(self._numbers, dtype=np.int64)
        numbers = np.union1d(events, np.array(self._others, dtype=np.int64))
        bounds = (self._offset + self.begins[numbers], self._offset + self.ends[numbers])
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

    def _read_others(self, first: int, last: int) -> None:
        """What is no object; behind a quote too many, an event may be in what seems a string."""
        braces = np.flatnonzero(np.frombuffer(self._text, dtype=np.uint8) == ord("{"))
        begins, ends = self.begins[first:last], self.ends[first:last]
        holding = np.searchsorted(braces, begins) < np.searchsorted(braces, ends)
        for number in (first + np.flatnonzero(holding)).tolist():
            if not _is_loose_json(self.text_of(number)):
                self._skip_others(first, number)
                self._mend(self, number, NO_OBJECT)
                first = number + 1
        self._skip_others(first, last)

    def _skip_others(self, first: int, last: int) -> None:
        self._keep(range(first, last))
        self.skip(first, NO_OBJECT, last)

    def _keep(self, numbers: Iterable[int]) -> None:
        """Elements that are no events, as places of the chunk."""
        if self._keeps_others:
            self._others += [number for number in numbers if _is_json(self.text_of(number))]

    def _read_objects(self, first: int, last: int) -> None:
        texts = [self.text_of(number) for number in range(first, last)]
        found = _decoded(texts)
        if found is None:
            self._halve(first, [repaired(text) for text in texts])
        else:
            self._settle(first, found)

    def _halve(self, first: int, texts: Sequence[bytes]) -> None:
        """Reads the elements from `first` on, together if they decode, else in halves."""
        found, middle = _decoded(texts), len(texts) // 2
        if found is not None:
            self._settle(first, found)
        elif len(texts) > FEW:
            self._halve(first, texts[:middle])
            self._halve(first + middle, texts[middle:])
        else:
            for number in range(first, first + len(texts)):
                if (event := _alone(self.text_of(number))) is not None:
                    self._settle(number, [event])
                else:
                    self._mend(self, number, problem_of(self.text_of(number)))

    def _settle(self, first: int, found: Sequence[LooseEvent]) -> None:
        for number, event in enumerate(found, first):
            try:
                self.add(number, coerced(event))
            except (ValueError, RecursionError) as error:
                if event.ph or b"".join(self.text_of(number).split()) != b"{}":
                    self.skip(number, str(error))
                if self._keeps_others:
                    self._others.append(number)


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
    """One element, by any decoder that can read it; None if none can, or if it is not an object."""
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
