"""Searches in a thread: names first, then args as they are read. Those of a large trace are read by
another process, so that no key waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from textual.message import Message

from fusetui.analysis.questions.matching import WrongQuery, matching
from fusetui.analysis.questions.missing import why_nothing
from fusetui.analysis.questions.query import Pattern, Query, parse
from fusetui.analysis.questions.search import (
    Texts,
    by_args,
    by_words,
    search,
    texts_of,
)
from fusetui.trace.model.callbacks import Stop
from fusetui.trace.model.columns import Trace
from fusetui.tui.helper_client import ArgsRead, Beside, NotBeside
from fusetui.tui.layout.lanes import names_of
from fusetui.tui.layout.search_hits import Found, found_of
from fusetui.tui.layout.view import Side

OFTEN = 0.2  # seconds between two counts while args are read
PAUSE = 0.3  # seconds without a key, until another process is started
NOTHING = np.empty(0, dtype=np.intp)


class Searched(Message):
    """What was found by now on a side."""

    def __init__(self, side: Side, found: Found) -> None:
        super().__init__()
        self.side, self.found = side, found


class LanesMatched(Message):
    """The lanes of a side that a pattern matches, or what is wrong with the pattern."""

    def __init__(self, side: Side, text: str, lanes: frozenset[int], wrong: str = "") -> None:
        super().__init__()
        self.side, self.text, self.lanes, self.wrong = side, text, lanes, wrong


class Helped(NamedTuple):
    """Where the file is, and how another process is started."""

    path: str
    start: Callable[[], Beside]


def look(
    side: Side,
    text: str,
    post: Callable[[Message], object],
    cancelled: Stop,
    helped: Helped | None = None,
) -> None:
    """Posts Searched with what names say, then as long as args are read, again and again."""
    trace = side.trace
    try:
        query = parse(text)
        rows = search(trace, side.once(texts_of), query)
    except WrongQuery as wrong:
        post(Searched(side, Found(text, wrong=str(wrong))))
        return
    missing = "" if len(rows) else why_nothing(trace, query)
    if not query.reads_args and (not query.words or trace.report.prefix):
        post(Searched(side, replace(found_of(trace, text, rows), missing=missing)))
        return
    if not query.reads_args:
        post(Searched(side, found_of(trace, text, rows, 0.0)))
    for held, extra, share in _args_read(side, query, text, rows, cancelled, helped):
        if cancelled():
            return
        found = found_of(trace, text, held, share, extra, by_names=not query.reads_args)
        post(Searched(side, replace(found, missing=missing)))


def match_lanes(side: Side, pattern: Pattern, post: Callable[[Message], object]) -> None:
    """Posts LanesMatched."""
    try:
        flags = matching(pattern.text, names_of(side.lanes)) ^ pattern.excluded
    except WrongQuery as wrong:
        post(LanesMatched(side, pattern.text, frozenset(), str(wrong)))
        return
    lanes = frozenset(np.flatnonzero(flags).tolist())
    post(LanesMatched(side, f"/{pattern.text}/", lanes))


def _args_read(
    side: Side, query: Query, text: str, rows: NDArray[np.intp], stop: Stop, helped: Helped | None
) -> Iterator[ArgsRead]:
    try:
        if helped is None:
            raise NotBeside
        if not _paused(stop):
            return
        with helped.start() as beside:
            yield from beside.search(helped.path, side.trace, text, stop)
    except NotBeside:
        yield from often(as_read(side.trace, side.once(texts_of), query, rows))


def _paused(cancelled: Stop) -> bool:
    """Waits a little; False if a person went on typing meanwhile."""
    until = time.monotonic() + PAUSE
    while time.monotonic() < until:
        if cancelled():
            return False
        time.sleep(0.02)
    return True


def as_read(trace: Trace, texts: Texts, query: Query, rows: NDArray[np.intp]) -> Iterator[ArgsRead]:
    """What args say, after each stretch of the file; `rows`: what names say."""
    if query.reads_args:
        for held, share in by_args(trace, query, rows):
            yield held, NOTHING, share
    else:
        for extra, share in by_words(trace, texts, query, rows):
            yield rows, extra, share


def often(found: Iterator[ArgsRead]) -> Iterator[ArgsRead]:
    """One of them in a while, and the last."""
    last = time.monotonic()
    for one in found:
        now = time.monotonic()
        if one[-1] == 1.0 or now - last > OFTEN:
            last = now
            yield one
