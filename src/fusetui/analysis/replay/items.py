"""The GPU work of a trace by stream, and the waits between calls and GPU work.

A *GPU task* is one piece of GPU work: a kernel, a memory copy or a memory set. Tasks
are numbered by stream and start; a "task" in an array is such an index.

A stream runs its tasks in the order in which they were launched. A task counts as
launched when the call that launches it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

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
    last_marked,
    last_marked_of_group,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.program.backward import dependencies

WAITS_FOR_DEVICE = lazy_pattern(rf"(?:Device|Ctx|Context)Synchronize|{FREES.pattern}")
WAITS_FOR_EVENT = lazy_pattern(r"EventSynchronize")
SYNCHRONIZES = lazy_pattern(r"Synchronize")
NAMES_EVENT = lazy_pattern(r"Event")
"""Found in the names of synchronizations that wait for an event, not for a stream."""
TO_DEVICE = lazy_pattern(r"HtoD|HostToDevice")
ARGS_OF_AWAITED_EVENT = ("wait_on_stream", "wait_on_cuda_event_record_corr_id")
"""The args in which CUPTI says where the event was recorded that is waited for: its
stream, and the correlation of the call that recorded it."""
MIN_SLOW_LAUNCHES = 3
"""How many slow launch calls show that a queue was full; fewer may be chance."""
SLOW_LAUNCH_FACTOR = 2
"""A launch call is slow if it takes more than this many times the median of calls that
certainly found room in the queue."""
MAX_CLOCK_SKEW_NS = 20_000
"""The clocks of CPU and device may differ by so much. A GPU task that ends at most so
long after a call may still be what the call waited for."""
MAX_SWITCH_NS = 10_000
"""A longer gap between two queued tasks is no switch from one to the next: the second
one waited for something else."""
MAX_EVENT_DELAY_NS = 25_000
"""Work that waits for an event usually starts within this time after the event."""
MAKES_STREAM_WAIT = lazy_pattern(r"StreamWaitEvent")
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

    @property
    def slices_of_streams(self) -> list[slice]:
        """For each stream, where its tasks are in arrays with one entry per task."""
        return [slice(first, stop) for first, stop in pairwise(self.bounds.tolist())]

    @property
    def is_first_of_stream(self) -> Flags:
        """For each task, whether it is the first one of its stream."""
        first_tasks = self.bounds[:-1]
        is_first = np.zeros(len(self.rows), dtype=np.bool_)
        is_first[first_tasks] = True
        return is_first

    @property
    def has_launch(self) -> Flags:
        """For each task, whether its launch call is known."""
        return np.asarray(self.launch_cut != NONE)

    def find_awaited(
        self, stream: int, called_at: Int64s, ended_by: Int64s | None = None
    ) -> Rows:
        """Find for which GPU task a call waits that waits for a stream.

        It is the task that ends last, of those launched on the stream before the call.
        E.g. of tasks launched at 1, 2 and 3 ns that end at 10, 50 and 20 ns, a call at
        4 ns waits for the second one.

        Args:
            stream: The index of the stream.
            called_at: When each call was made, in ns of the file. What is launched at
                the very time does not count.
            ended_by: If given, only tasks count that had ended by this time, and before
                which all others had, too: in the example, at 30 ns only the first one.

        Returns:
            A task for each call; NONE if there is none.
        """
        of_stream = slice(self.bounds[stream], self.bounds[stream + 1])
        by_launch = self.by_launch[of_stream]
        last_to_end = self.last_to_end[of_stream]

        # How many tasks, in the order of their launches, each call waits for.
        task_count = np.searchsorted(self.launched_at[by_launch], called_at)
        if ended_by is not None:
            # When all tasks up to each one had ended, which never descends.
            all_ended_at = self.end[last_to_end]
            ended_count = np.searchsorted(all_ended_at, ended_by, side="right")
            task_count = np.minimum(task_count, ended_count)

        last_launched = task_count - 1  # -1 for no task
        awaited: Rows = at(last_to_end, last_launched, missing=NONE)
        return awaited

    def first_launched_after(self, stream: int, times: Int64s) -> Rows:
        """Find the first GPU task that was launched on a stream at or after each time.

        Returns:
            A task for each time; NONE if nothing was launched from then on.
        """
        of_stream = slice(self.bounds[stream], self.bounds[stream + 1])
        by_launch = self.by_launch[of_stream]
        launched_at = self.launched_at[by_launch]
        launched_before = np.searchsorted(launched_at, times)
        next_task: Rows = at(by_launch, launched_before, missing=NONE)
        return next_task

    def stream_of(self, tasks: Rows) -> Rows:
        """Return the index of the stream on which each GPU task ran."""
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
    """The call that launched each GPU task; one entry per task."""

    row: Int32s  # the row of the call; only meaningful where it is known
    cut: Rows  # see GpuTasks.launch_cut

    @property
    def is_known(self) -> Flags:
        """Whether each call is known."""
        return np.asarray(self.cut != NONE)


def collect_gpu_tasks(trace: Trace, cuts: ThreadCuts) -> GpuTasks:
    """Collect all GPU work of a trace, with the calls that launched it.

    These are kernels, copies and sets, which are numbered by stream and, within a
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
    was_recorded = call != NONE
    begins_in_time = trace.start[call] <= trace.start[rows]
    cut = np.where(was_recorded & begins_in_time, cuts.cut_of_row[call], NONE)
    return _Launches(row=call, cut=cut)


