"""The rule drained-by-sync: the launch queue runs dry while the CPU waits for the GPU.

The CPU loses its lead then, and the GPU waits for the launches that follow. A *drain*
is a gap at whose begin the CPU was waiting, so that the queue ran dry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.backward_threads import number_thread_pairs
from fusetui.analysis.why.causes import find_heaviest_call, format_frame
from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.facts import Facts, IdleGaps
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.model import AsyncCalls
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    explain_uncertainty,
    format_share_of_span,
)
from fusetui.analysis.why.thread_activity import (
    Slices,
    ThreadActivity,
    find_waiting_calls,
)
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    at,
    begins_runs,
    distinct,
    distinct_rows,
    last_at_or_before,
    last_marked,
    prefix_sums,
    summed,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import Groups, grouped
from fusetui.trace.model.intervals import FOREVER, NO_INTERVAL, ranges
from fusetui.trace.model.sorted_arrays import (
    count_below,
    count_until,
    last_before,
    positions_of,
    slice_between,
)

LAUNCHES_AHEAD: Final = 3
"""From this many launches in the queue on, the CPU is ahead again."""
MAX_NAME_CHARACTERS: Final = 200


@Rule(
    remedy="Keep .item(), .tolist(), nonzero(), "
    "torch.{intel:xpu|:cuda}.synchronize() and copies from pageable memory "
    "out of the loop. Read results one step later, from pinned memory, using "
    "non_blocking=True and an event.",
    thresholds={"lead": LAUNCHES_AHEAD},
    by_launches=True,
)
def drained_by_sync(facts: Facts) -> Iterator[Claim]:
    """Report what it costs that the CPU waits for the GPU and then launches too late.

    At stake is how much less the GPU would wait for launches if the CPU did not wait;
    see compute_saved_ns. The claim is a part of cpu-work or host-bound, whichever claims
    most of the time that the GPU waits after such waits.
    """
    drained = _find_drained_gaps(facts)
    lost_ns = _measure_lost_ns(facts, drained)
    waits = _measure_waits_before(facts, drained.drain_indices)
    saved_ns = compute_saved_ns(waits, lost_ns)
    at_stake_ns = int(saved_ns.sum())
    if at_stake_ns <= 0:
        return

    all_lost_ns = int(lost_ns.sum())
    has_other_work = drained.is_behind & facts.has_other_cpu_work
    other_work_ns = int(facts.late_ns[has_other_work].sum())
    is_mostly_other_work = 2 * other_work_ns > all_lost_ns

    calls = drained.call[drained.drain_indices]
    times = plural(int(np.count_nonzero(saved_ns)), "time")
    costly_calls = _name_costliest_calls(facts, calls, lost_ns, saved_ns)

    yield Claim(
        text=f"Waits in {costly_calls} drain the launch queue {times}; the GPU then "
        f"sits idle for {duration(all_lost_ns)}. Launching work ahead instead of "
        f"waiting would save up to {format_share_of_span(facts, at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        wanted=AsyncCalls(_find_calls_to_change(facts, drained, waits, saved_ns)),
        rows=choose_heaviest_rows(calls, saved_ns),
        part_of="cpu-work" if is_mostly_other_work else "host-bound",
        why_likely=explain_uncertainty(facts),
    )


class DrainedGaps(msgspec.Struct, frozen=True, eq=False):
    """Which gaps follow a wait that drained the queue; arrays of shape [gaps]."""

    call: Rows
    """The call in which the CPU waited when the queue ran dry, as a row; -1 for none.
    """
    is_behind: Flags
    """Whether the CPU has no lead: from a gap with a call on until it is ahead again.
    """

    @property
    def drain_indices(self) -> Rows:
        """Return the drains: the gaps with a call.

        They are indices of gaps, ascending.
        """
        has_call = self.call != NO_ROW
        return np.flatnonzero(has_call)


def _find_drained_gaps(facts: Facts) -> DrainedGaps:
    """Find the gaps that follow a wait of the CPU for the GPU.

    After such a wait the CPU has no launches ahead, so the GPU idles until the next
    launch. The gaps come in runs. Each run begins with the gap in which the launch
    queue ran empty. It ends when the CPU is ahead again, or when the CPU waits while
    the queue is not empty.
    """
    gaps = facts.gaps
    waiting_in = find_waiting_calls(
        facts.trace, facts.accounts.launchers, gaps.launch, gaps.begin
    )
    call = _drop_preparing_calls(facts, waiting_in)
    begins_run = call != NO_ROW

    last_wait = _find_last_waits(facts)
    has_wait = last_wait != NO_ROW
    ends_within_gap = facts.trace.end[last_wait] > gaps.begin
    waits_within_gap = has_wait & ends_within_gap
    waits_before_gap = has_wait & ~ends_within_gap
    ends_run = _was_cpu_ahead(facts) | waits_before_gap
    is_in_run = _mark_runs(begins_run, ends_run, gaps.device)

    # Another wait while the queue is empty: what follows is lost after that one.
    wait_within = np.where(waits_within_gap, last_wait, NO_ROW)
    later_call = _drop_preparing_calls(facts, wait_within)
    continues_run = is_in_run & ~begins_run
    return DrainedGaps(
        call=np.where(continues_run, later_call, call), is_behind=is_in_run
    )


def _mark_runs(begins: Flags, ends: Flags, device: Int32s) -> Flags:
    """Tell which gaps lie in a run of gaps of one device.

    A run goes from a gap that begins it to the last one before a gap that ends it:

    >>> begins = np.array([False, True, False, False, False])
    >>> ends = np.array([False, False, False, True, False])
    >>> _mark_runs(begins, ends, device=np.zeros(5, dtype=np.int32)).tolist()
    [False, True, True, False, False]

    Args:
        begins: True for gaps with which a run begins. Such a gap belongs to its run
            even if it is one of `ends` too.
        ends: True for gaps before which a run ends.
        device: The index of the device of each gap, ascending.

    Returns:
        One flag per gap.
    """
    # A gap lies in a run if the last begin or end up to it is a begin, on its device.
    last_edge = last_marked(begins | ends)  # -1, which is no gap, if there is none
    first_gap_of_device = positions_of(device, device)
    is_edge_of_device = last_edge >= first_gap_of_device
    is_in_run: Flags = is_edge_of_device & begins[last_edge]

    return is_in_run


def _measure_lost_ns(facts: Facts, drained: DrainedGaps) -> Int64s:
    """Measure how long the GPU waited for launches after each drain.

    A drain is a gap before which the CPU waited for the GPU, so that the launch queue
    ran empty. The gaps after it count until the CPU was ahead again, or until the next
    drain. Returns ns for each drain.
    """
    drains = drained.drain_indices
    counted_gaps = np.flatnonzero(drained.is_behind)
    last_drain = last_at_or_before(drains, counted_gaps)
    late_ns = facts.late_ns[counted_gaps]

    return summed(last_drain, late_ns, len(drains))


class WaitsBeforeDrains(msgspec.Struct, frozen=True, eq=False):
    """How the CPU waited at each drain; arrays of shape [drains]."""

    ns: Int64s
    """How long it waited. No moment counts for two drains."""
    sequence: Int64s
    """The number of a sequence: drains of one device and thread, with no other wait
    between them.

    A thread of autograd's engine and the thread that waits for it count as one.
    """
    launch_before: Rows
    """The launch call before the wait, as a row of the trace; -1 for none."""


def compute_saved_ns(waits: WaitsBeforeDrains, lost_ns: Int64s) -> Int64s:
    """Compute how much less the GPU would wait if the CPU did not wait.

    A CPU that does not wait is ahead by all the time for which it waited so far. The
    GPU waits less by as much, and what is left of the lead is for the next drains of
    the same sequence. In this example, the CPU waits 50 ns and the GPU then 20 ns; the
    remaining lead of 30 ns saves that much of the next 40 ns:

    >>> waits = WaitsBeforeDrains(np.array([50, 0]), np.array([0, 0]), np.array([-1, -1]))
    >>> compute_saved_ns(waits, lost_ns=np.array([20, 40])).tolist()
    [20, 30]

    Args:
        waits: How the CPU waited at each drain.
        lost_ns: How long the GPU waited after each drain.

    Returns:
        ns for each drain.
    """
    saved_ns = np.zeros(len(lost_ns), dtype=np.int64)
    for drains_of_sequence in grouped(waits.sequence).members_of_each():
        lead_ns = 0
        for drain in drains_of_sequence.tolist():
            lead_ns += int(waits.ns[drain])
            saved_now_ns = min(lead_ns, int(lost_ns[drain]))
            saved_ns[drain] = saved_now_ns
            lead_ns -= saved_now_ns

    return saved_ns


def _find_calls_to_change(
    facts: Facts, drained: DrainedGaps, waits: WaitsBeforeDrains, saved_ns: Int64s
) -> Rows:
    """Find the calls in which threads must not wait, so that the computed time is
    saved.

    These are the calls at the drains that save something, now or later. A drain is a
    gap before which the CPU waited until the launch queue was empty.

    Returns:
        Rows of the trace, ascending.
    """
    is_needed = (saved_ns > 0) | _find_drains_saving_later(waits, saved_ns)
    drains = drained.drain_indices[is_needed]
    launch_before = waits.launch_before[is_needed]
    also_waiting = _find_waiting_calls(facts, drains, launch_before)

    return distinct(np.append(drained.call[drains], also_waiting))


def _find_drains_saving_later(waits: WaitsBeforeDrains, saved_ns: Int64s) -> Flags:
    """Tell at which drains the wait is part of what a later drain saves.

    The CPU waits longer then than it saves itself, and a later drain of its sequence
    saves more than it waits. One flag per drain.
    """
    needs_earlier_wait = saved_ns > waits.ns
    has_wait_left = waits.ns > saved_ns
    helps_later = np.zeros(len(saved_ns), dtype=np.bool_)
    for drains_of_sequence in grouped(waits.sequence).members_of_each():
        needing = drains_of_sequence[needs_earlier_wait[drains_of_sequence]]
        if len(needing):
            is_earlier = drains_of_sequence < needing[-1]
            helps_later[drains_of_sequence[is_earlier]] = True

    return has_wait_left & helps_later


def _name_costliest_calls(
    facts: Facts, calls: Rows, lost_ns: Int64s, saved_ns: Int64s
) -> str:
    """Name the call after which the GPU waits longest, and the one that costs most.

    Often this is one call.
    """
    of_loss = _name_longest_call(facts.trace, calls, lost_ns)
    of_saving = _name_longest_call(facts.trace, calls, saved_ns)
    return of_loss if of_loss == of_saving else f"{of_loss} and {of_saving}"


def _name_longest_call(trace: Trace, calls: Rows, ns: Int64s) -> str:
    """Name the call with most of some time: `cudaStreamSynchronize (aten::item)`.

    The op around most of the time of that name is added, if there is one.

    Args:
        calls: Calls, as rows of the trace.
        ns: The time of each call.
    """
    heaviest = find_heaviest_call(trace, calls, ns)
    text = printable(heaviest.name[:MAX_NAME_CHARACTERS])
    if heaviest.op is None:
        return text
    return f"{text} ({format_frame(heaviest.op)})"


def _drop_preparing_calls(facts: Facts, calls: Rows) -> Rows:
    """Replace calls that prepare the program by -1.

    Such a call lies in the warm-up, as in the search for algorithms, or before the
    first kernel.

    Args:
        calls: One call for each gap, as a row of the trace; -1 for none.
    """
    start_ns = _get_starts(facts, calls)
    is_in_warm_up = facts.warm_up_time.place_of(start_ns) != NO_INTERVAL
    prepares = is_in_warm_up | facts.is_set_up_gap
    return np.where(prepares, NO_ROW, calls)


def _find_last_waits(facts: Facts) -> Rows:
    """Find the last call before each gap's launch in which the CPU waited for the GPU.

    It was begun after the launch that ended the gap before, by the launching thread or
    by the other one of its pair.

    Returns:
        A row of the trace for each gap, NO_ROW for none.
    """
    gaps = facts.gaps
    previous_launch_ns = np.roll(gaps.call_begin, 1)
    since_ns = np.where(_is_first_of_device(gaps), facts.begin_ns, previous_launch_ns)

    last_wait = np.full(len(gaps), NO_ROW, dtype=np.intp)
    for threads, gap_indices, on_axis in facts.group_gaps_by_axis():
        waits = threads.find_slices(ThreadActivity.SYNC)
        last_wait[gap_indices] = _find_last_begun(
            waits, after=on_axis(since_ns), before=on_axis(gaps.call_begin)
        )

    last_wait[~gaps.has_own_launch] = NO_ROW
    return last_wait


def _find_last_begun(slices: Slices, after: Int64s, before: Int64s) -> Rows:
    """Find the last slice that begins between two times, for each pair of times.

    All times lie on the axis of the threads, which puts the times of several threads
    one after another.

    Args:
        slices: The slices to choose from.
        after: The earlier time of each pair. A slice that begins then does not count.
        before: The later time of each pair. Likewise.

    Returns:
        Rows of the trace, NO_ROW for none.
    """
    last = last_before(slices.start, before)
    is_between = at(slices.start, last, missing=-FOREVER) > after
    return np.where(is_between, at(slices.rows, last, missing=NO_ROW), NO_ROW)


def _is_first_of_device(gaps: IdleGaps) -> Flags:
    """Tell which gaps are the first of their device; one flag per gap."""
    return begins_runs(gaps.device)


def _measure_waits_before(facts: Facts, gap_indices: Rows) -> WaitsBeforeDrains:
    """Measure how the CPU waited before each of some gaps.

    The waiting counts of the launching thread between its previous launch and the
    launch that ends the gap, or the begin of the gap if that launch came earlier. The
    previous launch is included, because a copy may block. No wait counts for two gaps.
    A thread of autograd's engine and the one that waits for it count as one thread.

    Args:
        gap_indices: The gaps, as ascending indices into those of `facts`.
    """
    trace = facts.trace
    launch = facts.gaps.launch[gap_indices]
    track = trace.track[launch]
    thread_pair = _number_thread_pairs(trace, launch)
    _, device_and_pair = distinct_rows((facts.gaps.device[gap_indices], thread_pair))
    by_device_and_pair = grouped(device_and_pair)

    until_ns = facts.gaps.call_begin[gap_indices]
    launch_before = _find_launches_before(trace, thread_pair, until_ns)
    launched_ns = _get_starts(facts, launch_before)

    # What the previous gap of the group counts, up to its own launch, is not new.
    counted_until_ns = _take_previous_in_group(
        by_device_and_pair, until_ns, at_first=launched_ns
    )
    since_ns = np.minimum(np.maximum(launched_ns, counted_until_ns), until_ns)

    # Waits between the two belong to no gap; the CPU may have lost its lead in them.
    uncounted_since_ns = np.minimum(counted_until_ns, since_ns)
    uncounted_ns = _measure_waiting_ns(facts, track, uncounted_since_ns, since_ns)

    return WaitsBeforeDrains(
        ns=_measure_waiting_ns(facts, track, since_ns, until_ns),
        sequence=_number_sequences(by_device_and_pair, begins=uncounted_ns > 0),
        launch_before=launch_before,
    )


def _measure_waiting_ns(
    facts: Facts, tracks: NDArray[np.integer], begin_ns: Int64s, end_ns: Int64s
) -> Int64s:
    """Measure how long threads waited for the device in some intervals.

    Args:
        tracks: A track of the thread of each interval.
        begin_ns: The begins of the intervals, in ns of the file.
        end_ns: Their ends.

    Returns:
        ns for each interval.
    """
    waited_ns = np.zeros(len(tracks), dtype=np.int64)
    for threads in facts.accounts.launchers:
        of_axis = np.flatnonzero(threads.tracks[tracks])
        begin = threads.convert_to_axis(tracks[of_axis], begin_ns[of_axis])
        end = threads.convert_to_axis(tracks[of_axis], end_ns[of_axis])
        waiting = threads.covers[ThreadActivity.SYNC]
        waited_ns[of_axis] = waiting.within(begin, end)

    return waited_ns


def _take_previous_in_group(groups: Groups, values: Int64s, at_first: Int64s) -> Int64s:
    """Return for each gap the value of the gap before it in its group.

    In this example, gaps 0 and 2 are one group, and gap 1 is another:

    >>> groups = grouped(np.array([1, 0, 1]))
    >>> values, at_first = np.array([10, 20, 30]), np.array([1, 2, 3])
    >>> _take_previous_in_group(groups, values, at_first).tolist()
    [1, 2, 10]

    Args:
        groups: The gaps by group, in order of time.
        values: A value for each gap.
        at_first: What a gap gets that is the first of its group; a value for each gap.
    """
    previous_in_order = np.roll(values[groups.order], 1)
    previous_in_order[groups.begins[:-1]] = at_first[groups.first]

    previous = np.empty(len(values), dtype=np.int64)
    previous[groups.order] = previous_in_order
    return previous


def _number_sequences(groups: Groups, begins: Flags) -> Int64s:
    """Number the sequences of gaps, and return the number of each gap's sequence.

    >>> groups = grouped(np.array([1, 0, 1]))
    >>> _number_sequences(groups, begins=np.array([False, False, True])).tolist()
    [1, 0, 2]

    Args:
        groups: The gaps by group, in order of time. A sequence lies in one group.
        begins: True for the gaps with which a sequence begins. One begins with each
            group, too.
    """
    begins_in_order = begins[groups.order]
    begins_in_order[groups.begins[:-1]] = True

    sequence = np.empty(len(begins), dtype=np.int64)
    sequence[groups.order] = np.cumsum(begins_in_order) - 1
    return sequence


def _find_launches_before(trace: Trace, thread_pair: Rows, until_ns: Int64s) -> Rows:
    """Find the last call before each of some times that launches GPU work on a thread.

    Args:
        thread_pair: The thread of each time, as a number of `_number_thread_pairs`.
        until_ns: The times, in ns of the file.

    Returns:
        A row of the trace for each time, NO_ROW for none.
    """
    calls = distinct(trace.launch[trace.gpu_rows].astype(np.int64))
    calls = calls[calls != NO_ROW]
    calls = calls[np.argsort(trace.start[calls], kind="stable")]
    pair_of_call = _number_thread_pairs(trace, calls)

    launch_before = np.full(len(until_ns), NO_ROW, dtype=np.intp)
    for pair in distinct(thread_pair).tolist():
        times_of_pair = np.flatnonzero(thread_pair == pair)
        calls_of_pair = calls[pair_of_call == pair]
        last = last_before(trace.start[calls_of_pair], until_ns[times_of_pair])
        launch_before[times_of_pair] = at(calls_of_pair, last, missing=NO_ROW)

    return launch_before


def _find_waiting_calls(facts: Facts, gap_indices: Rows, launch_before: Rows) -> Rows:
    """Find all calls whose waits count for some gaps, and the launches before the gaps.

    A wait counts if it lies between the previous launch and the one that ends the gap,
    on the launching thread or on the other one of its pair (autograd's engine and the
    thread that waits for it). The launches before are added whether they wait or not: a
    copy that blocks often has a synchronization behind it, which would wait instead.

    Args:
        gap_indices: The gaps, as indices into those of `facts`.
        launch_before: The launch before each, as a row of the trace; -1 for none.

    Returns:
        Rows of the trace, ascending.
    """
    trace = facts.trace
    gaps = facts.gaps
    waits = np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC)
    waits = waits[np.argsort(trace.start[waits], kind="stable")]
    wait_start_ns = trace.start[waits]

    since_ns = _get_starts(facts, launch_before)
    until_ns = np.maximum(gaps.call_begin[gap_indices], gaps.begin[gap_indices])

    # The waits of all threads in the time of each gap, one gap after the other.
    first_wait = count_below(wait_start_ns, since_ns)
    after_last_wait = count_below(wait_start_ns, until_ns)
    waits_of_gap = np.maximum(after_last_wait - first_wait, 0)  # since may be > until
    waits_in_gaps = waits[ranges(first_wait, waits_of_gap)]

    # Of these, the waits on the threads that launch at the end of the gap.
    pair_of_gap = _number_thread_pairs(trace, gaps.launch[gap_indices])
    pair_of_wait = _number_thread_pairs(trace, waits_in_gaps)
    is_of_same_pair = pair_of_wait == np.repeat(pair_of_gap, waits_of_gap)
    own_waits = waits_in_gaps[is_of_same_pair]
    known_launches = launch_before[launch_before != NO_ROW]

    return distinct(np.append(own_waits, known_launches))


def _get_starts(facts: Facts, calls: Rows) -> Int64s:
    """Return when some calls start, in ns of the file.

    Args:
        calls: Rows of the trace; NO_ROW gets the begin of the time that is asked about.
    """
    is_call = calls != NO_ROW
    return np.where(is_call, facts.trace.start[calls], facts.begin_ns)


def _number_thread_pairs(trace: Trace, rows: NDArray[np.integer]) -> Rows:
    """Return the number of each row's thread, which the two threads of a pair share.

    A pair is a thread of autograd's engine and the one that waits for it; see
    `number_thread_pairs`. Any other thread has a number of its own.
    """
    thread = trace.thread_of(rows)
    pair: Rows = number_thread_pairs(trace)[thread]
    return pair


def _was_cpu_ahead(facts: Facts) -> Flags:
    """Tell before which gaps the CPU was ahead again.

    It was if some event that started since the gap before had LAUNCHES_AHEAD or more
    others behind it in the queue. One flag per gap.
    """
    gaps = facts.gaps
    previous_gap_end_ns = np.where(
        _is_first_of_device(gaps), facts.begin_ns, np.roll(gaps.end, 1)
    )

    was_ahead = np.zeros(len(gaps), dtype=np.bool_)
    first_device = 0
    for devices in facts.devices_by_axis:
        after_last_device = first_device + len(devices)
        gaps_of_axis = slice_between(gaps.device, first_device, after_last_device)

        device_on_axis = gaps.device[gaps_of_axis] - first_device
        starts = _Starts.find(facts.trace, devices)
        was_ahead[gaps_of_axis] = starts.was_ahead_between(
            begin=devices.convert_to_axis(
                device_on_axis, previous_gap_end_ns[gaps_of_axis]
            ),
            end=devices.convert_to_axis(device_on_axis, gaps.begin[gaps_of_axis]),
        )
        first_device = after_last_device

    return was_ahead


class _Starts(msgspec.Struct, frozen=True, eq=False):
    """When launched events start, and how many of them had enough others in the queue."""

    time: Int64s
    """The starts, ascending, as times on the axis of the devices."""
    ahead_before: Int64s
    """How many events before each index started with LAUNCHES_AHEAD or more in the
    queue.

    Shape [events + 1].
    """

    @classmethod
    def find(cls, trace: Trace, devices: Devices) -> _Starts:
        """Find when the launched events of some devices start, and how full the queue
        is then.

        The queue at a start holds the events that were launched by then and have not
        started. The CPU is ahead if they are LAUNCHES_AHEAD or more.
        """
        has_launch = trace.launch[devices.events] != NO_ROW
        events = devices.events[has_launch]
        start, _ = devices.place_events(events)
        launched_ns = trace.start[trace.launch[events]]
        launched = devices.convert_to_axis(
            devices.find_device_indices(events), launched_ns
        )

        launched_by_then = count_until(np.sort(launched), start)
        started_by_then = np.arange(1, len(events) + 1)  # the event itself too
        queue_length = launched_by_then - started_by_then

        return cls(time=start, ahead_before=prefix_sums(queue_length >= LAUNCHES_AHEAD))

    def was_ahead_between(self, begin: Int64s, end: Int64s) -> Flags:
        """Tell in which intervals an event starts with enough others in the queue.

        Args:
            begin: The begins of the intervals, as times on the axis.
            end: Their ends, which belong to the intervals.
        """
        ahead_before = self.ahead_before[count_below(self.time, begin)]
        ahead_until_end = self.ahead_before[count_until(self.time, end)]
        was_ahead: Flags = ahead_until_end > ahead_before
        return was_ahead
