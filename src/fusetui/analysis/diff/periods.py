"""What the CPU did meanwhile to launch the blocks of work that only one side has, and
what it launched on other lanes: a layer includes its collectives, whatever stream they
run on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import runs
from fusetui.analysis.diff.items import WorkItems
from fusetui.trace.model.arrays import Flags


class LaunchPeriod(msgspec.Struct, frozen=True):
    """The time [begin, end) in which a thread of the CPU launched some blocks in a
    row."""

    call: int  # the row of a launch of that thread
    begin_ns: int
    end_ns: int


class _Bounds(msgspec.Struct, frozen=True):
    """The items between whose launches a thread launched some blocks in a row."""

    first: int
    last: int
    # the launch of the first item, which is no part of the blocks, is over
    is_after_first: bool


def launch_periods(
    items: WorkItems, members: Sequence[int], step: int
) -> list[LaunchPeriod]:
    """Of each run of blocks in a row: when their launches were made in this step.
    `members` are the items of the blocks, ascending, of one lane. A run that one call
    launches (a graph), or whose launches are not in the file, has none."""
    trace, work = items.trace, items.work
    launch = trace.launch[work.row[work.of_window(step)]]
    periods = []
    for first, last in runs(np.array(members, dtype=np.intp)):
        bounds = _bounds(items, first, last)
        if bounds is None or bounds.last >= len(launch):
            continue
        call, last_call = int(launch[bounds.first]), int(launch[bounds.last])
        if call < 0 or last_call < 0:
            continue
        ns_after_start = 1 if bounds.is_after_first else 0
        period = LaunchPeriod(
            call=call,
            begin_ns=int(trace.start[call]) + ns_after_start,
            end_ns=int(trace.start[last_call]) + ns_after_start,
        )
        if period.begin_ns < period.end_ns:
            periods.append(period)
    return periods


def _bounds(items: WorkItems, first: int, last: int) -> _Bounds | None:
    """One period of what the CPU does for a run of blocks, the items `first` to `last`:
    from the first piece of a block to the first of the next one or, where other work
    follows, from after the last piece of the block before it to its last."""
    has_next = last + 1 < len(items) and items.lane[last + 1] == items.lane[last]
    has_previous = first > 0 and items.lane[first - 1] == items.lane[first]
    repeats = has_next and items.by_op[last + 1] == items.by_op[first]
    if has_previous and not repeats:
        return _Bounds(first=first - 1, last=last, is_after_first=True)
    if has_next:
        return _Bounds(first=first, last=last + 1, is_after_first=False)
    return None


def launched_on_other_lanes(items: WorkItems, members: Sequence[int]) -> list[int]:
    """The items that a thread launched among those of some blocks, on other lanes;
    `members` as in `launch_periods`."""
    if not items.work.gpu or not len(members):
        return []
    trace = items.trace
    calls = trace.launch[items.row].astype(np.intp)
    threads = trace.thread_of_track[trace.track[calls]]
    begins = trace.start[calls]
    is_inside = np.zeros(len(items), dtype=np.bool_)
    for period in launch_periods(items, members, items.window):
        is_of_thread = threads == trace.thread_of_track[trace.track[period.call]]
        is_inside |= (
            is_of_thread & (begins >= period.begin_ns) & (begins < period.end_ns)
        )
    is_elsewhere = items.lane != items.lane[members[0]]
    return [*np.flatnonzero(is_inside & is_elsewhere & (calls >= 0)).tolist()]


def mark_periods(flags: Flags, items: WorkItems, members: Sequence[int]) -> None:
    """Sets the flag of each row of the trace that a thread began while it launched
    these blocks, in any step alike; `members` as in `launch_periods`."""
    trace = items.trace
    for step in items.alike.tolist():
        for period in launch_periods(items, members, step):
            thread = trace.track_of(period.call)
            for track in trace.tracks:
                if (track.pid, track.tid) == (thread.pid, thread.tid):
                    starts = trace.start[track.rows]
                    is_inside = (starts >= period.begin_ns) & (starts < period.end_ns)
                    flags[track.rows] |= is_inside