def _determine_launch_times(trace: Trace, launches: _Launches, bounds: Rows) -> Int64s:
    """Determine when each GPU task was launched: when its launch call began.

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
    last_known = last_marked_of_group(launches.is_known, bounds)
    # NONE looks up the call of the last task, which is not used.
    call = launches.row[last_known]
    call_began = trace.start[call]
    return np.where(last_known != NONE, call_began, trace.begin_ns)


def _find_last_to_end(by_launch: Rows, end: Int64s, bounds: Rows) -> Rows:
    """Find for each GPU task which one ends last on its stream, of it and those
    launched before it.

    E.g. for the tasks 7, 8 and 9 of a stream, launched in this order, that end at 10,
    50 and 20 ns: 7, 8, 8.

    Args:
        by_launch: The tasks by stream, those of a stream by launch.
        end: When each task ends, in ns.
        bounds: The first task of each stream, and the number of tasks.
    """
    last_to_end = by_launch.copy()
    for first, stop in pairwise(bounds.tolist()):
        of_stream = by_launch[first:stop]
        end_of_stream = end[of_stream]
        latest_end = np.maximum.accumulate(end_of_stream)
        last_of_stream = last_marked(end_of_stream == latest_end)
        last_to_end[first:stop] = of_stream[last_of_stream]
    return last_to_end


def _find_launching_processes(trace: Trace, launches: _Launches, bounds: Rows) -> Rows:
    """Find the process that launches the work of each stream.

    All GPU tasks of a stream come from one process, so the first task with a known
    launch call decides.

    Returns:
        The process per stream; NONE if no launch of the stream is known.
    """
    process_of_stream = []
    for first, stop in pairwise(bounds.tolist()):
        is_known = launches.is_known[first:stop]
        known_calls = launches.row[first:stop][is_known]
        process = NONE
        if len(known_calls):
            track = trace.track[known_calls[0]]
            process = int(trace.process_of_track[track])
        process_of_stream.append(process)
    return np.array(process_of_stream, dtype=np.intp)


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
    waits_for_event: Flags  # the two above are NONE if not


def collect_syncs(trace: Trace, tasks: GpuTasks) -> Syncs:
    """Collect the waits that CUPTI recorded on the device, with the calls that caused
    them.

    Waits for an event say in their args where the event was recorded. Waits without a
    correlation cannot be assigned to a call and are left out.
    """
    all_rows = trace.rows_of(Role.SYNC)
    has_correlation = trace.correlation[all_rows] > 0
    rows = all_rows[has_correlation]
    thread = trace.thread_of_track[trace.track[rows]]  # numbers of streams

    # Indexed by the number of a thread or stream; NONE for those without GPU work.
    index_of_stream = np.full(len(trace.tracks) + 1, NONE)
    index_of_stream[tasks.streams] = np.arange(len(tasks.streams))

    waits_for_event = trace.matching(rows, NAMES_EVENT.search)
    events = _read_recorded_events(trace, rows, np.flatnonzero(waits_for_event))
    # For waits without a recorded event, this looks up the stream NONE, the last one.
    event_stream = index_of_stream[events.thread]
    event_call = _find_calls_by_correlation(trace, events.correlation)
    return Syncs(
        call=_find_calls_by_correlation(trace, trace.correlation[rows]),
        stream=index_of_stream[thread],
        event_stream=np.where(events.thread != NONE, event_stream, NONE),
        event_call=np.where(events.correlation > 0, event_call, NONE),
        waits_for_event=waits_for_event,
    )


def _find_calls_by_correlation(trace: Trace, correlation: NDArray[Any]) -> Int32s:
    """Find the call with each correlation, as a row of the trace; NONE for none."""
    calls = trace.rows_of(Role.CALL)
    return first_with(trace.correlation[calls], calls, correlation)


class _RecordedEvents(NamedTuple):
    """Where the awaited events were recorded; one entry per wait, NONE if unknown."""

    thread: Rows  # the number of the stream, as in Trace.thread_of_track
    correlation: Rows  # the correlation of the call that recorded the event


def _read_recorded_events(
    trace: Trace, rows: Rows, waits_for_event: Rows
) -> _RecordedEvents:
    """Read from the args of waits where the awaited events were recorded.

    Args:
        trace: The trace.
        rows: The waits.
        waits_for_event: The indices in `rows` of waits for an event. Only their args
            are read.

    Returns:
        One entry for each of `rows`.
    """
    thread = np.full(len(rows), NONE)
    correlation = np.full(len(rows), NONE)
    if not len(waits_for_event):
        return _RecordedEvents(thread=thread, correlation=correlation)

    events_in_file = trace.order[rows[waits_for_event]]
    args = arguments(trace.elements.own, events_in_file, ARGS_OF_AWAITED_EVENT)
    thread_by_ids = _number_threads(trace)
    for wait, args_index in zip(
        waits_for_event.tolist(), args.number.tolist(), strict=True
    ):
        has_args = args_index >= 0
        if not has_args:
            continue
        stream_text, correlation_text = args.distinct[args_index]
        device = str(trace.track_of(int(rows[wait])).pid)
        stream = str(parsed(stream_text))
        thread[wait] = thread_by_ids.get((device, stream), NONE)
        # A file may have anything here, also a bool, which is an int to isinstance.
        recorded_by = parsed(correlation_text)
        if type(recorded_by) is int:
            correlation[wait] = recorded_by
    return _RecordedEvents(thread=thread, correlation=correlation)


def _number_threads(trace: Trace) -> dict[tuple[str, str], int]:
    """Return the number (Trace.thread_of_track) of each thread and stream by its pid
    and tid.

    Both are texts, because files have them as numbers and as texts.
    """
    numbers = {}
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        numbers[str(track.pid), str(track.tid)] = number
    return numbers


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
    """The GPU tasks that calls wait for."""

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
    """Find the GPU tasks that each waiting call waits for.

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
    inferred = _infer_waits_for_streams(tasks, calls, recorded.is_unknown)
    pairs = [
        _find_waits_for_own_launch(trace, cuts, tasks),
        *_find_waits_for_device(tasks, calls),
        *_find_recorded_waits_of_calls(trace, tasks, calls, recorded),
        inferred,
    ]
    return WaitsOfCalls(pairs=pairs, inferred=len(inferred.waiting))


