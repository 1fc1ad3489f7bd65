"""Reads what the fast way could not: the first and last chunk, wrong cuts, damage.

The document is split at its brackets, window by window, and each window is decoded in
as few calls as possible. So a wrong guess about the form of a file costs time, but
never makes a number wrong; damage costs time too, and the events that it affects.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.report import Skipped
from fusetui.trace.read.batch import MOST_LISTED, Batch, ByteWindow, event_in
from fusetui.trace.read.body import is_end
from fusetui.trace.read.chunks import CUT_SHORT, KEYS, NEAR_END, Chunk, decode_list
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import ExactEvent
from fusetui.trace.read.gather import gather
from fusetui.trace.read.structure import INSIDE, split

WINDOW = 1 << 20  # bytes that are split at once
# the same after damage, where the positions of brackets are doubtful
AFTER_DAMAGE = 1 << 12
LONGEST = 64 << 20  # bytes of an element; a longer one is unreadable
PHASE = b'"ph"'  # part of every event
SEPARATORS = b" \t\r\n,"
NEXT = lazy_pattern(rb"[^\s,}]")
CLOSE = lazy_pattern(rb'\]\s*(?=,\s*"[\w ]+"\s*:|\}\s*\Z|\Z)')
# The same before a key that writers put behind the events and that no event has
CLOSE_BEFORE_KEY = lazy_pattern(
    rb'\]\s*(?=,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|schemaVersion|'
    rb'deviceProperties|distributedInfo|otherData|metadata|systemTraceEvents)"\s*:)'
)
EVENT_START = lazy_pattern(rb'\{(?<![:\[]\{)\s*+"(?:' + KEYS + rb')"\s*+:')
ANY_START = lazy_pattern(rb'\{(?<![:\[]\{)\s*+"[^"\\]{0,200}"\s*+:')
AROUND = 1 << 10  # bytes before a start that tell whether it is that of an element
NO_PLACES = np.empty((0, 3), dtype=np.int64)
SHORT = 8 << 20  # bytes; a longer gap is not read the slow way while the user waits
HURRY = 1.0  # seconds after which no further gap is read the slow way
FAR_AWAY = 1 << 62  # byte
NO_END = lazy_pattern(rb"[^\s,\]}]")
NOT_CLOSED = "not closed"  # why an element is unreadable that lacks a quote or a brace
# Whether the bytes [position, stop) may be read the slow way
May = Callable[[int, int], bool]


def patience_for(size: int) -> tuple[int, int]:
    """What damage may cost, in addition to reading a document once: elements that are
    read separately, and bytes that are read ahead in vain. Linear in the size, so that
    reading takes linear time; what a large document may waste is too much for a small
    one."""
    damaged = min(5_000 + size // 2048, 1_000 + size // 128)
    return damaged, min((64 << 20) + size, (4 << 20) + 4 * size)


class Mender:
    """Reads stretches of one document, and remembers what it learned about its
    damage."""

    def __init__(self, document: Document, others: bool = False) -> None:
        """`others` as in Batch."""
        self._document = document
        self._others = others
        self._starts = Starts(document)
        self.size = len(document)  # bytes
        self._damaged, self._ahead = patience_for(self.size)
        self._window_size = WINDOW
        self._listed = 0  # unreadable elements
        # whether the brackets of the last, unfollowed element are closed
        self._closes = False

    def read(self, start: int, stop: int) -> Iterator[Chunk]:
        """Chunks from the element at `start` on. The last one may go beyond `stop`, or
        reach the end of the list (see Chunk.after)."""
        stop = min(stop, len(self._document))
        while start < stop:
            window = self._window(start, stop)
            chunk = self._read_window(window) if window else self._read_unclosed(start)
            self._listed += len(chunk.skipped)
            yield chunk
            if chunk.after != -1 or chunk.too_damaged:
                return
            start = chunk.end

    def _window(self, start: int, stop: int) -> ByteWindow | None:
        """The elements from `start` on that begin before `stop`; None if the first has
        no end."""
        text = self._document[start : start + self._window_size]
        found = split(text)
        if not len(found.ends):
            return self._long_element(start)
        self._window_size = min(self._window_size * 4, WINDOW)
        kept = int(np.searchsorted(found.begins, stop - start))
        while kept > 1 and self._next(start + int(found.begins[kept - 1])) >= stop:
            kept -= 1
        whole = found.close >= 0 and kept == len(found.begins)
        after = start + found.close + 1 if whole else -1
        return ByteWindow(start, text, found.begins[:kept], found.ends[:kept], after)

    def _long_element(self, start: int) -> ByteWindow | None:
        """An element longer than the window; beyond LONGEST its text is left out."""
        state, at = INSIDE, start
        limit = start + max(self._ahead, AFTER_DAMAGE)
        while at < limit and (text := self._document[at : min(at + WINDOW, limit)]):
            found = split(text, state)
            if len(found.ends):
                end = at + int(found.ends[0])
                after = end + 1 if found.close == found.ends[0] else -1
                text = self._document[start:end] if end - start <= LONGEST else b""
                return ByteWindow(
                    start, text, np.array([0]), np.array([end - start]), after
                )
            state, at = found.state, at + len(text)
        self._ahead -= at - start
        self._closes = state == INSIDE and at >= len(self._document)
        return None

    def _read_window(self, window: ByteWindow) -> Chunk:
        start, last = window.start, window.start + int(window.ends[-1])
        end = window.after - 1 if window.after != -1 else self._next(last)
        if not window.text:
            return _unreadable(
                start, end, f"longer than {LONGEST >> 20} MB", window.after
            )
        events = window.text[: int(window.ends[-1])].strip(SEPARATORS)
        # Behind the last event may be a bracket too many: then the bytes of the chunk
        # are no list.
        is_list = PHASE in events and not self._document[last:end].strip(SEPARATORS)
        plain = decode_list(events, start, end, window.after) if is_list else None
        return plain or self._read_batch(window, end)

    def _read_batch(self, window: ByteWindow, end: int) -> Chunk:
        """Reads what is no plain list up to `end`, or to where reading can go on after
        damage."""
        batch = Batch(window, max(MOST_LISTED - self._listed, 0), self._others)
        for number, reason in batch.damaged():
            begin, stop = batch.place_of(number)
            if self._has_enough():
                return batch.chunk(begin, number, too_damaged=True)
            text = batch.text_of(number).rstrip(SEPARATORS)
            event = None
            following = self._starts.after(begin)
            if following < stop:
                event = event_in(text[: following - begin].rstrip(SEPARATORS))
            batch.settle(number, event, reason)
            if following < stop:
                self._window_size = AFTER_DAMAGE
                self._ahead -= window.start + len(window.text) - following
                return batch.chunk(following, number + 1)
        return batch.chunk(end, len(batch), window.after)

    def _read_unclosed(self, start: int) -> Chunk:
        """An element whose end the brackets do not show: it lacks a quote, or the file
        ends."""
        if self._has_enough():
            return Chunk(start, start, 0, gather([]), too_damaged=True)
        self._window_size = AFTER_DAMAGE
        last = len(self._document)
        if self._closes and (event := event_in(self._text(start, last))):
            return _event(start, last, event)
        following = self._starts.after(start)
        text = self._text(start, min(following, last))
        if event := event_in(text):
            return _event(start, start + len(text), event)
        if following < FAR_AWAY:
            return _unreadable(start, following, NOT_CLOSED)
        return self._read_last(start)

    def _read_last(self, start: int) -> Chunk:
        """An element that is not closed, and that no event follows: it is damaged, or
        the file ends within it."""
        last = len(self._document)
        begin = max(start, last - NEAR_END)
        text = self._document[begin:]
        if close := CLOSE_BEFORE_KEY.search(text):
            end = begin + close.start()
            return _unreadable(start, end, NOT_CLOSED, end + 1)
        # A bracket may look like the end of the list and belong to the element.
        if close := CLOSE.search(text):
            end = begin + close.start()
            return _unreadable(start, end, CUT_SHORT, end + 1)
        return _unreadable(start, last, CUT_SHORT)

    def _text(self, start: int, end: int) -> bytes:
        """The text of one element, up to the longest that is read."""
        return self._document[start : min(end, start + LONGEST)].rstrip(SEPARATORS)

    def _next(self, place: int) -> int:
        """The next byte that is neither blank nor a comma, nor a superfluous brace."""
        found = self._document.find(NEXT, place)
        return found.start if found else len(self._document)

    def go_on(self) -> bool:
        """A bracket closed the list, but more of it follows; False when that is too
        much damage."""
        self._window_size = AFTER_DAMAGE
        return not self._has_enough()

    def _has_enough(self) -> bool:
        """One more place is damaged: is that too much."""
        self._damaged -= 1
        return self._damaged < 0


def _event(start: int, end: int, event: ExactEvent) -> Chunk:
    return Chunk(
        start,
        end,
        1,
        gather([event]),
        places=np.array([[0, start, end]], dtype=np.int64),
    )


def _unreadable(start: int, end: int, reason: str, after: int = -1) -> Chunk:
    """One element that is no event: there is no place whose text could be read as
    one."""
    return Chunk(
        start,
        end,
        1,
        gather([]),
        1,
        (Skipped(start, reason),),
        places=NO_PLACES,
        after=after,
    )


class Starts:
    """Finds where events begin: objects whose first key is typical of events; or any
    objects, if no event of the document begins with such a key."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._pattern: re.Pattern[bytes] | None = None  # once it is needed
        self._asked, self._answer = -1, 0  # the answer is FAR_AWAY if there is none

    def after(self, place: int) -> int:
        """The next start after a place, or FAR_AWAY. No byte is searched twice as
        places ascend."""
        if self._pattern is None:
            known = self._search(EVENT_START, 0) < FAR_AWAY
            self._pattern = EVENT_START if known else ANY_START
        if self._asked > place or self._answer <= place:
            self._asked, self._answer = place, self._search(self._pattern, place + 1)
        return self._answer

    def _search(self, pattern: re.Pattern[bytes], place: int) -> int:
        while found := self._document.find(pattern, place):
            before = self._document[max(found.start - AROUND, 0) : found.start].rstrip()
            # no value of a key, nor first item of a list
            if not before.endswith((b":", b"[")):
                return found.start
            place = found.start + 1
        return FAR_AWAY


