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
from fusetui.analysis.replay.hosts import FREES, Hosts
from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct, first_with
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.memo import once
from fusetui.trace.program.backward import dependencies

OF_DEVICE = late(rf"(?:Device|Ctx|Context)Synchronize|{FREES.pattern}")
OF_EVENT = late(r"EventSynchronize")
SYNCHRONIZES = late(r"Synchronize")
TO_DEVICE = late(r"HtoD|HostToDevice")
WAITS_ON = ("wait_on_stream", "wait_on_cuda_event_record_corr_id")
FEWEST = 3  # calls that waited for room, from which on a queue counts as full
SKEW_NS = 20_000  # by which the clocks of host and device may differ
WAITS_EVENT = late(r"StreamWaitEvent")
# queued items that start so soon after the one before tell the usual switch
SHORT_NS = 10_000
# so soon after the end of an item starts what waits for an event after it
SOON_NS = 25_000
SLOW = 2  # times as long as the median, a call that waits for room


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
        """The item that ends last of those that a stream was given before each time,
        and that had ended before another one; else -1."""
        own = slice(self.bounds[stream], self.bounds[stream + 1])
        latest, place = (
            self.latest[own],
            np.searchsorted(self.given[self.by_given[own]], times),
        )
        if ended is not None:
            place = np.minimum(
                place, np.searchsorted(self.end[latest], ended, side="right")
            )
        return np.append(-1, latest)[place]

    def after(self, stream: int, times: Int64s) -> Rows:
        """The first item that a stream was given after each time, else -1."""
        own = self.by_given[self.bounds[stream] : self.bounds[stream + 1]]
        return np.append(own, -1)[np.searchsorted(self.given[own], times)]


class WaitPairs(NamedTuple):
    """What waits, a cut or an item, and the item that it waits for."""

    target: Rows
    item: Rows


def items_of(trace: Trace, hosts: Hosts) -> Items:
    gpu, stream = trace.gpu_rows, trace.thread_of_track[trace.track[trace.gpu_rows]]
    order = np.lexsort((trace.end[gpu], trace.start[gpu], stream))
    rows, stream = gpu[order], stream[order]
    start, end, launch = trace.start[rows], trace.end[rows], trace.launch[rows]
    known = (launch >= 0) & (trace.start[launch] <= start)
    cut = np.where(known, hosts.cut_of_row[launch], -1)
    streams = distinct(stream).astype(np.intp)
    bounds = np.searchsorted(stream, np.append(streams, streams[-1:] + 1))
    known_before = np.maximum.accumulate(np.where(cut >= 0, np.arange(len(rows)), -1))
    of_stream = known_before >= np.repeat(bounds[:-1], np.diff(bounds))
    given = np.where(of_stream, trace.start[launch[known_before]], trace.begin_ns)
    by_given = np.lexsort((np.arange(len(rows)), given, stream))
    latest, process = by_given.copy(), np.full(len(streams), -1)
    for k, (a, b) in enumerate(pairwise(bounds.tolist())):
        ends = end[by_given[a:b]]
        is_latest = ends >= np.maximum.accumulate(ends)
        latest[a:b] = by_given[a:b][
            np.maximum.accumulate(np.where(is_latest, np.arange(b - a), 0))
        ]
        linked = launch[a:b][cut[a:b] >= 0][:1]
        process[k] = np.append(trace.process_of_track[trace.track[linked]], -1)[0]
    return Items(
        rows, start, end, cut, given, streams, bounds, by_given, latest, process
    )


class Syncs(NamedTuple):
    """Waits that CUPTI recorded on the device; arrays of shape [syncs]."""

    call: Int32s  # the row of the call, -1: none
    stream: Rows  # places among Items.streams, -1: not known
    awaited: Rows  # for events: the stream on which it was recorded, likewise
    recorded: Rows  # and the row of the call that did
    of_event: Flags


