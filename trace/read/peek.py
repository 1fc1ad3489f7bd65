"""Whether a file is likely to be a trace, from its beginning alone."""

from __future__ import annotations

import zlib
from contextlib import closing, suppress

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.document import Document
from fusetui.trace.read.source import EVENT, open_stored
from fusetui.trace.read.unpack import Damaged, TooLarge, unpack

ENOUGH = 1 << 18  # bytes of the document
KEY = b'"traceEvents"'
GZIP = b"\x1f\x8b"


def looks_like_a_trace(path: str) -> bool:
    """False also for what cannot be read."""
    try:
        return _begins_like_one(path)
    except (TraceError, OSError):
        return False


def beginning(path: str, most: int = ENOUGH) -> bytes:
    """At least the first `most` bytes of the document, or all that it has; b"" for what cannot be
    read."""
    try:
        return _beginning(path, most)
    except (TraceError, OSError):
        return b""


def glimpse(path: str, most: int) -> bytes:
    """As `beginning`, but at most `most` bytes and by one read, if the file is plain or gzip: for
    looking at many files."""
    try:
        with open(path, "rb", buffering=0) as file:
            stored = file.read(most) or b""
        if stored.startswith(GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(stored, most)
    except (OSError, zlib.error):
        return b""
    return stored if stored.lstrip()[:1] in (b"{", b"[") else beginning(path, most)[:most]


def _begins_like_one(path: str) -> bool:
    head = _beginning(path, ENOUGH)
    return KEY in head or EVENT.search(head) is not None


def _beginning(path: str, most: int) -> bytes:
    stored = open_stored(path)
    with closing(stored.file):
        whole = Document(stored.file.fileno(), stored.size)
        if stored.packing is None:
            return bytes(whole[:most])
        pieces, size = [], 0
        with suppress(Damaged, TooLarge):
            for piece, _ in unpack(whole, stored.packing, most):
                pieces.append(bytes(piece))
                size += len(piece)
                if size >= most:
                    break
    return b"".join(pieces)
