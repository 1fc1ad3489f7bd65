"""The text of events for access after reading: the bytes of a document, or text
generated for a format that is not JSON.

The file of a document stays open, so that it may be renamed or removed meanwhile. It is
not memory-mapped: if a mapped file is truncated, reading it ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.errors import CannotReadError, TraceError
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.model.raw import Label
from fusetui.trace.read.chunks import SEPARATORS, UNDECODABLE
from fusetui.trace.read.document import Document, OpenFile, read_at
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.source import Source, State, state_of, stored_in, unpacked
from fusetui.trace.read.unpack import packing_of

T = TypeVar("T")
PLACES_PER_STRETCH = 1 << 22  # of Rendered, however long the texts are
MAX_KEPT_TEXTS = 4  # of stretches
MAX_KEPT_BYTES = 1 << 25  # of one of them
MAX_SHARED_NAME = 1 << 15  # characters
"""A name in a table of names is stored once and stands in every event that has it, as
JSON has no such table: the text of a stretch is a name as many times as it has
events."""


class Filed:
    """A document in a file, valid as long as the file does not change."""

    def __init__(self, path: str, file: OpenFile, state: State) -> None:
        """The file is the one with this path, and had this state when it was read."""
        self._path = path
        self._file = file
        self._state = state
        self._unpacked: Document | None = None
        self._lock = Lock()

    @property
    def at_hand(self) -> bool:
        """A compressed file is unpacked again at first."""
        return self._unpacked is not None or not self._is_packed

    def problem(self) -> str:
        if self._unpacked is not None or state_of(self._file.number) == self._state:
            return ""
        return f"{self._path} has changed since it was read"

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end) of the document. Raises CannotReadError if the file
        has changed."""
        self._check()
        if self._is_packed:
            return self._unpack().part(start, end)
        text = read_at(self._file.number, start, end - start)
        self._check()
        return text

    def _check(self) -> None:
        if problem := self.problem():
            raise CannotReadError(f"{problem}.")

    @cached_property
    def _is_packed(self) -> bool:
        return packing_of(read_at(self._file.number, 0, 4)) is not None

    def _unpack(self) -> Document:
        """Unpacks the file once; concurrent callers wait."""
        with self._lock:
            if self._unpacked is None:
                stored = stored_in(
                    self._path, os.fdopen(os.dup(self._file.number), "rb")
                )
                with closing(stored.file), closing(stored.room()) as room:
                    size = len(unpacked(stored, room).document)
                    self._check()
                    self._unpacked = Document(OpenFile(room.fileno()), size)
            return self._unpacked


class Rendered:
    """The text of events that a file does not hold as JSON, written where somebody
    looks at it: so args, counters, memory and searches are read from every format in
    one way. `write(number)` gives the elements of traceEvents in stretch `number` as
    JSON, one by one.

    `problem` says why that is not possible any more, in one sentence, "" if it is.
    `write` raises TraceError or OSError, and may be called in another thread.
    """

    at_hand = True

    def __init__(
        self, write: Callable[[int], Iterable[bytes]], problem: Callable[[], str]
    ) -> None:
        self._write = write
        self._kept: dict[tuple[int, int], bytes] = {}
        self.problem = problem

    def part(self, start: int, end: int) -> bytes:
        """The text of the stretch that begins at `start` and has `end` - `start`
        elements.

        Damage may hide an event from the second look at it, or show one more: an empty
        element stands for what is missing, so that each of the others keeps its index.
        """
        if problem := self.problem():
            raise CannotReadError(f"{problem}.")
        count = end - start
        if count <= 0:
            return b""
        kept = self._kept.get((start, end))
        if kept is not None:
            return kept
        stretch = start // PLACES_PER_STRETCH
        elements = list(islice(self._write(stretch), count))
        missing = count - len(elements)
        text = b",\n".join(elements + [b"{}"] * missing)
        self._keep((start, end), text)
        return text

    def _keep(self, place: tuple[int, int], text: bytes) -> None:
        """Keeps a text unless it is large; drops the oldest if there are too many."""
        if len(text) > MAX_KEPT_BYTES:
            return
        if len(self._kept) >= MAX_KEPT_TEXTS:
            oldest = next(iter(self._kept))
            self._kept.pop(oldest, None)  # another thread may do so too
        self._kept[place] = text