def _find_waits_for_device(
    tasks: GpuTasks, calls: _WaitingCalls
) -> Iterator[WaitPairs]:
    """Yield for each stream the GPU tasks that calls wait for which wait for a device.

    Such a call (cudaDeviceSynchronize) waits for the last task of each stream.

    Yields:
        Calls, as cuts, with the tasks that they wait for.
    """
    for stream in range(len(tasks.streams)):
        awaited = tasks.find_awaited(stream, calls.begin)
        may_wait = _may_have_awaited(tasks, calls, stream, awaited)
        waits = calls.for_device & may_wait
        yield WaitPairs(calls.cut[waits], awaited[waits])


def _find_recorded_waits_of_calls(
    trace: Trace, tasks: GpuTasks, calls: _WaitingCalls, recorded: _Synchronizations
) -> Iterator[WaitPairs]:
    """Yield for each stream the GPU tasks that calls wait for by what was recorded.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        calls: The waiting calls.
        recorded: What CUPTI recorded about them.

    Yields:
        Calls, as cuts, with the tasks that they wait for.
    """
    for stream in range(len(tasks.streams)):
        is_of_stream = recorded.stream == stream
        waits = np.flatnonzero(recorded.is_recorded & is_of_stream)
        before_row = recorded.launched_before_row[waits]
        launched_before = trace.start[before_row]
        awaited = tasks.find_awaited(stream, launched_before)
        yield _make_known_pairs(waiting=calls.cut[waits], awaited=awaited)


