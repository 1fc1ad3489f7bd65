"""Summarizes the traces to choose from, in a thread; each summary arrives as a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.message import Message

from fusetui.text.printable import printable
from fusetui.trace.load import open_trace
from fusetui.trace.model.callbacks import Stop
from fusetui.trace.model.errors import TraceError
from fusetui.tui.drawing.chrome import summary_line


class Summarized(Message):
    """The line about one of the traces to choose from."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__()
        self.index, self.text = index, text


def summarize(
    wanted: Sequence[tuple[int, str]], post: Callable[[Message], object], cancelled: Stop
) -> None:
    """Posts Summarized for every place in the list and its path, in order."""
    for index, path in wanted:
        if cancelled():
            return
        post(Summarized(index, _summary(path)))


def _summary(path: str) -> str:
    try:
        return summary_line(open_trace(path))
    except TraceError as error:
        return printable(str(error))
