"""The queue of the GPU runs dry while the CPU waits for the device: the CPU loses its
lead, and the GPU waits for the launches that follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.why.backward_threads import with_one_lead
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.devices import Devices
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.model import AsyncCalls
from fusetui.analysis.why.rule import Claim, Rule, of_span, why_likely
from fusetui.analysis.why.thread_activity import ThreadActivity, waiting_calls_at
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    summed,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, ranges

LAUNCHES_AHEAD: Final = 3
"""Launches in the queue; from this many on, the CPU is ahead again."""
MAX_NAME_CHARACTERS: Final = 200


@Rule(
    remedy="Keep .item(), .tolist(), nonzero(), torch.{intel:xpu|:cuda}.synchronize() and copies "
    "from pageable memory out of the loop; read results a step later, from pinned memory with "
    "non_blocking=True and an event.",
    thresholds={"lead": LAUNCHES_AHEAD},
    by_launches=True,
)
def drained_by_sync(facts: Facts) -> Iterator[Claim]:
    """One claim: what it costs that the CPU waits for the GPU and then launches too
    late. At stake is how much less the GPU would wait for launches if the CPU did not
    wait; see saved_by_lead. It is a part of the rule (cpu-work or host-bound) that
    claims most of the time that the GPU waits after such waits."""
    gaps = _drained_gaps(facts)
    lost_ns = _lost_ns(facts, gaps)
    waits = _waits_before(facts, gaps.runs_dry)
    saved_ns = saved_by_lead(waits, lost_ns)
    at_stake_ns = int(saved_ns.sum())
    if at_stake_ns <= 0:
        return
    all_lost_ns = int(lost_ns.sum())
    late_ns = facts.late.sum(axis=0)
    other_work_ns = int((late_ns * facts.busy_cpu)[gaps.is_behind].sum())
    calls = gaps.call[gaps.runs_dry]
    yield Claim(
        text=f"Waits in {_most_costly_calls(facts, calls, lost_ns, saved_ns)} drain the launch "
        f"queue {plural(int(np.count_nonzero(saved_ns)), 'time')}; the GPU then sits idle for "
        f"{duration(all_lost_ns)}. Launching instead of waiting would save up to "
        f"{of_span(facts, at_stake_ns)}.",
        at_stake_ns=at_stake_ns,
        wanted=AsyncCalls(_calls_to_change(facts, gaps, waits, saved_ns)),
        rows=the_most(calls, saved_ns),
        part_of="cpu-work" if 2 * other_work_ns > all_lost_ns else "host-bound",
        why_likely=why_likely(facts),
    )


class DrainedGaps(msgspec.Struct, frozen=True, eq=False):
    """Which gaps follow a wait that drained the queue; arrays of shape [gaps]."""

    call: Rows
    """The call in which the CPU waited when the queue ran dry; -1 for none."""
    is_behind: Flags
    """Whether the CPU has no lead: from such a gap on until it is ahead again."""

    @property
    def runs_dry(self) -> Rows:
        """The gaps with a call, in order: each is a time that a queue ran dry."""
        return np.flatnonzero(self.call >= 0)


def _drained_gaps(facts: Facts) -> DrainedGaps:
    """The gaps of all devices that follow a wait of the CPU after which it had no lead:
    each run of them from the gap in which the queue ran dry until the CPU is ahead
    again, or waits without the queue running dry."""
    trace = facts.trace
    idle = facts.idle
    waiting_in = waiting_calls_at(
        trace, facts.accounts.launchers, idle.launch, idle.begin
    )
    call = _without_preparation(facts, waiting_in)
    last_wait = _last_waits(facts)
    has_wait = last_wait >= 0
    waits_within = has_wait & (trace.end[last_wait] > idle.begin)
    ends_run = _ahead_before(facts) | (has_wait & ~waits_within)
    is_behind = _in_runs(call >= 0, ends_run, idle.device)
    # Another wait, while the queue is empty: what follows is lost after that one.
    within = _without_preparation(facts, np.where(waits_within, last_wait, -1))
    call_or_within = np.where(is_behind & (call < 0), within, call)
    return DrainedGaps(call=call_or_within, is_behind=is_behind)


def _in_runs(begins: Flags, ends: Flags, device: Int32s) -> Flags:
    """Whether each gap lies in a run of gaps; shape [gaps]. A run of gaps of one device
    begins with a gap of `begins`, which belongs to it even if it is one of `ends` too,
    and ends before the next one of `ends`. `device`: that of each gap, ascending."""
    is_edge = begins | ends
    edges = np.where(is_edge, np.arange(len(is_edge)), -1)
    last_edge = np.maximum.accumulate(edges)  # at each gap or before it, -1 for none
    first_of_device = device.searchsorted(device)
    is_in_run: Flags = (last_edge >= first_of_device) & begins[last_edge]
    return is_in_run


def _lost_ns(facts: Facts, gaps: DrainedGaps) -> Int64s:
    """For each time that a queue ran dry, for how long the GPU then waited for launches
    (ns, shape [times]): in its gaps until the CPU was ahead again, or until the next
    such time."""
    behind = np.flatnonzero(gaps.is_behind)
    runs_dry = gaps.runs_dry
    time_of_gap = np.searchsorted(runs_dry, behind, side="right") - 1
    late_ns = facts.late.sum(axis=0)
    return summed(time_of_gap, late_ns[behind], len(runs_dry))


class Waits(msgspec.Struct, frozen=True, eq=False):
    """How the CPU waited at each time that a queue ran dry; arrays of shape [times]."""

    ns: Int64s
    """For how long; no time counts twice."""
    sequence: Int64s
    """A number: of the same device and thread (see with_one_lead), with no other wait
    between them."""
    launch_before: Rows
    """The launch call before the wait, -1 for none."""


def saved_by_lead(waits: Waits, lost_ns: Int64s) -> Int64s:
    """How much less the GPU would wait for launches at each time if the CPU did not
    wait (ns, of shape [times]), where it waited `lost_ns`.

    A CPU that does not wait is ahead by all the time for which it waited so far. The
    GPU waits less by as much, and what is left of that is for the next times: if one
    wait is long, and the GPU loses much after the next one, both together cost that.
    Another wait would end the lead.
    """
    saved_ns = np.zeros(len(lost_ns), dtype=np.int64)
    lead_ns = 0
    sequence = -1
    for time in np.argsort(waits.sequence, kind="stable").tolist():
        if waits.sequence[time] != sequence:
            sequence = int(waits.sequence[time])
            lead_ns = 0
        lead_ns += int(waits.ns[time])
        saved_ns[time] = min(lead_ns, int(lost_ns[time]))
        lead_ns -= int(saved_ns[time])
    return saved_ns


def _calls_to_change(
    facts: Facts, gaps: DrainedGaps, waits: Waits, saved_ns: Int64s
) -> Rows:
    """The calls in which threads must not wait, so that the GPU waits less by what is
    saved."""
    counts = (saved_ns > 0) | _saves_later(waits, saved_ns)
    runs_dry = gaps.runs_dry[counts]
    launch_before = waits.launch_before[counts]
    also_waiting = _calls_that_wait(facts, runs_dry, launch_before)
    return distinct(np.append(gaps.call[runs_dry], also_waiting))


def _saves_later(waits: Waits, saved_ns: Int64s) -> Flags:
    """The times whose wait is part of what a later one of its sequence saves."""
    needs_more = saved_ns > waits.ns
    last = np.full(int(waits.sequence.max(initial=-1)) + 1, -1)
    np.maximum.at(last, waits.sequence[needs_more], np.flatnonzero(needs_more))
    is_before = np.arange(len(saved_ns)) < last[waits.sequence]
    saves_later: Flags = is_before & (waits.ns > saved_ns)
    return saves_later


def _most_costly_calls(
    facts: Facts, calls: Rows, lost_ns: Int64s, saved_ns: Int64s
) -> str:
    """The call after which the GPU waits longest, and the one whose waiting costs most,
    if that is another one."""
    of_loss = _named_call(facts, calls, lost_ns)
    of_saving = _named_call(facts, calls, saved_ns)
    return of_loss if of_loss == of_saving else f"{of_loss} and {of_saving}"


def _named_call(facts: Facts, calls: Rows, ns: Int64s) -> str:
    """`cudaStreamSynchronize (aten::item)`: of some calls, the name that has most of a
    time (`ns`, of each call), and the op around most of that, if there is one."""
    trace = facts.trace
    names = trace.name[calls]
    name = int(np.bincount(names, ns, len(trace.names)).argmax())
    has_name = names == name
    text = printable(trace.names[name][:MAX_NAME_CHARACTERS])
    ops = trace.op[calls[has_name]]  # -1 for none
    ns_of_op = np.bincount(ops + 1, ns[has_name])  # the first one of no op
    op = int(ns_of_op.argmax()) - 1
    if op < 0:
        return text
    return f"{text} ({frame_text(trace.name_of(op))})"


def _without_preparation(facts: Facts, calls: Rows) -> Rows:
    """These calls, one of each gap (-1 for none), with -1 in place of those that
    prepare the program: in the warm-up (such as the search for algorithms), and before
    the first kernel."""
    is_call = calls >= 0
    start_ns = np.where(is_call, facts.trace.start[calls], facts.begin_ns)
    is_warm_up = is_call & (facts.warming.place_of(start_ns) >= 0)
    without_warm_up: Rows = np.where(is_warm_up | facts.set_up, -1, calls)
    return without_warm_up


def _last_waits(facts: Facts) -> Rows:
    """The last call in which the CPU waited for the device before each gap's launch, -1
    for none; shape [gaps]. It was begun by the launching thread, or the other one of
    its pair, after the launch that ended the gap before."""
    idle = facts.idle
    is_first = np.diff(idle.device, prepend=-1) > 0
    since_ns = np.where(is_first, facts.begin_ns, np.roll(idle.called, 1))
    last_wait = np.full(len(idle), -1, dtype=np.intp)
    for line, gaps, placed in facts.launched():
        waits = line.slices(ThreadActivity.SYNC)
        # -1 for no wait before the launch: then the element counts that is appended
        last = waits.start.searchsorted(placed(idle.called)) - 1
        start_of_last = np.append(waits.start, -FOREVER)[last]
        row_of_last = np.append(waits.rows, -1)[last]
        is_since = start_of_last > placed(since_ns)
        last_wait[gaps] = np.where(is_since, row_of_last, -1)
    last_wait[~idle.plain] = -1
    return last_wait


def _waits_before(facts: Facts, gaps: Rows) -> Waits:
    """How the CPU waited before each of these gaps (in order): for how long the
    launching thread waited between its previous launch and the launch that ends the
    gap, or the begin of the gap if that launch came earlier. The previous launch is
    included, because a copy may block. No wait counts for two gaps. A thread of
    autograd's engine and the one that waits for it count as one thread."""
    trace = facts.trace
    idle = facts.idle
    tracks = trace.track[idle.launch[gaps]]
    thread = with_one_lead(trace)[trace.thread_of_track[tracks]]
    group = distinct_rows((idle.device[gaps], thread))[1]
    by_group = np.argsort(group, kind="stable")
    is_first_of_group = np.diff(group[by_group], prepend=-1) != 0

    until_ns = idle.called[gaps]
    launch_before = _launches_before(trace, thread, until_ns)
    launched_ns = np.where(
        launch_before >= 0, trace.start[launch_before], facts.begin_ns
    )
    counted_until_ns = np.empty(len(gaps), dtype=np.int64)  # for the gap before
    counted_until_ns[by_group] = np.where(
        is_first_of_group, launched_ns[by_group], np.roll(until_ns[by_group], 1)
    )
    since_ns = np.minimum(np.maximum(launched_ns, counted_until_ns), until_ns)

    ns = np.zeros(len(gaps), dtype=np.int64)
    between_ns = np.zeros(len(gaps), dtype=np.int64)  # that no gap counts
    for line in facts.accounts.launchers:
        of_line = np.flatnonzero(line.tracks[tracks])
        own_tracks = tracks[of_line]
        counted_until = line.on_line(
            own_tracks, np.minimum(counted_until_ns, since_ns)[of_line]
        )
        since = line.on_line(own_tracks, since_ns[of_line])
        until = line.on_line(own_tracks, until_ns[of_line])
        waiting = line.covers[ThreadActivity.SYNC]
        between_ns[of_line] = waiting.within(counted_until, since)
        ns[of_line] = waiting.within(since, until)

    begins_sequence = is_first_of_group | (between_ns[by_group] > 0)
    sequence = np.empty(len(gaps), dtype=np.int64)
    sequence[by_group] = np.cumsum(begins_sequence) - 1
    return Waits(ns=ns, sequence=sequence, launch_before=launch_before)


