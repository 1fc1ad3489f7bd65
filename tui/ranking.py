"""Reads the ranks of a job in a thread, each in a process, and finds out who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.message import Message

from fusetui.trace.model.callbacks import Stop

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Strip
    from fusetui.analysis.ranks.records import JobAnswer


class Ranking(Message):
    """So many ranks were read."""

    def __init__(self, paths: tuple[str, ...], done: int) -> None:
        super().__init__()
        self.paths, self.done = paths, done


class Ranked(Message):
    """All were."""

    def __init__(self, paths: tuple[str, ...], answer: JobAnswer, strip: Strip) -> None:
        super().__init__()
        self.paths, self.answer, self.strip = paths, answer, strip


class NotRanked(Message):
    """They could not be."""

    def __init__(self, paths: tuple[str, ...], sentence: str) -> None:
        super().__init__()
        self.paths, self.sentence = paths, sentence


class _Cancelled(Exception):  # noqa: N818
    """Nobody waits for them any more."""


def rank(paths: tuple[str, ...], post: Callable[[Message], object], cancelled: Stop) -> None:
    """Posts Ranking for each rank, and Ranked, or NotRanked with a sentence."""
    from fusetui.analysis.ranks.answer import explained, strip_of
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.trace.model.errors import TraceError

    def told(done: int, total: int) -> None:
        if cancelled():
            raise _Cancelled
        post(Ranking(paths, done))

    try:
        found = explained(summarize(paths, progress=told))
        post(Ranked(paths, found.answer, strip_of(found)))
    except TraceError as error:
        post(NotRanked(paths, str(error)))
    except _Cancelled:
        return
