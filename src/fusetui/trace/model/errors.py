"""Errors of reading a trace.

TraceError
    NotATrace       readable, but not a trace: wrong kind of file
    CannotRead      missing, empty, no permission, cut so short that nothing is left
"""

from __future__ import annotations

from fusetui import Error
from fusetui.text.printable import without_credentials


class TraceError(Error):
    """One plain sentence for the user: which file, what is wrong with it, what to
    do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(without_credentials(sentence))


class NotATrace(TraceError):  # noqa: N818  (reads as a sentence at the raise)
    """The file was read, but holds no trace events."""


class CannotRead(TraceError):  # noqa: N818
    """The file could not be read at all."""


class NothingRead(Exception):  # noqa: N818
    """Reading was stopped before there was anything to show."""
