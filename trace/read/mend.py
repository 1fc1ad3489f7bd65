"""Reads what the fast way could not: the first and last chunk, wrong cuts, damage.

The document is split at its brackets, window by window, and each window is decoded in as few calls
as possible. So a wrong guess about the form of a file costs time, but never makes a number wrong;
damage costs time too, and the events that it affects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from fusetui.trace.model.report import Skipped
from fusetui.trace.read.batch import MOST_LISTED, Batch, GoOn, event_in
from fusetui.trace.read.chunks import CUT_SHORT, KEYS, NEAR_END, Chunk, decode_list
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import ExactEvent
from fusetui.trace.read.gather import gather
from fusetui.trace.read.structure import INSIDE, Places, split

EVENT_START = re.compile(rb'\{(?<![:\[]\{)\s*+"(?:' + KEYS + rb')"\s*+:')
ANY_START = re.compile(rb'\{(?<![:\[]\{)\s*+"[^"\\]{0,200}"\s*+:')
BLANKS = b" \t\r\n"
LOOK = 1 << 18  # bytes in which starts are searched at once
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
        for begin in range(place - place % LOOK, size, LOOK):
            self._look(begin)
            end = begin + LOOK - self._first
            for found in self._pattern.finditer(self._text, max(place - self._first, 0)):
                if found.start() >= end:
                    break
                if _is_element(self._text, found.start()):
                    return self._first + found.start()
            place = begin + LOOK
        return None

    def _look(self, begin: int) -> None:
        """Reads the text of the window, with some context around it."""
        first = max(begin - AROUND, 0)
        if not self._text or first != self._first:
            self._first = first
            self._text = self._document[first : begin + LOOK + AROUND]


def _is_element(text: bytes, at: int) -> bool:
    """Whether it is an element: not the value of a key, nor the first item of a list."""
    return text[max(at - AROUND, 0) : at].rstrip(BLANKS)[-1:] not in (b":", b"[")


def first_object(text: bytes) -> int:
    """The end of the object at the beginning of a text; -1 if it does not end in the text."""
    close = split(text[1:]).close if text[:1] == b"{" else -1
    return close + 2 if close >= 0 else -1


WINDOW = 1 << 20  # bytes that are split at once
AFTER_DAMAGE = 1 << 12  # the same after damage, where the positions of brackets are doubtful
LONGEST = 64 << 20  # bytes of an element; a longer one is unreadable
PHASE = b'"ph"'  # part of every event
SEPARATORS = b" \t\r\n,"
NEXT = re.compile(rb"[^\s,}]")
CLOSE = re.compile(rb'\]\s*(?=,\s*"[\w ]+"\s*:|\}\s*\Z|\Z)')


class Patience(msgspec.Struct):
    """What damage may cost, in addition to reading a document once."""

    damaged: int  # elements that are read separately
    ahead: int  # bytes that are read ahead in vain


def patience_for(size: int) -> Patience:
    """Linear in the size, so that reading takes linear time; what a large document may waste is too
    much for a small one."""
    return Patience(
        damaged=min(5_000 + size // 2048, 1_000 + size // 128),
        ahead=min((64 << 20) + size, (4 << 20) + 4 * size),
    )


class TooDamaged(GoOn):
    """So much of the document is damaged that the rest is not read."""


class Window(msgspec.Struct, frozen=True, eq=False):
    """Elements in the bytes [begins, ends) of a text that begins at byte `start` of the document.

    `after` is as in Chunk.
    """

    start: int
    text: bytes
    begins: Places
    ends: Places
    after: int = -1


class Mender:
    """Reads stretches of one document, and remembers what it learned about its damage."""

    def __init__(self, document: Document, others: bool = False) -> None:
        """`others` as in Batch."""
        self._document = document
        self._others = others
        self._starts = Starts(document)
        self._patience = patience_for(len(document))
        self._size = WINDOW
        self._listed = 0  # unreadable elements
        self._closes = False  # whether the brackets of the last, unfollowed element are closed

    @property
    def size(self) -> int:
        """Size of the document in bytes."""
        return len(self._document)

    def read(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks from the element at `start` on. The last one may go beyond `stop`, or reach the
        end of the list (see Chunk.after)."""
        stop = min(stop, len(self._document))
        while start < stop:
            window = self._window(start, stop)
            chunk = self._read_window(window) if window else self._read_unclosed(start)
            self._listed += len(chunk.skipped)
            yield chunk
            if chunk.after != -1 or chunk.too_damaged:
                return
            start = chunk.end

    def _window(self, start: int, stop: int) -> Window | None:
        """The elements from `start` on that begin before `stop`; None if the first one has no
        end."""
        text = self._document[start : start + self._size]
        found = split(text)
        if not len(found.ends):
            return self._long_element(start)
        self._size = min(self._size * 4, WINDOW)
        kept = int(np.searchsorted(found.begins, stop - start))
        while kept > 1 and self._next(start + int(found.begins[kept - 1])) >= stop:
            kept -= 1
        whole = found.close >= 0 and kept == len(found.begins)
        after = start + found.close + 1 if whole else -1
        return Window(start, text, found.begins[:kept], found.ends[:kept], after)

    def _long_element(self, start: int) -> Window | None:
        """An element longer than the window; beyond LONGEST its text is left out."""
        state, at = INSIDE, start
        limit = start + max(self._patience.ahead, AFTER_DAMAGE)
        while at < limit and (text := self._document[at : min(at + WINDOW, limit)]):
            found = split(text, state)
            if len(found.ends):
                end = at + int(found.ends[0])
                after = end + 1 if found.close == found.ends[0] else -1
                text = self._document[start:end] if end - start <= LONGEST else b""
                return Window(start, text, np.array([0]), np.array([end - start]), after)
            state, at = found.state, at + len(text)
        self._patience.ahead -= at - start
        self._closes = state == INSIDE and at >= len(self._document)
        return None

    def _read_window(self, window: Window) -> Chunk:
        start, end = window.start, window.start + int(window.ends[-1])
        end = window.after - 1 if window.after != -1 else self._next(end)
        if not window.text:
            return _unreadable(start, end, f"longer than {LONGEST >> 20} MB", window.after)
        events = window.text[: int(window.ends[-1])].strip(SEPARATORS)
        plain = decode_list(events, start, end, window.after) if PHASE in events else None
        return plain or self._read_batch(window, end)

    def _read_batch(self, window: Window, end: int) -> Chunk:
        """Reads what is not a plain list up to `end`, or to where reading can continue after
        damage."""
        start, after = window.start, window.after
        room = max(MOST_LISTED - self._listed, 0)
        batch = Batch(
            window.text, start, window.begins, window.ends, self._mend, room, self._others
        )
        try:
            batch.read(doubtful=len(window.text) <= AFTER_DAMAGE)
        except TooDamaged as too_much:
            return batch.chunk(start, too_much.place, too_much.number, too_damaged=True)
        except GoOn as on:
            self._size = AFTER_DAMAGE
            self._patience.ahead -= start + len(window.text) - on.place
            return batch.chunk(start, on.place, on.number + 1)
        return batch.chunk(start, end, len(batch), after)

    def _mend(self, batch: Batch, number: int, reason: str) -> None:
        """Reads a damaged element as far as possible, or skips it; see batch.Mend."""
        begin, end = batch.place_of(number)
        if self._has_enough():
            raise TooDamaged(number, begin)
        text = batch.text_of(number).rstrip(SEPARATORS)
        if event := _first_event(text):
            batch.add(number, event)
            return
        following = self._starts.after(begin)
        if following is None or following >= end:
            batch.skip(number, reason)
            return
        if event := event_in(text[: following - begin].rstrip(SEPARATORS)):
            batch.add(number, event)
        else:
            batch.skip(number, reason)
        raise GoOn(number, following)

    def _read_unclosed(self, start: int) -> Chunk:
        """An element whose end the brackets do not show: it lacks a quote, or the file ends."""
        if self._has_enough():
            return Chunk(start, start, 0, gather([]), too_damaged=True)
        self._size = AFTER_DAMAGE
        last = len(self._document)
        if self._closes and (event := event_in(self._text(start, last))):
            return _event(start, last, event)
        following = self._starts.after(start)
        text = self._text(start, last if following is None else following)
        if event := event_in(text):
            return _event(start, start + len(text), event)
        if event := _first_event(text):
            return _event(start, start + first_object(text), event)
        if following is not None:
            return _unreadable(start, following, "not closed")
        after = self._after_list(start)
        return _unreadable(start, last if after == -1 else after - 1, CUT_SHORT, after)

    def _text(self, start: int, end: int) -> bytes:
        """The text of one element, up to the longest that is read."""
        return self._document[start : min(end, start + LONGEST)].rstrip(SEPARATORS)

    def _after_list(self, start: int) -> int:
        """The byte after what looks like the bracket that closes the list, or -1."""
        begin = max(start, len(self._document) - NEAR_END)
        found = CLOSE.search(self._document[begin:])
        return begin + found.start() + 1 if found else -1

    def _next(self, place: int) -> int:
        """The next byte that is neither blank nor a comma, nor a superfluous brace."""
        found = self._document.find(NEXT, place)
        return found.start if found else len(self._document)

    def go_on(self) -> bool:
        """A bracket closed the list, but more of it follows; False when that is too much damage."""
        self._size = AFTER_DAMAGE
        return not self._has_enough()

    def _has_enough(self) -> bool:
        """One more place is damaged: is that too much."""
        self._patience.damaged -= 1
        return self._patience.damaged < 0


def _first_event(text: bytes) -> ExactEvent | None:
    """The first event in a text in which something else follows it."""
    if text.find(b"}") in (-1, len(text) - 1):
        return None
    length = first_object(text)
    return event_in(text[:length]) if 0 < length < len(text) else None


def _event(start: int, end: int, event: ExactEvent) -> Chunk:
    place = np.array([[0, start, end]], dtype=np.int64)
    return Chunk(start, end, 1, gather([event]), places=place)


def _unreadable(start: int, end: int, reason: str, after: int = -1) -> Chunk:
    return Chunk(start, end, 1, gather([]), 1, (Skipped(start, reason),), after=after)
