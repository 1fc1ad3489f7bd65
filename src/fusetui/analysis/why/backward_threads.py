"""Find the threads of autograd's engine, and the threads that wait for them.

`backward()` records no op and no call of its own while a thread of the engine works for
it. What the engine does then explains what the thread that asked for it was doing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, ranges, union
from fusetui.trace.model.memo import memo
from fusetui.trace.program.backward import NODE

RUNS_BACKWARD = lazy_pattern(r"<built-in method run_backward\b")
"""Matches the frame that lasts until the engine is done."""
MIN_SHARE_APART = 0.95
"""From this share on, an engine and the thread that asks it take turns.

It is the share of the time of the engine's ops and calls during which the other thread
records nothing.
"""
NO_ROWS: Final = np.empty(0, dtype=np.intp)


class ThreadWork(NamedTuple):
    """The outermost ops and calls of all threads; arrays of shape [n]."""

    rows: Rows
    thread: NDArray[np.integer]  # the thread of each row

    def of(self, thread: int) -> Rows:
        """Return the rows of one thread."""
        rows: Rows = self.rows[self.thread == thread]
        return rows


class LentWork(NamedTuple):
    """Ops and calls for which another thread waits meanwhile; arrays of shape [n].

    They count as what the waiting thread does.
    """

    rows: Rows
    track: NDArray[np.integer]  # a track of the thread that waits


NOTHING_LENT: Final = LentWork(rows=NO_ROWS, track=NO_ROWS.astype(np.int64))


@memo()
def outermost_work(trace: Trace) -> ThreadWork:
    """Find the ops and calls of all threads that lie in no other slice."""
    is_work = np.isin(trace.role, (Role.OP, Role.CALL))
    is_outermost = trace.parent < 0
    rows = np.flatnonzero(is_work & is_outermost)
    return ThreadWork(rows=rows, thread=trace.thread_of_track[trace.track[rows]])


@memo()
def engines_of(trace: Trace) -> Rows:
    """Find the threads of autograd's engine.

    These are the threads whose outermost ops run backward for more than half of their
    time. Returns thread indices, ascending.
    """
    work = outermost_work(trace)
    is_op = trace.role[work.rows] == Role.OP
    is_backward = is_op & trace.matching(work.rows, NODE.match)

    counted_ns = trace.dur[work.rows] + 1  # so that ops of 0 ns count too
    ops_ns_of_thread = np.bincount(work.thread, counted_ns * is_op)
    backward_ns_of_thread = np.bincount(work.thread, counted_ns * is_backward)
    is_engine = (ops_ns_of_thread > 0) & (2 * backward_ns_of_thread > ops_ns_of_thread)

    return np.flatnonzero(is_engine)


def asking_threads(trace: Trace) -> dict[int, int]:
    """Find for each thread of an engine the thread that may have asked for backward.

    Of the other threads of its process, it is the one that works longest. An engine is
    left out if no other thread of the process works.

    Returns:
        The asking thread of each engine, by the index of the engine's thread.
    """
    work = outermost_work(trace)
    engines = engines_of(trace)
    process_of_thread = np.zeros(len(trace.tracks), dtype=np.int64)
    process_of_thread[trace.thread_of_track] = trace.process_of_track

    counted_ns = trace.dur[work.rows] + 1  # so that work of 0 ns counts too
    work_ns = np.bincount(work.thread, counted_ns, minlength=len(process_of_thread))
    work_ns[engines] = 0  # an engine asks nobody

    asking_of_engine: dict[int, int] = {}
    for engine in engines.tolist():
        is_same_process = process_of_thread == process_of_thread[engine]
        work_in_process_ns = np.where(is_same_process, work_ns, 0)
        busiest = int(np.argmax(work_in_process_ns))
        if work_in_process_ns[busiest]:
            asking_of_engine[engine] = busiest

    return asking_of_engine


class EnginePair(NamedTuple):
    """A thread of the engine and the thread that asks it for backward.

    While one of them works, the other waits.
    """

    engine: int  # index of the engine's thread
    asking: int  # index of the thread that asks
    is_only: bool  # the asking thread asks no other engine
    outermost: Rows  # the ops and calls of the engine while the other thread waits


@memo()
def pairs_of(trace: Trace) -> tuple[EnginePair, ...]:
    """Find the engines that take turns with the thread that asks them.

    An engine is left out if that thread works while the engine does.
    """
    work = outermost_work(trace)
    asking_of_engine = asking_threads(trace)
    engines_of_asking = Counter(asking_of_engine.values())

    pairs: list[EnginePair] = []
    for engine, asking in asking_of_engine.items():
        engine_work = work.of(engine)
        apart = _while_free(trace, engine_work, of_other=work.of(asking))
        apart_ns = int(trace.dur[apart].sum())
        engine_ns = int(trace.dur[engine_work].sum())
        if apart_ns < MIN_SHARE_APART * engine_ns:
            continue

        pair = EnginePair(
            engine=engine,
            asking=asking,
            is_only=engines_of_asking[asking] == 1,
            outermost=apart,
        )
        pairs.append(pair)

    return tuple(pairs)


def _while_free(trace: Trace, rows: Rows, of_other: Rows) -> Rows:
    """Return those of some rows during which none of `of_other` runs."""
    is_free = outside(union(trace.start[of_other], trace.end[of_other]))
    return rows[_lies_in(trace, rows, is_free)]


def lent_work(trace: Trace) -> LentWork:
    """Find what one thread of a pair does while the other does nothing but wait.

    It counts for both threads. While a thread is in backward(), it records nothing, but
    the thread of autograd's engine runs the ops of the backward pass for it. And before
    that, the engine waits for what the thread runs in the forward pass.

    A thread that asks several engines is left out: whose work it waits for is not
    clear.
    """
    lent: list[LentWork] = [NOTHING_LENT]
    for pair in pairs_of(trace):
        by_engine = _while_asking_waits(trace, pair)
        if pair.is_only and len(by_engine):
            by_asking = _while_engine_waits(trace, pair)
            lent.append(_lent_to(trace, pair.asking, by_engine))
            lent.append(_lent_to(trace, pair.engine, by_asking))

    return LentWork(
        rows=np.concatenate([work.rows for work in lent]),
        track=np.concatenate([work.track for work in lent]),
    )


def _lent_to(trace: Trace, waiting_thread: int, rows: Rows) -> LentWork:
    """Make the record of slices that count for a waiting thread too."""
    first_track = int(np.flatnonzero(trace.thread_of_track == waiting_thread)[0])
    return LentWork(rows=rows, track=np.full(len(rows), first_track, dtype=np.int64))


def with_one_lead(trace: Trace) -> Rows:
    """Give the two threads of a pair one number, and each other thread its own.

    The *lead* of a thread is how far its launches are ahead of the GPU. The two threads
    of a pair share it: the engine is asked as much earlier as the asking thread is
    ahead, and that thread goes on as much earlier as the engine has ended.

    Returns:
        A number for each thread; shape [threads].
    """
    lead_of_thread: Rows = np.arange(len(trace.tracks) + 1, dtype=np.intp)
    for pair in pairs_of(trace):
        lead_of_thread[pair.engine] = pair.asking

    return lead_of_thread


def _while_engine_waits(trace: Trace, pair: EnginePair) -> Rows:
    """Return the work of the asking thread while its engine has nothing to do.

    These are ops and calls, each followed by all slices inside it.
    """
    work = outermost_work(trace)
    outermost = _while_free(trace, work.of(pair.asking), of_other=work.of(pair.engine))
    return _with_all_inside(trace, outermost)


def _while_asking_waits(trace: Trace, pair: EnginePair) -> Rows:
    """Return the work of an engine while the thread that asked it waits.

    These are ops and calls, each followed by all slices inside it. If frames of
    `run_backward` were recorded on the asking thread, the work must lie in one.
    """
    outermost = pair.outermost
    frames = trace.rows_named(RUNS_BACKWARD.search, Role.PYTHON)
    frames = frames[trace.thread_of_track[trace.track[frames]] == pair.asking]
    if len(frames):
        running = union(trace.start[frames], trace.end[frames])
        outermost = outermost[_lies_in(trace, outermost, running)]

    return _with_all_inside(trace, outermost)


def _with_all_inside(trace: Trace, rows: Rows) -> Rows:
    """Return some slices, each followed by all slices inside it."""
    subtrees: Rows = ranges(rows, trace.end_row[rows] - rows)
    return subtrees


def _lies_in(trace: Trace, rows: Rows, cover: Cover) -> Flags:
    """Tell which rows lie as a whole in one interval of a cover (ns of the file)."""
    interval = cover.place_of(trace.start[rows])
    lies_in: Flags = (interval >= 0) & (trace.end[rows] <= cover.end[interval])
    return lies_in
