"""Errors of reading a trace.

TraceError
    NotATraceError      readable, but not a trace: wrong kind of file
    CannotReadError     missing, empty, no permission, or nothing is left of it
"""

from __future__ import annotations

from fusetui import Error
from fusetui.text.printable import without_credentials


class TraceError(Error):
    """One plain sentence for the user: which file, what is wrong with it, what to
    do."""

    def __init__(self, sentence: str) -> None:
        """Make an error with one plain sentence, from which the credentials of URLs are
        removed."""
        super().__init__(without_credentials(sentence))


class NotATraceError(TraceError):
    """The file was read, but holds no trace events."""


class CannotReadError(TraceError):
    """The file could not be read at all."""


class NothingReadError(Exception):
    """Reading was stopped before there was anything to show."""
