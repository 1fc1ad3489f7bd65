"""Many small tracks at once: one numpy call for each of 100,000 tracks would take a minute."""

from __future__ import annotations

import numpy as np

from fusetui.trace.model.arrays import Int64s, Rows, distinct

SMALL = 64  # rows of a track that are not worth a call of their own
MANY = 500  # small tracks that are worth being combined


def overlapping(bounds: Int64s, start: Int64s, end: Int64s) -> Rows:
    """The tracks in which a slice starts before the previous one has ended; in all others nothing
    is nested. Track n has the rows [bounds[n], bounds[n + 1])."""
    early = np.flatnonzero(start[1:] < end[:-1]) + 1
    track = np.searchsorted(bounds, early, side="right") - 1
    return distinct(track[early > bounds[track]])


def small_ones(bounds: Int64s, tracks: Rows) -> Rows:
    """Those of the tracks that are combined; none if there are few."""
    small = tracks[np.diff(bounds)[tracks] <= SMALL]
    return small if len(small) > MANY else small[:0]


def rows_of(bounds: Int64s, tracks: Rows) -> tuple[Rows, Rows]:
    """The rows of these tracks, and where each track begins in that list, then its length."""
    sizes = np.diff(bounds)[tracks]
    begins = np.concatenate(([0], np.cumsum(sizes)))
    inside = np.arange(begins[-1]) - np.repeat(begins[:-1], sizes)
    return np.repeat(bounds[tracks], sizes) + inside, begins


def as_one(begins: Rows, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Starts and ends as small integers that keep the order within each track, with each track
    after the previous one: as if all slices were on one track."""
    own = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    times, track = np.concatenate((start, end)), np.concatenate((own, own))
    order = np.lexsort((times, track))
    later = (np.diff(times[order]) != 0) | (np.diff(track[order]) != 0)
    number = np.empty(len(times), dtype=np.int64)
    number[order] = np.concatenate(([0], np.cumsum(later)))
    return number[: len(start)], number[len(start) :]
