"""Scrubs chunks of traceEvents: as text, or event by event if a key determines how to
treat its value."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from json import dumps, loads  # which know lone surrogates, as escapes

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.read.chunks import SEPARATORS, UNDECODABLE, Chunk
from fusetui.trace.read.damaged import ChunkStitcher
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.structure import first_bytes, split
from fusetui.trace.scrub.texts import TELLING, Texts, kind_of_key
from fusetui.trace.scrub.values import Values, parse, write

STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
MAX_CACHED_BYTES = 256 << 20  # of distinct strings
CACHED_STRING_BYTES = 200  # memory for each, in addition to its text
MAX_KEY_CHARS = 80
MAX_SWAPPED = 24  # strings of a piece that are replaced one by one
MAX_RECORDED = 20_000_000  # strings of all pieces whose use is recorded: 80 MB
IN_STRINGS_ONLY = re.compile(rb"[^\s,:{}\[\]0-9.eE+truefalsn-]")
"""A character that JSON has only in strings."""
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
        """Prepare to cut the list of events into pieces, from the byte `start` inside
        the list on."""
        self._document = document
        self.at = start
        self.after = -1  # the byte after the closing bracket, if it was found
        # byte and reason of what could not be read
        self.lost: list[tuple[int, str]] = []
        self.lost_in_all = 0  # their number; not all are listed

    def pieces(self) -> Iterator[JsonPiece]:
        """Yield the pieces of the list, up to its closing bracket or to where the
        document is too damaged.

        The list is split as in reading. Everything that the reader can read, or that is
        JSON, is in a piece.
        """
        for chunk in ChunkStitcher(others=True).ordered(self._document, self.at):
            self.at = chunk.end
            self.after = chunk.after
            self._count_lost(chunk)
            piece = self._piece(chunk)
            if piece.events:
                yield piece

    def _piece(self, chunk: Chunk) -> JsonPiece:
        """Make a piece of consecutive events. If they are valid JSON in UTF-8, it is
        one text; otherwise it has the place of each element."""
        if chunk.places is not None:
            return JsonPiece(
                start=chunk.start,
                end=chunk.end,
                events=len(chunk.places),
                places=chunk.places[:, 1:],
            )
        text = self._document[chunk.start : chunk.end]
        readable = chunk.events - chunk.unreadable
        if is_utf8(text) and _has_values(text.strip(SEPARATORS), chunk.events):
            separators_before = len(text) - len(text.lstrip(SEPARATORS))
            return JsonPiece(
                start=chunk.start + separators_before,
                end=chunk.start + len(text.rstrip(SEPARATORS)),
                events=readable,
            )
        elements = split(text + b"]")
        first_byte = first_bytes(text, elements.begins, elements.ends)
        is_filled = first_byte < elements.ends
        places = np.stack((elements.begins, elements.ends), axis=1)[is_filled]
        return JsonPiece(
            start=chunk.start,
            end=chunk.end,
            events=readable,
            places=chunk.start + places,
        )

    def _count_lost(self, chunk: Chunk) -> None:
        """Count the events of a chunk that could not be read. An element that is in a
        piece all the same is not lost."""
        starts_of_pieces = set()
        if chunk.places is not None:
            starts_of_pieces.update(chunk.places[:, 1].tolist())
        lost = [
            (skipped.byte, skipped.reason)
            for skipped in chunk.skipped
            if skipped.byte not in starts_of_pieces
        ]
        in_pieces = len(chunk.skipped) - len(lost)
        self.lost += lost
        self.lost_in_all += chunk.unreadable - in_pieces
        if chunk.too_damaged:
            self.lost.append((chunk.end, "too damaged to continue from here"))
            self.lost_in_all += 1


def _has_values(text: bytes, count: int) -> bool:
    """Whether a text is exactly `count` JSON values with commas between them."""
    try:
        return len(decode_raw(b"[%b]" % text)) == count
    except UNDECODABLE:
        return False


def elements_of(document: Document, piece: JsonPiece) -> Iterator[bytes]:
    """Yield the text of each element of a piece, if the piece has separate elements.
    Yields nothing for a piece that is one text."""
    if piece.places is None:
        return
    text = document[piece.start : piece.end]
    for start, end in (piece.places - piece.start).tolist():
        yield text[start:end].strip(SEPARATORS)


def is_utf8(text: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


class Strings(dict[bytes, bytes]):
    """The content of a JSON string, as it is written -> its content afterwards.

    `before` maps strings to what they were already changed to.
    """

    def __init__(
        self, change: Callable[[str], str], before: Strings | None = None
    ) -> None:
        """Start without strings. `change` turns a decoded text into what it becomes.
        `before`, if given, has the strings as they were changed earlier."""
        super().__init__()
        self._change = change
        self._before = before
        self._size = 0
        self.telling: set[bytes] = set()  # keys whose value may be private

    def __missing__(self, raw: bytes) -> bytes:
        """Change a string that was not met before, and remember the result. When the
        memory for it is used up, all are forgotten."""
        written = raw if self._before is None else self._before[raw]
        text = _decode_string(written)
        if self._before is None and _tells(text):
            self.telling.add(raw)
        new_text = self._change(text)
        new_raw = written if new_text == text else _encode_string(new_text)
        self._size += CACHED_STRING_BYTES + 2 * len(raw)
        if self._size > MAX_CACHED_BYTES:
            self.clear()
            self._size = 0
        self[raw] = new_raw
        return new_raw


def _decode_string(content: bytes) -> str:
    """The text of a JSON string, given its content between the quotes."""
    if b"\\" not in content:
        return content.decode()
    text: str = loads(b'"%b"' % content)
    return text


def _encode_string(text: str) -> bytes:
    """The content of a JSON string with this text, as it stands between the quotes."""
    return dumps(text)[1:-1].encode()


class Used:
    """Which strings each piece uses, by number: in most pieces few of them change."""

    def __init__(self) -> None:
        """Start without pieces."""
        self._numbers: dict[bytes, int] = {}
        self._of_piece: dict[int, array[int]] = {}
        self._left = MAX_RECORDED
        self._differing: dict[int, tuple[bytes, bytes]] | None = None

    def add(self, piece: int, strings: set[bytes]) -> None:
        """Record which strings the piece at the byte `piece` uses. Once MAX_RECORDED
        are recorded, further pieces are not."""
        self._left -= len(strings)
        if self._left <= 0:
            return
        numbers = self._numbers
        self._of_piece[piece] = array(
            "I", [numbers.setdefault(raw, len(numbers)) for raw in strings]
        )

    def differing(self, piece: int, final: Strings) -> list[tuple[bytes, bytes]] | None:
        """The strings of a piece that change, each with what it becomes. None if the
        strings of the piece were not recorded. `final` maps each string to its final
        form."""
        if self._differing is None:
            self._differing = {}
            for raw, number in self._numbers.items():
                new = final[raw]
                if new != raw:
                    self._differing[number] = (raw, new)
        used = self._of_piece.get(piece)
        if used is None:
            return None
        return [self._differing[number] for number in used if number in self._differing]


def swap_strings(text: bytes, differing: list[tuple[bytes, bytes]]) -> bytes | None:
    """A JSON text with a few strings replaced. None if there are too many, or a string
    may also occur outside of strings; then all have to be visited."""
    if len(differing) > MAX_SWAPPED or (differing and b"\\" in text):
        return None
    for raw, new in differing:
        if not IN_STRINGS_ONLY.search(raw):
            return None  # might also be the text between two strings
        text = text.replace(b'"%b"' % raw, b'"%b"' % new)
    return text


def parts(text: bytes) -> list[bytes]:
    """A JSON text split at its quotes: the contents of strings have odd indices."""
    return STRING.split(text) if b"\\" in text else text.split(b'"')


def _strings_in(text: bytes) -> list[bytes]:
    """The contents of the strings of a JSON text, in order."""
    return parts(text)[1::2]


def changed(text: bytes, strings: Strings) -> bytes:
    """A JSON text in which each string is replaced by its entry in `strings`."""
    divided = parts(text)
    divided[1::2] = map(strings.__getitem__, divided[1::2])
    return b'"'.join(divided)


def _tells(text: str) -> bool:
    """Whether the value of this key may be private. Also true for an item of an
    environment, such as `HOME=/root`."""
    if text.partition("=")[0] in TELLING:
        return True
    if len(text) > MAX_KEY_CHARS:
        return False
    return text in TELLING or kind_of_key(text) is not None


class ScrubbedEvents:
    """The events of one document: all pieces are learnt before the first is
    scrubbed."""

    def __init__(self, document: Document, texts: Texts, values: Values) -> None:
        """Prepare to scrub the events of a document. `texts` learns names from all of
        them before it hides any."""
        self._document = document
        self._values = values
        self._learnt = Strings(texts.learn)
        self._final = Strings(texts.finish, self._learnt)
        self._with_telling_keys: set[JsonPiece] = set()
        self._used = Used()
        self.lost: list[tuple[int, str]] = []  # byte of the piece and reason

    def learn(self, piece: JsonPiece) -> None:
        """Learn names from all strings of a piece, and from values whose keys tell what
        they are."""
        if piece.places is not None:
            for text in elements_of(self._document, piece):
                self._learn_element(text)
            return
        text = self._document[piece.start : piece.end]
        strings = self._learn_strings(_strings_in(text))
        self._used.add(piece.start, strings)
        if not strings.isdisjoint(self._learnt.telling):
            self._with_telling_keys.add(piece)
            for event in _split_elements(text):
                if self._tells(event):
                    # its result is not needed: rewriting makes `values` learn
                    self._rewritten(event)

    def _learn_element(self, text: bytes) -> None:
        """Learn from an element that may be damaged. Only of a whole one the strings
        are known; a damaged one is repaired first."""
        is_whole = _is_valid_element(text)
        if is_whole:
            self._learn_strings(_strings_in(text))
        if not is_whole or self._tells(text):
            self._rewritten(text)

    def _learn_strings(self, strings: list[bytes]) -> set[bytes]:
        """Learn from the strings that are new, and return all distinct ones.

        New ones are taken in their order, so that placeholders get the same numbers
        each time.
        """
        distinct = set(strings)
        new = distinct.difference(self._learnt)
        if new:
            for raw in dict.fromkeys(strings):
                if raw in new:
                    self._learnt[raw]  # is made now
        return distinct

    def scrubbed(self, piece: JsonPiece) -> bytes:
        """The scrubbed JSON of a piece: a list of events without its brackets; blank if
        nothing is left."""
        if piece.places is not None:
            return self._scrub_one_by_one(elements_of(self._document, piece), piece)
        text = self._document[piece.start : piece.end]
        if piece in self._with_telling_keys:
            return self._scrub_one_by_one(_split_elements(text), piece)
        differing = self._used.differing(piece.start, self._final)
        with_swaps = None if differing is None else swap_strings(text, differing)
        if with_swaps is not None:
            return with_swaps
        return changed(text, self._final)

    def _scrub_one_by_one(self, events: Iterable[bytes], piece: JsonPiece) -> bytes:
        """The scrubbed JSON of events, each parsed on its own if its keys demand that.
        Lost events are left out."""
        scrubbed = [self._event(event, piece) for event in events]
        return b",\n".join(event for event in scrubbed if event)

    def _event(self, event: bytes, piece: JsonPiece) -> bytes:
        """The scrubbed JSON of one event of a piece; blank if it is nested too deeply,
        which is then noted as lost."""
        is_whole = piece.places is None or _is_valid_element(event)
        if is_whole and not self._tells(event):
            return changed(event, self._final)
        rewritten = self._rewritten(event)
        if rewritten is None:
            self.lost.append((piece.start, "nested too deeply"))
            return b""
        return rewritten

    def _tells(self, event: bytes) -> bool:
        """Whether a key in an event says that its value may be private."""
        return not self._learnt.telling.isdisjoint(_strings_in(event))

    def _rewritten(self, text: bytes) -> bytes | None:
        """An event parsed, scrubbed and written again; None if it is nested too deeply."""
        try:
            return write(self._values.scrubbed(parse(text))).encode()
        except UNWRITABLE:
            return None


def _is_valid_element(text: bytes) -> bool:
    """Whether an element is valid JSON in valid UTF-8, and need not be rewritten."""
    try:
        return is_utf8(text) and len(decode_raw(b"[%b]" % text)) == 1
    except UNDECODABLE:
        return False


def _split_elements(text: bytes) -> Iterator[bytes]:
    """Yield the text of each element of a list of JSON values without its brackets."""
    return map(bytes, decode_raw(b"[%b]" % text))
