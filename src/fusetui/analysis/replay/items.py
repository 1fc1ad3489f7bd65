"""The GPU work of a trace by stream, and the waits between calls and GPU work.

An *GPU task* is one piece of GPU work: a kernel, a memory copy or a memory set. GpuTasks are
numbered by stream and start; a "task" in an array is such an index.

A stream runs its tasks in the order in which they were launched. A GPU task counts as
launched when the call that launches it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.launches import mark_graph_calls
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
    last_at_or_before,
    last_marked_of_group,
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
"""The args in which CUPTI says where the event was recorded that is waited for: its
stream, and the correlation of the call that recorded it."""
MIN_SLOW_LAUNCHES = 3
"""How many slow launch calls show that a queue was full; fewer may be chance."""
SLOW_LAUNCH_FACTOR = 2
"""A launch call is slow if it takes more than this many times the median of calls that
certainly found room in the queue."""
MAX_CLOCK_SKEW_NS = 20_000
"""The clocks of CPU and device may differ by so much. A GPU task that ends at most so long
after a call may still be what the call waited for."""
MAX_SWITCH_NS = 10_000
"""A longer gap between two queued tasks is no switch from one to the next: the second
one waited for something else."""
MAX_EVENT_DELAY_NS = 25_000
"""Work that waits for an event usually starts within this time after the event."""
WAITS_EVENT = lazy_pattern(r"StreamWaitEvent")
NONE = -1
"""In arrays of tasks, streams, cuts or rows: there is none, or it is not known."""


class GpuTasks(msgspec.Struct, frozen=True, eq=False):
    """All GPU work of a trace, sorted by stream and, within a stream, by start.

    Arrays have one entry per task unless noted. Times are ns of the file.
    """

    rows: Rows  # the row of the task in the trace
    start: Int64s
    end: Int64s
    launch_cut: Rows  # the cut of its launch call (see ThreadCuts); NONE: not known
    # When the launch call begins. If that call is not known: as for the task before on
    # the stream, or the begin of the trace.
    launched_at: Int64s
    streams: Rows  # per stream: its number, as in Trace.thread_of_track
    # The tasks of stream s are those from bounds[s] on, up to bounds[s + 1].
    bounds: Rows
    # The tasks of each stream in the order of their launches. Stream s has the entries
    # from bounds[s] on, up to bounds[s + 1].
    by_launch: Rows
    # For each entry of `by_launch`: which task ends last, of that one and all that were
    # launched on the stream before it.
    last_to_end: Rows
    process: Rows  # per stream: the process that launches its work; NONE: not known

    def last_to_end_before(
        self, stream: int, times: Int64s, ended: Int64s | None = None
    ) -> Rows:
        """Find the task for which a call waits that waits for a stream at some time.

        This is the task that ends last, of those that were launched on the stream
        before that time.

        Args:
            stream: The index of the stream.
            times: The times.
            ended: If given, the search goes only as far as all tasks launched so far
                had ended by this time. E.g. of three launched tasks that end at 10, 50
                and 20 ns, only the first one counts at 30 ns: the stream had not got
                past the second one.

        Returns:
            A GPU task for each time; NONE if nothing was launched before it.
        """
        of_stream = slice(self.bounds[stream], self.bounds[stream + 1])
        last_to_end = self.last_to_end[of_stream]
        launched_at = self.launched_at[self.by_launch[of_stream]]
        launched_before = np.searchsorted(launched_at, times)
        if ended is not None:
            all_ended = np.searchsorted(self.end[last_to_end], ended, side="right")
            launched_before = np.minimum(launched_before, all_ended)
        task: Rows = at(last_to_end, launched_before - 1, missing=NONE)
        return task

    def first_launched_after(self, stream: int, times: Int64s) -> Rows:
        """Find the first GPU task (kernel, copy or set) that was launched on a stream at or
        after each time.

        Returns:
            A GPU task for each time; NONE if nothing was launched from then on.
        """
        by_launch = self.by_launch[self.bounds[stream] : self.bounds[stream + 1]]
        index = np.searchsorted(self.launched_at[by_launch], times)
        next_task: Rows = at(by_launch, index, missing=NONE)
        return next_task

    def stream_of(self, tasks: Rows) -> Rows:
        """Return the index of the stream on which each task ran."""
        return last_at_or_before(self.bounds, tasks)


class WaitPairs(NamedTuple):
    """Pairs of something that waits, and what it waits for; one entry per pair.

    Both are indices. What they index is said where the pairs are made: calls (cuts)
    that wait for tasks, tasks that wait for tasks, or nodes that wait for nodes.
    """

    waiting: Rows
    awaited: Rows


class _Order(NamedTuple):
    """GPU events sorted by stream, then by start."""

    rows: Rows
    stream: Int32s  # of each event: the number of its stream, see Trace.thread_of_track
    streams: Rows  # the numbers of all streams, ascending
    bounds: Rows  # see GpuTasks.bounds


class _Launches(NamedTuple):
    """The call that launched each task; one entry per task."""

    row: Int32s  # the row of the call; only meaningful where `cut` is not NONE
    cut: Rows  # see GpuTasks.launch_cut


def collect_gpu_tasks(trace: Trace, cuts: ThreadCuts) -> GpuTasks:
    """Collect all GPU work of a trace, with the calls that launched it.

    An *GPU task* is a kernel, a copy or a set. GpuTasks are numbered by stream and, within a
    stream, by start. E.g. of two streams with 2 tasks and 1 task, the numbers are 0, 1
    and 2, and `bounds` is 0, 2, 3.

    Args:
        trace: The trace.
        cuts: The calls of its threads, among which the launch calls are looked up.
    """
    order = _sort_gpu_events(trace)
    start = trace.start[order.rows]
    end = trace.end[order.rows]
    launches = _find_launches(trace, cuts, order.rows)
    launched_at = _determine_launch_times(trace, launches, order.bounds)

    # Sort by stream, then by launch; launches at the same time stay in order of start.
    # np.lexsort sorts by its last key first.
    task_indices = np.arange(len(order.rows))
    by_launch = np.lexsort((task_indices, launched_at, order.stream))
    return GpuTasks(
        rows=order.rows,
        start=start,
        end=end,
        launch_cut=launches.cut,
        launched_at=launched_at,
        streams=order.streams,
        bounds=order.bounds,
        by_launch=by_launch,
        last_to_end=_find_last_to_end(by_launch, end, order.bounds),
        process=_find_launching_processes(trace, launches, order.bounds),
    )


def _sort_gpu_events(trace: Trace) -> _Order:
    """Sort the GPU events by stream, those of a stream by start and then by end."""
    gpu_rows = trace.gpu_rows
    stream = trace.thread_of_track[trace.track[gpu_rows]]
    order = np.lexsort((trace.end[gpu_rows], trace.start[gpu_rows], stream))
    sorted_stream = stream[order]

    streams = distinct(sorted_stream).astype(np.intp)
    # A number behind the last stream ends the bounds; empty if there are no streams.
    behind_last_stream = streams[-1:] + 1
    return _Order(
        rows=gpu_rows[order],
        stream=sorted_stream,
        streams=streams,
        bounds=np.searchsorted(sorted_stream, np.append(streams, behind_last_stream)),
    )


def _find_launches(trace: Trace, cuts: ThreadCuts, rows: Rows) -> _Launches:
    """Find the launch calls of GPU events.

    A call that begins after the event that it is said to launch counts as unknown,
    because nothing runs before it is launched.

    Args:
        trace: The trace.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
        rows: The GPU events.
    """
    call = trace.launch[rows]
    is_known = (call >= 0) & (trace.start[call] <= trace.start[rows])
    cut = np.where(is_known, cuts.cut_of_row[call], NONE)
    return _Launches(row=call, cut=cut)


def _determine_launch_times(trace: Trace, launches: _Launches, bounds: Rows) -> Int64s:
    """Determine when each GPU task (kernel, copy or set) was launched, which is when its
    launch call began.

    If the call is not known, the task counts as launched with the last task before it
    on its stream whose call is known. If there is none either, it counts as launched
    when the trace begins: e.g. with calls at (?, 30, ?, 50) ns and a trace from 10 ns
    on, the tasks of a stream are launched at 10, 30, 30 and 50 ns.

    Args:
        trace: The trace.
        launches: The launch calls of the tasks.
        bounds: See GpuTasks.bounds.

    Returns:
        ns of the file per task.
    """
    has_launch = launches.cut >= 0
    last_with_launch = last_marked_of_group(has_launch, bounds)
    call_began = trace.start[launches.row[last_with_launch]]
    return np.where(last_with_launch >= 0, call_began, trace.begin_ns)


def _find_last_to_end(by_launch: Rows, end: Int64s, bounds: Rows) -> Rows:
    """Find for each task which one ends last on its stream, of it and those launched
    before it.

    A GPU task is a kernel, copy or set.

    Args:
        by_launch: The tasks by stream, those of a stream by launch.
        end: When each task ends, in ns.
        bounds: The first task of each stream, and the number of tasks.
    """
    last_to_end = by_launch.copy()
    for first, stop in pairwise(bounds.tolist()):
        last_to_end[first:stop] = _find_last_to_end_so_far(by_launch[first:stop], end)
    return last_to_end


def _find_launching_processes(trace: Trace, launches: _Launches, bounds: Rows) -> Rows:
    """Find the process that launches the work of each stream.

    All tasks of a stream come from one process, so the first task with a known launch
    call decides.

    Returns:
        The process per stream; NONE if no launch of the stream is known.
    """
    process = np.full(len(bounds[:-1]), NONE)
    for stream, (first, stop) in enumerate(pairwise(bounds.tolist())):
        has_launch = launches.cut[first:stop] >= 0
        calls = launches.row[first:stop][has_launch]
        if len(calls):
            process[stream] = trace.process_of_track[trace.track[calls[0]]]
    return process


def _find_last_to_end_so_far(tasks: Rows, end: Int64s) -> Rows:
    """Find for each GPU task (kernel, copy or set) which one ends last, of it and those
    before it.

    E.g. for tasks that end at 10, 50 and 20 ns: the first, the second, the second.

    Args:
        tasks: The tasks of one stream, in the order of their launches.
        end: When each task of the trace ends, in ns.
    """
    ends = end[tasks]
    is_last_so_far = ends >= np.maximum.accumulate(ends)
    index_if_last = np.where(is_last_so_far, np.arange(len(tasks)), 0)
    index_of_last = np.maximum.accumulate(index_if_last)
    return tasks[index_of_last]


class Syncs(NamedTuple):
    """The waits that CUPTI recorded on the device; one entry per wait.

    A wait is for a whole stream, or for an event, which a program records on a stream
    to mark how far that stream has got. Streams are indices into GpuTasks.streams. NONE
    stands for what is not known.
    """

    call: Int32s  # the row of the call that waits, or that makes a stream wait
    stream: Rows  # the stream on which the wait was recorded
    event_stream: Rows  # the stream on which the awaited event was recorded
    event_call: Rows  # the row of the call that recorded the awaited event
    of_event: Flags  # whether it waits for an event; the two above are NONE if not


def collect_syncs(trace: Trace, tasks: GpuTasks) -> Syncs:
    """Collect the waits that CUPTI recorded on the device, with the calls that caused
    them.

    Waits for an event say in their args where the event was recorded. Waits without a
    correlation cannot be assigned to a call and are left out.
    """
    rows = trace.rows_of(Role.SYNC)
    rows = rows[trace.correlation[rows] > 0]
    index_of_stream = np.full(len(trace.tracks) + 1, NONE)
    index_of_stream[tasks.streams] = np.arange(len(tasks.streams))

    of_event = trace.matching(rows, re.compile("Event").search)
    events = _read_recorded_events(trace, rows, np.flatnonzero(of_event))
    calls = trace.rows_of(Role.CALL)
    correlation_of_call = trace.correlation[calls]
    event_call = first_with(correlation_of_call, calls, events.correlation)
    return Syncs(
        call=first_with(correlation_of_call, calls, trace.correlation[rows]),
        stream=index_of_stream[trace.thread_of_track[trace.track[rows]]],
        event_stream=np.where(events.thread >= 0, index_of_stream[events.thread], NONE),
        event_call=np.where(events.correlation > 0, event_call, NONE),
        of_event=of_event,
    )


class _RecordedEvents(NamedTuple):
    """Where the awaited events were recorded; one entry per wait, NONE if unknown."""

    thread: Rows  # the number of the stream, as in Trace.thread_of_track
    correlation: Rows  # the correlation of the call that recorded the event


def _read_recorded_events(trace: Trace, rows: Rows, of_event: Rows) -> _RecordedEvents:
    """Read from the args of waits where the awaited events were recorded.

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
    thread_of_lane = _number_lanes(trace)
    for wait, args_index in zip(of_event.tolist(), args.number.tolist(), strict=True):
        has_args = args_index >= 0
        if not has_args:
            continue
        stream_text, correlation_text = args.distinct[args_index]
        device = str(trace.track_of(int(rows[wait])).pid)
        lane = (device, str(parsed(stream_text)))
        thread[wait] = thread_of_lane.get(lane, NONE)
        # A file may have anything here, also a bool, which is an int to isinstance.
        recorded_by = parsed(correlation_text)
        if type(recorded_by) is int:
            correlation[wait] = recorded_by
    return _RecordedEvents(thread=thread, correlation=correlation)


