"""Threads of autograd's engine, and the threads that wait for them: `backward()`
records no op and no call of its own while a thread of the engine works for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, ranges, union
from fusetui.trace.model.memo import memo
from fusetui.trace.program.backward import NODE

RUNS_BACKWARD = lazy_pattern(r"<built-in method run_backward\b")
"""The frame that lasts until the engine is done."""
# of the time of an engine: when the thread that asked for backward does nothing
APART = 0.95


class Work(NamedTuple):
    """The outermost ops and calls, and the thread of each; shape [n]."""

    rows: Rows
    thread: NDArray[np.integer]


class Lent(NamedTuple):
    """Ops and calls of a thread during which another one waits for it; shape [n]."""

    rows: Rows
    track: NDArray[np.integer]  # one of the waiting thread


@memo()
def outermost_work(trace: Trace) -> Work:
    rows = np.flatnonzero(
        np.isin(trace.role, (Role.OP, Role.CALL)) & (trace.parent < 0)
    )
    return Work(rows=rows, thread=trace.thread_of_track[trace.track[rows]])


@memo()
def engines_of(trace: Trace) -> Rows:
    """The threads whose ops mostly run backward."""
    ops, thread = outermost_work(trace)
    own = trace.role[ops] == Role.OP
    back = own & trace.matching(ops, NODE.match)
    every, those = (
        np.bincount(thread, (trace.dur[ops] + 1) * which) for which in (own, back)
    )
    return np.flatnonzero((2 * those > every) & (every > 0))


def asking_threads(trace: Trace) -> dict[int, int]:
    """For each thread of an engine the thread that may have asked for backward: of the
    other threads of its process the one that works longest."""
    work, engines = outermost_work(trace), engines_of(trace)
    process = np.zeros(len(trace.tracks), dtype=np.int64)
    process[trace.thread_of_track] = trace.process_of_track
    time = np.bincount(work.thread, trace.dur[work.rows] + 1, minlength=len(process))
    time[engines] = 0
    found: dict[int, int] = {}
    for engine in engines.tolist():
        asking = int(np.argmax(np.where(process == process[engine], time, 0)))
        if time[asking]:
            found[engine] = asking
    return found


class Pair(NamedTuple):
    """A thread of the engine and the one that asks it for backward: while one of them
    works, the other waits."""

    engine: int
    asking: int
    is_only: bool  # it asks no other engine
    outermost: Rows  # the ops and calls of the engine during which the other one waits


@memo()
def pairs_of(trace: Trace) -> tuple[Pair, ...]:
    """None where a thread works while its engine does."""
    every = asking_threads(trace)
    threads = list(every.values())
    found: list[Pair] = []
    for engine, asking in every.items():
        work = outermost_work(trace)
        asked, own = (work.rows[work.thread == thread] for thread in (asking, engine))
        free = outside(union(trace.start[asked], trace.end[asked]))
        apart = own[_inside(trace, own, free)]
        if int(trace.dur[apart].sum()) >= APART * int(trace.dur[own].sum()):
            found.append(Pair(engine, asking, threads.count(asking) == 1, apart))
    return tuple(found)


def lent_work(trace: Trace) -> Lent:
    """What each thread of a pair does while the other one does nothing but wait: the
    engine for the thread that asked for backward, and that thread before it asks. None
    where a thread asks several engines."""
    rows: list[Rows] = [np.empty(0, dtype=np.intp)]
    tracks: list[Int64s] = [np.empty(0, dtype=np.int64)]
    for pair in pairs_of(trace):
        by_engine = _while_waiting(trace, pair)
        if not pair.is_only or not len(by_engine):
            continue
        by_asking = _while_not_asked(trace, pair.engine, pair.asking)
        for thread, lent in ((pair.asking, by_engine), (pair.engine, by_asking)):
            track = int(np.flatnonzero(trace.thread_of_track == thread)[0])
            rows.append(lent)
            tracks.append(np.full(len(lent), track, dtype=np.int64))
    return Lent(rows=np.concatenate(rows), track=np.concatenate(tracks))


def with_one_lead(trace: Trace) -> Rows:
    """A number for each thread, shape [threads]: those of the engine have that of the
    thread that asks them. They are asked as much earlier as it is ahead, and it goes on
    as much earlier as they have ended."""
    found: Rows = np.arange(len(trace.tracks) + 1, dtype=np.intp)
    for pair in pairs_of(trace):
        found[pair.engine] = pair.asking
    return found


def _while_not_asked(trace: Trace, engine: int, asking: int) -> Rows:
    """The ops and calls of the thread that asks, with all inside them, while the engine
    has nothing to do."""
    work = outermost_work(trace)
    own, others = (work.rows[work.thread == thread] for thread in (asking, engine))
    busy = union(trace.start[others], trace.end[others])
    lent = own[_inside(trace, own, outside(busy))]
    found: Rows = ranges(lent, trace.end_row[lent] - lent)
    return found


def _while_waiting(trace: Trace, pair: Pair) -> Rows:
    """The ops and calls of an engine's thread, with all inside them, while the other
    one waits, and runs `run_backward` where its frames were recorded."""
    lent = pair.outermost
    frames = trace.rows_named(RUNS_BACKWARD.search, Role.PYTHON)
    frames = frames[trace.thread_of_track[trace.track[frames]] == pair.asking]
    if len(frames):
        running = union(trace.start[frames], trace.end[frames])
        lent = lent[_inside(trace, lent, running)]
    found: Rows = ranges(lent, trace.end_row[lent] - lent)
    return found


def _inside(trace: Trace, rows: Rows, cover: Cover) -> NDArray[np.bool_]:
    """Which of some rows lie in one interval of a cover (ns of the file) as a whole."""
    place = cover.place_of(trace.start[rows])
    found: NDArray[np.bool_] = (place >= 0) & (trace.end[rows] <= cover.end[place])
    return found
