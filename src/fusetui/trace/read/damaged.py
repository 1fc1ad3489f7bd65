"""Reads chunks for which the fast path failed: the first and last chunk, wrong cuts,
damage.

The document is split at its brackets, window by window, and each window is decoded in
as few calls as possible. So a wrong guess about the form of a file costs time, but
never makes a number wrong; damage costs time too, and the events that it affects.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.report import Skipped
from fusetui.trace.read.batch import MOST_LISTED, Batch, ByteWindow, event_in
from fusetui.trace.read.body import is_end
from fusetui.trace.read.chunks import (
    CUT_SHORT,
    END_BYTES,
    KEYS,
    SEPARATORS,
    Chunk,
    decode_list,
)
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import ExactEvent
from fusetui.trace.read.gather import gather
from fusetui.trace.read.structure import INSIDE, split

WINDOW_BYTES = 1 << 20  # that are split at once
# The same after damage, where the positions of brackets are doubtful; then it grows
# again.
WINDOW_BYTES_AFTER_DAMAGE = 1 << 12
WINDOW_GROWTH = 4
MAX_ELEMENT_BYTES = 64 << 20  # a longer element is unreadable

PHASE_KEY = b'"ph"'  # part of every event
NOT_SEPARATOR = lazy_pattern(rb"[^\s,}]")
CLOSE = lazy_pattern(rb'\]\s*(?=,\s*"[\w ]+"\s*:|\}\s*\Z|\Z)')
"""What looks like the bracket that closes the list of events."""
CLOSE_BEFORE_KEY = lazy_pattern(
    rb'\]\s*(?=,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|schemaVersion|'
    rb'deviceProperties|distributedInfo|otherData|metadata|systemTraceEvents)"\s*:)'
)
"""The same before a key that writers put behind the events and that no event has."""
AFTER_WRONG_CLOSE = lazy_pattern(rb"[^\s,\]}]")
"""Where the list goes on behind a bracket that did not close it."""

EVENT_START = lazy_pattern(rb'\{(?<![:\[]\{)\s*+"(?:' + KEYS + rb')"\s*+:')
ANY_START = lazy_pattern(rb'\{(?<![:\[]\{)\s*+"[^"\\]{0,200}"\s*+:')
BYTES_BEFORE_START = 1 << 10  # that tell whether a start is that of an element
NO_START = 1 << 62  # a byte behind every document

NOT_CLOSED = "not closed"  # why an element is unreadable that lacks a quote or a brace
NO_PLACES = np.empty((0, 3), dtype=np.int64)

# What is not read while the user waits:
MAX_HURRIED_GAP_BYTES = 8 << 20  # longer gaps
HURRY_SECONDS = 1.0  # gaps that are met after this time

MayRead = Callable[[int, int], bool]
"""Whether the bytes [start, stop) may be read the slow way."""


class Patience(NamedTuple):
    """What damage may cost, in addition to reading a document once."""

    damaged_elements: int  # that are read separately
    ahead_bytes: int  # that are read ahead in vain


def patience_for(size: int) -> Patience:
    """Return how much damage is read in a document of so many bytes.

    In 1 MB these are 5,512 damaged elements and 8 MB read ahead in vain; in 1 GB 529,288
    elements and 1,088 MB. So reading takes linear time, and a small document may waste
    more of it than a large one, in proportion.
    """
    return Patience(
        damaged_elements=min(5_000 + size // 2048, 1_000 + size // 128),
        ahead_bytes=min((64 << 20) + size, (4 << 20) + 4 * size),
    )


class DamagedReader:
    """Reads parts of one document, and remembers what it learned about its damage."""

    def __init__(self, document: Document, others: bool = False) -> None:
        """Prepare to read damaged parts of a document. `others` says whether chunks
        also tell where elements are that are JSON, but not events."""
        self._document = document
        self._others = others
        self._starts = Starts(document)
        self.size = len(document)  # bytes
        self._damaged_left, self._ahead_left = patience_for(self.size)
        self._window_bytes = WINDOW_BYTES
        self._listed = 0  # unreadable elements
        # Whether the brackets of the last element are closed, so that the file may end
        # behind it.
        self._closes = False

    def read(self, start: int, stop: int) -> Iterator[Chunk]:
        """Read the elements from one byte to another as chunks.

        Args:
            start: Where the first element begins.
            stop: Where to end. The last chunk goes beyond it if an element does.

        Yields:
            Chunks without a gap. They end before `stop` if the list ends (see
            Chunk.after), or if there is too much damage.
        """
        stop = min(stop, len(self._document))
        while start < stop:
            window = self._window(start, stop)
            if window:
                chunk = self._read_window(window)
            else:
                chunk = self._read_unclosed(start)
            self._listed += len(chunk.skipped)
            yield chunk
            if chunk.after != -1 or chunk.too_damaged:
                return
            start = chunk.end

    def go_on(self) -> bool:
        """Count a bracket that closed the list though more of it follows.

        Returns:
            Whether to read on; False if that is too much damage.
        """
        self._window_bytes = WINDOW_BYTES_AFTER_DAMAGE
        return not self._is_too_damaged()

    def _window(self, start: int, stop: int) -> ByteWindow | None:
        """Split some bytes into elements.

        Args:
            start: Where the first element begins.
            stop: Elements that begin here or later are left out, except the first.

        Returns:
            The elements that end within the window; None if the first has no end.
        """
        text = self._document[start : start + self._window_bytes]
        elements = split(text)
        if not len(elements.ends):
            return self._find_long_element(start)
        self._window_bytes = min(self._window_bytes * WINDOW_GROWTH, WINDOW_BYTES)
        kept = int(np.searchsorted(elements.begins, stop - start))
        # An element begins behind the blanks that are before it.
        while kept > 1:
            begin = self._skip_separators(start + int(elements.begins[kept - 1]))
            if begin < stop:
                break
            kept -= 1
        is_closed = elements.close >= 0 and kept == len(elements.begins)
        return ByteWindow(
            start=start,
            text=text,
            begins=elements.begins[:kept],
            ends=elements.ends[:kept],
            after=start + elements.close + 1 if is_closed else -1,
        )

    def _find_long_element(self, start: int) -> ByteWindow | None:
        """Find the end of an element that is longer than a window.

        Args:
            start: Where the element begins.

        Returns:
            The element, without its text if that is longer than MAX_ELEMENT_BYTES; None
            if it has no end, as far as may be read ahead.
        """
        state = INSIDE
        at = start
        limit = start + max(self._ahead_left, WINDOW_BYTES_AFTER_DAMAGE)
        while at < limit:
            text = self._document[at : min(at + WINDOW_BYTES, limit)]
            if not text:
                break
            elements = split(text, state)
            if len(elements.ends):
                first_end = int(elements.ends[0])
                closes_list = elements.close == first_end
                return self._window_of_one(start, at + first_end, closes_list)
            state = elements.state
            at += len(text)
        self._ahead_left -= at - start
        self._closes = state == INSIDE and at >= len(self._document)
        return None

    def _window_of_one(self, start: int, end: int, closes_list: bool) -> ByteWindow:
        """A window with a single element, which is in the bytes [start, end).
        `closes_list` says whether the bracket behind it closes the list."""
        is_too_long = end - start > MAX_ELEMENT_BYTES
        return ByteWindow(
            start=start,
            text=b"" if is_too_long else self._document[start:end],
            begins=np.array([0]),
            ends=np.array([end - start]),
            after=end + 1 if closes_list else -1,
        )

    def _read_window(self, window: ByteWindow) -> Chunk:
        """Decode the elements of a window: as a list if that is possible, else one by
        one."""
        start = window.start
        last_end = start + int(window.ends[-1])  # of the last element
        if window.after != -1:
            end = window.after - 1
        else:
            end = self._skip_separators(last_end)
        if not window.text:
            reason = f"longer than {MAX_ELEMENT_BYTES >> 20} MB"
            return _chunk_of_unreadable(start, end, reason, window.after)
        events = window.text[: int(window.ends[-1])].strip(SEPARATORS)
        # Behind the last event may be a bracket too many: then the bytes of the chunk
        # are no list.
        has_excess = bool(self._document[last_end:end].strip(SEPARATORS))
        if PHASE_KEY in events and not has_excess:
            chunk = decode_list(events, start, end, window.after)
            if chunk is not None:
                return chunk
        return self._read_batch(window, end)

    def _read_batch(self, window: ByteWindow, end: int) -> Chunk:
        """Decode elements that are no plain list, one by one where necessary.

        If the brackets of an element enclose the begin of another event, a quote or a
        brace is missing in it. Then only the text up to that begin is tried as an
        event, and the chunk ends there.

        Args:
            window: The elements.
            end: The byte up to which the chunk goes if nothing ends it earlier.
        """
        batch = Batch(window, max(MOST_LISTED - self._listed, 0), self._others)
        for number, reason in batch.damaged():
            begin, stop = batch.place_of(number)
            if self._is_too_damaged():
                return batch.chunk(begin, number, too_damaged=True)
            following = self._starts.after(begin)
            is_two_elements = following < stop
            event = None
            if is_two_elements:
                text = batch.text_of(number).rstrip(SEPARATORS)
                event = event_in(text[: following - begin].rstrip(SEPARATORS))
            batch.settle(number, event, reason)
            if is_two_elements:
                self._window_bytes = WINDOW_BYTES_AFTER_DAMAGE
                self._ahead_left -= window.start + len(window.text) - following
                return batch.chunk(following, number + 1)
        return batch.chunk(end, len(batch), window.after)

    def _read_unclosed(self, start: int) -> Chunk:
        """Read an element whose end the brackets do not show, at byte `start`.

        A quote or a brace is missing in it, or the file ends. What stands before the
        begin of the next event is tried as an event.
        """
        if self._is_too_damaged():
            return Chunk(start, start, 0, gather([]), too_damaged=True)
        self._window_bytes = WINDOW_BYTES_AFTER_DAMAGE
        document_end = len(self._document)
        if self._closes and (event := event_in(self._text(start, document_end))):
            return _chunk_of_event(start, document_end, event)
        following = self._starts.after(start)
        text = self._text(start, min(following, document_end))
        if event := event_in(text):
            return _chunk_of_event(start, start + len(text), event)
        if following < NO_START:
            return _chunk_of_unreadable(start, following, NOT_CLOSED)
        return self._read_last(start)

    def _read_last(self, start: int) -> Chunk:
        """Skip an element that is not closed, after which no event follows.

        If a bracket and a key that stands behind events follow, the element is damaged,
        and the list ends there. Else the file seems to end within it.
        """
        document_end = len(self._document)
        searched_from = max(start, document_end - END_BYTES)
        text = self._document[searched_from:]
        if close := CLOSE_BEFORE_KEY.search(text):
            end = searched_from + close.start()
            return _chunk_of_unreadable(start, end, NOT_CLOSED, after=end + 1)
        # A bracket may look like the end of the list and belong to the element.
        if close := CLOSE.search(text):
            end = searched_from + close.start()
            return _chunk_of_unreadable(start, end, CUT_SHORT, after=end + 1)
        return _chunk_of_unreadable(start, document_end, CUT_SHORT)

    def _text(self, start: int, end: int) -> bytes:
        """The bytes of one element without separators at its end, at most
        MAX_ELEMENT_BYTES."""
        end = min(end, start + MAX_ELEMENT_BYTES)
        return self._document[start:end].rstrip(SEPARATORS)

    def _skip_separators(self, place: int) -> int:
        """The place of the next byte that is neither blank nor a comma nor a
        superfluous brace; the end of the document if there is none."""
        match = self._document.find(NOT_SEPARATOR, place)
        return match.start if match else len(self._document)

    def _is_too_damaged(self) -> bool:
        """Count one more damaged place, and tell whether these are too many now."""
        self._damaged_left -= 1
        return self._damaged_left < 0


def _chunk_of_event(start: int, end: int, event: ExactEvent) -> Chunk:
    """A chunk of a single event that stands in the bytes [start, end)."""
    return Chunk(
        start=start,
        end=end,
        events=1,
        columns=gather([event]),
        places=np.array([[0, start, end]], dtype=np.int64),
    )


def _chunk_of_unreadable(start: int, end: int, reason: str, after: int = -1) -> Chunk:
    """Make a chunk of one element that is no event.

    Args:
        start: Its first byte.
        end: The byte after it.
        reason: Why it is no event, as the end of a sentence: "not closed".
        after: The byte after the bracket that closes the list, if that follows.
    """
    return Chunk(
        start=start,
        end=end,
        events=1,
        columns=gather([]),
        unreadable=1,
        skipped=(Skipped(byte=start, reason=reason),),
        places=NO_PLACES,
        after=after,
    )


class Starts:
    """Finds where events begin: objects whose first key is typical of events; or any
    objects, if no event of the document begins with such a key."""

    def __init__(self, document: Document) -> None:
        """Prepare to find the starts of events in a document; reads nothing yet."""
        self._document = document
        self._pattern: re.Pattern[bytes] | None = None  # once it is needed
        # The last answer holds for all places from the one that was asked to itself.
        self._asked_place = -1
        self._answer = 0

    def after(self, place: int) -> int:
        """Return where the next event after a byte begins; NO_START if none does.

        No byte is searched twice if the places that are asked for ascend.
        """
        if self._pattern is None:
            is_typical = self._search(EVENT_START, 0) < NO_START
            self._pattern = EVENT_START if is_typical else ANY_START
        if not self._asked_place <= place < self._answer:
            self._asked_place = place
            self._answer = self._search(self._pattern, place + 1)
        return self._answer

    def _search(self, pattern: re.Pattern[bytes], place: int) -> int:
        """Return where a pattern matches first, from a byte on; NO_START if nowhere.

        An object after ":" or "[" is a value or an item of a list, not an element.
        """
        while match := self._document.find(pattern, place):
            before_start = max(match.start - BYTES_BEFORE_START, 0)
            before = self._document[before_start : match.start].rstrip()
            is_value_or_item = before.endswith((b":", b"["))
            if not is_value_or_item:
                return match.start
            place = match.start + 1
        return NO_START


class ChunkStitcher:
    """All known chunks of one document. Nothing is read twice the slow way."""

    def __init__(self, others: bool = False) -> None:
        """Start without chunks. `others` says whether slow reading also tells where
        elements are that are JSON, but not events."""
        self._others = others
        self._known: dict[int, Chunk] = {}  # by their first byte
        self._reader: DamagedReader | None = None
        # By the end of a chunk behind which a bracket does not end the events: where
        # the next element is.
        self._continued_at: dict[int, int] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add chunks that were decoded elsewhere."""
        self._known.update((chunk.start, chunk) for chunk in chunks)

    def knows(self, chunk: Chunk) -> bool:
        """Whether a chunk was added before."""
        return chunk.start in self._known

    def ordered(
        self, document: Document, start: int, may_read: MayRead = lambda *_: True
    ) -> Iterator[Chunk]:
        """Yield the chunks of a document without a gap, in order.

        Between two known chunks, what is missing is read the slow way.

        Args:
            document: The document.
            start: The byte after the bracket that opens the list of events.
            may_read: Is asked whether the bytes from one to another may be read. If
                not, the chunks end there.

        They also end where the list does, or where there is too much damage.
        """
        begins = sorted(self._known)
        position = start
        while position < len(document):
            known = self._known.get(position)
            chunks: Iterable[Chunk]
            if known is not None:
                chunks = (known,)
            else:
                following = bisect_right(begins, position)
                is_last = following == len(begins)
                stop = len(document) if is_last else begins[following]
                if not may_read(position, stop):
                    return
                chunks = self._reader_of(document).read(position, stop)
            for chunk in chunks:
                settled = self._without_wrong_end(document, chunk)
                yield settled
                if settled.after != -1 or settled.too_damaged:
                    return
                position = self._continued_at.get(settled.end, settled.end)

    def prefix(self, document: Document, start: int, tried: int) -> list[Chunk]:
        """Return the chunks up to the first gap, while others are still being decoded.

        Short gaps are read, for no longer than HURRY_SECONDS, as somebody waits.

        Args:
            document: The document.
            start: The byte after the bracket that opens the list of events.
            tried: All extents before this byte were tried, so that what is missing
                before it has to be read the slow way.
        """
        late = time.monotonic() + HURRY_SECONDS

        def may_read(position: int, stop: int) -> bool:
            is_gap = stop <= tried
            is_short = stop - position <= MAX_HURRIED_GAP_BYTES
            return is_gap and is_short and time.monotonic() < late

        chunks = list(self.ordered(document, start, may_read))
        self.add(chunks)
        return chunks

    def _without_wrong_end(self, document: Document, chunk: Chunk) -> Chunk:
        """Return a chunk without its `after` if the bracket there is not the end of the
        events.

        Where the next element begins is remembered. The bracket counts as damage, which
        may be too much.
        """
        if chunk.after == -1 or is_end(document, chunk.after):
            return chunk
        following = document.find(AFTER_WRONG_CLOSE, chunk.after)
        continued_at = following.start if following else len(document)
        self._continued_at[chunk.end] = continued_at
        too_damaged = not self._reader_of(document).go_on()
        return msgspec.structs.replace(chunk, after=-1, too_damaged=too_damaged)

    def _reader_of(self, document: Document) -> DamagedReader:
        """The slow reader for the document as it is now. A new one is made when the
        document has grown."""
        if self._reader is None or self._reader.size != len(document):
            self._reader = DamagedReader(document, self._others)
        return self._reader
