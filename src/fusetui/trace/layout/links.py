"""Links each GPU event to the call that launched it, and to the CPU op around that
call.

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
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Kinds, Rows, first_with
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Track

MAX_EQUAL_SHARE = 0.9
"""If more than this share of GPU events has External id == correlation, External ids
are ignored."""


def launch_calls(role: Kinds, correlation: Int64s, start: Int64s) -> Int32s:
    """The launch call of every GPU row, -1 for all others; arrays and result of shape
    [slices].

    If several calls share a correlation (merged ranks, wrapped counters), the last one
    that starts before the GPU event is taken, or else the first.
    """
    launch = np.full(len(role), -1, dtype=np.int32)
    # 0 and -1 mean none; it wraps at 32 bits, so other negative numbers are possible
    is_known = (correlation != 0) & (correlation != -1)
    is_call = (role == Role.CALL) & is_known
    is_gpu_event = np.isin(role, GPU_ROLES) & is_known
    calls = np.flatnonzero(is_call)
    events = np.flatnonzero(is_gpu_event)
    if not len(calls) or not len(events):
        return launch
    calls = calls[np.lexsort((start[calls], correlation[calls]))]
    correlation_of_calls = correlation[calls]
    correlation_of_events = correlation[events]
    # the calls of each event: calls[first:end]
    first = np.searchsorted(correlation_of_calls, correlation_of_events, side="left")
    end = np.searchsorted(correlation_of_calls, correlation_of_events, side="right")
    taken = end - 1
    several = np.flatnonzero(end - first > 1)
    taken[several] = last_before(
        start[calls], first[several], taken[several], start[events[several]]
    )
    has_call = end > first
    launch[events[has_call]] = calls[taken[has_call]]
    return launch


def last_before(begins: Int64s, low: Rows, high: Rows, until: Int64s) -> Rows:
    """For each of several ranges, low <= index <= high, the last index at which
    `begins` is not after `until`; `low` if it is after it everywhere.

    `begins` is sorted within each range. `low`, `high`, `until` and the result have the
    shape [ranges].
    """
    while (low < high).any():
        middle = (low + high + 1) // 2
        is_early = begins[middle] <= until
        low = np.where(is_early, middle, low)
        high = np.where(is_early, high, middle - 1)
    return low


def enclosing_ops(role: Kinds, track: Int32s, parent: Int32s, depth: Int32s) -> Int32s:
    """The innermost CPU op that is, or contains, each row on its own track; -1 for
    none. All arrays have shape [slices], sorted by track."""
    is_op = role == Role.OP
    rows = np.arange(len(role), dtype=np.int32)
    op = np.where(is_op, rows, np.int32(-1))
    track_count = int(track[-1]) + 1 if len(track) else 0
    track_has_ops = np.bincount(track[is_op], minlength=track_count) > 0
    may_be_in_op = ~is_op & (parent >= 0) & track_has_ops[track]
    inner = np.flatnonzero(may_be_in_op)
    by_depth, bounds = rows_by_depth(depth[inner])
    inner = inner[by_depth]
    for first, end in pairwise(bounds):  # outer rows first
        rows_of_depth = inner[first:end]
        op[rows_of_depth] = op[parent[rows_of_depth]]
    return op


def gpu_ops(
    role: Kinds, launch: Int32s, op: Int32s, correlation: Int64s, external_id: Int64s
) -> Int32s:
    """`op` with the GPU rows filled in: the op around the launch call, or else the one
    with the same External id. All arrays have shape [slices]."""
    filled = op.copy()
    events = np.flatnonzero(np.isin(role, GPU_ROLES))
    launched = events[launch[events] >= 0]
    filled[launched] = op[launch[launched]]
    without_op = events[filled[events] < 0]
    if not len(without_op) or _ids_are_correlations(events, correlation, external_id):
        return filled
    ops = np.flatnonzero((role == Role.OP) & (external_id > 0))
    filled[without_op] = first_with(external_id[ops], ops, external_id[without_op])
    return filled


def _ids_are_correlations(
    events: Rows, correlation: Int64s, external_id: Int64s
) -> bool:
    """Whether the file writes the correlation of GPU events into their External id."""
    with_id = events[external_id[events] > 0]
    if not len(with_id):
        return False
    are_equal = correlation[with_id] == external_id[with_id]
    return float(np.mean(are_equal)) > MAX_EQUAL_SHARE


def enclosing_rows(
    track: Track,
    start: Int64s,
    end: Int64s,
    parent: Int32s,
    interval_begins: Int64s,
    interval_ends: Int64s,
) -> Int32s:
    """The innermost row of `track` that contains each interval [begin, end), else -1.

    `start`, `end` and `parent` are the columns of the whole trace; the result has the
    shape of `interval_begins`.
    """

    def end_too_early(rows: Int32s) -> Flags:
        # end[-1] is of no interest: no row, no parent
        return np.asarray((rows >= 0) & (end[rows] < interval_ends))

    last_begun = np.searchsorted(start[track.rows], interval_begins, side="right") - 1
    rows = np.where(last_begun >= 0, last_begun + track.first_row, -1).astype(np.int32)
    is_too_early = end_too_early(rows)
    while is_too_early.any():
        rows[is_too_early] = parent[rows[is_too_early]]
        is_too_early = end_too_early(rows)
    return rows


def adopt_overlapping(
    tracks: Sequence[Track], start: Int64s, end: Int64s, parent: Int32s, op: Int32s
) -> None:
    """Fills in `op` for slices on a sub-row of an ops layer: the op around them in
    time on sub-row 0 of their thread. The columns are those of the whole trace."""
    of_ops = [track for track in tracks if track.layer is Layer.OPS]
    first_subrow = {
        (track.pid, track.tid): track for track in of_ops if track.subrow == 0
    }
    for track in of_ops:
        if track.subrow == 0:
            continue
        without_op = track.first_row + np.flatnonzero(op[track.rows] < 0)
        around = enclosing_rows(
            first_subrow[track.pid, track.tid],
            start,
            end,
            parent,
            interval_begins=start[without_op],
            interval_ends=end[without_op],
        )
        op[without_op] = np.where(around >= 0, op[around], -1)
