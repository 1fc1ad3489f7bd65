"""The pieces of traceEvents, scrubbed: as text, or event by event if a key says what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document import Document
from fusetui.trace.read.events import decode_raw
from fusetui.trace.scrub.pieces import Piece, is_utf8, texts_of
from fusetui.trace.scrub.strings import Strings, Used, changed, parts, swapped
from fusetui.trace.scrub.texts import Texts
from fusetui.trace.scrub.values import Values, parse, parse_damaged, write

UNWRITABLE = (ValueError, ArithmeticError, RecursionError)


class Events:
    """The events of one document: all pieces are learnt before the first is scrubbed."""

    def __init__(self, document: Document, texts: Texts, values: Values) -> None:
        self._document = document
        self._values = values
        self._learnt = Strings(texts.learn)
        self._final = Strings(texts.finish, self._learnt)
        self._told: set[Piece] = set()  # pieces with a key that says what follows
        self._used = Used()
        self.lost: list[tuple[int, str]] = []  # byte of the piece and reason

    def learn(self, piece: Piece) -> None:
        if piece.places is not None:
            for text in texts_of(self._document, piece):
                if _is_whole(text):
                    self._learn_text(text)
                else:
                    self._scrub(text, parse_damaged)
            return
        text = self._document[piece.start : piece.end]
        strings = parts(text)[1::2]
        known = set(strings)
        if new := known.difference(self._learnt):
            for raw in dict.fromkeys(strings):  # in order, so that numbers are reproducible
                if raw in new:
                    self._learnt[raw]
        self._used.add(piece.start, known)
        if not known.isdisjoint(self._learnt.telling):
            self._told.add(piece)
            for event in _elements(text):
                if self._tells(event):
                    self._scrub(event, parse)

    def _learn_text(self, event: bytes) -> None:
        """Learns from a single element."""
        for raw in parts(event)[1::2]:
            if raw not in self._learnt:
                self._learnt[raw]
        if self._tells(event):
            self._scrub(event, parse)

    def scrubbed(self, piece: Piece) -> bytes:
        """The piece as JSON, a list without its brackets; blank if nothing is left."""
        if piece.places is not None:
            found = (
                self._told_event(text, piece)
                if _is_whole(text)
                else self._written(text, parse_damaged, piece)
                for text in texts_of(self._document, piece)
            )
            return b",\n".join(filter(None, found))
        text = self._document[piece.start : piece.end]
        if piece not in self._told:
            return self._changed(piece, text)
        return b",\n".join(filter(None, (self._told_event(e, piece) for e in _elements(text))))

    def _changed(self, piece: Piece, text: bytes) -> bytes:
        differing = self._used.differing(piece.start, self._final)
        found = None if differing is None else swapped(text, differing)
        return changed(text, self._final) if found is None else found

    def _told_event(self, event: bytes, piece: Piece) -> bytes:
        if self._tells(event):
            return self._written(event, parse, piece)
        return changed(event, self._final)

    def _tells(self, event: bytes) -> bool:
        return not self._learnt.telling.isdisjoint(parts(event)[1::2])

    def _written(self, text: bytes, parser: Callable[[bytes], Any], piece: Piece) -> bytes:
        found = self._scrub(text, parser)
        if found is None:
            self.lost.append((piece.start, "nested too deeply"))
        return found or b""

    def _scrub(self, text: bytes, parser: Callable[[bytes], Any]) -> bytes | None:
        try:
            return write(self._values.event(parser(text))).encode()
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
