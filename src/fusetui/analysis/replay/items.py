"""GPU work in the order of its streams, and which of it calls and other work wait
for."""

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
    """GPU events by stream and start; arrays of shape [items], ns of the file."""

    rows: Rows
    start: Int64s
    end: Int64s
    cut: Rows  # of the launch call, -1: not known
    # when that begins; where it is not known, as for the one before on its stream
    given: Int64s
    streams: Rows  # as in Trace.thread_of_track; shape [streams]
    bounds: Rows  # where the items of each begin, then their number
    # the items of each stream in the order in which they were given to it
    by_given: Rows
    latest: Rows  # for each of these the one that ends last of it and those before
    process: Rows  # which gave the stream its work, -1: not known; shape [streams]

    def before(self, stream: int, times: Int64s, ended: Int64s | None = None) -> Rows:
        """For each time the item that ends last of those that a stream was given before
        it; -1 for none.

        With `ended`, the same of the first items in the order in which they were given,
        up to the last after which all so far had ended by that time: an item that ends
        later than one given after it hides that one.
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
        """The first item that a stream was given after each time, else -1."""
        by_given = self.by_given[self.bounds[stream] : self.bounds[stream + 1]]
        place = np.searchsorted(self.given[by_given], times)
        next_item: Rows = at(by_given, place, missing=NONE)
        return next_item

    def stream_of(self, items: Rows) -> Rows:
        """The place of the stream of each item."""
        return np.searchsorted(self.bounds, items, side="right") - 1


class WaitPairs(NamedTuple):
    """What waits, a cut or an item, and the item that it waits for; shape [pairs]."""

    target: Rows
    item: Rows


class _Order(NamedTuple):
    """GPU events by stream, then by start; arrays of shape [items]."""

    rows: Rows
    stream: Int32s  # as in Trace.thread_of_track
    streams: Rows  # the distinct ones; shape [streams]
    bounds: Rows  # see Items.bounds


class _Launches(NamedTuple):
    """What launched each item; arrays of shape [items]."""

    row: Int32s  # of the call; only meaningful where `cut` is not -1
    cut: Rows  # see Items.cut


def items_of(trace: Trace, cuts: ThreadCuts) -> Items:
    """All GPU events of a trace, by stream and start."""
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
    """The GPU events by stream, those of a stream by start and then by end."""
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
    """The launch calls of these GPU events. A call that begins after the event that it
    is said to launch counts as not known."""
    call = trace.launch[rows]
    is_known = (call >= 0) & (trace.start[call] <= trace.start[rows])
    cut = np.where(is_known, cuts.cut_of_row[call], NONE)
    return _Launches(row=call, cut=cut)


def _given(trace: Trace, launches: _Launches, bounds: Rows) -> Int64s:
    """When each item was given to its stream: the begin of its launch call (ns). Where
    that is not known, the time of the item before it on its stream that has one, or
    else the begin of the trace."""
    places = np.arange(len(launches.cut))
    has_launch = launches.cut >= 0
    last_launched = np.maximum.accumulate(np.where(has_launch, places, NONE))
    first_of_stream = np.repeat(bounds[:-1], np.diff(bounds))
    is_on_stream = last_launched >= first_of_stream
    launched_at = trace.start[launches.row[last_launched]]
    return np.where(is_on_stream, launched_at, trace.begin_ns)


def _latest_of_streams(by_given: Rows, end: Int64s, bounds: Rows) -> Rows:
    """See Items.latest; shape [items]."""
    latest = by_given.copy()
    for first, stop in pairwise(bounds.tolist()):
        latest[first:stop] = _latest_so_far(by_given[first:stop], end)
    return latest


def _launching_processes(trace: Trace, launches: _Launches, bounds: Rows) -> Rows:
    """The process whose call launched the first item of each stream that has a known
    launch; -1 if none has. Shape [streams]."""
    process = np.full(len(bounds[:-1]), NONE)
    for stream, (first, stop) in enumerate(pairwise(bounds.tolist())):
        has_launch = launches.cut[first:stop] >= 0
        calls = launches.row[first:stop][has_launch]
        if len(calls):
            process[stream] = trace.process_of_track[trace.track[calls[0]]]
    return process


def _latest_so_far(items: Rows, end: Int64s) -> Rows:
    """For each of these items the one that ends last of it and those before."""
    ends = end[items]
    is_latest = ends >= np.maximum.accumulate(ends)
    place_of_latest = np.maximum.accumulate(
        np.where(is_latest, np.arange(len(items)), 0)
    )
    return items[place_of_latest]


class Syncs(NamedTuple):
    """Waits that CUPTI recorded on the device; arrays of shape [syncs]."""

    call: Int32s  # the row of the call, -1: none
    stream: Rows  # places among Items.streams, -1: not known
    awaited: Rows  # for events: the stream on which it was recorded, likewise
    recorded: Rows  # and the row of the call that did
    of_event: Flags


def syncs_of(trace: Trace, items: Items) -> Syncs:
    """The waits that CUPTI recorded on the device, with what the args of those that
    wait for an event say about it."""
    rows = trace.rows_of(Role.SYNC)
    rows = rows[trace.correlation[rows] > 0]
    place_of_stream = np.full(len(trace.tracks) + 1, NONE)
    place_of_stream[items.streams] = np.arange(len(items.streams))
    of_event = trace.matching(rows, re.compile("Event").search)
    recorded = _recorded_events(trace, rows, np.flatnonzero(of_event))
    calls = trace.rows_of(Role.CALL)
    correlation_of_call = trace.correlation[calls]
    recording_call = first_with(correlation_of_call, calls, recorded.correlation)
    return Syncs(
        call=first_with(correlation_of_call, calls, trace.correlation[rows]),
        stream=place_of_stream[trace.thread_of_track[trace.track[rows]]],
        awaited=np.where(recorded.thread >= 0, place_of_stream[recorded.thread], NONE),
        recorded=np.where(recorded.correlation > 0, recording_call, NONE),
        of_event=of_event,
    )


class _RecordedEvents(NamedTuple):
    """Where the event was recorded that each synchronization waits for; arrays of shape
    [syncs], -1: not known."""

    thread: Rows  # of the stream, as in Trace.thread_of_track
    correlation: Rows  # of the call


def _recorded_events(trace: Trace, rows: Rows, of_event: Rows) -> _RecordedEvents:
    """What the args of the synchronizations in `rows` say about the events that they
    wait for. `of_event`: the places in `rows` of those that wait for an event; only
    their args are read."""
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
    """The number of each lane, as in Trace.thread_of_track, by its pid and tid as
    texts."""
    lanes = ((str(track.pid), str(track.tid)) for track in trace.tracks)
    return dict(zip(lanes, trace.thread_of_track.tolist(), strict=True))


class _WaitingCalls(NamedTuple):
    """Calls that wait for the device; arrays of shape [calls], times in ns."""

    cut: Rows
    row: Rows
    begin: Int64s
    end: Int64s
    process: Int32s
    for_device: Flags  # and so for all streams
    for_event: Flags
    is_synchronization: Flags


class AwaitedByCalls(NamedTuple):
    """What the calls that wait wait for."""

    pairs: list[WaitPairs]
    inferred: int  # how many calls wait for what was inferred, not recorded


class _Synchronizations(NamedTuple):
    """What is recorded of each waiting call; arrays of shape [calls]."""

    stream: Rows  # the place of the stream that it waits for
    since: Rows  # it waits for what that stream was given before this row
    is_recorded: Flags  # it waits for one stream, and the two above are known
    is_unknown: Flags  # it waits for one stream or event, and nothing says for which


def awaited_by_calls(
    trace: Trace, cuts: ThreadCuts, items: Items, syncs: Syncs
) -> AwaitedByCalls:
    """What each waiting call waits for.

    A call that waits for a device waits for all its streams. What a call waits for that
    waits for one stream or event is recorded, or else inferred: of the items that fit,
    the one that ends last.
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