class Joint(NamedTuple):
    """The texts of two documents; from `shift` on, positions are those of the
    second."""

    first: Text
    second: Text
    shift: int

    @property
    def at_hand(self) -> bool:
        return self.first.at_hand and self.second.at_hand

    def problem(self) -> str:
        return self.first.problem() or self.second.problem()

    def part(self, start: int, end: int) -> Any:
        if start < self.shift:
            return self.first.part(start, end)
        return self.second.part(start - self.shift, end - self.shift)


def text_of(source: Source) -> Text:
    """The text of a document that was just read; small ones, and parts, are held
    unpacked."""
    if source.file is None:
        return source.document
    return Filed(source.path, source.file, source.state)


def list_text(text: Text, stretch: Stretch) -> bytearray:
    """The bytes of a stretch as one JSON list. Raises TraceError or OSError."""
    listed = bytearray(b"[")
    listed += text.part(stretch.start, stretch.end)
    while listed[-1] in SEPARATORS:
        listed.pop()
    listed += b"]"
    return listed


def decoded(
    text: Text,
    stretch: Stretch,
    decode: Callable[[bytearray], Iterable[T]],
    decode_one: Callable[[bytes], T | None],
    word: bytes = b"",
) -> list[tuple[int, T]]:
    """What `decode` makes of a list of all elements of a stretch, numbered. Where it
    fails, what `decode_one` makes of each that can be read. Nothing unless the stretch
    holds the `word`."""
    try:
        listed = list_text(text, stretch)
        if word not in listed:
            return []
        if stretch.places is not None:
            whole = text.part(stretch.start, stretch.end)
    except (OSError, TraceError):
        return []
    if stretch.places is not None:
        texts = _texts_at(whole, stretch.start, stretch.places)
    else:
        try:
            return list(enumerate(decode(listed)))
        except (OSError, TraceError):
            return []
        except UNDECODABLE:
            texts = _texts_in(listed)
    values = []
    for number, element in texts:
        with suppress(*UNDECODABLE):
            value = decode_one(element)
            if value is not None:
                values.append((number, value))
    return values


def _texts_at(
    stretch_text: bytes, start: int, places: Int64s
) -> list[tuple[int, bytes]]:
    """The numbers and texts of elements. `places` are as of Stretch, which begins at
    byte `start`."""
    in_text = places - np.array([0, start, start])
    return [
        (number, bytes(stretch_text[begin:end]))
        for number, begin, end in in_text.tolist()
    ]


def _texts_in(listed: bytearray) -> list[tuple[int, bytes]]:
    """The numbers and texts of the elements of a list; none if it is no JSON."""
    try:
        return [(number, bytes(raw)) for number, raw in enumerate(decode_raw(listed))]
    except UNDECODABLE:
        return []


def stretches_of(events: Sequence[int], samples: Sequence[int]) -> tuple[Stretch, ...]:
    """Stretches of Rendered, with so many elements each, and so many of them that hold
    values."""
    stretches = []
    for number, (count, values) in enumerate(zip(events, samples, strict=True)):
        start = number * PLACES_PER_STRETCH
        stretches.append(
            Stretch(start=start, end=start + count, events=count, samples=values)
        )
    return tuple(stretches)


def shared_name(name: str, number: int) -> str:
    """A text of a table of names, of a very long one its beginning and its number
    there."""
    if len(name) <= MAX_SHARED_NAME:
        return name
    return f"{name[:MAX_SHARED_NAME]}... (name {number})"


def remarks_of_cut_names(names: Iterable[str]) -> Iterator[str]:
    """A sentence that counts the names that `shared_name` cut; nothing where it cut
    none.

    `names` are distinct ones that it returned: only those that it cut are longer than
    its bound.
    """
    cut = sum(len(name) > MAX_SHARED_NAME for name in names)
    if cut:
        have, are = ("has", "is") if cut == 1 else ("have", "are")
        yield (
            f"{plural(cut, 'name')} {have} more than {MAX_SHARED_NAME:,} characters and {are} cut "
            "there."
        )


def label_text(label: Label) -> bytes:
    """A label as the metadata event that it is in JSON."""
    key = "labels" if label.kind == "process_labels" else "name"
    event = {"ph": "M", "name": label.kind, "pid": label.pid, "tid": label.tid}
    return msgspec.json.encode(event | {"args": {key: label.value}})


def micros(ns: int) -> bytes:
    """As JSON has times, exactly."""
    whole_us, rest_ns = divmod(abs(ns), 1000)
    sign = b"-" if ns < 0 else b""
    return b"%s%d.%03d" % (sign, whole_us, rest_ns)
