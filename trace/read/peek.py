"""The beginning of a file: whether it is likely to be a trace, and what it says."""

from __future__ import annotations

import zlib
from contextlib import closing

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read import unpack
from fusetui.trace.read.source import EVENT, open_stored

ENOUGH = 1 << 18  # bytes of the document
KEY = b'"traceEvents"'


def looks_like_a_trace(path: str) -> bool:
    """False also for what cannot be read."""
    head = beginning(path)
    return KEY in head or EVENT.search(head) is not None


def beginning(path: str, most: int = ENOUGH) -> bytes:
    """At least the first `most` bytes of the document, or all that it has; b"" for what cannot be
    read."""
    try:
        stored = open_stored(path)
        with closing(stored.file):
            return b"".join(unpack.beginning(stored.document, stored.packing, most))
    except (TraceError, OSError):
        return b""


def glimpse(path: str, most: int) -> bytes:
    """As `beginning`, but at most `most` bytes and by one read, if the file is plain or gzip: for
    looking at many files."""
    try:
        with open(path, "rb", buffering=0) as file:
            stored = file.read(most) or b""
        if stored.startswith(unpack.GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(stored, most)
    except (OSError, zlib.error):
        return b""
    return stored if stored.lstrip()[:1] in (b"{", b"[") else beginning(path, most)[:most]
