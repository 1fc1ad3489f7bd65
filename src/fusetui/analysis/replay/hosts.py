"""What threads do that others wait for, or that waits for others: calls that launch
work or wait for the device, and handoffs between the thread of a program and those that
run backward.

Backward is run by threads of the engine while the thread that asked for it records no
op. Such a stretch is no time of its own: the engine begins when it does, and it goes on
when they have ended.

A thread that asks a data loader with workers for a batch waits until that is ready, or
not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.loaders import (
    loader_rows,
    waits_for_batches,
    worker_rows,
)
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.why.backward_threads import APART, asking_threads, outermost_work
from fusetui.analysis.why.host import Host, host_kinds
from fusetui.text.patterns import late
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, outside, union

FREES = late(r"\A(?:cuda|hip)Free\Z")  # waits for the device
HANDING_NS = 10_000_000
"""Taking over a batch that is ready may take so long (ns): its tensors are opened one
by one. What a call takes beyond that is waiting."""


class Hosts(msgspec.Struct, frozen=True, eq=False):
    """What cuts the time of threads, by thread and time, disjoint; arrays of shape
    [cuts], times in ns of the file."""

    threads: Rows  # as in Trace.thread_of_track; shape [threads]
    first: Int64s  # when each begins and ends
    last: Int64s
    bounds: Rows  # where the cuts of each begin, then their number
    begin: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    row: Rows  # of the call, -1: none
    # of each call the cut that it is, or is part of, else -1; shape [slices]
    cut_of_row: Rows
    # the cuts in which a thread waits for another one, in which that waits for
    handoffs: Rows
    # being asked, and with which it has ended; shape [3, handoffs]
    # the cuts in which a thread waits for workers that load batches, in order
    batches: Rows


Cut = tuple[
    NDArray[np.integer], Int64s, Int64s, NDArray[np.integer], NDArray[np.integer]
]
"""Threads, begins, ends, kinds and rows."""


def hosts_of(trace: Trace) -> Hosts:
    """The threads that launch work, or run what those ask for; without a GPU, the
    busiest."""
    thread = trace.thread_of_track
    launches = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    launches = launches[launches >= 0]
    threads = (
        distinct(thread[trace.track[launches]]) if len(launches) else _busiest(trace)
    )
    handed = np.array([*_handoffs(trace, threads)], dtype=np.int64).reshape(-1, 5).T
    threads = distinct(np.concatenate((threads, *handed[:2]))).astype(np.intp)
    waits = np.flatnonzero(host_kinds(trace) == Host.SYNC)
    waits = distinct(np.concatenate((waits, trace.rows_named(FREES.search, Role.CALL))))
    asking, other, idle, begun, ended = handed
    loads = worker_rows(trace)
    waited = waits_for_batches(trace, loads)
    thread_of_load = thread[trace.track[loads]]
    cuts = [
        _cut(
            thread_of_load,
            trace.start[loads],
            trace.start[loads] + waited,
            Node.HANDOFF,
        ),
        _cut(asking, begun, ended, Node.HANDOFF),
        _cut(other, idle, begun, Node.HANDOFF),
        _cut(other, ended, ended, Node.MARK),
        _calls(trace, np.setdiff1d(launches, waits, assume_unique=True), Node.LAUNCH),
        _calls(trace, waits, Node.WAIT),
        *_marks(trace),
    ]
    columns = [np.concatenate(column) for column in zip(*cuts, strict=True)]
    order = np.lexsort((columns[2], columns[1], columns[0]))
    order = order[np.isin(columns[0][order], threads)]
    of_thread, begin, end, kind, row = (column[order] for column in columns)
    group = _overlapping(of_thread, begin, end)
    heads = np.flatnonzero(np.diff(group, prepend=-1))
    most = np.lexsort((-kind, group))[heads]
    cut_of_row = np.full(len(trace) + 1, -1, dtype=np.intp)
    cut_of_row[row] = group
    numbers = np.full(len(columns[0]), -1, dtype=np.intp)
    numbers[order] = group
    ends = np.maximum.reduceat(end, heads) if len(heads) else end
    bounds = np.searchsorted(of_thread[heads], np.append(threads, threads[-1:] + 1))
    first, last = _lifetimes(trace, threads, set(other.tolist()))
    for k, (a, b) in enumerate(pairwise(bounds.tolist())):
        if b > a:
            first[k] = min(first[k], begin[heads[a]])
            last[k] = max(last[k], ends[b - 1])
    cuts_of = (
        begin[heads],
        ends,
        kind[most].astype(np.uint8),
        row[most],
        cut_of_row[:-1],
    )
    handoffs = numbers[len(loads) :][: handed[:3].size].reshape(3, -1)
    batches = distinct(numbers[: len(loads)])
    batches = batches[(batches >= 0) & ~np.isin(batches, handoffs)]
    # else a call lies in the wait
    batches = batches[cuts_of[2][batches] == Node.HANDOFF]
    return Hosts(threads, first, last, bounds, *cuts_of, handoffs, batches)


def _calls(trace: Trace, rows: Rows, kind: Node) -> Cut:
    thread = trace.thread_of_track[trace.track[rows]]
    return thread, trace.start[rows], trace.end[rows], np.full(len(rows), kind), rows


def _cut(thread: NDArray[np.integer], begin: Int64s, end: Int64s, kind: Node) -> Cut:
    return thread, begin, end, np.full(len(thread), kind), np.full(len(thread), -1)


def _marks(trace: Trace) -> Iterator[Cut]:
    """Where steps begin and end, on the thread of their annotations, and where batches
    arrive."""
    steps, loads = steps_of(trace), loader_rows(trace)
    for rows, times in (
        (steps.rows, steps.start),
        (steps.rows, steps.end),
        (loads, trace.end[loads]),
    ):
        yield _cut(trace.thread_of_track[trace.track[rows]], times, times, Node.MARK)


def _overlapping(threads: NDArray[np.integer], begin: Int64s, end: Int64s) -> Rows:
    """The number of the group of each interval; those of one thread that overlap are
    one group. They are sorted by thread and begin."""
    new = np.ones(len(begin), dtype=np.bool_)
    for thread in distinct(threads).tolist():
        own = slice(*np.searchsorted(threads, (thread, thread + 1)).tolist())
        new[own][1:] = begin[own][1:] >= np.maximum.accumulate(end[own])[:-1]
    return np.cumsum(new) - 1


def _lifetimes(trace: Trace, threads: Rows, engines: set[int]) -> tuple[Int64s, Int64s]:
    """The first start and the last end of each thread; of an engine, those of its
    ops."""
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    first, last = np.full(len(threads), low), np.full(len(threads), high)
    places = {thread: place for place, thread in enumerate(threads.tolist())}
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        place = places.get(number, -1)
        layers = (Layer.OPS,) if number in engines else CPU_LAYERS
        if place >= 0 and track.layer in layers and len(track):
            first[place] = min(first[place], int(trace.start[track.first_row]))
            last[place] = max(last[place], int(trace.end[track.rows].max()))
    return first, last


def _busiest(trace: Trace) -> Rows:
    """Of a trace without launches the thread with the most time of ops, or of
    frames."""
    for role in (Role.OP, Role.PYTHON, Role.CALL, Role.ANNOTATION):
        rows = trace.rows_of(role)
        rows = rows[trace.parent[rows] < 0]
        if len(rows):
            threads = trace.thread_of_track[trace.track[rows]]
            return np.array([np.argmax(np.bincount(threads, trace.dur[rows] + 1))])
    return np.zeros(0, dtype=np.intp)


def _handoffs(
    trace: Trace, threads: NDArray[np.integer]
) -> Iterator[tuple[int, int, int, int, int]]:
    """What each thread of an engine does while the busiest other thread of its process
    does nothing: that thread and its own, since when it was idle, and when it began and
    ended (ns). None where both work at the same time."""
    ops, thread = outermost_work(trace)
    for other, asking in asking_threads(trace).items():
        if asking in threads or other in threads:
            work, own = (ops[thread == number] for number in (asking, other))
            free = outside(union(trace.start[work], trace.end[work]))
            found = _between(free, union(trace.start[own], trace.end[own]))
            yield from ((asking, other, *times) for times in found)


def _between(free: Cover, own: Cover) -> Iterator[tuple[int, int, int]]:
    """What is done in each stretch of free time: since when nothing was, its begin and
    its end."""
    gap = free.place_of(own.start)
    inside = (gap >= 0) & (own.end <= free.end[gap])
    if (own.end - own.start)[inside].sum() < APART * own.ns:
        return
    places = np.flatnonzero(inside)
    heads = np.flatnonzero(np.diff(gap[places], prepend=-1))
    firsts, lasts = places[heads], places[np.append(heads[1:], len(places)) - 1]
    idle = np.where(firsts > 0, own.end[firsts - 1], own.start[firsts])
    yield from zip(
        idle.tolist(), own.start[firsts].tolist(), own.end[lasts].tolist(), strict=True
    )
