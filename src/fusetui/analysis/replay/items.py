"""GPU work in the order of its streams, and what calls and other work wait for.

An *item* is a kernel, copy or set. A stream is *given* an item when the call that
launches it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.replay.graph import Node
from fusetui.analysis.replay.thread_cuts import FREES, ThreadCuts
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import (
    Flags,
    Int32s,
    Int64s,
    Rows,
    at,
    distinct,
    first_with,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.program.backward import dependencies

OF_DEVICE = lazy_pattern(rf"(?:Device|Ctx|Context)Synchronize|{FREES.pattern}")
OF_EVENT = lazy_pattern(r"EventSynchronize")
SYNCHRONIZES = lazy_pattern(r"Synchronize")
TO_DEVICE = lazy_pattern(r"HtoD|HostToDevice")
WAITS_ON = ("wait_on_stream", "wait_on_cuda_event_record_corr_id")
MIN_SLOW_LAUNCHES = 3
"""Launch calls that waited for room, from which on a queue counts as full."""
SLOW_LAUNCH_FACTOR = 2
"""A launch call that takes so many times the median waited for room."""
MAX_CLOCK_SKEW_NS = 20_000
"""By which the clocks of CPU and device may differ."""
MAX_SWITCH_NS = 10_000
"""Queued items that start so soon after the one before tell the usual switch."""
MAX_EVENT_DELAY_NS = 25_000
"""What waits for an event after an item starts so soon after its end."""
WAITS_EVENT = lazy_pattern(r"StreamWaitEvent")
NONE = -1


class Items(msgspec.Struct, frozen=True, eq=False):
    """GPU events sorted by stream and start.

    Arrays have one entry per item unless noted. Times are ns of the file.
    """

    rows: Rows
    start: Int64s
    end: Int64s
    cut: Rows  # of the launch call, -1: not known
    # when that begins; where it is not known, as for the one before on its stream
    given: Int64s
    streams: Rows  # per stream: its number as in Trace.thread_of_track
    bounds: Rows  # where the items of each stream begin, then their number
    # the items of each stream in the order in which they were given to it
    by_given: Rows
    latest: Rows  # for each of these the one that ends last of it and those before
    process: Rows  # per stream: which process gave it its work, -1: not known

    def before(self, stream: int, times: Int64s, ended: Int64s | None = None) -> Rows:
        """Find the item that ends last of those that a stream was given before a time.

        Args:
            stream: The index of the stream.
            times: The times.
            ended: If given, only the first items count, in the order in which they were
                given, up to the last one after which all so far had ended by this time.
                An item that ends later than one given after it hides that one.

        Returns:
            An item for each time, -1 for none.
        """
        of_stream = slice(self.bounds[stream], self.bounds[stream + 1])
        latest = self.latest[of_stream]
        given = self.given[self.by_given[of_stream]]
        count = np.searchsorted(given, times)
        if ended is not None:
            count_ended = np.searchsorted(self.end[latest], ended, side="right")
            count = np.minimum(count, count_ended)
        last: Rows = at(latest, count - 1, missing=NONE)
        return last

    def after(self, stream: int, times: Int64s) -> Rows:
        """Find the first item that a stream was given after each time; -1 for none."""
        by_given = self.by_given[self.bounds[stream] : self.bounds[stream + 1]]
        index = np.searchsorted(self.given[by_given], times)
        next_item: Rows = at(by_given, index, missing=NONE)
        return next_item

    def stream_of(self, items: Rows) -> Rows:
        """Return the index of the stream of each item."""
        return np.searchsorted(self.bounds, items, side="right") - 1


class WaitPairs(NamedTuple):
    """Pairs of something that waits and the item that it waits for."""

    target: Rows  # what waits: a cut or an item
    item: Rows


class _Order(NamedTuple):
    """GPU events sorted by stream, then by start."""

    rows: Rows
    stream: Int32s  # of each event, as in Trace.thread_of_track
    streams: Rows  # the distinct ones
    bounds: Rows  # see Items.bounds


class _Launches(NamedTuple):
    """The call that launched each item."""

    row: Int32s  # of the call; only meaningful where `cut` is not -1
    cut: Rows  # see Items.cut


def items_of(trace: Trace, cuts: ThreadCuts) -> Items:
    """Sort all GPU events of a trace by stream and start, with their launches."""
    order = _by_stream_and_start(trace)
    start = trace.start[order.rows]
    end = trace.end[order.rows]
    launches = _launches(trace, cuts, order.rows)
    given = _given(trace, launches, order.bounds)
    by_given = np.lexsort((np.arange(len(order.rows)), given, order.stream))
    return Items(
        rows=order.rows,
        start=start,
        end=end,
        cut=launches.cut,
        given=given,
        streams=order.streams,
        bounds=order.bounds,
        by_given=by_given,
        latest=_latest_of_streams(by_given, end, order.bounds),
        process=_launching_processes(trace, launches, order.bounds),
    )


def _by_stream_and_start(trace: Trace) -> _Order:
    """Sort the GPU events by stream, those of a stream by start and then by end."""
    gpu_rows = trace.gpu_rows
    stream = trace.thread_of_track[trace.track[gpu_rows]]
    order = np.lexsort((trace.end[gpu_rows], trace.start[gpu_rows], stream))
    sorted_stream = stream[order]

    streams = distinct(sorted_stream).astype(np.intp)
    after_last = streams[-1:] + 1  # empty if there are no streams
    return _Order(
        rows=gpu_rows[order],
        stream=sorted_stream,
        streams=streams,
        bounds=np.searchsorted(sorted_stream, np.append(streams, after_last)),
    )


def _launches(trace: Trace, cuts: ThreadCuts, rows: Rows) -> _Launches:
    """Find the launch calls of some GPU events.

    A call that begins after the event that it is said to launch counts as unknown.
    """
    call = trace.launch[rows]
    is_known = (call >= 0) & (trace.start[call] <= trace.start[rows])
    cut = np.where(is_known, cuts.cut_of_row[call], NONE)
    return _Launches(row=call, cut=cut)


def _given(trace: Trace, launches: _Launches, bounds: Rows) -> Int64s:
    """Determine when each item was given to its stream: when its launch call began.

    If the call is unknown, the time of the item before it on its stream is taken, or
    else the begin of the trace.

    Args:
        trace: The trace.
        launches: The launch calls of the items.
        bounds: See Items.bounds.

    Returns:
        ns per item.
    """
    item_indices = np.arange(len(launches.cut))
    has_launch = launches.cut >= 0
    last_launched = np.maximum.accumulate(np.where(has_launch, item_indices, NONE))

    first_of_stream = np.repeat(bounds[:-1], np.diff(bounds))
    is_on_stream = last_launched >= first_of_stream
    launched_at = trace.start[launches.row[last_launched]]
    return np.where(is_on_stream, launched_at, trace.begin_ns)


def _latest_of_streams(by_given: Rows, end: Int64s, bounds: Rows) -> Rows:
    """Compute Items.latest."""
    latest = by_given.copy()
    for first, stop in pairwise(bounds.tolist()):
        latest[first:stop] = _latest_so_far(by_given[first:stop], end)
    return latest


def _launching_processes(trace: Trace, launches: _Launches, bounds: Rows) -> Rows:
    """Find the process that launched the work of each stream; -1 if it is unknown.

    The first item with a known launch decides.
    """
    process = np.full(len(bounds[:-1]), NONE)
    for stream, (first, stop) in enumerate(pairwise(bounds.tolist())):
        has_launch = launches.cut[first:stop] >= 0
        calls = launches.row[first:stop][has_launch]
        if len(calls):
            process[stream] = trace.process_of_track[trace.track[calls[0]]]
    return process


def _latest_so_far(items: Rows, end: Int64s) -> Rows:
    """Return for each item the one that ends last of it and those before it.

    Args:
        items: The items.
        end: The end of every item.
    """
    ends = end[items]
    is_latest = ends >= np.maximum.accumulate(ends)
    index_if_latest = np.where(is_latest, np.arange(len(items)), 0)
    index_of_latest = np.maximum.accumulate(index_if_latest)
    return items[index_of_latest]


class Syncs(NamedTuple):
    """The waits that CUPTI recorded on the device; one entry per wait.

    Streams are indices into Items.streams; -1 stands for unknown.
    """

    call: Int32s  # the row of the call, -1: none
    stream: Rows
    awaited: Rows  # of a wait for an event: the stream on which it was recorded
    recorded: Rows  # of a wait for an event: the row of the call that recorded it
    of_event: Flags  # whether it is a wait for an event


def syncs_of(trace: Trace, items: Items) -> Syncs:
    """Return the waits that CUPTI recorded on the device.

    Waits for an event say in their args where the event was recorded.
    """
    rows = trace.rows_of(Role.SYNC)
    rows = rows[trace.correlation[rows] > 0]
    index_of_stream = np.full(len(trace.tracks) + 1, NONE)
    index_of_stream[items.streams] = np.arange(len(items.streams))

    of_event = trace.matching(rows, re.compile("Event").search)
    recorded = _recorded_events(trace, rows, np.flatnonzero(of_event))
    calls = trace.rows_of(Role.CALL)
    correlation_of_call = trace.correlation[calls]
    recording_call = first_with(correlation_of_call, calls, recorded.correlation)
    return Syncs(
        call=first_with(correlation_of_call, calls, trace.correlation[rows]),
        stream=index_of_stream[trace.thread_of_track[trace.track[rows]]],
        awaited=np.where(recorded.thread >= 0, index_of_stream[recorded.thread], NONE),
        recorded=np.where(recorded.correlation > 0, recording_call, NONE),
        of_event=of_event,
    )


class _RecordedEvents(NamedTuple):
    """Where the event was recorded that each wait is for; -1 where unknown."""

    thread: Rows  # of the stream, as in Trace.thread_of_track
    correlation: Rows  # of the call


def _recorded_events(trace: Trace, rows: Rows, of_event: Rows) -> _RecordedEvents:
    """Read from args where the events were recorded that waits are for.

    Args:
        trace: The trace.
        rows: The waits.
        of_event: The indices in `rows` of waits for an event. Only their args are read.

    Returns:
        One entry for each of `rows`.
    """
    thread = np.full(len(rows), NONE)
    correlation = np.full(len(rows), NONE)
    if not len(of_event):
        return _RecordedEvents(thread=thread, correlation=correlation)

    args = arguments(trace.elements.own, trace.order[rows[of_event]], WAITS_ON)
    thread_of_lane = _thread_of_lane(trace)
    for sync, number in zip(of_event.tolist(), args.number.tolist(), strict=True):
        if number < 0:
            continue
        stream_text, correlation_text = args.distinct[number]
        device = str(trace.track_of(int(rows[sync])).pid)
        lane = (device, str(parsed(stream_text)))
        thread[sync] = thread_of_lane.get(lane, NONE)
        recorded_by = parsed(correlation_text)
        if type(recorded_by) is int:
            correlation[sync] = recorded_by
    return _RecordedEvents(thread=thread, correlation=correlation)


def _thread_of_lane(trace: Trace) -> dict[tuple[str, str], int]:
    """Return the number of each lane, as in Trace.thread_of_track, by its pid and tid.

    Both are texts.
    """
    lanes = ((str(track.pid), str(track.tid)) for track in trace.tracks)
    return dict(zip(lanes, trace.thread_of_track.tolist(), strict=True))


class _WaitingCalls(NamedTuple):
    """Calls that wait for the device; one entry per call, times in ns."""

    cut: Rows
    row: Rows
    begin: Int64s
    end: Int64s
    process: Int32s
    for_device: Flags  # and so for all streams
    for_event: Flags
    is_synchronization: Flags


class AwaitedByCalls(NamedTuple):
    """The items that waiting calls wait for."""

    pairs: list[WaitPairs]
    inferred: int  # how many calls wait for what was inferred, not recorded


class _Synchronizations(NamedTuple):
    """What was recorded about each waiting call."""

    stream: Rows  # the index of the stream that it waits for
    since: Rows  # it waits for what that stream was given before this row
    is_recorded: Flags  # it waits for one stream, and the two above are known
    is_unknown: Flags  # it waits for one stream or event, and nothing says for which


def awaited_by_calls(
    trace: Trace, cuts: ThreadCuts, items: Items, syncs: Syncs
) -> AwaitedByCalls:
    """Find the items that each waiting call waits for.

    A call that waits for a device waits for all its streams. For a call that waits for
    one stream or event, it is recorded which one, or else inferred: of the items that
    fit, the one that ends last.
    """
    calls = _waiting_calls(trace, cuts)
    recorded = _synchronizations(trace, calls, syncs)
    pairs = [_awaited_by_their_launch(trace, cuts, items)]
    inferred = np.full(len(calls.cut), NONE)
    for stream in range(len(items.streams)):
        given_before = items.before(stream, calls.begin)
        candidates = _candidates(items, calls, stream, given_before)
        for_device = candidates.fits_device & calls.for_device
        pairs.append(WaitPairs(calls.cut[for_device], given_before[for_device]))

        may_be_inferred = recorded.is_unknown & candidates.fits
        inferred = _later_end(items, inferred, candidates.item, may_be_inferred)

        on_stream = np.flatnonzero(recorded.is_recorded & (recorded.stream == stream))
        awaited = items.before(stream, trace.start[recorded.since[on_stream]])
        pairs.append(_known_pairs(target=calls.cut[on_stream], item=awaited))

    is_inferred = inferred >= 0
    pairs.append(WaitPairs(calls.cut[is_inferred], inferred[is_inferred]))
    return AwaitedByCalls(pairs=pairs, inferred=int(is_inferred.sum()))


def _later_end(items: Items, best: Rows, others: Rows, may_replace: Flags) -> Rows:
    """Replace items by others that end later.

    Args:
        items: All items.
        best: The best item so far of each entry, -1 for none.
        others: Another item for each entry.
        may_replace: Which entries may be replaced.
    """
    is_later = (best < 0) | (items.end[others] > items.end[best])
    return np.where(may_replace & is_later, others, best)


class _Candidates(NamedTuple):
    """The item of one stream that each waiting call may wait for."""

    item: Rows  # what a call for a stream or an event may wait for, -1: nothing
    fits: Flags  # it may indeed
    fits_device: Flags  # the call may wait for what the stream was given before it


def _candidates(
    items: Items, calls: _WaitingCalls, stream: int, given_before: Rows
) -> _Candidates:
    """Find the items of a stream that calls of its process may wait for.

    Args:
        items: All items.
        calls: The waiting calls.
        stream: The index of the stream.
        given_before: For each call the item that ends last of those that the stream was
            given before it.
    """
    process = items.process[stream]
    is_of_process = (process == calls.process) | (process < 0)
    ends_in_time = items.end[given_before] <= calls.end + MAX_CLOCK_SKEW_NS
    fits_device = is_of_process & (given_before >= 0) & ends_in_time

    # An event is recorded after only some of the items that the stream was given.
    ended_before = items.before(stream, calls.begin, calls.end)
    fits_event = is_of_process & (ended_before >= 0)
    return _Candidates(
        item=np.where(calls.for_event, ended_before, given_before),
        fits=np.where(calls.for_event, fits_event, fits_device),
        fits_device=fits_device,
    )


def _synchronizations(
    trace: Trace, calls: _WaitingCalls, syncs: Syncs
) -> _Synchronizations:
    """Look up what CUPTI recorded about the waiting calls."""
    waits = _recorded_waits(trace, syncs)
    stream = waits.stream[calls.row]
    for_one_stream = calls.is_synchronization & ~calls.for_device
    is_recorded = for_one_stream & (stream >= 0)
    return _Synchronizations(
        stream=stream,
        since=waits.since[calls.row],
        is_recorded=is_recorded,
        is_unknown=for_one_stream & ~is_recorded,
    )


def _waiting_calls(trace: Trace, cuts: ThreadCuts) -> _WaitingCalls:
    """Return the calls of all cuts that wait."""
    cut = np.flatnonzero(cuts.kind == Node.WAIT)
    row = cuts.row[cut]
    return _WaitingCalls(
        cut=cut,
        row=row,
        begin=cuts.begin[cut],
        end=cuts.end[cut],
        process=trace.process_of_track[trace.track[row]],
        for_device=trace.matching(row, OF_DEVICE.search),
        for_event=trace.matching(row, OF_EVENT.search),
        is_synchronization=trace.matching(row, SYNCHRONIZES.search),
    )


def _awaited_by_their_launch(trace: Trace, cuts: ThreadCuts, items: Items) -> WaitPairs:
    """Find the items for which the very call waits that launched them, such as copies.

    A copy to the device may end later than its call, which only fills a buffer. It does
    not count then.
    """
    no_kind = 0  # of items whose launch call is not known
    launched_by_wait = at(cuts.kind, items.cut, missing=no_kind) == Node.WAIT
    launched = np.flatnonzero(launched_by_wait)
    to_device = trace.matching(items.rows[launched], TO_DEVICE.search)
    skew_ns = np.where(to_device, 0, MAX_CLOCK_SKEW_NS)
    call_end = cuts.end[items.cut[launched]]
    awaited = launched[items.end[launched] <= call_end + skew_ns]
    return WaitPairs(items.cut[awaited], awaited)


class _RecordedWaits(NamedTuple):
    """What CUPTI says that each call waits for; one entry per row of the trace.

    -1 where it says nothing.
    """

    stream: Rows  # the index of the stream
    since: Rows  # it waits for what the stream was given before this row


def _recorded_waits(trace: Trace, syncs: Syncs) -> _RecordedWaits:
    """Look up what each call waits for.

    It waits for the end of what a stream was given before the call itself, or before
    the call that recorded the event it waits for.
    """
    awaited_stream = np.where(syncs.of_event, syncs.awaited, syncs.stream)
    awaited_since = np.where(syncs.of_event, syncs.recorded, syncs.call)
    is_known = (syncs.call >= 0) & (awaited_since >= 0)
    call = syncs.call[is_known]
    stream = np.full(len(trace), NONE)
    since = np.full(len(trace), NONE)
    stream[call] = awaited_stream[is_known]
    since[call] = awaited_since[is_known]
    return _RecordedWaits(stream=stream, since=since)


def awaited_by_items(trace: Trace, items: Items, syncs: Syncs) -> Iterator[WaitPairs]:
    """Yield what items were recorded to wait for.

    These are events of other streams, and the nodes before them in CUDA graphs.
    """
    has_streams = (syncs.stream >= 0) & (syncs.awaited >= 0)
    has_calls = (syncs.recorded >= 0) & (syncs.call >= 0)
    is_recorded = syncs.of_event & has_streams & has_calls
    sources = syncs.awaited[is_recorded].tolist()
    targets = syncs.stream[is_recorded].tolist()
    for source, target in sorted(set(zip(sources, targets, strict=True))):
        is_between = (syncs.awaited == source) & (syncs.stream == target)
        waits = np.flatnonzero(is_recorded & is_between)
        event_recorded_at = trace.start[syncs.recorded[waits]]
        wait_called_at = trace.start[syncs.call[waits]]
        awaited = items.before(source, event_recorded_at)
        waiting = items.after(target, wait_called_at)
        yield _known_pairs(target=waiting, item=awaited)

    if graph_calls(trace).any() and len(items.streams) > 1:
        yield _dependencies_in_graphs(trace, items)


def _dependencies_in_graphs(trace: Trace, items: Items) -> WaitPairs:
    """Return the nodes of CUDA graphs with the nodes that they depend on."""
    in_graphs = dependencies(trace)
    item_of_row = np.full(len(trace), NONE)
    item_of_row[items.rows] = np.arange(len(items.rows))
    return _known_pairs(
        target=item_of_row[in_graphs.after], item=item_of_row[in_graphs.before]
    )


def _known_pairs(*, target: Rows, item: Rows) -> WaitPairs:
    """Make pairs, without those of which one side is -1."""
    is_known = (item >= 0) & (target >= 0)
    return WaitPairs(target[is_known], item[is_known])


class _LateItems(NamedTuple):
    """Items that start late, whose launch is known; one entry per item."""

    item: Rows
    stream: Rows  # its index
    start: Int64s
    given: Int64s
    given_before: Int64s  # when the item before was given, or the begin of the trace


def awaited_unrecorded(trace: Trace, items: Items, late: Rows) -> WaitPairs:
    """Infer what late items wait for, if their stream was told to wait for an event.

    It was told so since the launch of the item before. The item is then taken to wait
    for what ended last on another stream, of what that stream had been given before, if
    it ended just before the item started.

    Args:
        trace: The trace.
        items: All items.
        late: The items that start later than is understood.
    """
    event_calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    process_of_call = trace.process_of_track[trace.track[event_calls]]
    late_items = _late_items(trace, items, late)
    process_of_item = items.process[late_items.stream]
    awaited = np.full(len(late_items.item), NONE)
    for process in distinct(process_of_item).tolist():
        calls = event_calls[process_of_call == process]
        wait_called_at = _last_before(trace.start[calls], late_items.given)
        waits = wait_called_at >= late_items.given_before
        waits &= process_of_item == process
        for stream in np.flatnonzero(items.process == process).tolist():
            ended = items.before(stream, wait_called_at, late_items.start)
            is_other = waits & (late_items.stream != stream) & (ended >= 0)
            is_soon = late_items.start - items.end[ended] <= MAX_EVENT_DELAY_NS
            awaited = _later_end(items, awaited, ended, is_other & is_soon)
    return _known_pairs(target=late_items.item, item=awaited)


def _late_items(trace: Trace, items: Items, late: Rows) -> _LateItems:
    """Return the late items whose launch is known."""
    late = late[items.cut[late] >= 0]
    stream = items.stream_of(late)
    is_first = late == items.bounds[stream]
    return _LateItems(
        item=late,
        stream=stream,
        start=items.start[late],
        given=items.given[late],
        given_before=np.where(is_first, trace.begin_ns, items.given[late - 1]),
    )


def _last_before(call_starts: Int64s, times: Int64s) -> Int64s:
    """Return the last start of a call before each time.

    Where there is none, it is the least number.
    """
    no_time = np.iinfo(np.int64).min
    starts = np.append(no_time, np.sort(call_starts))
    calls_before = np.searchsorted(starts[1:], times)
    return starts[calls_before]


class CommunicationWaits(NamedTuple):
    """Waits for communication, which matter if a change lets others go ahead."""

    of_targets: WaitPairs
    of_communication: WaitPairs


def behind_communication(
    trace: Trace, items: Items, pairs: WaitPairs
) -> CommunicationWaits:
    """Add waits for the communication before items.

    What waits for an item also waits for the communication before that item on its
    stream. Communication waits for the communication before it.

    Args:
        trace: The trace.
        items: All items.
        pairs: What waits, with the items that it waits for.
    """
    is_communication = communicates(trace, items.rows)
    item_indices = np.arange(len(items.rows))
    first_of_stream = np.repeat(items.bounds[:-1], np.diff(items.bounds))

    # The last communication before each item on its stream.
    last_so_far = np.maximum.accumulate(np.where(is_communication, item_indices, NONE))
    is_of_other_stream = last_so_far < first_of_stream
    has_none_before = is_communication | is_of_other_stream
    last_before = np.where(has_none_before, NONE, last_so_far)
    of_targets = _known_pairs(target=pairs.target, item=last_before[pairs.item])

    # The item before a communication has the communication before that.
    follows_item = np.flatnonzero(is_communication & (item_indices > first_of_stream))
    follows_communication = follows_item[last_before[follows_item - 1] >= 0]
    of_communication = WaitPairs(
        follows_communication, last_before[follows_communication - 1]
    )
    return CommunicationWaits(of_targets, of_communication)


def freeing(cuts: ThreadCuts, items: Items) -> Iterator[WaitPairs]:
    """Yield the launch calls that waited for room in a full queue.

    The queue of a stream holds as many items as were ever in flight. Each such call is
    paired with the item whose end frees its slot.
    """
    items_of_cut = np.bincount(items.cut[items.cut >= 0], minlength=len(cuts.kind))
    for first, stop in pairwise(items.bounds.tolist()):
        launches = items.cut[items.by_given[first:stop]]
        if not len(launches) or (launches < 0).any():
            continue
        launches_several = (items_of_cut[launches] != 1).any()
        if launches_several:
            continue
        latest = items.latest[first:stop]
        queue_length = _full_queue_length(cuts, launches, items.end[latest])
        if queue_length > 0:
            freed_by = latest[: len(launches) - queue_length]
            yield WaitPairs(launches[queue_length:], freed_by)


def _full_queue_length(cuts: ThreadCuts, launches: Rows, ended: Int64s) -> int:
    """Return how many items the queue of a stream holds, if it was ever full.

    That is the most items that were in flight at the end of a launch call. The queue
    counts as full if most calls that were made with so many in flight were slow.

    Args:
        cuts: The cuts of all threads.
        launches: The cuts of the launch calls, in the order of their items.
        ended: When all items up to that of each call had ended, in ns.

    Returns:
        The length; 0 if the queue was never full.
    """
    begin = cuts.begin[launches]
    end = cuts.end[launches]
    launched_before = np.arange(len(launches))
    ended_by_begin = np.searchsorted(ended, begin, side="right")
    ended_by_end = np.searchsorted(ended, end, side="right")
    most_in_flight = int((launched_before + 1 - ended_by_end).max())

    is_full = launched_before - ended_by_begin >= most_in_flight
    took_ns = end - begin
    usual_ns = 0 if is_full.all() else np.median(took_ns[~is_full])
    is_slow = is_full & (took_ns > SLOW_LAUNCH_FACTOR * usual_ns)

    slow_launches = is_slow.sum()
    most_are_slow = 2 * slow_launches > is_full.sum()
    if slow_launches < MIN_SLOW_LAUNCHES or not most_are_slow:
        return 0
    return max(0, most_in_flight)


def by_target(pairs: list[WaitPairs]) -> WaitPairs:
    """Concatenate pairs, sorted by what waits."""
    no_rows = np.empty(0, dtype=np.intp)
    target = np.concatenate([no_rows, *(waiting.target for waiting in pairs)])
    item = np.concatenate([no_rows, *(waiting.item for waiting in pairs)])
    order = np.argsort(target, kind="stable")
    return WaitPairs(target[order], item[order])