class Joiner:
    """All known chunks of one document. Nothing is read twice the slow way."""

    def __init__(self, others: bool = False) -> None:
        """`others` as in Batch, of what is read slowly."""
        self._others = others
        self._known: dict[int, Chunk] = {}
        self._mender: Mender | None = None
        # brackets that do not end the events, and what is next
        self._beyond: dict[int, int] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        self._known.update((chunk.start, chunk) for chunk in chunks)

    def knows(self, chunk: Chunk) -> bool:
        return chunk.start in self._known

    def ordered(
        self, document: Document, start: int, may: May = lambda *_: True
    ) -> Iterator[Chunk]:
        """Chunks without a gap, from the byte after the opening bracket on.

        Ends at the end of the array, at a gap that may not be read the slow way, or
        where the document is too damaged to continue.
        """
        begins = sorted(self._known)
        position = start
        while position < len(document):
            known = self._known.get(position)
            following = bisect_right(begins, position)
            stop = begins[following] if following < len(begins) else len(document)
            if known is None and not may(position, stop):
                return
            for chunk in (
                (known,) if known else self._mended(document).read(position, stop)
            ):
                found = self._settled(document, chunk)
                yield found
                if found.after != -1 or found.too_damaged:
                    return
                position = self._beyond.get(found.end, found.end)

    def _settled(self, document: Document, chunk: Chunk) -> Chunk:
        """The chunk without its `after`, where that is not the end."""
        if chunk.after == -1 or is_end(document, chunk.after):
            return chunk
        found = document.find(NO_END, chunk.after)
        self._beyond[chunk.end] = found.start if found else len(document)
        too_damaged = not self._mended(document).go_on()
        return msgspec.structs.replace(chunk, after=-1, too_damaged=too_damaged)

    def _mended(self, document: Document) -> Mender:
        """A mender for the document as it is now: it grows while it is unpacked."""
        if self._mender is None or self._mender.size != len(document):
            self._mender = Mender(document, self._others)
        return self._mender

    def prefix(self, document: Document, start: int, tried: int) -> list[Chunk]:
        """What is available so far, given that all extents before the byte `tried` were
        tried."""
        late = time.monotonic() + HURRY

        def may(position: int, stop: int) -> bool:
            return (
                stop <= tried and stop - position <= SHORT and time.monotonic() < late
            )

        found = list(self.ordered(document, start, may))
        self.add(found)
        return found