def syncs_of(trace: Trace, items: Items) -> Syncs:
    """Reads the args of those about events."""
    rows, calls = trace.rows_of(Role.SYNC), trace.rows_of(Role.CALL)
    rows = rows[trace.correlation[rows] > 0]
    place = np.full(len(trace.tracks) + 1, -1)
    place[items.streams] = np.arange(len(items.streams))
    of_event = trace.matching(rows, re.compile("Event").search)
    awaited, number = np.full((2, len(rows)), -1)
    events = np.flatnonzero(of_event)
    if len(events):
        told = arguments(trace.elements.own, trace.order[rows[events]], WAITS_ON)
        keys = ((str(track.pid), str(track.tid)) for track in trace.tracks)
        tracks = dict(zip(keys, trace.thread_of_track.tolist(), strict=True))
        for at, which in zip(events.tolist(), told.number.tolist(), strict=True):
            stream, record = (
                map(parsed, told.distinct[which]) if which >= 0 else (None, None)
            )
            key = (str(trace.track_of(int(rows[at])).pid), str(stream))
            awaited[at] = place[tracks.get(key, -1)]
            number[at] = record if type(record) is int else -1
    numbers = trace.correlation[calls]
    call = first_with(numbers, calls, trace.correlation[rows])
    recorded = np.where(number > 0, first_with(numbers, calls, number), -1)
    return Syncs(
        call,
        place[trace.thread_of_track[trace.track[rows]]],
        awaited,
        recorded,
        of_event,
    )


def awaited_by_calls(
    trace: Trace, hosts: Hosts, items: Items, syncs: Syncs
) -> tuple[list[WaitPairs], int]:
    """What each waiting call waits for, and for how many this was inferred: the latest
    end before its own that fits."""
    cuts = np.flatnonzero(hosts.kind == Node.WAIT)
    rows, begin, end = hosts.row[cuts], hosts.begin[cuts], hosts.end[cuts]
    process = trace.process_of_track[trace.track[rows]]
    whole, event, syncing = (
        trace.matching(rows, test.search)
        for test in (OF_DEVICE, OF_EVENT, SYNCHRONIZES)
    )
    own = np.flatnonzero(np.append(hosts.kind, 0)[items.cut] == Node.WAIT)
    skew = np.where(trace.matching(items.rows[own], TO_DEVICE.search), 0, SKEW_NS)
    # else it only fills a buffer
    own = own[items.end[own] <= hosts.end[items.cut[own]] + skew]
    found = [WaitPairs(items.cut[own], own)]
    told = np.full((2, len(trace)), -1)  # by call: a stream, and the call since when
    since = np.where(
        syncs.of_event, (syncs.awaited, syncs.recorded), (syncs.stream, syncs.call)
    )
    known = (syncs.call >= 0) & (since[1] >= 0)
    told[:, syncs.call[known]] = since[:, known]
    stream, since = told[:, rows]
    is_told = syncing & ~whole & (stream >= 0)
    asking = syncing & ~whole & ~is_told
    best = np.full(len(cuts), -1)
    for k in range(len(items.streams)):
        given = (items.process[k] == process) | (items.process[k] < 0)
        item = items.before(k, begin)
        fits = (item >= 0) & given & (items.end[item] <= end + SKEW_NS)
        found.append(WaitPairs(cuts[fits & whole], item[fits & whole]))
        ended = items.before(k, begin, end)
        item, fits = (
            np.where(event, ended, item),
            np.where(event, given & (ended >= 0), fits),
        )
        better = asking & fits & ((best < 0) | (items.end[item] > items.end[best]))
        best[better] = item[better]
        mine = np.flatnonzero(is_told & (stream == k))
        item = items.before(k, trace.start[since[mine]])
        found.append(WaitPairs(cuts[mine[item >= 0]], item[item >= 0]))
    inferred = best >= 0
    found.append(WaitPairs(cuts[inferred], best[inferred]))
    return found, int(inferred.sum())


