"""Bytes of a trace -> columns. `read` is the only door; everything behind it is private."""

from fusetui.trace.read.assemble import Raw
from fusetui.trace.read.reading import Callbacks, read

__all__ = [
    "Callbacks",
    "Raw",
    "autograd",
    "body",
    "chunks",
    "document",
    "elements",
    "events",
    "gather",
    "kept",
    "mend",
    "read",
    "repair",
    "source",
    "structure",
]