def _number_lanes(trace: Trace) -> dict[tuple[str, str], int]:
    """Return the number of each lane (Trace.thread_of_track) by its pid and its tid.

    Both are texts, because files have them as numbers and as texts.
    """
    lanes = ((str(track.pid), str(track.tid)) for track in trace.tracks)
    return dict(zip(lanes, trace.thread_of_track.tolist(), strict=True))


class _WaitingCalls(NamedTuple):
    """The calls that wait for the device; one entry per call, times in ns of the file.

    A call that waits neither for a device nor for an event waits for one stream.
    """

    cut: Rows
    row: Rows
    begin: Int64s
    end: Int64s
    process: Int32s
    for_device: Flags  # waits for all streams, such as cudaDeviceSynchronize
    for_event: Flags  # such as cudaEventSynchronize
    is_synchronization: Flags  # False e.g. for a copy that returns when it is done


class WaitsOfCalls(NamedTuple):
    """The tasks that calls wait for."""

    pairs: list[WaitPairs]  # calls, as cuts, with the tasks that they wait for
    inferred: int  # how many calls wait for a GPU task that was inferred, not recorded


class _Synchronizations(NamedTuple):
    """What CUPTI recorded about each waiting call; one entry per call."""

    stream: Rows  # the index of the stream that the call waits for
    # The call waits for what was launched on that stream before this row of the trace.
    launched_before_row: Rows
    is_recorded: Flags  # it waits for one stream or event, and the two above are known
    is_unknown: Flags  # it waits for one stream or event, and nothing says for which


