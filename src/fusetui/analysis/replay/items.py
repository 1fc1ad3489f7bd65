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
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct, first_with
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
        return np.append(NONE, latest)[count]

    def after(self, stream: int, times: Int64s) -> Rows:
        """The first item that a stream was given after each time, else -1."""
        by_given = self.by_given[self.bounds[stream] : self.bounds[stream + 1]]
        place = np.searchsorted(self.given[by_given], times)
        return np.append(by_given, NONE)[place]

    def stream_of(self, items: Rows) -> Rows:
        """The place of the stream of each item."""
        return np.searchsorted(self.bounds, items, side="right") - 1


class WaitPairs(NamedTuple):
    """What waits, a cut or an item, and the item that it waits for."""

    target: Rows
    item: Rows


def items_of(trace: Trace, cuts: ThreadCuts) -> Items:
    """All GPU events of a trace."""
    gpu_rows = trace.gpu_rows
    stream = trace.thread_of_track[trace.track[gpu_rows]]
    order = np.lexsort((trace.end[gpu_rows], trace.start[gpu_rows], stream))
    rows = gpu_rows[order]
    stream = stream[order]
    start = trace.start[rows]
    end = trace.end[rows]
    launch = trace.launch[rows]
    has_launch = (launch >= 0) & (trace.start[launch] <= start)
    cut = np.where(has_launch, cuts.cut_of_row[launch], NONE)
    streams = distinct(stream).astype(np.intp)
    bounds = np.searchsorted(stream, np.append(streams, streams[-1:] + 1))

    places = np.arange(len(rows))
    last_launched = np.maximum.accumulate(np.where(cut >= 0, places, NONE))
    first_of_stream = np.repeat(bounds[:-1], np.diff(bounds))
    is_on_stream = last_launched >= first_of_stream
    given = np.where(is_on_stream, trace.start[launch[last_launched]], trace.begin_ns)
    by_given = np.lexsort((places, given, stream))

    latest = by_given.copy()
    process = np.full(len(streams), NONE)
    for number, (first, stop) in enumerate(pairwise(bounds.tolist())):
        latest[first:stop] = _latest_so_far(by_given[first:stop], end)
        launches = launch[first:stop][cut[first:stop] >= 0]
        if len(launches):
            process[number] = trace.process_of_track[trace.track[launches[0]]]
    return Items(
        rows=rows,
        start=start,
        end=end,
        cut=cut,
        given=given,
        streams=streams,
        bounds=bounds,
        by_given=by_given,
        latest=latest,
        process=process,
    )


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
    """Reads the args of those about events."""
    rows = trace.rows_of(Role.SYNC)
    rows = rows[trace.correlation[rows] > 0]
    place_of_stream = np.full(len(trace.tracks) + 1, NONE)
    place_of_stream[items.streams] = np.arange(len(items.streams))
    of_event = trace.matching(rows, re.compile("Event").search)
    awaited = np.full(len(rows), NONE)
    recorded_by = np.full(len(rows), NONE)  # a correlation
    events = np.flatnonzero(of_event)
    if len(events):
        args = arguments(trace.elements.own, trace.order[rows[events]], WAITS_ON)
        thread_of_lane = _thread_of_lane(trace)
        for event, number in zip(events.tolist(), args.number.tolist(), strict=True):
            if number < 0:
                continue
            stream, correlation = map(parsed, args.distinct[number])
            device = str(trace.track_of(int(rows[event])).pid)
            thread = thread_of_lane.get((device, str(stream)), NONE)
            awaited[event] = place_of_stream[thread]
            if type(correlation) is int:
                recorded_by[event] = correlation
    calls = trace.rows_of(Role.CALL)
    correlation_of_call = trace.correlation[calls]
    recording_call = first_with(correlation_of_call, calls, recorded_by)
    return Syncs(
        call=first_with(correlation_of_call, calls, trace.correlation[rows]),
        stream=place_of_stream[trace.thread_of_track[trace.track[rows]]],
        awaited=awaited,
        recorded=np.where(recorded_by > 0, recording_call, NONE),
        of_event=of_event,
    )


def _thread_of_lane(trace: Trace) -> dict[tuple[str, str], int]:
    """By pid and tid, as texts."""
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


