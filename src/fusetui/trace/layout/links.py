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
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Kinds,
    Rows,
    equal_ranges,
    first_with,
    last_at_or_before,
)
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Track

MAX_EQUAL_SHARE = 0.9
"""If the External id of more than this share of GPU events is their correlation id, the
External ids are ignored."""


def launch_calls(role: Kinds, correlation: Int64s, start: Int64s) -> Int32s:
    """Find for each GPU event the runtime call that launched it.

    The profiler writes one correlation id into a call such as cudaLaunchKernel and into
    the GPU events that it launched. If several calls have the id of an event (files of
    several ranks were merged, or the counter wrapped), it is the last of them that
    started before the event, or else the first.

        row           0      1        2      3
        role          CALL   KERNEL   CALL   KERNEL
        correlation   7      7        8      9
        start         10     15       20     25
        result        -1     0        -1     -1

    Args:
        role: The Role of each slice.
        correlation: The correlation id of each slice; 0 and -1 mean that it has none.
        start: The start of each slice in ns.

    Returns:
        The row of the call for each slice that is a GPU event; -1 for an event without
        a call, and for all other slices.
    """
    launch = np.full(len(role), -1, dtype=np.int32)
    # The ids are 32-bit counters that wrap, so -2 is an id like any other.
    has_id = (correlation != 0) & (correlation != -1)
    calls = np.flatnonzero((role == Role.CALL) & has_id)
    events = np.flatnonzero(np.isin(role, GPU_ROLES) & has_id)
    if not len(calls) or not len(events):
        return launch

    calls = calls[np.lexsort((start[calls], correlation[calls]))]
    calls_of_event = equal_ranges(correlation[calls], correlation[events])
    call_count = calls_of_event.end - calls_of_event.first

    # Nearly all events have one call. Only the others need a comparison of times.
    chosen_call = calls_of_event.end - 1
    ambiguous = np.flatnonzero(call_count > 1)
    chosen_call[ambiguous] = last_before(
        start[calls],
        low=calls_of_event.first[ambiguous],
        high=calls_of_event.end[ambiguous] - 1,
        until=start[events[ambiguous]],
    )
    has_call = call_count > 0
    launch[events[has_call]] = calls[chosen_call[has_call]]
    return launch


def last_before(begins: Int64s, low: Rows, high: Rows, until: Int64s) -> Rows:
    """Find in each of several ranges of a column the last time up to a limit.

    With begins = [10, 20, 30, 5, 15], the ranges 0 to 2 and 3 to 4 and the limits 25
    and 1, the result is [1, 3]: begins[1] = 20 is the last up to 25, and nothing in the
    second range is up to 1, so its first index is given.

    Args:
        begins: The column, in ns; ascending within each range.
        low: The first index of each range.
        high: The last index of each range, inclusive, not below `low`.
        until: The limit of each range, inclusive.

    Returns:
        An index of `begins` for each range; `low` if all of the range is after the
        limit.
    """
    # A binary search in all ranges at once.
    while (low < high).any():
        middle = (low + high + 1) // 2
        is_early = begins[middle] <= until
        low = np.where(is_early, middle, low)
        high = np.where(is_early, high, middle - 1)
    return low


def enclosing_ops(role: Kinds, track: Int32s, parent: Int32s, depth: Int32s) -> Int32s:
    """Find for each slice the innermost CPU op around it on its own track.

    An op counts as around itself. For an annotation (row 0) that contains aten::linear
    (1), which contains aten::addmm (2), which contains cudaLaunchKernel (3), the result
    is [-1, 1, 2, 2].

    Args:
        role: The Role of each slice. Slices are sorted by track, outer ones first.
        track: The track of each slice.
        parent: The row that contains each slice directly; -1 for none.
        depth: How many slices contain each slice.

    Returns:
        The row of the op for each slice; -1 where no op is around it.
    """
    is_op = role == Role.OP
    rows = np.arange(len(role), dtype=np.int32)
    op = np.where(is_op, rows, np.int32(-1))

    # All but ops take over the op of their parent, unless their track has none at all.
    track_count = int(track[-1]) + 1 if len(track) else 0
    track_has_ops = np.bincount(track[is_op], minlength=track_count) > 0
    may_be_in_op = ~is_op & (parent != NO_ROW) & track_has_ops[track]
    inheriting = np.flatnonzero(may_be_in_op)

    # Depth by depth from the outside, so that the parent already has its op.
    by_depth, bounds = rows_by_depth(depth[inheriting])
    inheriting = inheriting[by_depth]
    for first, end in pairwise(bounds):
        rows_of_depth = inheriting[first:end]
        op[rows_of_depth] = op[parent[rows_of_depth]]
    return op


