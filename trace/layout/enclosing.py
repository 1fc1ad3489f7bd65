"""Finds what encloses a time on a track: how layers and sub-rows of a thread are connected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Track

Int64s = NDArray[np.int64]
Rows = NDArray[np.int32]


def enclosing_rows(
    track: Track, start: Int64s, end: Int64s, parent: Rows, begins: Int64s, ends: Int64s
) -> Rows:
    """The innermost row of `track` that contains each interval [begins, ends), else -1.

    `start`, `end` and `parent` are the columns of the whole trace; the result has the shape of
    `begins`.
    """
    found = np.searchsorted(start[track.rows], begins, side="right") - 1
    rows = np.where(found >= 0, found + track.first_row, -1).astype(np.int32)
    outside = (rows >= 0) & (end[rows] < ends)
    while outside.any():
        rows[outside] = parent[rows[outside]]
        outside = (rows >= 0) & (end[rows] < ends)
    return rows


def adopt_overlapping(
    tracks: Sequence[Track], start: Int64s, end: Int64s, parent: Rows, op: Rows
) -> None:
    """Fills in `op` for slices on a sub-row of an ops layer: the op around them in time."""
    main = {(t.pid, t.tid): t for t in tracks if t.layer is Layer.OPS and t.subrow == 0}
    for track in tracks:
        if track.layer is not Layer.OPS or track.subrow == 0:
            continue
        rows = np.arange(track.first_row, track.end_row)[op[track.rows] < 0]
        over = enclosing_rows(
            main[track.pid, track.tid], start, end, parent, start[rows], end[rows]
        )
        op[rows] = np.where(over >= 0, op[over], -1)