def _launches_before(trace: Trace, thread: Rows, until_ns: Int64s) -> Rows:
    """The last call before each time (ns of the file) that launches work on a thread,
    by the numbers of with_one_lead; -1 for none."""
    calls = distinct(trace.launch[trace.gpu_rows].astype(np.int64))
    calls = calls[calls >= 0]
    calls = calls[np.argsort(trace.start[calls], kind="stable")]
    launching_thread = with_one_lead(trace)[trace.thread_of_track[trace.track[calls]]]
    last = np.full(len(until_ns), -1, dtype=np.intp)
    for number in distinct(thread).tolist():
        times = np.flatnonzero(thread == number)
        own_calls = calls[launching_thread == number]
        place = np.searchsorted(trace.start[own_calls], until_ns[times]) - 1
        last[times] = np.append(own_calls, -1)[place]
    return last


def _calls_that_wait(facts: Facts, gaps: Rows, launch_before: Rows) -> Rows:
    """All calls whose waits count for these gaps, and the launches before the gaps.

    A wait counts if it lies between the previous launch and the one that ends the gap, on
    the launching thread or on the other one of its pair (autograd's engine and the thread
    that waits for it). The launches before are added whether they wait or not: a copy that
    blocks often has a synchronization behind it, which would wait instead."""
    trace = facts.trace
    idle = facts.idle
    pair_of_thread = with_one_lead(trace)
    waiting = np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC)
    waiting = waiting[np.argsort(trace.start[waiting], kind="stable")]
    pair_of_wait = pair_of_thread[trace.thread_of_track[trace.track[waiting]]]
    pair_of_gap = pair_of_thread[trace.thread_of_track[trace.track[idle.launch[gaps]]]]
    has_launch = launch_before >= 0
    since_ns = np.where(has_launch, trace.start[launch_before], facts.begin_ns)
    until_ns = np.maximum(idle.called[gaps], idle.begin[gaps])
    first = np.searchsorted(trace.start[waiting], since_ns)
    end = np.searchsorted(trace.start[waiting], until_ns)
    # the waits of all threads in the time of each gap, one gap after the other
    counts = np.maximum(end - first, 0)
    candidates = ranges(first, counts)
    is_of_pair = pair_of_wait[candidates] == np.repeat(pair_of_gap, counts)
    waits = waiting[candidates[is_of_pair]]
    return distinct(np.append(waits, launch_before[has_launch]))


