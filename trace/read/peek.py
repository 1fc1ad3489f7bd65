"""Whether a file is likely to be a trace, from its beginning alone."""

from __future__ import annotations

from contextlib import closing, suppress

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.document import Document
from fusetui.trace.read.source import EVENT, open_stored
from fusetui.trace.read.unpack import Damaged, TooLarge, unpack

ENOUGH = 1 << 18  # bytes of the document
KEY = b'"traceEvents"'


def looks_like_a_trace(path: str) -> bool:
    """False also for what cannot be read."""
    try:
        return _begins_like_one(path)
    except (TraceError, OSError):
        return False


def _begins_like_one(path: str) -> bool:
    stored = open_stored(path)
    with closing(stored.file):
        whole = Document(stored.file.fileno(), stored.size)
        if stored.packing is None:
            head = whole[:ENOUGH]
        else:
            head = b""
            with suppress(Damaged, TooLarge):
                for piece, _ in unpack(whole, stored.packing, ENOUGH):
                    head += piece
                    if len(head) >= ENOUGH:
                        break
    return KEY in head or EVENT.search(head) is not None