def _later_end(items: Items, best: Rows, others: Rows, may_be: Flags) -> Rows:
    """The best items, -1 for none, in place of which come those others that may be, if
    they end later."""
    is_later = (best < 0) | (items.end[others] > items.end[best])
    return np.where(may_be & is_later, others, best)


class _Candidates(NamedTuple):
    """What calls may wait for on one stream; arrays of shape [calls]."""

    item: Rows  # what a call for a stream or an event may wait for, -1: nothing
    fits: Flags  # it may indeed
    fits_device: Flags  # the call may wait for what the stream was given before it


def _candidates(
    items: Items, calls: _WaitingCalls, stream: int, given_before: Rows
) -> _Candidates:
    """The items of a stream that calls of its process may wait for. `given_before`: the
    item that ends last of those that the stream was given before each call."""
    process = items.process[stream]
    may_give = (process == calls.process) | (process < 0)
    ends_in_time = items.end[given_before] <= calls.end + MAX_CLOCK_SKEW_NS
    fits_device = may_give & (given_before >= 0) & ends_in_time
    # an event is recorded after only some of the items that the stream was given
    ended_before = items.before(stream, calls.begin, calls.end)
    fits_event = may_give & (ended_before >= 0)
    return _Candidates(
        item=np.where(calls.for_event, ended_before, given_before),
        fits=np.where(calls.for_event, fits_event, fits_device),
        fits_device=fits_device,
    )