def awaited_by_items(trace: Trace, items: Items, syncs: Syncs) -> Iterator[WaitPairs]:
    """Events that streams wait for, and dependencies of the nodes of graphs, as
    recorded."""
    waits = syncs.of_event & (syncs.stream >= 0) & (syncs.awaited >= 0)
    waits &= (syncs.recorded >= 0) & (syncs.call >= 0)
    streams = syncs.awaited[waits].tolist(), syncs.stream[waits].tolist()
    for source, target in sorted(set(zip(*streams, strict=True))):
        own = np.flatnonzero(
            waits & (syncs.awaited == source) & (syncs.stream == target)
        )
        before = items.before(source, trace.start[syncs.recorded[own]])
        after = items.after(target, trace.start[syncs.call[own]])
        both = (before >= 0) & (after >= 0)
        yield WaitPairs(after[both], before[both])
    if graph_calls(trace).any() and len(items.streams) > 1:
        found = once(trace, dependencies)
        place = np.full(len(trace), -1)
        place[items.rows] = np.arange(len(items.rows))
        both = (place[found.before] >= 0) & (place[found.after] >= 0)
        yield WaitPairs(place[found.after][both], place[found.before][both])


def awaited_unrecorded(trace: Trace, items: Items, late: Rows) -> WaitPairs:
    """What items wait for that start later than is understood, where a stream was told
    to wait for an event since the launch before: what ended last on another stream of
    what that was given before, if it ended just before."""
    calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    late = late[items.cut[late] >= 0]
    best = np.full(len(late), -1)
    stream = np.searchsorted(items.bounds, late, side="right") - 1
    is_first = late == items.bounds[stream]
    since = np.where(is_first, trace.begin_ns, items.given[late - 1])
    for process in distinct(items.process[stream]).tolist():
        own = calls[trace.process_of_track[trace.track[calls]] == process]
        told = np.sort(trace.start[own])
        place = np.searchsorted(told, items.given[late]) - 1  # the last time
        waited = np.append(told, np.iinfo(np.int64).min)[place]
        waits = (waited >= since) & (items.process[stream] == process)
        for k in np.flatnonzero(items.process == process).tolist():
            ended = items.before(k, waited, items.start[late])
            better = waits & (stream != k) & (ended >= 0)
            better &= items.start[late] - items.end[ended] <= SOON_NS
            better &= (best < 0) | (items.end[ended] > items.end[best])
            best[better] = ended[better]
    return WaitPairs(late[best >= 0], best[best >= 0])


def behind_communication(
    trace: Trace, items: Items, pairs: WaitPairs
) -> tuple[WaitPairs, WaitPairs]:
    """What waits for an item also waits for the communication before that on its
    stream, and communication for the one before it: that counts where a change lets
    others go ahead of it."""
    moves, place = communicates(trace, items.rows), np.arange(len(items.rows))
    first = np.repeat(items.bounds[:-1], np.diff(items.bounds))
    last = np.maximum.accumulate(np.where(moves, place, -1))
    last = np.where(moves | (last < first), -1, last)  # of what is no communication
    known = last[pairs.item] >= 0
    again = np.flatnonzero(moves & (place > first))
    again = again[last[again - 1] >= 0]
    waiting = WaitPairs(pairs.target[known], last[pairs.item[known]])
    return waiting, WaitPairs(again, last[again - 1])


def freeing(hosts: Hosts, items: Items) -> Iterator[WaitPairs]:
    """Of each stream whose queue was full the launch calls, and the item that frees the
    slot of each: its queue holds as many as were ever in flight."""
    launches = np.bincount(items.cut[items.cut >= 0], minlength=len(hosts.kind))
    for a, b in pairwise(items.bounds.tolist()):
        order = items.by_given[a:b]
        cut = items.cut[order]
        if not len(order) or (cut < 0).any() or (launches[cut] != 1).any():
            continue  # what launches many at once does not tell
        latest, number = items.latest[a:b], np.arange(b - a)
        begin, end, ended = hosts.begin[cut], hosts.end[cut], items.end[latest]
        most = int((number + 1 - np.searchsorted(ended, end, side="right")).max())
        full = number - np.searchsorted(ended, begin, side="right") >= most
        usual = np.median((end - begin)[~full]) if not full.all() else 0
        slow = full & (end - begin > SLOW * usual)
        if most > 0 and slow.sum() >= FEWEST and 2 * slow.sum() > full.sum():
            yield WaitPairs(cut[most:], latest[: len(cut) - most])


def by_target(pairs: list[WaitPairs]) -> WaitPairs:
    target, item = map(
        np.concatenate, zip(np.empty((2, 0), dtype=np.intp), *pairs, strict=True)
    )
    order = np.argsort(target, kind="stable")
    return WaitPairs(target[order], item[order])
