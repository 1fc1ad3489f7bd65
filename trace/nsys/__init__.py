"""From an export of Nsight Systems, a SQLite database, to columns. `read`, `text` and
`processes` are the door (see formats.py); the rest is private."""

from fusetui.trace.nsys.reading import processes, read, text

__all__ = ["processes", "read", "text"]
