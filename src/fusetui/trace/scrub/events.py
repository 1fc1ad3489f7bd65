"""The pieces of traceEvents, scrubbed: as text, or event by event if a key says what
follows."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from json import dumps, loads

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.read.chunks import SEPARATORS, UNDECODABLE, Chunk
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.mend import Joiner
from fusetui.trace.read.structure import first_bytes, split
from fusetui.trace.scrub.texts import TELLING, Texts, kind_of
from fusetui.trace.scrub.values import Values, parse, write

STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
MOST = 256 << 20  # bytes of distinct strings that are cached
EACH = 200  # bytes of memory for each, in addition to its text
LONGEST_KEY = 80  # characters
FEW = 24  # strings of a piece that are replaced one by one
MOST_NUMBERS = 20_000_000  # strings of all pieces whose use is recorded: 80 MB
PLAIN = re.compile(rb"[^\s,:{}\[\]0-9.eE+truefalsn-]")
UNWRITABLE = (ValueError, ArithmeticError, RecursionError)


class JsonPiece(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document: a list without its brackets, or separate
    elements."""

    start: int
    end: int
    events: int
    places: Int64s | None = None  # shape [n, 2]: start and end of each element


class EventCutter:
    """Goes through traceEvents once."""

    def __init__(self, document: Document, start: int) -> None:
        self._document = document
        self.at = start
        self.after = -1  # the byte after the closing bracket, if it was found
        # byte and reason of what could not be read
        self.lost: list[tuple[int, str]] = []
        self.lost_in_all = 0  # their number; not all are listed

    def pieces(self) -> Iterator[JsonPiece]:
        """The pieces up to the bracket that closes the list, or to where the document
        is too damaged. They are split as in reading: everything that the reader can
        read, or that is JSON, is in a piece."""
        for chunk in Joiner(others=True).ordered(self._document, self.at):
            self.at, self.after = chunk.end, chunk.after
            self._count_lost(chunk)
            piece = self._piece(chunk)
            if piece.events:
                yield piece

    def _piece(self, chunk: Chunk) -> JsonPiece:
        """Consecutive events as one text, if that is valid UTF-8."""
        if chunk.places is not None:
            return JsonPiece(
                chunk.start, chunk.end, len(chunk.places), chunk.places[:, 1:]
            )
        text = self._document[chunk.start : chunk.end]
        count = chunk.events - chunk.unreadable
        if is_utf8(text) and _is_list_of(text.strip(SEPARATORS), chunk.events):
            start = chunk.start + len(text) - len(text.lstrip(SEPARATORS))
            return JsonPiece(start, chunk.start + len(text.rstrip(SEPARATORS)), count)
        found = split(text + b"]")
        filled = first_bytes(text, found.begins, found.ends) < found.ends
        places = chunk.start + np.stack((found.begins, found.ends), axis=1)[filled]
        return JsonPiece(chunk.start, chunk.end, count, places)

    def _count_lost(self, chunk: Chunk) -> None:
        kept = set() if chunk.places is None else set(chunk.places[:, 1].tolist())
        lost = [
            (skip.byte, skip.reason) for skip in chunk.skipped if skip.byte not in kept
        ]
        self.lost += lost
        self.lost_in_all += chunk.unreadable - (len(chunk.skipped) - len(lost))
        if chunk.too_damaged:
            self.lost.append((chunk.end, "too damaged to continue from here"))
            self.lost_in_all += 1


def _is_list_of(text: bytes, count: int) -> bool:
    """Whether this is so many JSON values with commas between them."""
    try:
        return len(decode_raw(b"[%b]" % text)) == count
    except UNDECODABLE:
        return False


def texts_of(document: Document, piece: JsonPiece) -> Iterator[bytes]:
    """The elements of a piece with separate elements."""
    text = document[piece.start : piece.end]
    for start, end in (
        () if piece.places is None else (piece.places - piece.start).tolist()
    ):
        yield text[start:end].strip(SEPARATORS)


def is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


class Strings(dict[bytes, bytes]):
    """The content of a JSON string -> its content afterwards.

    `before` maps strings to what they were already changed to.
    """

    def __init__(
        self, change: Callable[[str], str], before: Strings | None = None
    ) -> None:
        super().__init__()
        self._change = change
        self._before = before
        self._size = 0
        self.telling: set[bytes] = set()  # keys whose value may be private

    def __missing__(self, raw: bytes) -> bytes:
        known = raw if self._before is None else self._before[raw]
        text = loads(b'"%b"' % known) if b"\\" in known else known.decode()
        if self._before is None and _tells(text):
            self.telling.add(raw)
        new = self._change(text)
        self._size += EACH + 2 * len(raw)
        if self._size > MOST:
            self.clear()
            self._size = 0
        found = self[raw] = known if new == text else dumps(new)[1:-1].encode()
        return found


