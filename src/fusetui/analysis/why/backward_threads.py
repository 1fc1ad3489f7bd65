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
from fusetui.trace.model.arrays import NO_ROW, Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NO_INTERVAL, Cover, outside, ranges, union
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

    def select_rows_of_thread(self, thread: int) -> Rows:
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
def find_outermost_work(trace: Trace) -> ThreadWork:
    """Find the ops and calls of all threads that lie in no other slice."""
    is_work = np.isin(trace.role, (Role.OP, Role.CALL))
    is_outermost = trace.parent == NO_ROW
    rows = np.flatnonzero(is_work & is_outermost)
    return ThreadWork(rows=rows, thread=trace.thread_of(rows))


@memo()
def find_engines(trace: Trace) -> Rows:
    """Find the threads of autograd's engine.

    These are the threads whose outermost ops run backward for more than half of their
    time. Returns thread indices, ascending.
    """
    work = find_outermost_work(trace)
    is_op = trace.role[work.rows] == Role.OP
    is_backward = is_op & trace.matching(work.rows, NODE.match)

    counted_ns = trace.dur[work.rows] + 1  # so that ops of 0 ns count too
    ops_ns_of_thread = np.bincount(work.thread, counted_ns * is_op)
    backward_ns_of_thread = np.bincount(work.thread, counted_ns * is_backward)
    has_ops = ops_ns_of_thread > 0
    is_mostly_backward = 2 * backward_ns_of_thread > ops_ns_of_thread

    return np.flatnonzero(has_ops & is_mostly_backward)


def find_asking_threads(trace: Trace) -> dict[int, int]:
    """Find for each thread of an engine the thread that may have asked for backward.

    Of the other threads of its process, it is the one that works longest. An engine is
    left out if no other thread of the process works.

    Returns:
        The asking thread of each engine, by the index of the engine's thread.
    """
    work = find_outermost_work(trace)
    engines = find_engines(trace)
    process_of_thread = np.zeros(len(trace.tracks), dtype=np.int64)
    process_of_thread[trace.thread_of_track] = trace.process_of_track

    counted_ns = trace.dur[work.rows] + 1  # so that work of 0 ns counts too
    work_ns_of_thread = np.bincount(
        work.thread, counted_ns, minlength=len(process_of_thread)
    )
    work_ns_of_thread[engines] = 0  # an engine asks nobody

    asking_of_engine: dict[int, int] = {}
    for engine in engines.tolist():
        is_same_process = process_of_thread == process_of_thread[engine]
        work_ns_in_process = np.where(is_same_process, work_ns_of_thread, 0)
        busiest_thread = int(np.argmax(work_ns_in_process))
        if work_ns_in_process[busiest_thread] > 0:
            asking_of_engine[engine] = busiest_thread

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
def find_engine_pairs(trace: Trace) -> tuple[EnginePair, ...]:
    """Find the pairs of an engine thread and the thread that asks it, which take turns.

    An engine thread runs the backward pass for autograd. Its pair is left out if the
    asking thread works during more than a small share of the engine's work.
    """
    work = find_outermost_work(trace)
    asking_of_engine = find_asking_threads(trace)
    engines_of_asking = Counter(asking_of_engine.values())

    pairs: list[EnginePair] = []
    for engine, asking in asking_of_engine.items():
        engine_work = work.select_rows_of_thread(engine)
        work_apart = _select_free_rows(
            trace, engine_work, of_other=work.select_rows_of_thread(asking)
        )
        apart_ns = int(trace.dur[work_apart].sum())
        engine_ns = int(trace.dur[engine_work].sum())
        take_turns = apart_ns >= MIN_SHARE_APART * engine_ns
        if take_turns:
            pair = EnginePair(
                engine=engine,
                asking=asking,
                is_only=engines_of_asking[asking] == 1,
                outermost=work_apart,
            )
            pairs.append(pair)

    return tuple(pairs)