def awaited_by_calls(
    trace: Trace, cuts: ThreadCuts, items: Items, syncs: Syncs
) -> tuple[list[WaitPairs], int]:
    """What each waiting call waits for, and for how many this was inferred: the latest
    end before its own that fits."""
    calls = _waiting_calls(trace, cuts)
    pairs = [_awaited_by_their_launch(trace, cuts, items)]

    recorded_stream, recorded_since = _recorded_waits(trace, syncs)
    stream = recorded_stream[calls.row]
    since = recorded_since[calls.row]
    for_some_stream = calls.is_synchronization & ~calls.for_device
    is_recorded = for_some_stream & (stream >= 0)
    is_unknown = for_some_stream & ~is_recorded

    inferred = np.full(len(calls.cut), NONE)
    for number in range(len(items.streams)):
        may_give = (items.process[number] == calls.process) | (
            items.process[number] < 0
        )
        given_before = items.before(number, calls.begin)
        fits = (given_before >= 0) & may_give
        fits &= items.end[given_before] <= calls.end + MAX_CLOCK_SKEW_NS
        for_all = fits & calls.for_device
        pairs.append(WaitPairs(calls.cut[for_all], given_before[for_all]))

        ended_before = items.before(number, calls.begin, calls.end)
        candidate = np.where(calls.for_event, ended_before, given_before)
        event_fits = may_give & (ended_before >= 0)
        fits = np.where(calls.for_event, event_fits, fits)
        is_later = (inferred < 0) | (items.end[candidate] > items.end[inferred])
        is_better = is_unknown & fits & is_later
        inferred[is_better] = candidate[is_better]

        on_stream = np.flatnonzero(is_recorded & (stream == number))
        awaited = items.before(number, trace.start[since[on_stream]])
        is_known = awaited >= 0
        pairs.append(WaitPairs(calls.cut[on_stream[is_known]], awaited[is_known]))
    is_inferred = inferred >= 0
    pairs.append(WaitPairs(calls.cut[is_inferred], inferred[is_inferred]))
    return pairs, int(is_inferred.sum())


def _waiting_calls(trace: Trace, cuts: ThreadCuts) -> _WaitingCalls:
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
    """Items that the very call waits for that launched them, as a copy does. A copy to
    the device may end later than its call: that only fills a buffer."""
    launched_by_wait = np.append(cuts.kind, 0)[items.cut] == Node.WAIT
    launched = np.flatnonzero(launched_by_wait)
    to_device = trace.matching(items.rows[launched], TO_DEVICE.search)
    skew_ns = np.where(to_device, 0, MAX_CLOCK_SKEW_NS)
    call_end = cuts.end[items.cut[launched]]
    awaited = launched[items.end[launched] <= call_end + skew_ns]
    return WaitPairs(items.cut[awaited], awaited)


def _recorded_waits(trace: Trace, syncs: Syncs) -> tuple[Rows, Rows]:
    """By call: the stream that CUPTI says it waits for, and the call of which on it
    waits for what was given before; -1 where it says nothing. Shape [slices]."""
    awaited_stream = np.where(syncs.of_event, syncs.awaited, syncs.stream)
    awaited_since = np.where(syncs.of_event, syncs.recorded, syncs.call)
    is_known = (syncs.call >= 0) & (awaited_since >= 0)
    stream_of_call = np.full(len(trace), NONE)
    since_of_call = np.full(len(trace), NONE)
    stream_of_call[syncs.call[is_known]] = awaited_stream[is_known]
    since_of_call[syncs.call[is_known]] = awaited_since[is_known]
    return stream_of_call, since_of_call


def awaited_by_items(trace: Trace, items: Items, syncs: Syncs) -> Iterator[WaitPairs]:
    """Events that streams wait for, and dependencies of the nodes of graphs, as
    recorded."""
    is_recorded = syncs.of_event & (syncs.stream >= 0) & (syncs.awaited >= 0)
    is_recorded &= (syncs.recorded >= 0) & (syncs.call >= 0)
    sources = syncs.awaited[is_recorded].tolist()
    targets = syncs.stream[is_recorded].tolist()
    for source, target in sorted(set(zip(sources, targets, strict=True))):
        is_between = (syncs.awaited == source) & (syncs.stream == target)
        waits = np.flatnonzero(is_recorded & is_between)
        before = items.before(source, trace.start[syncs.recorded[waits]])
        after = items.after(target, trace.start[syncs.call[waits]])
        both = (before >= 0) & (after >= 0)
        yield WaitPairs(after[both], before[both])
    if graph_calls(trace).any() and len(items.streams) > 1:
        in_graphs = dependencies(trace)
        item_of_row = np.full(len(trace), NONE)
        item_of_row[items.rows] = np.arange(len(items.rows))
        before = item_of_row[in_graphs.before]
        after = item_of_row[in_graphs.after]
        both = (before >= 0) & (after >= 0)
        yield WaitPairs(after[both], before[both])


