"""Reads the JSON of a trace into columns. `read` and `text` are the door (see
formats.py)."""

from fusetui.trace.read.document_text import Filed
from fusetui.trace.read.reading import Callbacks, read

text = Filed

__all__ = ["Callbacks", "read", "text"]
