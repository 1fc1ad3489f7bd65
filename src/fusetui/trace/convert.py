"""Converts a trace of any format to the JSON that Kineto writes: the keys around the
events, and the text of all events (document_text.py). What stands in a JSON file is
written as it stands."""

from __future__ import annotations

import json  # which writes lone surrogates of a key as escapes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from fusetui.trace.formats import read
from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.model.events import Events, Stretch
from fusetui.trace.model.raw import Raw, origin_of
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read import Callbacks
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.repair import loads
from fusetui.trace.scrub.document import check_target, save
from fusetui.trace.scrub.values import write


def convert_file(path: str, out: str, progress: Progress = silent) -> Raw:
    """Write a trace of any format as a JSON trace, and return what was read.

    Args:
        path: The trace; `-` is standard input.
        out: The new file, which must not exist.
        progress: Is called with the bytes that are done and those of the file.

    Raises TraceError with one plain sentence, leaving nothing behind.
    """
    check_target(out)
    # reading is the first half of the work
    raw = read(path, Callbacks(progress=lambda done, total: progress(done // 2, total)))
    report = raw.report
    if not report.events - report.unreadable:
        raise NotATraceError(
            f"{report.path} contains no readable event, so there is nothing to write."
        )
    save(out, texts(raw, progress))
    return raw


def texts(raw: Raw, progress: Progress = silent) -> Iterator[bytes]:
    """Yield the JSON of a whole trace, piece by piece. `progress` is called with the
    bytes that are done and those of the file. Raises TraceError or OSError."""
    stretches = raw.elements.stretches
    size = raw.report.bytes

    def pieces() -> Iterator[bytes]:
        """The text of each stretch. Raises CannotReadError if the file has changed."""
        for number, stretch in enumerate(stretches, 1):
            yield _join_elements(raw.elements, stretch)
            # Reading was the first half of the work.
            done = len(stretches) + number
            progress(size * done // (2 * len(stretches)), size)
        if raw.report.changed or raw.elements.text.problem():
            raise CannotReadError(
                f"{raw.report.path} changed while it was read: try again."
            )

    return document(raw.keys | origin_of(raw), pieces())


def document(keys: Mapping[str, Any], pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON of a trace, piece by piece: first its top-level keys, then its
    events. Each piece of `pieces` has events with commas between them, or is empty."""
    yield b"{\n"
    for key, value in keys.items():
        yield f"{json.dumps(key)}: {write(value)},\n".encode()
    yield b'"traceEvents": [\n'
    separator = b""
    for piece in pieces:
        if piece:
            yield separator + piece
            separator = b",\n"
    yield b"\n]\n}\n"


def _join_elements(events: Events, stretch: Stretch) -> bytes:
    """The JSON elements of a stretch of the document, with commas between them.
    Elements that cannot be read are left out."""
    if stretch.places is None:
        return replace_invalid_utf8(
            bytes(list_text(events.text, stretch)[1:-1]).strip(b" \t\r\n,")
        )
    element_texts = []
    for _, start, end in stretch.places.tolist():
        text = _repair_element(bytes(events.text.part(start, end)))
        if text:
            element_texts.append(text)
    return b",\n".join(element_texts)


def replace_invalid_utf8(text: bytes) -> bytes:
    """A text in which bytes that are not valid UTF-8 are replaced by U+FFFD, as they
    are shown."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def _repair_element(text: bytes) -> bytes:
    """One element as valid JSON, repaired where that is safe; b"" if it cannot be read."""
    with suppress(*UNDECODABLE):
        decode_raw(b"[" + text + b"]")
        return replace_invalid_utf8(text)
    with suppress(RecursionError, ValueError):
        return write(loads(text)).encode()
    return b""