def find_waits_of_calls(
    trace: Trace, cuts: ThreadCuts, tasks: GpuTasks, syncs: Syncs
) -> WaitsOfCalls:
    """Find the tasks that each waiting call waits for.

    A call that waits for a device waits for all its streams. For a call that waits for
    one stream or event, CUPTI may have recorded which one. If not, the stream is
    inferred: of the tasks that the call may wait for, the one that ends last is taken.

    Args:
        trace: The trace.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
        tasks: All kernels, copies and sets, by stream and start.
        syncs: The waits that CUPTI recorded.
    """
    calls = _find_waiting_calls(trace, cuts)
    recorded = _look_up_synchronizations(trace, calls, syncs)
    pairs = [_find_waits_for_own_launch(trace, cuts, tasks)]
    inferred = np.full(len(calls.cut), NONE)
    for stream in range(len(tasks.streams)):
        last_launched = tasks.last_to_end_before(stream, calls.begin)
        candidates = _find_candidates(tasks, calls, stream, last_launched)
        for_device = candidates.is_possible_for_device & calls.for_device
        pairs.append(WaitPairs(calls.cut[for_device], last_launched[for_device]))

        may_be_inferred = recorded.is_unknown & candidates.is_possible
        inferred = _replace_by_later(tasks, inferred, candidates.task, may_be_inferred)

        on_stream = np.flatnonzero(recorded.is_recorded & (recorded.stream == stream))
        before_row = recorded.launched_before_row[on_stream]
        awaited = tasks.last_to_end_before(stream, trace.start[before_row])
        pairs.append(_make_known_pairs(waiting=calls.cut[on_stream], awaited=awaited))

    is_inferred = inferred >= 0
    pairs.append(WaitPairs(calls.cut[is_inferred], inferred[is_inferred]))
    return WaitsOfCalls(pairs=pairs, inferred=int(is_inferred.sum()))