def _select_free_rows(trace: Trace, rows: Rows, of_other: Rows) -> Rows:
    """Return those of some rows during which none of the rows `of_other` runs.

    All are rows of the trace. A row that overlaps one of `of_other` only in part is
    left out too.
    """
    is_free = outside(union(trace.start[of_other], trace.end[of_other]))
    return rows[_lie_in_cover(trace, rows, is_free)]


def find_lent_work(trace: Trace) -> LentWork:
    """Find what one thread of a pair does while the other does nothing but wait for it.

    A pair is a thread of autograd's engine and the thread that calls backward(). The
    work counts for both threads, and is *lent* to the one that waits. In backward(),
    the engine runs the ops of the backward pass for the calling thread. Before that,
    the engine waits for the forward pass.

    A thread that asks several engines is left out: it is not clear for whose work it
    waits.
    """
    lent: list[LentWork] = [NOTHING_LENT]
    for pair in find_engine_pairs(trace):
        engine_work = _find_work_for_asking(trace, pair)
        if pair.is_only and len(engine_work):
            asking_work = _find_work_for_engine(trace, pair)
            lent.append(_lend_to(trace, pair.asking, engine_work))
            lent.append(_lend_to(trace, pair.engine, asking_work))

    return LentWork(
        rows=np.concatenate([work.rows for work in lent]),
        track=np.concatenate([work.track for work in lent]),
    )


def _lend_to(trace: Trace, waiting_thread: int, rows: Rows) -> LentWork:
    """Make the record of slices that count for a waiting thread too."""
    first_track = int(np.flatnonzero(trace.thread_of_track == waiting_thread)[0])
    return LentWork(rows=rows, track=np.full(len(rows), first_track, dtype=np.int64))


def number_thread_pairs(trace: Trace) -> Rows:
    """Give the two threads of a pair one number, and each other thread its own.

    A pair is a thread of autograd's engine and the thread that calls backward(). They
    work by turns, each beginning when the other has ended, so they launch like one
    thread.

    Returns:
        A number for each thread; shape [threads].
    """
    number: Rows = np.arange(len(trace.tracks) + 1, dtype=np.intp)
    for pair in find_engine_pairs(trace):
        number[pair.engine] = pair.asking

    return number


def _find_work_for_engine(trace: Trace, pair: EnginePair) -> Rows:
    """Return the work of the asking thread while its engine has nothing to do.

    These are ops and calls, each followed by all slices inside it.
    """
    work = find_outermost_work(trace)
    outermost = _select_free_rows(
        trace,
        work.select_rows_of_thread(pair.asking),
        of_other=work.select_rows_of_thread(pair.engine),
    )
    return _add_all_inside(trace, outermost)


def _find_work_for_asking(trace: Trace, pair: EnginePair) -> Rows:
    """Return the work of an engine while the thread that asked it waits.

    These are ops and calls, each followed by all slices inside it. If frames of
    `run_backward` were recorded on the asking thread, the work must lie in one.
    """
    outermost = pair.outermost
    frames = trace.rows_named(RUNS_BACKWARD.search, Role.PYTHON)
    frames = frames[trace.thread_of(frames) == pair.asking]
    if len(frames):
        running = union(trace.start[frames], trace.end[frames])
        outermost = outermost[_lie_in_cover(trace, outermost, running)]

    return _add_all_inside(trace, outermost)


def _add_all_inside(trace: Trace, rows: Rows) -> Rows:
    """Return some slices, each followed by all slices inside it."""
    subtrees: Rows = ranges(rows, trace.end_row[rows] - rows)
    return subtrees


def _lie_in_cover(trace: Trace, rows: Rows, cover: Cover) -> Flags:
    """Tell which rows lie as a whole in one interval of a cover (ns of the file)."""
    interval = cover.place_of(trace.start[rows])
    starts_in_interval = interval != NO_INTERVAL
    ends_in_it = trace.end[rows] <= cover.end[interval]
    lies_in: Flags = starts_in_interval & ends_in_it
    return lies_in
