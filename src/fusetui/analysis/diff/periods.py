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
    """The two items from whose launch to whose launch a thread launched some blocks in a
    row."""

    first: int
    last: int
    # the first item is no part of the blocks: the time begins after its launch has begun
    is_after_first: bool


def launch_periods(
    items: WorkItems, members: Sequence[int], step: int
) -> list[LaunchPeriod]:
    """When the launches of each run of blocks in a row were made, in one of the steps
    alike. `members`: the items of the blocks, ascending, of one lane. There is no period
    for a run that one call launches (a graph), or whose launches are not in the
    file."""
    trace = items.trace
    work = items.work
    launch = trace.launch[work.row[work.slice_of_window(step)]]
    periods = []
    for first, last in runs(np.array(members, dtype=np.intp)):
        bounds = _bounds(items, first, last)
        if bounds is None or bounds.last >= len(launch):
            continue
        call = int(launch[bounds.first])
        last_call = int(launch[bounds.last])
        if call < 0 or last_call < 0:
            continue
        # 1 ns leaves out the launch of the first item, and includes that of the last
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
    """The items that bound the launches of a run of blocks, the items `first` to `last`.

    Where another such block follows, or where nothing comes before the run on its lane:
    its first item, and the one after its last. Else the item before its first, which is
    left out, and its last. None where the run is all that its lane has.
    """
    has_next = _goes_on_its_lane(items, last)
    has_previous = _goes_on_its_lane(items, first - 1)
    repeats = has_next and items.op_keys[last + 1] == items.op_keys[first]
    if has_previous and not repeats:
        return _Bounds(first=first - 1, last=last, is_after_first=True)
    if has_next:
        return _Bounds(first=first, last=last + 1, is_after_first=False)
    return None


def _goes_on_its_lane(items: WorkItems, item: int) -> bool:
    """Whether the next item is on the lane of an item; not of -1 or the last one."""
    if not 0 <= item < len(items) - 1:
        return False
    return bool(items.lane[item + 1] == items.lane[item])


def launched_on_other_lanes(items: WorkItems, members: Sequence[int]) -> list[int]:
    """The items on other lanes that a thread launched while it launched some blocks,
    ascending; `members` as in `launch_periods`. Empty without a GPU."""
    if not items.work.gpu or not len(members):
        return []
    trace = items.trace
    calls = trace.launch[items.row].astype(np.intp)
    threads = trace.thread_of_track[trace.track[calls]]
    begins = trace.start[calls]
    is_inside = np.zeros(len(items), dtype=np.bool_)
    for period in launch_periods(items, members, items.representative_step):
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
    for step in items.alike_steps.tolist():
        for period in launch_periods(items, members, step):
            thread = trace.track_of(period.call)
            for track in trace.tracks:
                if (track.pid, track.tid) == (thread.pid, thread.tid):
                    starts = trace.start[track.rows]
                    is_inside = (starts >= period.begin_ns) & (starts < period.end_ns)
                    flags[track.rows] |= is_inside
