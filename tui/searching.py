"""Searches in a thread: names first, then args as they are read."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.message import Message

from fusetui.trace.model.callbacks import Stop
from fusetui.trace.questions.query import WrongQuery, parse
from fusetui.trace.questions.search import by_args, search, texts_of
from fusetui.tui.layout.found import Found, found_of
from fusetui.tui.layout.view import Side

OFTEN = 0.2  # seconds between two counts while args are read


class Searched(Message):
    """What was found by now on a side."""

    def __init__(self, side: Side, found: Found) -> None:
        super().__init__()
        self.side, self.found = side, found


def look(side: Side, text: str, post: Callable[[Message], object], cancelled: Stop) -> None:
    """Posts Searched once, or as long as args are read, again and again."""
    trace = side.trace
    try:
        query = parse(text)
        rows = search(trace, side.once(texts_of), query)
    except WrongQuery as wrong:
        post(Searched(side, Found(text, wrong=str(wrong))))
        return
    if not query.reads_args:
        post(Searched(side, found_of(trace, text, rows)))
        return
    last = time.monotonic()
    for held, share in by_args(trace, query, rows):
        if cancelled():
            return
        now = time.monotonic()
        if share == 1.0 or now - last > OFTEN:
            last = now
            post(Searched(side, found_of(trace, text, held, share)))