def _replace_by_later(
    tasks: GpuTasks, best: Rows, candidates: Rows, may_replace: Flags
) -> Rows:
    """Replace the best tasks found so far by candidates that end later.

    A GPU task is a kernel, a copy or a set for which a call may have waited.

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        best: The best task so far of each entry; NONE if there is none yet.
        candidates: Another task for each entry.
        may_replace: For which entries the candidate is allowed.
    """
    ends_later = (best < 0) | (tasks.end[candidates] > tasks.end[best])
    return np.where(may_replace & ends_later, candidates, best)


class _Candidates(NamedTuple):
    """The task of one stream that each waiting call may wait for; one entry per call."""

    task: Rows  # for a call that waits for a stream or an event; NONE: there is none
    is_possible: Flags  # whether such a call may wait for that task
    # Whether a call that waits for a device may wait for what was launched before it.
    is_possible_for_device: Flags


def _find_candidates(
    tasks: GpuTasks, calls: _WaitingCalls, stream: int, last_launched: Rows
) -> _Candidates:
    """Find the task of a stream that each call may wait for.

    A call can wait only for work of its own process, and only for a GPU task that had
    ended when the call returned.

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        calls: The waiting calls.
        stream: The index of the stream.
        last_launched: For each call the task that ends last, of those that were
            launched on the stream before the call.
    """
    process = tasks.process[stream]
    # The work of a stream whose process is not known may be of any process.
    is_of_process = (process == calls.process) | (process < 0)
    ends_in_time = tasks.end[last_launched] <= calls.end + MAX_CLOCK_SKEW_NS
    may_be_last = is_of_process & (last_launched >= 0) & ends_in_time

    # An event may have been recorded before the last launches, so work may be left on
    # the stream when the call returns. What had ended by then still counts.
    had_ended = tasks.last_to_end_before(stream, calls.begin, calls.end)
    may_be_event = is_of_process & (had_ended >= 0)
    return _Candidates(
        task=np.where(calls.for_event, had_ended, last_launched),
        is_possible=np.where(calls.for_event, may_be_event, may_be_last),
        is_possible_for_device=may_be_last,
    )


