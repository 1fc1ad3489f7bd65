"""The segments of a device at a moment: what is in them by category, and the holes."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.memory.categories import CATEGORIES, UNKNOWN
from fusetui.analysis.memory.history import BEFORE, GIVEN, TAKEN, History, Lives
from fusetui.analysis.memory.layout import Layout, Segment, layout, segments_at
from fusetui.analysis.memory.moments import Moments
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.intervals import covered_until
from fusetui.trace.model.memo import memo, once


class Placed(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`rows` of History.occupied, by address, the segment and the category of each; `used` and
    `holes`: bytes asked for and bytes in holes, of each segment."""

    history: History
    there: Layout
    rows: Rows
    of: Int64s
    kinds: Int64s
    used: Int64s
    holes: Int64s

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.there.segments

    def inside(self, segment: int) -> tuple[Rows, Int64s]:
        """What lies in a segment, by address, and the category of each."""
        first, last = np.searchsorted(self.of, [segment, segment + 1])
        return self.rows[first:last], self.kinds[first:last]

    def by_category(self, segment: int, borders: Int64s) -> Int64s:
        """Bytes asked for between each two addresses; shape [CATEGORIES, borders - 1]."""
        (rows, kinds), lives = self.inside(segment), self.history.occupied
        found = np.zeros((len(CATEGORIES), len(borders) - 1), np.int64)
        for kind in set(kinds.tolist()):
            start = lives.address[rows[kinds == kind]]
            end = start + lives.size[rows[kinds == kind]]
            found[kind] = np.diff(covered_until(start, end, borders))
        return found


@memo(2)
def placed(moments: Moments, event: int) -> Placed:
    """What lies where after an event."""
    history, events = moments.history, once(moments, _of_segments)
    changed = int(np.searchsorted(events, event, side="right"))
    there = layout(
        history, event, _segments(moments, int(events[changed - 1]) if changed else BEFORE)
    )
    lives, count = history.occupied, len(there.segments)
    rows = np.flatnonzero(there.lives >= 0)
    rows = rows[np.argsort(lives.address[rows], kind="stable")]
    of = there.lives[rows]
    used = summed(of, lives.size[rows], count)
    kinds = np.append(moments.kinds, UNKNOWN)[_same(history.lives, lives, rows)]
    return Placed(history, there, rows, of, kinds, used, summed(there.segment, there.size, count))


def _of_segments(moments: Moments) -> Rows:
    """The events that change which segments there are."""
    return np.flatnonzero(np.isin(moments.history.events.action, (*GIVEN, *TAKEN)))


@memo(2)
def _segments(moments: Moments, event: int) -> tuple[Segment, ...]:
    return segments_at(moments.history, event)


def _same(lives: Lives, occupied: Lives, rows: Rows) -> Rows:
    """The lives that these are, by birth or, from before the first event, by address; -1: none."""
    of_event = np.full(lives.events + 1, -1)
    of_event[lives.born] = np.arange(len(lives))
    early = np.flatnonzero(lives.born == BEFORE)
    early = early[np.argsort(lives.address[early], kind="stable")]
    known, wanted = np.append(lives.address[early], -1), occupied.address[rows]
    place = np.searchsorted(known[:-1], wanted)
    before = np.where(known[place] == wanted, np.append(early, -1)[place], -1)
    found: Rows = np.where(occupied.born[rows] == BEFORE, before, of_event[occupied.born[rows]])
    return found
