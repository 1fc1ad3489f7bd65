"""The bytes of a document, for access long after it was read.

The file stays open, so that it may be renamed or removed meanwhile. It is not memory-mapped: if a
mapped file is truncated, reading it ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from fusetui.trace.model.errors import CannotRead, TraceError
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document import Document, OpenFile, read_at
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.source import Source, State, state_of, stored_in, unpacked
from fusetui.trace.read.unpack import packing_of

T = TypeVar("T")


class Filed:
    """A document in a file, valid as long as the file does not change."""

    def __init__(self, path: str, file: OpenFile, state: State) -> None:
        self._path = path
        self._file = file
        self._state = state
        self._unpacked: Document | None = None
        self._lock = Lock()

    @property
    def at_hand(self) -> bool:
        """Whether any part is available without delay; a compressed file is unpacked again at
        first."""
        return self._unpacked is not None or not self._is_packed

    def problem(self) -> str:
        same = self._unpacked is not None or state_of(self._file.number) == self._state
        return "" if same else f"{self._path} has changed since it was read"

    def part(self, start: int, end: int) -> Any:
        self._check()
        if self._is_packed:
            return self._unpack().part(start, end)
        found = read_at(self._file.number, start, end - start)
        self._check()
        return found

    def _check(self) -> None:
        if problem := self.problem():
            raise CannotRead(f"{problem}.")

    @cached_property
    def _is_packed(self) -> bool:
        return packing_of(read_at(self._file.number, 0, 4)) is not None

    def _unpack(self) -> Document:
        """Unpacks the file once; concurrent callers wait."""
        with self._lock:
            if self._unpacked is None:
                stored = stored_in(self._path, os.fdopen(os.dup(self._file.number), "rb"))
                with closing(stored.file), closing(stored.room()) as room:
                    size = len(unpacked(stored, room).document)
                    self._check()
                    self._unpacked = Document(OpenFile(room.fileno()), size)
            return self._unpacked


def text_of(source: Source) -> Text:
    """The text of a document that was just read; unpacked data is held if it is small, or a
    part."""
    file = source.file
    return source.document if file is None else Filed(source.path, file, source.state)


def list_text(text: Text, stretch: Stretch) -> bytearray:
    """The bytes of a stretch as one JSON list. Raises TraceError or OSError."""
    found = bytearray(b"[")
    found += text.part(stretch.start, stretch.end)
    while found[-1] in b" \t\r\n,":
        found.pop()
    found += b"]"
    return found


def decoded(
    text: Text,
    stretch: Stretch,
    decode: Callable[[bytearray], Iterable[T]],
    one: Callable[[bytes], T | None],
    word: bytes = b"",
) -> list[tuple[int, T]]:
    """What `decode` makes of a list of all elements of a stretch, numbered. Where it fails, what
    `one` makes of each that can be read. Nothing unless the stretch holds the `word`."""
    try:
        listed = list_text(text, stretch)
        if word not in listed:
            return []
        if stretch.places is None:
            return list(enumerate(decode(listed)))
        whole = text.part(stretch.start, stretch.end)
    except (OSError, TraceError):
        return []
    except UNDECODABLE:
        try:
            texts: Iterable[tuple[int, Any]] = enumerate(decode_raw(listed))
        except UNDECODABLE:
            return []
    else:
        places = (stretch.places - np.array([0, stretch.start, stretch.start])).tolist()
        texts = ((number, whole[begin:end]) for number, begin, end in places)
    found = []
    for number, element in texts:
        with suppress(*UNDECODABLE):
            if (made := one(bytes(element))) is not None:
                found.append((number, made))
    return found
