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
from fusetui.trace.read.source import Source, State, describe_file, state_of, unpacked
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
        """Prepare to read a document again from an open file. `state` is that of the
        file when it was read first; `path` is for messages."""
        self._path = path
        self._file = file
        self._state = state
        self._unpacked: Document | None = None
        self._lock = Lock()

    @property
    def at_hand(self) -> bool:
        """Whether parts can be read without unpacking the file first."""
        return self._unpacked is not None or not self._is_packed

    def problem(self) -> str:
        """A clause that says that the file has changed since it was read; "" if it has
        not."""
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
        """Raise CannotReadError if the file has changed since it was read."""
        if problem := self.problem():
            raise CannotReadError(f"{problem}.")

    @cached_property
    def _is_packed(self) -> bool:
        """Whether the file is compressed."""
        return packing_of(read_at(self._file.number, 0, 4)) is not None

    def _unpack(self) -> Document:
        """The unpacked document. It is unpacked at the first call, and concurrent
        callers wait for that."""
        with self._lock:
            if self._unpacked is None:
                stored = describe_file(
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
        """Prepare to write elements when somebody asks for them. `write` and `problem`
        are described at the class."""
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
        """Keep a text for the next call, unless it is large. The oldest is dropped if
        there are too many."""
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
        """Whether both texts can be read without preparation."""
        return self.first.at_hand and self.second.at_hand

    def problem(self) -> str:
        """Why one of the texts cannot be read any more; "" if both can."""
        return self.first.problem() or self.second.problem()

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end), all of which are in one of the two texts."""
        if start < self.shift:
            return self.first.part(start, end)
        return self.second.part(start - self.shift, end - self.shift)


def text_of(source: Source) -> Text:
    """The text of the events in a document that was just read. Small documents and
    parts of large ones are held unpacked, others are read from the file again."""
    if source.file is None:
        return source.document
    return Filed(source.path, source.file, source.state)


def list_text(text: Text, stretch: Stretch) -> bytearray:
    """Return the bytes of a stretch as one JSON list: `[{...},{...}]`.

    Commas and blanks at its end are left out. Raises TraceError or OSError.
    """
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
    """Decode the elements of a stretch.

    Args:
        text: The document.
        stretch: The stretch.
        decode: Decodes a list of all elements.
        decode_one: Decodes one element, for a stretch of which `decode` cannot decode
            the whole; None leaves the element out, as does what it raises.
        word: If the stretch does not hold this text, nothing is decoded.

    Returns:
        The elements, each with its number in the stretch. None at all if the document
        cannot be read any more.
    """
    try:
        listed = list_text(text, stretch)
        if word not in listed:
            return []
        if stretch.places is None:
            with suppress(*UNDECODABLE):
                return list(enumerate(decode(listed)))
            texts = _split_elements(listed)
        else:
            whole = text.part(stretch.start, stretch.end)
            texts = _cut_elements(whole, stretch.start, stretch.places)
    except (OSError, TraceError):
        return []
    values = []
    for number, element in texts:
        with suppress(*UNDECODABLE):
            value = decode_one(element)
            if value is not None:
                values.append((number, value))
    return values


def _cut_elements(
    stretch_text: bytes, start: int, places: Int64s
) -> list[tuple[int, bytes]]:
    """Return the elements of a stretch whose places are known, as (number, text).

    Args:
        stretch_text: The bytes of the stretch.
        start: The byte of the document where it begins.
        places: Number, first byte and end of each element in the document.
    """
    in_text = places - np.array([0, start, start])
    return [
        (number, bytes(stretch_text[begin:end]))
        for number, begin, end in in_text.tolist()
    ]


def _split_elements(listed: bytearray) -> list[tuple[int, bytes]]:
    """The elements of a JSON list, as number and text; [] if it is not JSON."""
    try:
        return [(number, bytes(raw)) for number, raw in enumerate(decode_raw(listed))]
    except UNDECODABLE:
        return []


def stretches_of(events: Sequence[int], samples: Sequence[int]) -> tuple[Stretch, ...]:
    """Make the stretches of a Rendered text.

    Their places are not bytes: stretch n begins at n * PLACES_PER_STRETCH, and each
    element takes one.

    Args:
        events: How many elements each stretch has.
        samples: How many of these hold values of counters or memory.
    """
    stretches = []
    for number, (count, values) in enumerate(zip(events, samples, strict=True)):
        start = number * PLACES_PER_STRETCH
        stretches.append(
            Stretch(start=start, end=start + count, events=count, samples=values)
        )
    return tuple(stretches)


def shorten_shared_name(name: str, number: int) -> str:
    """Return a text of a table of names; of a very long one its beginning and its
    number in the table: "void very_lo... (name 12)"."""
    if len(name) <= MAX_SHARED_NAME:
        return name
    return f"{name[:MAX_SHARED_NAME]}... (name {number})"


def remarks_of_cut_names(names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence that counts the names that `shorten_shared_name` cut; nothing if it cut
    none. `names` are the distinct ones that it returned."""
    # only names that were cut are longer than the bound, by their number at the end
    cut = sum(len(name) > MAX_SHARED_NAME for name in names)
    if cut:
        have, are = ("has", "is") if cut == 1 else ("have", "are")
        yield (
            f"{plural(cut, 'name')} {have} more than {MAX_SHARED_NAME:,} characters and {are} cut "
            "there."
        )


def label_text(label: Label) -> bytes:
    """A label of a process or thread as the JSON of a metadata event."""
    key = "labels" if label.kind == "process_labels" else "name"
    event = {"ph": "M", "name": label.kind, "pid": label.pid, "tid": label.tid}
    return msgspec.json.encode(event | {"args": {key: label.value}})


def micros(ns: int) -> bytes:
    """Return a time as JSON has it, in microseconds: b"1.500" for 1500 ns, b"-0.002" for
    -2 ns."""
    whole_us, rest_ns = divmod(abs(ns), 1000)
    sign = b"-" if ns < 0 else b""
    return b"%s%d.%03d" % (sign, whole_us, rest_ns)