def _look_up_synchronizations(
    trace: Trace, calls: _WaitingCalls, syncs: Syncs
) -> _Synchronizations:
    """Look up what CUPTI recorded about the waiting calls.

    Args:
        trace: The trace.
        calls: The waiting calls.
        syncs: The waits that CUPTI recorded.
    """
    waits = _look_up_recorded_waits(trace, syncs)
    stream = waits.stream[calls.row]
    for_one_stream = calls.is_synchronization & ~calls.for_device
    is_recorded = for_one_stream & (stream >= 0)
    return _Synchronizations(
        stream=stream,
        launched_before_row=waits.launched_before_row[calls.row],
        is_recorded=is_recorded,
        is_unknown=for_one_stream & ~is_recorded,
    )


def _find_waiting_calls(trace: Trace, cuts: ThreadCuts) -> _WaitingCalls:
    """Find the calls of all threads that wait for the device, such as
    cudaStreamSynchronize.

    Each is described by its times, its process, and by what it waits for: the whole
    device, an event, or something else.
    """
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


def _find_waits_for_own_launch(
    trace: Trace, cuts: ThreadCuts, tasks: GpuTasks
) -> WaitPairs:
    """Find the tasks whose own launch call waits until they are done, such as copies.

    The task must have ended when the call returned. A copy to the device often has
    not: its call only fills a buffer, and the copy follows later. No clock skew is
    tolerated there, or short copies would seem to be waited for.

    Returns:
        Calls, as cuts, with the tasks that they launched.
    """
    no_kind = 0  # of tasks whose launch call is not known; no kind of a cut
    kind_of_launch = at(cuts.kind, tasks.launch_cut, missing=no_kind)
    launched = np.flatnonzero(kind_of_launch == Node.WAIT)

    to_device = trace.matching(tasks.rows[launched], TO_DEVICE.search)
    tolerated_skew_ns = np.where(to_device, 0, MAX_CLOCK_SKEW_NS)
    call_end = cuts.end[tasks.launch_cut[launched]]
    awaited = launched[tasks.end[launched] <= call_end + tolerated_skew_ns]
    return WaitPairs(tasks.launch_cut[awaited], awaited)


