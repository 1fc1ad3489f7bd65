"""From a GPU event to the call that launched it, and to the CPU op around that call.

A launch is found by correlation: one runtime, driver or graph call may launch many GPU
events. The op is the innermost one around the call, else the one with the event's
External id, unless the file writes the correlation there too (files before 2024-03),
where it would name a wrong op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fusetui.trace.layout.nesting import rows_by_depth
from fusetui.trace.model.arrays import Int32s, Int64s, Kinds, Rows, first_with
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Track

TELLTALE = 0.9
"""If at least this share of GPU events has External id == correlation, External ids are
ignored."""


def launch_calls(role: Kinds, correlation: Int64s, start: Int64s) -> Int32s:
    """The launch call of every GPU row, -1 for all others; arrays and result of shape
    [slices].

    If several calls share a correlation (merged ranks, wrapped counters), the last one
    that starts before the GPU event is taken, or else the first.
    """
    launch = np.full(len(role), -1, dtype=np.int32)
    # it wraps at 32 bits: negative is possible
    known = (correlation != 0) & (correlation != -1)
    calls = np.flatnonzero((role == Role.CALL) & known)
    events = np.flatnonzero(np.isin(role, GPU_ROLES) & known)
    if not len(calls) or not len(events):
        return launch
    calls = calls[np.lexsort((start[calls], correlation[calls]))]
    keys = correlation[calls]
    first = np.searchsorted(keys, correlation[events], side="left")
    last = np.searchsorted(keys, correlation[events], side="right") - 1
    found = last >= first
    several = np.flatnonzero(last > first)
    last[several] = last_before(
        start[calls], first[several], last[several], start[events[several]]
    )
    launch[events[found]] = calls[last[found]]
    return launch


def last_before(begins: Int64s, low: Rows, high: Rows, until: Int64s) -> Rows:
    """The last index in each sorted begins[low:high + 1] that is not after `until`,
    else `low`."""
    while (low < high).any():
        middle = (low + high + 1) // 2
        early = begins[middle] <= until
        low, high = np.where(early, middle, low), np.where(early, high, middle - 1)
    return low


def enclosing_ops(role: Kinds, track: Int32s, parent: Int32s, depth: Int32s) -> Int32s:
    """The innermost CPU op that is, or contains, each row on its own track; -1 for
    none."""
    is_op = role == Role.OP
    op = np.where(is_op, np.arange(len(role), dtype=np.int32), np.int32(-1))
    has_ops = (
        np.bincount(track[is_op], minlength=int(track[-1]) + 1 if len(track) else 0) > 0
    )
    rest = np.flatnonzero(~is_op & (parent >= 0) & has_ops[track])
    by_depth, bounds = rows_by_depth(depth[rest])
    rest = rest[by_depth]
    for first, last in pairwise(bounds):
        here = rest[first:last]
        op[here] = op[parent[here]]
    return op


def gpu_ops(
    role: Kinds, launch: Int32s, op: Int32s, correlation: Int64s, external_id: Int64s
) -> Int32s:
    """`op` with the GPU rows filled in: from the launch call, or else from External
    id."""
    filled = op.copy()
    events = np.flatnonzero(np.isin(role, GPU_ROLES))
    launched = events[launch[events] >= 0]
    filled[launched] = op[launch[launched]]
    rest = events[filled[events] < 0]
    known = events[external_id[events] > 0]
    same = correlation[known] == external_id[known]
    if len(rest) and not (len(known) and float(np.mean(same)) > TELLTALE):
        ops = np.flatnonzero((role == Role.OP) & (external_id > 0))
        filled[rest] = first_with(external_id[ops], ops, external_id[rest])
    return filled


def enclosing_rows(
    track: Track,
    start: Int64s,
    end: Int64s,
    parent: Int32s,
    begins: Int64s,
    ends: Int64s,
) -> Int32s:
    """The innermost row of `track` that contains each interval [begins, ends), else -1.

    `start`, `end` and `parent` are the columns of the whole trace; the result has the
    shape of `begins`.
    """
    found = np.searchsorted(start[track.rows], begins, side="right") - 1
    rows = np.where(found >= 0, found + track.first_row, -1).astype(np.int32)
    outside = (rows >= 0) & (end[rows] < ends)
    while outside.any():
        rows[outside] = parent[rows[outside]]
        outside = (rows >= 0) & (end[rows] < ends)
    return rows


def adopt_overlapping(
    tracks: Sequence[Track], start: Int64s, end: Int64s, parent: Int32s, op: Int32s
) -> None:
    """Fills in `op` for slices on a sub-row of an ops layer: the op around them in
    time."""
    main = {(t.pid, t.tid): t for t in tracks if t.layer is Layer.OPS and t.subrow == 0}
    for track in tracks:
        if track.layer is not Layer.OPS or track.subrow == 0:
            continue
        rows = np.arange(track.first_row, track.end_row)[op[track.rows] < 0]
        over = enclosing_rows(
            main[track.pid, track.tid], start, end, parent, start[rows], end[rows]
        )
        op[rows] = np.where(over >= 0, op[over], -1)
