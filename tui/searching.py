"""Searches in a thread: names first, then args as they are read. Those of a large trace are read by
another process, so that no key waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.query import Pattern, Query, WrongQuery, matching, parse
from fusetui.analysis.questions.search import (
    search,
    texts_of,
    why_nothing,
)
from fusetui.trace.model.report import Stop
from fusetui.tui.background_results import ArgsRead, as_read, often
from fusetui.tui.helper_client import Beside, NotBeside
from fusetui.tui.layout.lanes import names_of
from fusetui.tui.layout.search_hits import SearchHits, found_of
from fusetui.tui.layout.view import Side
from fusetui.tui.state import arranging
from fusetui.tui.state import search as state_search
from fusetui.tui.state.action import Run

PAUSE = 0.3  # seconds without a key, until another process is started
Post = Callable[[Run], object]


class Helped(NamedTuple):
    """Where the file is, and how another process is started."""

    path: str
    start: Callable[[], Beside]


def look(
    side: Side,
    text: str,
    post: Post,
    cancelled: Stop,
    helped: Helped | None = None,
) -> None:
    """Posts what names say, then as long as args are read, again and again."""
    trace = side.trace

    def found_now(found: SearchHits) -> None:
        post(partial(state_search.arrived, side=side, found=found))

    try:
        query = parse(text)
        rows = search(trace, side.once(texts_of), query)
    except WrongQuery as wrong:
        found_now(SearchHits(text, wrong=str(wrong)))
        return
    missing = "" if len(rows) else why_nothing(trace, query)
    if not query.reads_args and (not query.words or trace.report.prefix):
        found_now(replace(found_of(trace, text, rows), missing=missing))
        return
    if not query.reads_args:
        found_now(found_of(trace, text, rows, 0.0))
    for held, extra, share in _args_read(side, query, text, rows, cancelled, helped):
        if cancelled():
            return
        found = found_of(trace, text, held, share, extra, by_names=not query.reads_args)
        found_now(replace(found, missing=missing))


def match_lanes(side: Side, pattern: Pattern, post: Post) -> None:
    """Posts the lanes that a pattern matches, or what is wrong with it."""
    found = partial(arranging.matched, side=side)
    try:
        flags = matching(pattern.text, names_of(side.lanes)) ^ pattern.excluded
    except WrongQuery as wrong:
        post(partial(found, text=pattern.text, lanes=frozenset(), wrong=str(wrong)))
        return
    lanes = frozenset(np.flatnonzero(flags).tolist())
    post(partial(found, text=f"/{pattern.text}/", lanes=lanes, wrong=""))


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