def _infer_waits_for_streams(
    tasks: GpuTasks, calls: _WaitingCalls, is_unknown: Flags
) -> WaitPairs:
    """Infer the GPU task that a call waits for if its stream or event is not known.

    Of the tasks that it may wait for, one on each stream, it is the one that ends last.

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        calls: The waiting calls.
        is_unknown: For which of the calls nothing says what they wait for.

    Returns:
        Calls, as cuts, with the tasks that they are taken to wait for.
    """
    inferred = np.full(len(calls.cut), NONE)
    for stream in range(len(tasks.streams)):
        last_launched = tasks.find_awaited(stream, calls.begin)
        # An event may have been recorded before the last launches, so work may be left
        # on the stream when the call returns. What had ended by then still counts.
        had_ended = tasks.find_awaited(stream, calls.begin, ended_by=calls.end)
        candidate = np.where(calls.for_event, had_ended, last_launched)
        may_wait = is_unknown & _may_have_awaited(tasks, calls, stream, candidate)
        inferred = _replace_by_later(tasks, inferred, candidate, may_wait)
    return _make_known_pairs(waiting=calls.cut, awaited=inferred)


def _may_have_awaited(
    tasks: GpuTasks, calls: _WaitingCalls, stream: int, awaited: Rows
) -> Flags:
    """Return whether each call may have waited for a GPU task of a stream.

    A call can wait only for work of its own process, and only for a task that had ended
    when the call returned.

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        calls: The waiting calls.
        stream: The index of the stream.
        awaited: For each call a task of that stream; NONE for none.
    """
    process = tasks.process[stream]
    # The work of a stream whose process is not known may be of any process.
    may_be_of_process = (process == calls.process) | (process == NONE)
    ended_in_time = tasks.end[awaited] <= calls.end + MAX_CLOCK_SKEW_NS
    may_wait: Flags = (awaited != NONE) & may_be_of_process & ended_in_time
    return may_wait


def _replace_by_later(
    tasks: GpuTasks, best: Rows, candidates: Rows, may_replace: Flags
) -> Rows:
    """Replace the GPU tasks found so far by candidates that end later.

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        best: The task found so far for each entry; NONE if there is none yet.
        candidates: Another task for each entry.
        may_replace: For which entries the candidate is allowed.
    """
    has_none_yet = best == NONE
    ends_later = tasks.end[candidates] > tasks.end[best]
    return np.where(may_replace & (has_none_yet | ends_later), candidates, best)


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
    is_recorded = for_one_stream & (stream != NONE)
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
    track = trace.track[row]
    return _WaitingCalls(
        cut=cut,
        row=row,
        begin=cuts.begin[cut],
        end=cuts.end[cut],
        process=trace.process_of_track[track],
        for_device=trace.matching(row, WAITS_FOR_DEVICE.search),
        for_event=trace.matching(row, WAITS_FOR_EVENT.search),
        is_synchronization=trace.matching(row, SYNCHRONIZES.search),
    )


