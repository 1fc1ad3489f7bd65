"""Which end belongs to which begin: the ends carry no id.

torch writes n begins, then their n ends in the same order, in one group after the other: the i-th
begin of a run belongs to the i-th end of the next run, on the same track. Other writers nest the
slices of a track like brackets, which would be wrong here where slices overlap partly.
"""

from __future__ import annotations

import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, distinct
from fusetui.trace.pftrace.scan import Begins, RunEnds


def paired(begins: Begins, ends: RunEnds, cut: bool) -> tuple[Int64s, bool]:
    """The number of the end of each begin, -1 if it has none, and whether they match by runs.

    If the file may be `cut`, the last ends may be missing.
    """
    before_begin = np.searchsorted(ends.at, begins.at)  # ends that stand before it
    if _match(before_begin, begins, ends, cut):
        number = np.arange(len(begins.at))
        return np.where(number < len(ends.at), number, -1), True
    return _nested(begins, ends), False


def _match(before_begin: Int64s, begins: Begins, ends: RunEnds, cut: bool) -> bool:
    count, whole = len(ends.at), len(begins.at)
    if count > whole or (count < whole and not cut) or not whole:
        return not count and not whole
    if before_begin[0] or not np.array_equal(begins.track[:count], ends.track):
        return False
    started = distinct(np.searchsorted(begins.at, ends.at))  # begins when each run of ends starts
    ended = distinct(before_begin)[1:]  # ends when each later run of begins starts
    if cut:
        return np.array_equal(started[: len(ended)], ended)
    return np.array_equal(started, np.append(ended, whole))


def _nested(begins: Begins, ends: RunEnds) -> Int64s:
    """Like brackets, per track in the order of time."""
    count = len(begins.at)
    found = np.full(count, -1, np.int64)
    track = np.concatenate((begins.track, ends.track))
    time = np.concatenate((begins.time, ends.time))
    at = np.concatenate((begins.at, ends.at))
    order = np.lexsort((at, time, track))
    step = np.where(order < count, 1, -1)
    first = np.concatenate(([True], track[order][1:] != track[order][:-1]))
    level, spare = _levels(step, np.cumsum(first) - 1)
    kept = order[~spare]
    keys = np.lexsort((np.arange(len(kept)), level[~spare], track[kept]))
    mark, depth = kept[keys], level[~spare][keys]
    same = (depth[1:] == depth[:-1]) & (track[mark][1:] == track[mark][:-1])
    pair = np.flatnonzero(same & (mark[:-1] < count) & (mark[1:] >= count))
    found[mark[pair]] = mark[pair + 1] - count
    return found


def _levels(step: Int64s, group: Int64s) -> tuple[Int64s, Flags]:
    """How many brackets are open with each mark, and the closing ones that nothing opened."""
    total = np.cumsum(step)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    before = np.where(starts > 0, total[starts - 1], 0)
    total = total - before[group]
    # The lowest sum so far, per group: each group lies below all before it.
    span = len(step) + 1
    lowest = np.minimum.accumulate(total - group * 2 * span) + group * 2 * span
    lowest = np.minimum(lowest, 0)
    previous = np.concatenate(([0], lowest[:-1]))
    previous[starts] = 0
    spare = lowest < previous
    return np.where(step > 0, total - lowest, total + 1 - lowest), spare