def _synchronizations(
    trace: Trace, calls: _WaitingCalls, syncs: Syncs
) -> _Synchronizations:
    """What CUPTI recorded of the waiting calls."""
    waits = _recorded_waits(trace, syncs)
    stream = waits.stream[calls.row]
    for_some_stream = calls.is_synchronization & ~calls.for_device
    is_recorded = for_some_stream & (stream >= 0)
    return _Synchronizations(
        stream=stream,
        since=waits.since[calls.row],
        is_recorded=is_recorded,
        is_unknown=for_some_stream & ~is_recorded,
    )


def _waiting_calls(trace: Trace, cuts: ThreadCuts) -> _WaitingCalls:
    """The calls of all cuts that wait."""
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
    """The items that the very call waits for that launched them, as a copy does. A copy
    to the device may end later than its call: that only fills a buffer."""
    no_kind = 0  # of items whose launch call is not known
    launched_by_wait = at(cuts.kind, items.cut, missing=no_kind) == Node.WAIT
    launched = np.flatnonzero(launched_by_wait)
    to_device = trace.matching(items.rows[launched], TO_DEVICE.search)
    skew_ns = np.where(to_device, 0, MAX_CLOCK_SKEW_NS)
    call_end = cuts.end[items.cut[launched]]
    awaited = launched[items.end[launched] <= call_end + skew_ns]
    return WaitPairs(items.cut[awaited], awaited)


class _RecordedWaits(NamedTuple):
    """By call, what CUPTI says that it waits for; arrays of shape [slices], -1 where it
    says nothing."""

    stream: Rows  # the place of the stream
    since: Rows  # it waits for what the stream was given before this row


def _recorded_waits(trace: Trace, syncs: Syncs) -> _RecordedWaits:
    """What each call waits for: the end of a stream's work before the call itself, or
    before the call that recorded the event it waits for."""
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
    """What items wait for as recorded: events of other streams, and the nodes before
    them in CUDA graphs."""
    has_streams = (syncs.stream >= 0) & (syncs.awaited >= 0)
    has_calls = (syncs.recorded >= 0) & (syncs.call >= 0)
    is_recorded = syncs.of_event & has_streams & has_calls
    sources = syncs.awaited[is_recorded].tolist()
    targets = syncs.stream[is_recorded].tolist()
    for source, target in sorted(set(zip(sources, targets, strict=True))):
        is_between = (syncs.awaited == source) & (syncs.stream == target)
        waits = np.flatnonzero(is_recorded & is_between)
        event_recorded = trace.start[syncs.recorded[waits]]
        told_to_wait = trace.start[syncs.call[waits]]
        before = items.before(source, event_recorded)
        after = items.after(target, told_to_wait)
        yield _known_pairs(target=after, item=before)
    if graph_calls(trace).any() and len(items.streams) > 1:
        yield _dependencies_in_graphs(trace, items)


def _dependencies_in_graphs(trace: Trace, items: Items) -> WaitPairs:
    """The nodes of CUDA graphs and the nodes that they depend on."""
    in_graphs = dependencies(trace)
    item_of_row = np.full(len(trace), NONE)
    item_of_row[items.rows] = np.arange(len(items.rows))
    return _known_pairs(
        target=item_of_row[in_graphs.after], item=item_of_row[in_graphs.before]
    )


def _known_pairs(*, target: Rows, item: Rows) -> WaitPairs:
    """The pairs of which neither is -1."""
    is_known = (item >= 0) & (target >= 0)
    return WaitPairs(target[is_known], item[is_known])


class _LateItems(NamedTuple):
    """Items that start late, whose launch is known; arrays of shape [late items]."""

    item: Rows
    stream: Rows  # its place
    start: Int64s
    given: Int64s
    given_before: Int64s  # when the item before was given, or the begin of the trace


def awaited_unrecorded(trace: Trace, items: Items, late: Rows) -> WaitPairs:
    """What items wait for that start later than is understood, where a stream was told
    to wait for an event since the launch before.

    That is what ended last on another stream of what that was given before, if it ended
    just before.
    """
    event_calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    process_of_call = trace.process_of_track[trace.track[event_calls]]
    late_items = _late_items(trace, items, late)
    process_of_item = items.process[late_items.stream]
    awaited = np.full(len(late_items.item), NONE)
    for process in distinct(process_of_item).tolist():
        calls = event_calls[process_of_call == process]
        told_to_wait = _last_before(trace.start[calls], late_items.given)
        waits = told_to_wait >= late_items.given_before
        waits &= process_of_item == process
        for stream in np.flatnonzero(items.process == process).tolist():
            ended = items.before(stream, told_to_wait, late_items.start)
            is_other = waits & (late_items.stream != stream) & (ended >= 0)
            is_soon = late_items.start - items.end[ended] <= MAX_EVENT_DELAY_NS
            awaited = _later_end(items, awaited, ended, is_other & is_soon)
    return _known_pairs(target=late_items.item, item=awaited)