def awaited_unrecorded(trace: Trace, items: Items, late: Rows) -> WaitPairs:
    """What items wait for that start later than is understood, where a stream was told
    to wait for an event since the launch before: what ended last on another stream of
    what that was given before, if it ended just before."""
    event_calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    process_of_call = trace.process_of_track[trace.track[event_calls]]
    late = late[items.cut[late] >= 0]
    stream = items.stream_of(late)
    is_first = late == items.bounds[stream]
    launch_before = np.where(is_first, trace.begin_ns, items.given[late - 1])
    awaited = np.full(len(late), NONE)
    for process in distinct(items.process[stream]).tolist():
        call_starts = np.sort(trace.start[event_calls[process_of_call == process]])
        last_before = np.searchsorted(call_starts, items.given[late]) - 1
        # place -1 is the time that is appended: never
        told_to_wait = np.append(call_starts, np.iinfo(np.int64).min)[last_before]
        waits = (told_to_wait >= launch_before) & (items.process[stream] == process)
        for number in np.flatnonzero(items.process == process).tolist():
            ended = items.before(number, told_to_wait, items.start[late])
            is_other = waits & (stream != number) & (ended >= 0)
            is_soon = items.start[late] - items.end[ended] <= MAX_EVENT_DELAY_NS
            is_later = (awaited < 0) | (items.end[ended] > items.end[awaited])
            is_better = is_other & is_soon & is_later
            awaited[is_better] = ended[is_better]
    is_known = awaited >= 0
    return WaitPairs(late[is_known], awaited[is_known])


def behind_communication(
    trace: Trace, items: Items, pairs: WaitPairs
) -> tuple[WaitPairs, WaitPairs]:
    """What waits for an item also waits for the communication before that on its
    stream, and communication for the one before it: that counts where a change lets
    others go ahead of it."""
    is_communication = communicates(trace, items.rows)
    place = np.arange(len(items.rows))
    first_of_stream = np.repeat(items.bounds[:-1], np.diff(items.bounds))
    last_before = np.maximum.accumulate(np.where(is_communication, place, NONE))
    is_of_other_stream = last_before < first_of_stream
    last_before = np.where(is_communication | is_of_other_stream, NONE, last_before)
    communication = last_before[pairs.item]
    is_known = communication >= 0
    waiting = WaitPairs(pairs.target[is_known], communication[is_known])

    # of the item before communication, the communication before that
    follows_items = np.flatnonzero(is_communication & (place > first_of_stream))
    follows = follows_items[last_before[follows_items - 1] >= 0]
    return waiting, WaitPairs(follows, last_before[follows - 1])


def freeing(cuts: ThreadCuts, items: Items) -> Iterator[WaitPairs]:
    """Of each stream whose queue was full the launch calls, and the item that frees the
    slot of each: its queue holds as many as were ever in flight."""
    items_of_cut = np.bincount(items.cut[items.cut >= 0], minlength=len(cuts.kind))
    for first, stop in pairwise(items.bounds.tolist()):
        launch = items.cut[items.by_given[first:stop]]
        # what launches many at once does not tell
        if not len(launch) or (launch < 0).any() or (items_of_cut[launch] != 1).any():
            continue
        latest = items.latest[first:stop]
        number = np.arange(len(latest))
        begin = cuts.begin[launch]
        end = cuts.end[launch]
        ended = items.end[latest]
        ended_by_end = np.searchsorted(ended, end, side="right")
        queue_length = int((number + 1 - ended_by_end).max())
        ended_by_begin = np.searchsorted(ended, begin, side="right")
        is_full = number - ended_by_begin >= queue_length
        took_ns = end - begin
        usual_ns = 0 if is_full.all() else np.median(took_ns[~is_full])
        is_slow = is_full & (took_ns > SLOW_LAUNCH_FACTOR * usual_ns)
        slow_launches = is_slow.sum()
        most_are_slow = 2 * slow_launches > is_full.sum()
        if queue_length > 0 and slow_launches >= MIN_SLOW_LAUNCHES and most_are_slow:
            freed_by = latest[: len(launch) - queue_length]
            yield WaitPairs(launch[queue_length:], freed_by)


def by_target(pairs: list[WaitPairs]) -> WaitPairs:
    """All pairs, in the order of what waits."""
    no_rows = np.empty(0, dtype=np.intp)
    target = np.concatenate([no_rows, *(waiting.target for waiting in pairs)])
    item = np.concatenate([no_rows, *(waiting.item for waiting in pairs)])
    order = np.argsort(target, kind="stable")
    return WaitPairs(target[order], item[order])
