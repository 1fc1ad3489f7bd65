"""Bytes of a trace -> columns. `read` is the only door; everything behind it is private."""

from fusetui.trace.read.read import Raw, read

__all__ = ["Raw", "read"]