def _ahead_before(facts: Facts) -> Flags:
    """Whether the CPU was ahead again before each gap: some event that started since
    the gap before it had LAUNCHES_AHEAD or more others behind it in the queue; shape
    [gaps]."""
    idle = facts.idle
    is_first = np.diff(idle.device, prepend=-1) > 0
    previous_end_ns = np.concatenate(([facts.begin_ns], idle.end))[:-1]
    previous_end_ns[is_first] = facts.begin_ns
    was_ahead = np.zeros(len(idle), dtype=np.bool_)
    first_device = 0
    for devices in facts.lines:
        edges = idle.device.searchsorted((first_device, first_device + len(devices)))
        gaps = slice(*edges.tolist())
        number = idle.device[gaps] - first_device
        starts = _Starts.of(facts.trace, devices)
        until = devices.on_line(number, idle.begin[gaps])
        since = devices.on_line(number, previous_end_ns[gaps])
        was_ahead[gaps] = starts.ahead_between(since, until)
        first_device += len(devices)
    return was_ahead


class _Starts(msgspec.Struct, frozen=True, eq=False):
    """When launched events start, on a line of time, and how many of them had enough
    others behind them in the queue."""

    time: Int64s
    """In order."""
    ahead: Int64s
    """How many before each place started with LAUNCHES_AHEAD or more in the queue;
    shape [events + 1]."""

    @classmethod
    def of(cls, trace: Trace, devices: Devices) -> _Starts:
        """The starts of all launched events on the line of time of these devices."""
        rows = devices.events[trace.launch[devices.events] >= 0]
        start = devices.bounds_on(rows)[0]
        launched_ns = trace.start[trace.launch[rows]]
        launched = np.sort(devices.on_line(devices.number(rows), launched_ns))
        launched_by_then = np.searchsorted(launched, start, side="right")
        started_by_then = np.arange(1, len(rows) + 1)  # the event itself too
        is_ahead = launched_by_then - started_by_then >= LAUNCHES_AHEAD
        ahead = np.concatenate(([0], np.cumsum(is_ahead)))
        return cls(time=start, ahead=ahead)

    def ahead_between(self, since: Int64s, until: Int64s) -> Flags:
        """Whether any event that starts in [since, until] had enough others behind it
        in the queue; shape of `since`, which are times on the line."""
        last = np.searchsorted(self.time, until, side="right")
        first = np.searchsorted(self.time, since)
        was_ahead: Flags = self.ahead[last] > self.ahead[first]
        return was_ahead