class _RecordedWaits(NamedTuple):
    """What CUPTI says that each call waits for; one entry per row of the trace.

    NONE where it says nothing.
    """

    stream: Rows  # the index of the stream that the call waits for
    launched_before_row: Rows  # see _Synchronizations


def _look_up_recorded_waits(trace: Trace, syncs: Syncs) -> _RecordedWaits:
    """Look up what each call waits for.

    A call that waits for a stream waits for what was launched on it before the call
    itself. A call that waits for an event waits for what was launched before the call
    that recorded the event, on the stream of the event.
    """
    awaited_stream = np.where(syncs.of_event, syncs.event_stream, syncs.stream)
    before_row = np.where(syncs.of_event, syncs.event_call, syncs.call)
    is_known = (syncs.call >= 0) & (before_row >= 0)
    call = syncs.call[is_known]

    stream_of_call = np.full(len(trace), NONE)
    stream_of_call[call] = awaited_stream[is_known]
    before_row_of_call = np.full(len(trace), NONE)
    before_row_of_call[call] = before_row[is_known]
    return _RecordedWaits(stream=stream_of_call, launched_before_row=before_row_of_call)


def find_recorded_waits(
    trace: Trace, tasks: GpuTasks, syncs: Syncs
) -> Iterator[WaitPairs]:
    """Yield which GPU tasks (kernels, copies and sets) were recorded to wait for which
    others.

    A GPU task waits if its stream was told to wait for an event of another stream
    (cudaStreamWaitEvent) before the task was launched. Nodes of a CUDA graph wait for
    the nodes that they depend on.

    Yields:
        GPU tasks with the GPU tasks that they wait for.
    """
    has_streams = (syncs.stream >= 0) & (syncs.event_stream >= 0)
    has_calls = (syncs.event_call >= 0) & (syncs.call >= 0)
    is_recorded = syncs.of_event & has_streams & has_calls

    awaited_streams = syncs.event_stream[is_recorded].tolist()
    waiting_streams = syncs.stream[is_recorded].tolist()
    stream_pairs = set(zip(awaited_streams, waiting_streams, strict=True))
    for awaited_stream, waiting_stream in sorted(stream_pairs):
        is_of_pair = (syncs.event_stream == awaited_stream) & (
            syncs.stream == waiting_stream
        )
        waits = np.flatnonzero(is_recorded & is_of_pair)
        event_recorded_at = trace.start[syncs.event_call[waits]]
        wait_called_at = trace.start[syncs.call[waits]]
        awaited = tasks.last_to_end_before(awaited_stream, event_recorded_at)
        waiting = tasks.first_launched_after(waiting_stream, wait_called_at)
        yield _make_known_pairs(waiting=waiting, awaited=awaited)

    # Nodes of a graph on one stream follow each other anyway.
    if mark_graph_calls(trace).any() and len(tasks.streams) > 1:
        yield _find_dependencies_in_graphs(trace, tasks)


def _find_dependencies_in_graphs(trace: Trace, tasks: GpuTasks) -> WaitPairs:
    """Find the tasks of CUDA graphs (kernels, copies and sets) with the tasks that they
    depend on."""
    in_graphs = dependencies(trace)
    task_of_row = np.full(len(trace), NONE)
    task_of_row[tasks.rows] = np.arange(len(tasks.rows))
    return _make_known_pairs(
        waiting=task_of_row[in_graphs.after], awaited=task_of_row[in_graphs.before]
    )


def _make_known_pairs(*, waiting: Rows, awaited: Rows) -> WaitPairs:
    """Make pairs of what waits and what it waits for.

    Pairs of which one side is unknown (NONE, which is below 0) are left out.
    """
    is_known = (awaited >= 0) & (waiting >= 0)
    return WaitPairs(waiting[is_known], awaited[is_known])


class _LateTasks(NamedTuple):
    """GPU tasks that start late, whose launch is known; one entry per task, ns of the file."""

    task: Rows
    stream: Rows  # the index of its stream
    start: Int64s
    launched_at: Int64s
    # When the task before it on the stream was launched. For the first task of a stream
    # it is the begin of the trace.
    task_before_launched_at: Int64s