def _find_waits_for_own_launch(
    trace: Trace, cuts: ThreadCuts, tasks: GpuTasks
) -> WaitPairs:
    """Find the GPU tasks whose own launch call waits until they are done, such as
    copies.

    The task must have ended when the call returned. A copy to the device often has
    not: its call only fills a buffer, and the copy follows later. No clock skew is
    tolerated there, or short copies would seem to be waited for.

    Returns:
        Calls, as cuts, with the tasks that they launched.
    """
    no_kind = 0  # of tasks whose launch call is not known; no kind of a cut
    kind_of_launch = at(cuts.kind, tasks.launch_cut, missing=no_kind)
    may_be_awaited = np.flatnonzero(kind_of_launch == Node.WAIT)

    rows = tasks.rows[may_be_awaited]
    is_copy_to_device = trace.matching(rows, TO_DEVICE.search)
    tolerated_skew_ns = np.where(is_copy_to_device, 0, MAX_CLOCK_SKEW_NS)
    launch_cut = tasks.launch_cut[may_be_awaited]
    call_end = cuts.end[launch_cut]
    had_ended = tasks.end[may_be_awaited] <= call_end + tolerated_skew_ns
    awaited = may_be_awaited[had_ended]
    return WaitPairs(waiting=tasks.launch_cut[awaited], awaited=awaited)


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
    for_event = syncs.waits_for_event
    awaited_stream = np.where(for_event, syncs.event_stream, syncs.stream)
    before_row = np.where(for_event, syncs.event_call, syncs.call)
    is_known = (syncs.call != NONE) & (before_row != NONE)
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

    A task waits if its stream was told to wait for an event of another stream
    (cudaStreamWaitEvent) before the task was launched. Nodes of a CUDA graph wait for
    the nodes that they depend on.

    Yields:
        Tasks with the tasks that they wait for.
    """
    knows_streams = (syncs.stream != NONE) & (syncs.event_stream != NONE)
    knows_calls = (syncs.event_call != NONE) & (syncs.call != NONE)
    is_recorded = syncs.waits_for_event & knows_streams & knows_calls

    awaited_streams = syncs.event_stream[is_recorded].tolist()
    waiting_streams = syncs.stream[is_recorded].tolist()
    stream_pairs = set(zip(awaited_streams, waiting_streams, strict=True))
    for awaited_stream, waiting_stream in sorted(stream_pairs):
        awaits_stream = syncs.event_stream == awaited_stream
        is_on_stream = syncs.stream == waiting_stream
        waits = np.flatnonzero(is_recorded & awaits_stream & is_on_stream)
        event_recorded_at = trace.start[syncs.event_call[waits]]
        wait_called_at = trace.start[syncs.call[waits]]
        awaited = tasks.find_awaited(awaited_stream, event_recorded_at)
        waiting = tasks.first_launched_after(waiting_stream, wait_called_at)
        yield _make_known_pairs(waiting=waiting, awaited=awaited)

    # Nodes of a graph on one stream follow each other anyway.
    if mark_graph_calls(trace).any() and len(tasks.streams) > 1:
        yield _find_dependencies_in_graphs(trace, tasks)


def _find_dependencies_in_graphs(trace: Trace, tasks: GpuTasks) -> WaitPairs:
    """Pair the GPU tasks of CUDA graphs with the tasks that they depend on."""
    depends = dependencies(trace)
    task_of_row = np.full(len(trace), NONE)
    task_of_row[tasks.rows] = np.arange(len(tasks.rows))
    return _make_known_pairs(
        waiting=task_of_row[depends.after], awaited=task_of_row[depends.before]
    )


def _make_known_pairs(*, waiting: Rows, awaited: Rows) -> WaitPairs:
    """Make pairs of what waits and what it waits for.

    Pairs of which one side is not known (NONE) are left out.
    """
    is_known = (awaited != NONE) & (waiting != NONE)
    return WaitPairs(waiting=waiting[is_known], awaited=awaited[is_known])


class _LateTasks(NamedTuple):
    """GPU tasks that start late, whose launch is known.

    There is one entry per task. Times are ns of the file.
    """

    task: Rows
    stream: Rows  # the index of its stream
    start: Int64s
    launched_at: Int64s
    # When the task before it on the stream was launched. For the first task of a stream
    # it is the begin of the trace.
    task_before_launched_at: Int64s


def infer_waits(trace: Trace, tasks: GpuTasks, late: Rows) -> WaitPairs:
    """Infer which GPU tasks late tasks wait for, where the recording does not say it.

    A task waits for an event if its stream was told to (cudaStreamWaitEvent) between
    the launch of the task before it and its own. It is then taken to wait for the task
    of another stream that had been launched before that call, ends last before the
    late task starts, and ends at most MAX_EVENT_DELAY_NS (25 us) before it.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        late: The tasks that start later than their launch and their stream explain.

    Returns:
        Late tasks with the tasks that they are taken to wait for.
    """
    wait_calls = trace.rows_named(MAKES_STREAM_WAIT.search, Role.CALL)
    process_of_call = trace.process_of_track[trace.track[wait_calls]]
    late_tasks = _select_late_tasks(trace, tasks, late)
    process_of_task = tasks.process[late_tasks.stream]

    # Calls and streams can only be those of the process that launches the late task.
    awaited = np.full(len(late_tasks.task), NONE)
    for process in distinct(process_of_task).tolist():
        calls = wait_calls[process_of_call == process]
        wait_called_at = _find_last_before(trace.start[calls], late_tasks.launched_at)
        is_of_process = process_of_task == process
        is_told_to_wait = wait_called_at >= late_tasks.task_before_launched_at
        waits = is_of_process & is_told_to_wait

        # Of one candidate on each stream, the one that ends last is taken.
        for stream in np.flatnonzero(tasks.process == process).tolist():
            candidate = tasks.find_awaited(
                stream, wait_called_at, ended_by=late_tasks.start
            )
            is_known = candidate != NONE
            is_of_other_stream = late_tasks.stream != stream
            ended_before_ns = late_tasks.start - tasks.end[candidate]
            has_just_ended = ended_before_ns <= MAX_EVENT_DELAY_NS
            may_await = waits & is_known & is_of_other_stream & has_just_ended
            awaited = _replace_by_later(tasks, awaited, candidate, may_await)
    return _make_known_pairs(waiting=late_tasks.task, awaited=awaited)


def _select_late_tasks(trace: Trace, tasks: GpuTasks, late: Rows) -> _LateTasks:
    """Select those late GPU tasks whose launch is known.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        late: The tasks that start later than their launch and their stream explain.
    """
    has_launch = tasks.has_launch[late]
    selected = late[has_launch]
    task_before_launched_at = np.where(
        tasks.is_first_of_stream[selected],
        trace.begin_ns,
        tasks.launched_at[selected - 1],
    )

    return _LateTasks(
        task=selected,
        stream=tasks.stream_of(selected),
        start=tasks.start[selected],
        launched_at=tasks.launched_at[selected],
        task_before_launched_at=task_before_launched_at,
    )


def _find_last_before(call_starts: Int64s, times: Int64s) -> Int64s:
    """Find when the last call before each time started.

    E.g. calls start at 3 and 7 ns: for the times 5 and 7 ns, it is 3 ns.

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
    last_communication = last_marked_of_group(is_communication, tasks.bounds)
    # What waits for a communication itself is known to wait for it already.
    implied_by_task = np.where(is_communication, NONE, last_communication)
    implied = _make_known_pairs(
        waiting=pairs.waiting, awaited=implied_by_task[pairs.awaited]
    )

    # A communication follows the task before it on its stream. If that is a
    # communication too, nothing else is implied.
    follows_task = np.flatnonzero(is_communication & ~tasks.is_first_of_stream)
    of_communication = _make_known_pairs(
        waiting=follows_task, awaited=implied_by_task[follows_task - 1]
    )
    return CommunicationWaits(implied=implied, of_communication=of_communication)