def _late_items(trace: Trace, items: Items, late: Rows) -> _LateItems:
    """Those of the late items whose launch is known."""
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
    """The last start of a call before each time; the least number where there is none."""
    no_time = np.iinfo(np.int64).min
    starts = np.append(no_time, np.sort(call_starts))
    calls_before = np.searchsorted(starts[1:], times)
    return starts[calls_before]


class CommunicationWaits(NamedTuple):
    """Waits for communication, which count where a change lets others go ahead."""

    of_targets: WaitPairs
    of_communication: WaitPairs


def behind_communication(
    trace: Trace, items: Items, pairs: WaitPairs
) -> CommunicationWaits:
    """Further waits for communication: what waits for an item in `pairs` also waits for
    the communication before that item on its stream, and communication for the
    communication before it."""
    is_communication = communicates(trace, items.rows)
    place = np.arange(len(items.rows))
    first_of_stream = np.repeat(items.bounds[:-1], np.diff(items.bounds))
    last_so_far = np.maximum.accumulate(np.where(is_communication, place, NONE))
    is_of_other_stream = last_so_far < first_of_stream
    has_none_before = is_communication | is_of_other_stream
    last_before = np.where(has_none_before, NONE, last_so_far)
    of_targets = _known_pairs(target=pairs.target, item=last_before[pairs.item])

    # the item before a communication has the communication before that
    follows_items = np.flatnonzero(is_communication & (place > first_of_stream))
    follows = follows_items[last_before[follows_items - 1] >= 0]
    of_communication = WaitPairs(follows, last_before[follows - 1])
    return CommunicationWaits(of_targets, of_communication)


def freeing(cuts: ThreadCuts, items: Items) -> Iterator[WaitPairs]:
    """The launch calls of each stream whose queue was full, with the items that free
    the slot of each: its queue holds as many as were ever in flight."""
    items_of_cut = np.bincount(items.cut[items.cut >= 0], minlength=len(cuts.kind))
    for first, stop in pairwise(items.bounds.tolist()):
        launches = items.cut[items.by_given[first:stop]]
        if not len(launches) or (launches < 0).any():
            continue
        if (items_of_cut[launches] != 1).any():
            continue  # what launches many at once does not tell
        latest = items.latest[first:stop]
        queue_length = _full_queue_length(cuts, launches, items.end[latest])
        if queue_length > 0:
            freed_by = latest[: len(launches) - queue_length]
            yield WaitPairs(launches[queue_length:], freed_by)


def _full_queue_length(cuts: ThreadCuts, launches: Rows, ended: Int64s) -> int:
    """The most items of a stream that were in flight at the end of a launch call, if
    most calls that were made with so many in flight were slow; else 0.

    `launches`: the cuts of the launch calls, in the order of their items; `ended`: when
    the items up to that of each call had all ended (ns).
    """
    begin = cuts.begin[launches]
    end = cuts.end[launches]
    number = np.arange(len(launches))
    ended_by_begin = np.searchsorted(ended, begin, side="right")
    ended_by_end = np.searchsorted(ended, end, side="right")
    most_in_flight = int((number + 1 - ended_by_end).max())
    is_full = number - ended_by_begin >= most_in_flight
    took_ns = end - begin
    usual_ns = 0 if is_full.all() else np.median(took_ns[~is_full])
    is_slow = is_full & (took_ns > SLOW_LAUNCH_FACTOR * usual_ns)
    slow_launches = is_slow.sum()
    most_are_slow = 2 * slow_launches > is_full.sum()
    if slow_launches < MIN_SLOW_LAUNCHES or not most_are_slow:
        return 0
    return max(0, most_in_flight)


def by_target(pairs: list[WaitPairs]) -> WaitPairs:
    """All pairs, in the order of what waits."""
    no_rows = np.empty(0, dtype=np.intp)
    target = np.concatenate([no_rows, *(waiting.target for waiting in pairs)])
    item = np.concatenate([no_rows, *(waiting.item for waiting in pairs)])
    order = np.argsort(target, kind="stable")
    return WaitPairs(target[order], item[order])