def infer_waits(trace: Trace, tasks: GpuTasks, late: Rows) -> WaitPairs:
    """Infer which event late tasks wait for, where the recording does not say it.

    A GPU task waits for an event if its stream was told to (cudaStreamWaitEvent) between
    the launch of the task before it and its own. It is then taken to wait for the task
    of another stream that had been launched before that call, ends last before the
    late task starts, and ends at most MAX_EVENT_DELAY_NS before it.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        late: The tasks that start later than their launch and their stream explain.

    Returns:
        Late tasks with the tasks that they are taken to wait for.
    """
    event_calls = trace.rows_named(WAITS_EVENT.search, Role.CALL)
    process_of_call = trace.process_of_track[trace.track[event_calls]]
    late_tasks = _select_late_tasks(trace, tasks, late)
    process_of_task = tasks.process[late_tasks.stream]
    awaited = np.full(len(late_tasks.task), NONE)
    for process in distinct(process_of_task).tolist():
        calls = event_calls[process_of_call == process]
        wait_called_at = _find_last_before(trace.start[calls], late_tasks.launched_at)
        is_of_process = process_of_task == process
        is_told_to_wait = wait_called_at >= late_tasks.task_before_launched_at
        waits = is_of_process & is_told_to_wait
        for stream in np.flatnonzero(tasks.process == process).tolist():
            ended = tasks.last_to_end_before(stream, wait_called_at, late_tasks.start)
            is_other_stream = (late_tasks.stream != stream) & (ended >= 0)
            is_soon = late_tasks.start - tasks.end[ended] <= MAX_EVENT_DELAY_NS
            may_await = waits & is_other_stream & is_soon
            awaited = _replace_by_later(tasks, awaited, ended, may_await)
    return _make_known_pairs(waiting=late_tasks.task, awaited=awaited)


def _select_late_tasks(trace: Trace, tasks: GpuTasks, late: Rows) -> _LateTasks:
    """Select those late tasks whose launch is known.

    A GPU task is a kernel, copy or set. It is late if it starts later than its launch
    and its stream explain.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        late: The late tasks.
    """
    late = late[tasks.launch_cut[late] >= 0]
    stream = tasks.stream_of(late)
    is_first_of_stream = late == tasks.bounds[stream]
    return _LateTasks(
        task=late,
        stream=stream,
        start=tasks.start[late],
        launched_at=tasks.launched_at[late],
        task_before_launched_at=np.where(
            is_first_of_stream, trace.begin_ns, tasks.launched_at[late - 1]
        ),
    )


def _find_last_before(call_starts: Int64s, times: Int64s) -> Int64s:
    """Find when the last call before each time started.

    Args:
        call_starts: When the calls start, in any order.
        times: The times.

    Returns:
        One start per time; the least possible number if no call starts before it, so
        that it is earlier than any time that it is compared with.
    """
    no_call = np.iinfo(np.int64).min
    starts = np.append(no_call, np.sort(call_starts))
    calls_before = np.searchsorted(starts[1:], times)
    return starts[calls_before]


class CommunicationWaits(NamedTuple):
    """Waits for communication that are implied by other waits.

    As recorded they never decide when something starts. They matter if a change lets
    the task between go ahead of the communication, as `overlap` does.
    """

    # What waits for a GPU task also waits for the last communication before that task.
    implied: WaitPairs
    # Communication waits for the communication before it on its stream.
    of_communication: WaitPairs


def infer_waits_for_communication(
    trace: Trace, tasks: GpuTasks, pairs: WaitPairs
) -> CommunicationWaits:
    """Infer the waits for communication that waits for other tasks imply.

    E.g. a stream runs an all-reduce, then a kernel, and a call waits for the kernel. So
    the call also waits for the all-reduce.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        pairs: What waits (calls or tasks), with the tasks that it waits for.
    """
    is_communication = communicates(trace, tasks.rows)
    last_so_far = last_marked_of_group(is_communication, tasks.bounds)

    # What waits for a communication itself is known to wait for it already.
    before_awaited = np.where(is_communication, NONE, last_so_far)[pairs.awaited]
    implied = _make_known_pairs(waiting=pairs.waiting, awaited=before_awaited)

    # That before a communication is the last one up to the task before it. If that task
    # is a communication too, the two follow each other on the stream anyway.
    task_indices = np.arange(len(tasks.rows))
    is_first_of_stream = np.zeros(len(tasks.rows), dtype=np.bool_)
    is_first_of_stream[tasks.bounds[:-1]] = True
    follows_task = task_indices[is_communication & ~is_first_of_stream]
    of_communication = _make_known_pairs(
        waiting=follows_task,
        awaited=np.where(is_communication, NONE, last_so_far)[follows_task - 1],
    )
    return CommunicationWaits(implied=implied, of_communication=of_communication)


