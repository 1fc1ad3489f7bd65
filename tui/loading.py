"""Reads traces and compares them in threads; what comes of it arrives as messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.message import Message

from fusetui.trace.columns import Trace
from fusetui.trace.diff.model import Diff
from fusetui.trace.errors import TraceError
from fusetui.trace.load import open_trace
from fusetui.tui.headings import short_label
from fusetui.tui.sides import make_sides
from fusetui.tui.view import Side

Post = Callable[[Message], object]
Cancelled = Callable[[], bool]


class Loading(Message):
    """So many bytes of a file were read."""

    def __init__(self, path: str, done: int, total: int) -> None:
        super().__init__()
        self.path, self.done, self.total = path, done, total


class Loaded(Message):
    """All traces are there."""

    def __init__(self, sides: tuple[Side, ...]) -> None:
        super().__init__()
        self.sides = sides


class Failed(Message):
    """A trace could not be read; the sentence says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class Compared(Message):
    """The diff is there."""

    def __init__(self, result: Diff) -> None:
        super().__init__()
        self.result = result


def load(paths: Sequence[str], post: Post, cancelled: Cancelled) -> None:
    """Read every path; posts Loading while it reads, then Loaded or Failed.

    Ends without a word, between two chunks, once it is cancelled.
    """
    traces: list[Trace] = []
    for path in paths:
        try:
            traces.append(open_trace(path, _reporter(path, post, cancelled)))
        except TraceError as error:
            post(Failed(str(error)))
            return
        except Stopped:
            return
    post(Loaded(make_sides(traces, [short_label(path) for path in paths])))


def compare(a: Side, b: Side, post: Post) -> None:
    """Posts Compared."""
    from fusetui.trace.diff import diff

    post(Compared(diff(a.trace, b.trace)))


class Stopped(Exception):  # noqa: N818
    """Nobody wants the rest of the file."""


def _reporter(path: str, post: Post, cancelled: Cancelled) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if cancelled():
            raise Stopped
        post(Loading(path, done, total))

    return report
