"""Orders the chunks of a document; where one is missing, the events are read the slow way."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

import msgspec

from fusetui.trace.read.body import is_end
from fusetui.trace.read.chunks import Chunk
from fusetui.trace.read.document import Document
from fusetui.trace.read.mend import Mender

SHORT = 8 << 20  # bytes; a longer gap is not read the slow way while the user waits
HURRY = 1.0  # seconds after which no further gap is read the slow way

NO_END = re.compile(rb"[^\s,\]}]")

May = Callable[[int, int], bool]
"""Whether the bytes [position, stop) may be read the slow way."""


class Joiner:
    """All known chunks of one document. Nothing is read twice the slow way."""

    def __init__(self, others: bool = False) -> None:
        """`others` as in Batch, of what is read slowly."""
        self._others = others
        self._known: dict[int, Chunk] = {}
        self._mender: Mender | None = None
        self._beyond: dict[int, int] = {}  # brackets that do not end the events, and what is next

    def add(self, chunks: Iterable[Chunk]) -> None:
        self._known.update((chunk.start, chunk) for chunk in chunks)

    def knows(self, chunk: Chunk) -> bool:
        return chunk.start in self._known

    def ordered(self, document: Document, start: int, may: May) -> Iterator[Chunk]:
        """Chunks without a gap, from the byte after the opening bracket on.

        Ends at the end of the array, at a gap that may not be read the slow way, or where the
        document is too damaged to continue.
        """
        begins = sorted(self._known)
        position = start
        while position < len(document):
            known = self._known.get(position)
            following = bisect_right(begins, position)
            stop = begins[following] if following < len(begins) else len(document)
            if known is None and not may(position, stop):
                return
            for chunk in (known,) if known else self._mended(document).read(position, stop):
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
        """What is available so far, given that all extents before the byte `tried` were tried."""
        late = time.monotonic() + HURRY

        def may(position: int, stop: int) -> bool:
            return stop <= tried and stop - position <= SHORT and time.monotonic() < late

        found = list(self.ordered(document, start, may))
        self.add(found)
        return found


def whole(document: Document, start: int, others: bool = False) -> Iterator[Chunk]:
    """All chunks of a document, read by this process alone; `others` as in Batch."""
    return Joiner(others).ordered(document, start, lambda *_: True)