def gpu_ops(
    role: Kinds, launch: Int32s, op: Int32s, correlation: Int64s, external_id: Int64s
) -> Int32s:
    """Add to the ops of CPU slices those of GPU events.

    The op of a GPU event is the one around its launch call. If there is none, it is the
    op with the same External id, a number by which the profiler links events to ops;
    except in files that write something else into that field
    (`_external_ids_are_correlations`).

    Args:
        role: The Role of each slice.
        launch: The row of the call that launched each slice; -1 for none.
        op: The row of the op around each slice as `enclosing_ops` returns it.
        correlation: The correlation id of each slice.
        external_id: The External id of each slice; not positive if it has none.

    Returns:
        A copy of `op` in which GPU events have their op, or -1.
    """
    filled = op.copy()
    events = np.flatnonzero(np.isin(role, GPU_ROLES))
    launched = events[launch[events] != NO_ROW]
    filled[launched] = op[launch[launched]]

    without_op = events[filled[events] < 0]
    if not len(without_op):
        return filled
    if _external_ids_are_correlations(correlation[events], external_id[events]):
        return filled
    ops = np.flatnonzero((role == Role.OP) & (external_id > 0))
    filled[without_op] = first_with(external_id[ops], ops, external_id[without_op])
    return filled


def _external_ids_are_correlations(correlation: Int64s, external_id: Int64s) -> bool:
    """Tell whether a file writes correlation ids where External ids belong.

    Profilers before March 2024 did so on GPU events. Such a number would name some
    other op. A few equal ids are a coincidence; more than MAX_EQUAL_SHARE are not.

    Args:
        correlation: The correlation id of each GPU event.
        external_id: The External id of each GPU event; not positive if it has none.
    """
    has_id = external_id > 0
    if not has_id.any():
        return False
    are_equal = correlation[has_id] == external_id[has_id]
    return float(np.mean(are_equal)) > MAX_EQUAL_SHARE


def enclosing_rows(
    track: Track,
    start: Int64s,
    end: Int64s,
    parent: Int32s,
    interval_begins: Int64s,
    interval_ends: Int64s,
) -> Int32s:
    """Find the innermost slice of a track that contains each of some intervals.

    If rows 4 and 5 of the trace are the slices [0, 100] and [10, 20] of this track, the
    intervals [12, 15], [12, 30] and [90, 110] are in the rows 5, 4 and -1 (none).

    Args:
        track: The track.
        start: The start of every slice of the trace in ns.
        end: The end of every slice of the trace.
        parent: The row that contains every slice directly; -1 for none.
        interval_begins: The begin of each interval in ns, in any order.
        interval_ends: The end of each interval.

    Returns:
        A row of the trace for each interval; -1 where no slice contains it.
    """

    def end_too_early(rows: Int32s) -> Flags:
        # For row -1, end[-1] is some other slice: the first condition excludes it.
        return np.asarray((rows != NO_ROW) & (end[rows] < interval_ends))

    last_begun = last_at_or_before(start[track.rows], interval_begins)
    rows = np.where(last_begun >= 0, last_begun + track.first_row, -1).astype(np.int32)

    # The last slice to begin is the innermost candidate. Slices of a track nest, so
    # whatever else contains the interval is an ancestor of it.
    is_too_early = end_too_early(rows)
    while is_too_early.any():
        rows[is_too_early] = parent[rows[is_too_early]]
        is_too_early = end_too_early(rows)
    return rows


def adopt_overlapping(
    tracks: Sequence[Track], start: Int64s, end: Int64s, parent: Int32s, op: Int32s
) -> None:
    """Set in place the op of slices that were moved to a track of their own.

    Where slices of a thread overlap without nesting, some are on a second track of the
    thread (a sub-row), away from the op that was running. Those without an op get the
    op that contains them in time on the first track of their thread.

    Args:
        tracks: All tracks of the trace.
        start: The start of every slice of the trace in ns.
        end: The end of every slice.
        parent: The row that contains every slice directly; -1 for none.
        op: The row of the op around every slice; -1 for none. It is changed.
    """
    op_tracks = [track for track in tracks if track.layer is Layer.OPS]
    first_track_of_thread = {
        (track.pid, track.tid): track for track in op_tracks if track.subrow == 0
    }
    for track in op_tracks:
        if track.subrow == 0:
            continue
        without_op = track.first_row + np.flatnonzero(op[track.rows] == NO_ROW)
        around = enclosing_rows(
            first_track_of_thread[track.pid, track.tid],
            start,
            end,
            parent,
            interval_begins=start[without_op],
            interval_ends=end[without_op],
        )
        op[without_op] = np.where(around >= 0, op[around], -1)
