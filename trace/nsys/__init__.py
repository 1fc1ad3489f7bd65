"""From an export of Nsight Systems, a SQLite database, to columns. `read` and `text` are the door
(see formats.py); the rest is private."""

from fusetui.trace.nsys.reading import read, text

__all__ = ["read", "text"]