class Used:
    """Which strings each piece uses, by number: in most pieces few of them change."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._of_piece: dict[int, array[int]] = {}
        self._left = MOST_NUMBERS
        self._differing: dict[int, tuple[bytes, bytes]] | None = None

    def add(self, piece: int, strings: set[bytes]) -> None:
        """Records the strings of the piece that begins at this byte, unless there are
        too many."""
        self._left -= len(strings)
        if self._left > 0:
            number = self._numbers
            found = array("I", (number.setdefault(raw, len(number)) for raw in strings))
            self._of_piece[piece] = found

    def differing(self, piece: int, final: Strings) -> list[tuple[bytes, bytes]] | None:
        """The strings of a piece that change, and to what; None if that is not
        known."""
        if self._differing is None:
            pairs = ((number, raw, final[raw]) for raw, number in self._numbers.items())
            self._differing = {
                number: (raw, new) for number, raw, new in pairs if new != raw
            }
        used = self._of_piece.get(piece)
        if used is None:
            return None
        return [self._differing[number] for number in used if number in self._differing]


def swapped(text: bytes, differing: list[tuple[bytes, bytes]]) -> bytes | None:
    """JSON with these strings replaced; None if `changed` is faster or safer."""
    if len(differing) > FEW or (differing and b"\\" in text):
        return None
    for raw, new in differing:
        if not PLAIN.search(raw):  # might also be the text between two strings
            return None
        text = text.replace(b'"%b"' % raw, b'"%b"' % new)
    return text


def parts(text: bytes) -> list[bytes]:
    """JSON split at its quotes: the contents of strings have odd indices."""
    return STRING.split(text) if b"\\" in text else text.split(b'"')


def changed(text: bytes, strings: Strings) -> bytes:
    found = parts(text)
    found[1::2] = map(strings.__getitem__, found[1::2])
    return b'"'.join(found)


def _tells(text: str) -> bool:
    """Whether the value of this key may be private; also for an item such as
    `HOME=/root`."""
    if len(text) > LONGEST_KEY:
        return text.partition("=")[0] in TELLING
    return (
        kind_of(text) is not None
        or text in TELLING
        or text.partition("=")[0] in TELLING
    )


class ScrubbedEvents:
    """The events of one document: all pieces are learnt before the first is
    scrubbed."""

    def __init__(self, document: Document, texts: Texts, values: Values) -> None:
        self._document = document
        self._values = values
        self._learnt = Strings(texts.learn)
        self._final = Strings(texts.finish, self._learnt)
        self._told: set[JsonPiece] = set()  # pieces with a key that says what follows
        self._used = Used()
        self.lost: list[tuple[int, str]] = []  # byte of the piece and reason

    def learn(self, piece: JsonPiece) -> None:
        if piece.places is not None:
            for text in texts_of(self._document, piece):
                is_whole = _is_whole(text)
                if is_whole:
                    self._learn_strings(parts(text)[1::2])
                if not is_whole or self._tells(text):
                    self._rewritten(text)
            return
        text = self._document[piece.start : piece.end]
        known = self._learn_strings(parts(text)[1::2])
        self._used.add(piece.start, known)
        if not known.isdisjoint(self._learnt.telling):
            self._told.add(piece)
            for event in filter(self._tells, _elements(text)):
                self._rewritten(event)

    def _learn_strings(self, strings: list[bytes]) -> set[bytes]:
        """Looks at those that are new, in order, so that numbers are reproducible."""
        known = set(strings)
        if new := known.difference(self._learnt):
            for raw in dict.fromkeys(strings):
                if raw in new:
                    self._learnt[raw]
        return known

    def scrubbed(self, piece: JsonPiece) -> bytes:
        """The piece as JSON, a list without its brackets; blank if nothing is left."""
        text = self._document[piece.start : piece.end]
        if piece.places is not None or piece in self._told:
            each = (
                _elements(text)
                if piece.places is None
                else texts_of(self._document, piece)
            )
            return b",\n".join(
                filter(None, (self._event(event, piece) for event in each))
            )
        differing = self._used.differing(piece.start, self._final)
        swap = None if differing is None else swapped(text, differing)
        return changed(text, self._final) if swap is None else swap

    def _event(self, event: bytes, piece: JsonPiece) -> bytes:
        if (piece.places is None or _is_whole(event)) and not self._tells(event):
            return changed(event, self._final)
        found = self._rewritten(event)
        if found is None:
            self.lost.append((piece.start, "nested too deeply"))
        return found or b""

    def _tells(self, event: bytes) -> bool:
        return not self._learnt.telling.isdisjoint(parts(event)[1::2])

    def _rewritten(self, text: bytes) -> bytes | None:
        """An event parsed, scrubbed and written; None if it is nested too deeply."""
        try:
            return write(self._values.scrubbed(parse(text))).encode()
        except UNWRITABLE:
            return None


def _is_whole(text: bytes) -> bool:
    """Whether this is valid JSON in valid UTF-8, which need not be rewritten."""
    try:
        return is_utf8(text) and len(decode_raw(b"[%b]" % text)) == 1
    except UNDECODABLE:
        return False


def _elements(text: bytes) -> Iterator[bytes]:
    return map(bytes, decode_raw(b"[%b]" % text))
