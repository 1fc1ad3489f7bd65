"""Finds when a CPU thread launched certain blocks of work, and its other work at that
time.

A layer includes its collectives, whatever stream they run on. So what a thread launched
on other lanes while it launched a block belongs to that block, as does what it did on
the CPU meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import find_consecutive_runs
from fusetui.analysis.diff.items import WorkItems
from fusetui.trace.model.arrays import NO_ROW, Flags


class LaunchPeriod(msgspec.Struct, frozen=True):
    """The time [begin_ns, end_ns) in which a CPU thread launched a run of blocks."""

    call: int  # row of a launch call of that thread
    begin_ns: int
    end_ns: int


class _LaunchBounds(msgspec.Struct, frozen=True):
    """The two items whose launches bound the launches of a run of blocks.

    The first item may be the one before the blocks. Then the period begins after its
    launch.
    """

    first: int
    last: int
    is_after_first: bool


def find_launch_periods(
    items: WorkItems, members: Sequence[int], step: int
) -> list[LaunchPeriod]:
    """Determine when a CPU thread launched each run of consecutive blocks in one step.

    A block is a repeated sequence of kernels, such as a layer. A run has no period if
    one call launches all of it, as a CUDA graph does. It has none either if its
    launches are not in the file.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        members: The items of the blocks, ascending, all of one lane (stream).
        step: The index of a step that does the same work as the representative one.
    """
    trace = items.trace
    work = items.work
    call_of_item = trace.launch[work.row[work.slice_of_step(step)]]

    periods = []
    for first, last in find_consecutive_runs(np.array(members, dtype=np.intp)):
        bounds = _choose_launch_bounds(items, first, last)
        if bounds is None:
            continue
        first_call = int(call_of_item[bounds.first])
        last_call = int(call_of_item[bounds.last])
        if NO_ROW in (first_call, last_call):
            continue

        # 1 ns leaves out the launch of the first item, and includes that of the last.
        ns_after_start = 1 if bounds.is_after_first else 0
        begin_ns = int(trace.start[first_call]) + ns_after_start
        end_ns = int(trace.start[last_call]) + ns_after_start
        if begin_ns < end_ns:  # not one call for all, and in order
            periods.append(
                LaunchPeriod(call=first_call, begin_ns=begin_ns, end_ns=end_ns)
            )
    return periods


def _choose_launch_bounds(
    items: WorkItems, first: int, last: int
) -> _LaunchBounds | None:
    """Choose the two items whose launches bound the launches of a run of blocks.

    A block is a repeated sequence of kernels, such as a layer. What the CPU does before
    the first launch of a layer belongs to that layer. So the period usually goes from
    the launch of the item before the run to that of its last item. If another such
    block follows, or nothing comes before the run, it starts with the launch of its
    first item. It then ends with the launch of the item after the run.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        first: The first item of the run.
        last: The last item of the run.

    Returns:
        None if the run is all that its lane (stream) has.
    """
    has_next = _is_next_on_same_lane(items, last)
    has_previous = _is_next_on_same_lane(items, first - 1)
    is_repeated_after = has_next and items.op_keys[last + 1] == items.op_keys[first]
    if has_previous and not is_repeated_after:
        return _LaunchBounds(first=first - 1, last=last, is_after_first=True)
    if has_next:
        return _LaunchBounds(first=first, last=last + 1, is_after_first=False)
    return None


def _is_next_on_same_lane(items: WorkItems, item: int) -> bool:
    """Return whether the item after this one exists and is on the same lane."""
    if not 0 <= item < len(items) - 1:
        return False
    return bool(items.lane[item + 1] == items.lane[item])


def find_launches_on_other_lanes(items: WorkItems, members: Sequence[int]) -> list[int]:
    """Return the items on other streams that were launched together with some blocks.

    A block is a repeated sequence of kernels, such as a layer. The items are those that
    the same thread launched while it launched the blocks, in the representative step.
    There are none without a GPU.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        members: The items of the blocks, ascending, all of one lane (stream).
    """
    if not items.work.gpu or not len(members):
        return []

    trace = items.trace
    call_of_item = trace.launch[items.row].astype(np.intp)
    is_on_other_lane = items.lane != items.lane[members[0]]
    candidates = np.flatnonzero(is_on_other_lane & (call_of_item != NO_ROW))
    calls = call_of_item[candidates]
    threads = trace.thread_of_track[trace.track[calls]]
    starts = trace.start[calls]

    is_in_period = np.zeros(len(candidates), dtype=np.bool_)
    for period in find_launch_periods(items, members, items.representative_step):
        thread = trace.thread_of_track[trace.track[period.call]]
        is_in_time = (starts >= period.begin_ns) & (starts < period.end_ns)
        is_in_period |= is_in_time & (threads == thread)
    return [*candidates[is_in_period].tolist()]


def flag_rows_of_periods(
    flags: Flags, items: WorkItems, members: Sequence[int]
) -> None:
    """Flag all rows that a CPU thread began while it launched some blocks.

    A block is a repeated sequence of kernels, such as a layer.

    Args:
        flags: One flag per row of the trace. Flags are set in it.
        items: The items (kernels and copies) of the representative step of a trace.
        members: The items of the blocks, ascending, all of one lane (stream). Their
            launches count in all steps that do the same work.
    """
    trace = items.trace
    for step in items.same_work_steps.tolist():
        for period in find_launch_periods(items, members, step):
            track_of_call = trace.track_of(period.call)
            for track in trace.tracks:
                is_same_process = track.pid == track_of_call.pid
                if not is_same_process or track.tid != track_of_call.tid:
                    continue
                starts = trace.start[track.rows]
                is_inside = (starts >= period.begin_ns) & (starts < period.end_ns)
                flags[track.rows] |= is_inside