def infer_waits_for_full_queues(
    cuts: ThreadCuts, tasks: GpuTasks
) -> Iterator[WaitPairs]:
    """Yield the launch calls that had to wait for room in a full queue of a stream.

    A queue holds a fixed number of GPU tasks: kernels, copies and sets. If it is full,
    a launch call returns only when a task ends and makes room: the task that was
    launched so many tasks earlier.

    Streams with unknown launches, or with calls that launch several tasks, are left
    out, because there it is not known how many tasks were in the queue.

    Yields:
        Launch calls, as cuts, with the task that makes room for theirs.
    """
    known_launches = tasks.launch_cut[tasks.has_launch]
    tasks_of_cut = np.bincount(known_launches, minlength=len(cuts.kind))

    for of_stream in tasks.slices_of_streams:
        by_launch = tasks.by_launch[of_stream]
        launches = tasks.launch_cut[by_launch]
        is_unknown = ~tasks.has_launch[by_launch]
        if not len(launches) or is_unknown.any():
            continue
        launches_several = tasks_of_cut[launches] > 1
        if launches_several.any():
            continue

        last_to_end = tasks.last_to_end[of_stream]
        queue_length = _measure_queue_length(cuts, launches, tasks.end[last_to_end])
        if queue_length > 0:
            # The n-th task makes room for the task `queue_length` after it.
            makes_room = last_to_end[: len(launches) - queue_length]
            yield WaitPairs(waiting=launches[queue_length:], awaited=makes_room)


def _measure_queue_length(cuts: ThreadCuts, launches: Rows, ended: Int64s) -> int:
    """Measure how many kernels, copies and sets the queue of a stream holds, if it was
    ever full.

    The most that were ever in flight at the end of a launch call are taken as the
    length of the queue, e.g. 1024. Calls that were made with so many in flight would
    have had to wait. Only if most of these were slow was the queue really full;
    otherwise the program just never launched more.

    Args:
        cuts: The calls of all threads.
        launches: The cuts of the launch calls, in the order of what they launch.
        ended: When all work up to that of each call had ended, in ns, ascending.

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

    Pairs of the same waiting call, task or node stay in their order: (2, a), (1, b) and
    (2, c) become (1, b), (2, a) and (2, c).
    """
    no_rows = np.empty(0, dtype=np.intp)
    waiting = np.concatenate([no_rows, *(each.waiting for each in pairs)])
    awaited = np.concatenate([no_rows, *(each.awaited for each in pairs)])
    order = np.argsort(waiting, kind="stable")
    return WaitPairs(waiting[order], awaited[order])
