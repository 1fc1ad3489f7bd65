"""Threads of autograd's engine, and the threads that wait for them: `backward()`
records no op and no call of its own while a thread of the engine works for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, ranges, union
from fusetui.trace.model.memo import memo
from fusetui.trace.program.backward import NODE

RUNS_BACKWARD = lazy_pattern(r"<built-in method run_backward\b")
"""The frame that lasts until the engine is done."""
MIN_SHARE_APART = 0.95
"""Of the time of an engine's ops and calls: that during which the thread that asked for
backward records nothing. Below it the two do not take turns."""
NO_ROWS: Final = np.empty(0, dtype=np.intp)


class ThreadWork(NamedTuple):
    """The outermost ops and calls of all threads, and the thread of each; shape [n]."""

    rows: Rows
    thread: NDArray[np.integer]

    def of(self, thread: int) -> Rows:
        """The rows of one thread."""
        rows: Rows = self.rows[self.thread == thread]
        return rows


class LentWork(NamedTuple):
    """Ops and calls of a thread during which another one waits for it; shape [n]."""

    rows: Rows
    track: NDArray[np.integer]  # one of the waiting thread


@memo()
def outermost_work(trace: Trace) -> ThreadWork:
    """The ops and calls of all threads that lie in no other slice."""
    is_work = np.isin(trace.role, (Role.OP, Role.CALL))
    is_outermost = trace.parent < 0
    rows = np.flatnonzero(is_work & is_outermost)
    return ThreadWork(rows=rows, thread=trace.thread_of_track[trace.track[rows]])


@memo()
def engines_of(trace: Trace) -> Rows:
    """The threads whose ops mostly run backward: more than half of the time of their
    outermost ops."""
    work = outermost_work(trace)
    is_op = trace.role[work.rows] == Role.OP
    is_backward = is_op & trace.matching(work.rows, NODE.match)
    counted_ns = trace.dur[work.rows] + 1  # also ops of 0 ns count
    ops_ns = np.bincount(work.thread, counted_ns * is_op)
    backward_ns = np.bincount(work.thread, counted_ns * is_backward)
    is_engine = (ops_ns > 0) & (2 * backward_ns > ops_ns)
    return np.flatnonzero(is_engine)


def asking_threads(trace: Trace) -> dict[int, int]:
    """For each thread of an engine the thread that may have asked for backward: of the
    other threads of its process the one that works longest. An engine is left out where
    no other thread of the process works."""
    work = outermost_work(trace)
    engines = engines_of(trace)
    process_of_thread = np.zeros(len(trace.tracks), dtype=np.int64)
    process_of_thread[trace.thread_of_track] = trace.process_of_track
    counted_ns = trace.dur[work.rows] + 1  # also work of 0 ns counts
    works_ns = np.bincount(work.thread, counted_ns, minlength=len(process_of_thread))
    works_ns[engines] = 0
    asking_of_engine: dict[int, int] = {}
    for engine in engines.tolist():
        is_same_process = process_of_thread == process_of_thread[engine]
        works_in_process_ns = np.where(is_same_process, works_ns, 0)
        asking = int(np.argmax(works_in_process_ns))
        if works_in_process_ns[asking]:
            asking_of_engine[engine] = asking
    return asking_of_engine


class EnginePair(NamedTuple):
    """A thread of the engine and the one that asks it for backward: while one of them
    works, the other waits."""

    engine: int
    asking: int
    is_only: bool  # the asking thread asks no other engine
    outermost: Rows  # the ops and calls of the engine during which the other one waits


@memo()
def pairs_of(trace: Trace) -> tuple[EnginePair, ...]:
    """The engines that take turns with the thread that asks them; none where that
    thread works while its engine does."""
    work = outermost_work(trace)
    asking_of_engine = asking_threads(trace)
    engines_of_asking = Counter(asking_of_engine.values())
    pairs: list[EnginePair] = []
    for engine, asking in asking_of_engine.items():
        of_engine = work.of(engine)
        while_free = _while_free(trace, of_engine, of_other=work.of(asking))
        while_free_ns = int(trace.dur[while_free].sum())
        engine_ns = int(trace.dur[of_engine].sum())
        if while_free_ns < MIN_SHARE_APART * engine_ns:
            continue
        pair = EnginePair(
            engine=engine,
            asking=asking,
            is_only=engines_of_asking[asking] == 1,
            outermost=while_free,
        )
        pairs.append(pair)
    return tuple(pairs)


def _while_free(trace: Trace, rows: Rows, of_other: Rows) -> Rows:
    """The rows during which none of `of_other` runs."""
    is_free = outside(union(trace.start[of_other], trace.end[of_other]))
    return rows[_lies_in(trace, rows, is_free)]


def lent_work(trace: Trace) -> LentWork:
    """What each thread of a pair does while the other one does nothing but wait: the
    engine for the thread that asked for backward, and that thread before it asks.
    Nothing of a thread that asks several engines."""
    rows: list[Rows] = [NO_ROWS]
    tracks: list[Int64s] = [NO_ROWS.astype(np.int64)]
    for pair in pairs_of(trace):
        by_engine = _while_asking_waits(trace, pair)
        if not pair.is_only or not len(by_engine):
            continue
        by_asking = _while_engine_waits(trace, pair)
        rows += [by_engine, by_asking]
        tracks += [
            _tracks_of(trace, pair.asking, len(by_engine)),
            _tracks_of(trace, pair.engine, len(by_asking)),
        ]
    return LentWork(rows=np.concatenate(rows), track=np.concatenate(tracks))


def _tracks_of(trace: Trace, thread: int, length: int) -> Int64s:
    """The first track of a thread, so many times."""
    first_track = int(np.flatnonzero(trace.thread_of_track == thread)[0])
    return np.full(length, first_track, dtype=np.int64)


def with_one_lead(trace: Trace) -> Rows:
    """A number for each thread, shape [threads]: its own, but an engine's thread has
    that of the thread which asks it. They are asked as much earlier as it is ahead, and
    it goes on as much earlier as they have ended."""
    number: Rows = np.arange(len(trace.tracks) + 1, dtype=np.intp)
    for pair in pairs_of(trace):
        number[pair.engine] = pair.asking
    return number


def _while_engine_waits(trace: Trace, pair: EnginePair) -> Rows:
    """The ops and calls of the thread that asks, with all inside them, while the engine
    has nothing to do."""
    work = outermost_work(trace)
    outermost = _while_free(trace, work.of(pair.asking), of_other=work.of(pair.engine))
    return _with_all_inside(trace, outermost)


def _while_asking_waits(trace: Trace, pair: EnginePair) -> Rows:
    """The ops and calls of an engine's thread, with all inside them, while the other
    one waits, and runs `run_backward` where its frames were recorded."""
    outermost = pair.outermost
    frames = trace.rows_named(RUNS_BACKWARD.search, Role.PYTHON)
    frames = frames[trace.thread_of_track[trace.track[frames]] == pair.asking]
    if len(frames):
        running = union(trace.start[frames], trace.end[frames])
        outermost = outermost[_lies_in(trace, outermost, running)]
    return _with_all_inside(trace, outermost)


def _with_all_inside(trace: Trace, rows: Rows) -> Rows:
    """Some slices, each followed by all slices inside it."""
    subtrees: Rows = ranges(rows, trace.end_row[rows] - rows)
    return subtrees


def _lies_in(trace: Trace, rows: Rows, cover: Cover) -> Flags:
    """Which of some rows lie as a whole in one interval of a cover (ns of the file)."""
    place = cover.place_of(trace.start[rows])
    lies_in: Flags = (place >= 0) & (trace.end[rows] <= cover.end[place])
    return lies_in
