"""From the .pftrace of torch's monitor of CUPTI to columns. `read` and `text` are the door (see
formats.py); the rest is private. docs/formats.md says what such a file holds."""

from fusetui.trace.pftrace.reading import read, text

__all__ = ["read", "text"]
