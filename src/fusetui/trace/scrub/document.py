"""Writes a copy of a whole document without private data to a new file.

The text is processed three times: to split it, to learn names, which may occur
anywhere, and to remove them. A string is examined once, however often it occurs. Events
are parsed one by one only if a key shows that its value is private.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from json import dumps  # only ASCII, with lone surrogates as escapes
from typing import Any

from isal import igzip_threaded

from fusetui.trace.formats import format_of
from fusetui.trace.model.errors import NotATraceError
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.new_file import CannotWriteError, check_new, new_file
from fusetui.trace.read.body import BLANKS, find_body, read_keys
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import Source, open_source
from fusetui.trace.scrub.events import (
    UNWRITABLE,
    EventCutter,
    JsonPiece,
    ScrubbedEvents,
)
from fusetui.trace.scrub.secrets import is_secret
from fusetui.trace.scrub.texts import Known, Texts
from fusetui.trace.scrub.values import TRACE_NAME, Pairs, Values, parse, write

FOLDER = re.compile(rb"dir[1-9][0-9]{0,8}")
OTHER_PLACEHOLDER = re.compile(rb"<(?:user|host|mail|secret|command)[1-9][0-9]{0,8}>")
MAX_SEARCHED_BYTES = 64 << 20  # of a damaged head or tail


class ScrubbedDocument:
    """One trace: `learn` examines it, then `text` returns it scrubbed."""

    def __init__(
        self, source: Source, known: Known | None = None, trace_name: str = TRACE_NAME
    ) -> None:
        """Prepare to scrub a trace. `known` has private names by kind, `trace_name` is
        what the trace is called afterwards. Raises NotATraceError if it has no events.
        """
        self.source = source
        self._document = source.document
        self._body = find_body(source)
        self._texts = Texts()
        self._values = Values(self._texts, trace_name)
        self._events = ScrubbedEvents(source.document, self._texts, self._values)
        self._known = known or {}
        self._pieces: list[JsonPiece] = []
        self._head = Pairs()
        self._tail = Pairs()
        self._cut = EventCutter(source.document, self._body.start)
        self.keys_lost = False  # some of those around the events
        self.ends_early = False

    @property
    def lost(self) -> list[tuple[int, str]]:
        """Byte and reason of each event that is missing from the result. Complete once
        the whole text was taken."""
        return [*self._cut.lost, *self._events.lost]

    @property
    def lost_in_all(self) -> int:
        """The number of events missing from the result, of which not all are listed."""
        return self._cut.lost_in_all + len(self._events.lost)

    @property
    def events(self) -> int:
        """The number of events in the result. Final once the whole text was taken."""
        return sum(piece.events for piece in self._pieces) - len(self._events.lost)

    def learn(self, progress: Progress = silent) -> None:
        """Split the document into pieces, and learn everything that must not be in the
        result. `progress` is called with the bytes that are done and those of the file.
        """
        size = len(self._document)
        self._divide(lambda at: progress(at // 8, size))  # an eighth of the time
        self._texts.expect(self._known)
        for keys in (self._head, self._tail):
            self._members(keys)
        for piece in self._pieces:
            self._events.learn(piece)
            progress(size // 8 + piece.end * 3 // 8, size)
        self._values.finish()

    def text(self, progress: Progress = silent) -> Iterator[bytes]:
        """Yield the scrubbed document, piece by piece. `progress` is called with the
        bytes that are done and those of the file."""
        size = len(self._document)
        head = "".join(f"{member},\n" for member in self._members(self._head))
        if self._body.bare:  # the document is the list of its events
            yield b"[\n"
        else:
            yield f'{{\n{head}"traceEvents": [\n'.encode()
        between = b""
        for piece in self._pieces:
            body = self._events.scrubbed(piece)
            if body:
                yield between + body
                between = b",\n"
            progress(size // 2 + piece.end // 2, size)
        tail = "".join(f",\n{member}" for member in self._members(self._tail))
        if self._body.bare:
            yield b"\n]\n"
        else:
            yield f"\n]{tail}\n}}\n".encode()

    def counts(self) -> dict[str, int]:
        """How many distinct things of each kind were removed. Final once the whole text
        was taken."""
        return {**self._texts.given.counts, "variable": len(self._values.variables)}

    def _divide(self, reached: Callable[[int], None]) -> None:
        """Divide the document into pieces of events, and the keys before and after
        them. `reached` is called with the byte up to which it went."""
        cut = self._cut
        head = self._document[: self._body.start]
        self._reserve_placeholders(head)
        for piece in cut.pieces():
            self._pieces.append(piece)
            self._reserve_placeholders(self._document[piece.start : piece.end])
            reached(cut.at)
        is_list_closed = cut.after != -1
        tail = self._document[cut.after :].strip(BLANKS) if is_list_closed else b""
        self._reserve_placeholders(tail)
        if self._body.bare:
            self.keys_lost = tail not in (b"", b"}")
            return
        self.ends_early = not is_list_closed
        keys = self._parse_object(head.lstrip(BLANKS) + b"]}")
        self._head = Pairs(pair for pair in keys if pair[0] != "traceEvents")
        if is_list_closed:
            self._tail = self._parse_object(b"{" + tail.removeprefix(b","))

    def _reserve_placeholders(self, text: bytes) -> None:
        """Keep the placeholders that already occur in a text, so that they are not
        given to anything else."""
        occurring = {*FOLDER.findall(text), *OTHER_PLACEHOLDER.findall(text)}
        self._texts.given.reserved.update(map(bytes.decode, occurring))

    def _parse_object(self, text: bytes) -> Pairs:
        """The members of an object, repaired where that is safe. If that fails, only
        the keys that matter most are read."""
        with suppress(*UNWRITABLE):
            parsed = parse(text)
            if isinstance(parsed, Pairs):
                return parsed
        self.keys_lost = True
        most_important = read_keys(text[:MAX_SEARCHED_BYTES]).values
        pairs: Pairs = parse(dumps(most_important).encode())
        return pairs

    def _members(self, keys: Pairs) -> list[str]:
        """The scrubbed keys around the events and their values, as JSON members. [] if
        they are nested too deeply."""
        try:
            return [
                f"{dumps(key)}: {write(value)}"
                for key, value in self._values.metadata(keys)
            ]
        except UNWRITABLE:  # nested too deeply
            self.keys_lost = True
            return []


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENDINGS = (".json", ".json.gz", ".json.zst")
LEVEL = 3  # of isal's 0 to 3


def check_target(out: str) -> None:
    """Raise CannotWriteError unless a trace can be written to a new file of this name."""
    if not out.endswith(ENDINGS):
        raise CannotWriteError(
            f"{out} is not a valid trace name: it must end in .json, .json.gz or "
            ".json.zst."
        )
    check_new(out)


def save(out: str, texts: Iterator[bytes]) -> None:
    """Write texts to a new file, compressed as its name says. Raises CannotWriteError,
    leaving nothing behind."""
    check_target(out)
    with new_file(out) as file:
        packed: Any = file  # not given by name, which it would contain
        if out.endswith(".gz"):
            packed = igzip_threaded.open(file, "wb", LEVEL, threads=1)
        elif out.endswith(".zst"):
            packed = zstd.ZstdFile(file, "w")
        with packed:
            packed.writelines(texts)


def scrub_file(path: str, out: str, progress: Progress = silent) -> ScrubbedDocument:
    """Write a trace without its private data to a new file.

    Args:
        path: The trace; `-` is standard input.
        out: The new file, which must not exist.
        progress: Is called with the bytes that are done and those of the file.

    Only what could be read is written, so that nothing private gets through. Raises
    TraceError with one plain sentence, leaving nothing behind.
    """
    check_target(out)
    source = open_source(path)
    if format_of(source.document[:HEAD]) != "json":
        raise NotATraceError(
            f"{source.path} is not JSON: convert it with fusetui convert, then scrub "
            "the result."
        )
    document = ScrubbedDocument(source, this_machine())
    document.learn(progress)
    if not document.events:
        path = document.source.path
        raise NotATraceError(
            f"{path} contains no readable event, so there is nothing to write."
        )
    save(out, document.text(progress))
    return document


def this_machine() -> dict[str, list[str]]:
    """The users, hosts and secrets of this machine, by kind. Traces are often shared
    from the machine that recorded them."""
    home = os.path.expanduser("~")
    users = {os.path.basename(home)}
    with suppress(OSError, KeyError):  # an account without a name
        users.add(getpass.getuser())
    secrets = [value for name, value in os.environ.items() if is_secret(name, value)]
    return {
        "user": sorted(users),
        "host": [platform.node()],
        "secret": sorted(secrets),
    }