def infer_waits_for_full_queues(
    cuts: ThreadCuts, tasks: GpuTasks
) -> Iterator[WaitPairs]:
    """Yield the launch calls that had to wait for room in a full queue of a stream.

    A queue holds a fixed number of tasks: kernels, copies and sets. If it is full, a
    launch call returns only when a GPU task ends and makes room: the task that was
    launched so many tasks earlier.

    Streams with unknown launches, or with calls that launch several tasks, are left
    out, because there it is not known how many tasks were in the queue.

    Yields:
        Launch calls, as cuts, with the task that makes room for theirs.
    """
    has_launch = tasks.launch_cut >= 0
    tasks_of_cut = np.bincount(tasks.launch_cut[has_launch], minlength=len(cuts.kind))
    for first, stop in pairwise(tasks.bounds.tolist()):
        launches = tasks.launch_cut[tasks.by_launch[first:stop]]
        if not len(launches) or (launches < 0).any():
            continue
        launches_several = (tasks_of_cut[launches] != 1).any()
        if launches_several:
            continue
        last_to_end = tasks.last_to_end[first:stop]
        queue_length = _measure_queue_length(cuts, launches, tasks.end[last_to_end])
        if queue_length > 0:
            makes_room = last_to_end[: len(launches) - queue_length]
            yield WaitPairs(waiting=launches[queue_length:], awaited=makes_room)


def _measure_queue_length(cuts: ThreadCuts, launches: Rows, ended: Int64s) -> int:
    """Measure how many tasks the queue of a stream holds, if it was ever full.

    A GPU task is a kernel, copy or set.

    The most tasks that were ever in flight at the end of a launch call are taken as the
    length of the queue. Calls that were made with so many in flight would have had to
    wait. Only if most of these were slow was the queue really full; otherwise the
    program just never launched more.

    Args:
        cuts: The calls of all threads.
        launches: The cuts of the launch calls, in the order of their tasks.
        ended: When all tasks up to that of each call had ended, in ns, ascending.

    Returns:
        The length; 0 if the queue was never full.
    """
    begin = cuts.begin[launches]
    end = cuts.end[launches]
    launched_before = np.arange(len(launches))
    ended_by_begin = np.searchsorted(ended, begin, side="right")
    ended_by_end = np.searchsorted(ended, end, side="right")
    in_flight_at_end = launched_before + 1 - ended_by_end
    most_in_flight = int(in_flight_at_end.max())

    in_flight_at_begin = launched_before - ended_by_begin
    may_be_full = in_flight_at_begin >= most_in_flight
    took_ns = end - begin
    usual_ns = 0 if may_be_full.all() else np.median(took_ns[~may_be_full])
    is_slow = may_be_full & (took_ns > SLOW_LAUNCH_FACTOR * usual_ns)

    slow_launches = is_slow.sum()
    most_are_slow = 2 * slow_launches > may_be_full.sum()
    if slow_launches < MIN_SLOW_LAUNCHES or not most_are_slow:
        return 0
    return max(0, most_in_flight)


def merge_by_waiting(pairs: list[WaitPairs]) -> WaitPairs:
    """Concatenate pairs of what waits and what it waits for, and sort them by what
    waits.

    Pairs of the same waiting call, task or node stay in their order.
    """
    no_rows = np.empty(0, dtype=np.intp)
    waiting = np.concatenate([no_rows, *(each.waiting for each in pairs)])
    awaited = np.concatenate([no_rows, *(each.awaited for each in pairs)])
    order = np.argsort(waiting, kind="stable")
    return WaitPairs(waiting[order], awaited[order])
