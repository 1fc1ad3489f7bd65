"""Measures the CPU cost of launches, and finds graph launches and the work of each
replay.

A launch call is a runtime or driver call that launched a GPU event of the trace, or
whose name says that it launches a kernel or a graph; one that copies or fills is known
by its event alone. If such calls are nested (a driver call in a runtime call), the
outer one counts, with the events of all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from fusetui.analysis.questions.computing import mark_inside
from fusetui.text.patterns import MAX_SEARCHED_CHARS, lazy_pattern
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    at,
    begins_runs,
    distinct,
    distinct_rows,
    last_at_or_before,
    sums_of_ranges,
)
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import Groups, grouped
from fusetui.trace.model.ids import Id, device_label, exact_id
from fusetui.trace.model.intervals import union_length
from fusetui.trace.model.joined import Joined
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import percentiles_of_runs

if TYPE_CHECKING:
    from fusetui.trace.layout.counters import Counter

LAUNCHES = lazy_pattern(r"Launch(?!HostFunc)", re.IGNORECASE)
_GRAPH_LAUNCH = lazy_pattern(r"GraphLaunch", re.IGNORECASE)
BEGINS_CAPTURE = lazy_pattern(r"StreamBeginCapture")
_ENDS_CAPTURE = lazy_pattern(r"StreamEndCapture")


def lacks_gpu_events(trace: Trace) -> bool:
    """Return whether the trace has launches, but no GPU event at all. Then the GPU
    should have been recorded, and was not."""
    if len(trace.gpu_rows):
        return False
    return len(trace.rows_named(LAUNCHES.search, Role.CALL)) > 0


class Calls(msgspec.Struct, frozen=True):
    """The launch calls of one name on one thread."""

    name: str
    count: int
    total_ns: int
    mean_ns: int  # rounded down
    p99_ns: int  # see trace/model/quantiles.py
    max_ns: int
    share: float | None  # of the thread's time
    events: int  # GPU events that they launched


class ThreadLaunches(msgspec.Struct, frozen=True):
    """The launch calls of one CPU thread, together and by name, the largest total
    first."""

    process: Id
    thread: Id
    span_ns: int  # the thread's time: first start to last end recorded on it
    count: int
    total_ns: int
    mean_ns: int
    p99_ns: int
    max_ns: int
    share: float | None
    events: int
    calls: tuple[Calls, ...]


class GraphReplay(msgspec.Struct, frozen=True):
    """One launch of a graph on one device; times in ns, starts after the start of
    the trace."""

    call: str
    call_start_ns: int
    call_ns: int
    device: Id
    events: int
    kernels: int
    start_ns: int  # of its first event
    span_ns: int  # first start to last end of its events
    busy_ns: int  # the length of their union


def is_graph_launch(name: str) -> bool:
    """Return whether a call with this name launches a graph."""
    return _GRAPH_LAUNCH.search(name, 0, MAX_SEARCHED_CHARS) is not None


def summarize_launches_by_thread(trace: Trace) -> tuple[ThreadLaunches, ...]:
    """Summarize the launch calls of every thread that has any.

    Each summary has the number of calls, their times and their share of the thread's
    time. The thread with the largest total time comes first.
    """
    launch_calls = find_launch_calls(trace)
    rows = launch_calls.rows
    span_of_thread = _measure_thread_spans(trace)
    by_thread = grouped(trace.thread_of_track[trace.track[rows]], trace.dur[rows])
    launches = []
    for index, thread in enumerate(by_thread.keys.tolist()):
        calls = by_thread.members(index)
        span_ns = span_of_thread[thread]
        launches_of_thread = _summarize_thread(
            trace, rows[calls], launch_calls.events[calls], span_ns
        )
        launches.append(launches_of_thread)
    return tuple(sorted(launches, key=lambda thread: -thread.total_ns))


def _summarize_thread(
    trace: Trace, rows: Rows, events: Int64s, span_ns: int
) -> ThreadLaunches:
    """Summarize the launch calls of one thread, all together and by name.

    Args:
        trace: The trace.
        rows: The calls, at least one.
        events: How many GPU events each of them launched.
        span_ns: The time from the first start to the last end on the thread.
    """
    by_name = grouped(trace.name[rows], trace.dur[rows])
    figures_by_name = _compute_figures(trace, rows, events, by_name, span_ns)
    calls = []
    for name, figures in zip(by_name.keys.tolist(), figures_by_name, strict=True):
        calls.append(Calls(name=trace.names[name], **asdict(figures)))
    calls.sort(key=lambda call: (-call.total_ns, call.name))

    one_group = grouped(np.zeros(len(rows), dtype=np.intp), trace.dur[rows])
    (figures,) = _compute_figures(trace, rows, events, one_group, span_ns)
    track = trace.track_of(int(rows[0]))
    return ThreadLaunches(
        process=exact_id(track.pid),
        thread=exact_id(track.tid),
        span_ns=span_ns,
        calls=tuple(calls),
        **asdict(figures),
    )


class LaunchCalls(NamedTuple):
    """The calls that launch GPU work; one entry per call."""

    rows: Rows  # of the trace, ascending
    events: Int64s  # how many GPU events each call launched; it may be 0


def find_launch_calls(trace: Trace) -> LaunchCalls:
    """Find the calls that launch GPU work.

    These are the calls that launched a GPU event of the trace, and those whose name
    says that they launch a kernel or a graph. Of calls inside one another, it is the
    outer one, with the events of all.
    """
    launch = trace.launch[trace.gpu_rows]
    known_launches = launch[launch != NO_ROW]
    events_of_row = np.bincount(known_launches, minlength=len(trace))
    launching = np.flatnonzero(events_of_row)
    named = trace.rows_named(LAUNCHES.search, Role.CALL)
    calls = distinct(np.concatenate((launching, named)))
    outer = calls[~mark_inside(trace, calls)[calls]]

    # A call has the events of its subtree: of the rows from its own to before end_row.
    end_row = trace.end_row[outer].astype(np.intp)
    events_of_call = sums_of_ranges(events_of_row, outer, end_row)
    return LaunchCalls(rows=outer, events=events_of_call)


def list_graph_replays(trace: Trace) -> tuple[GraphReplay, ...]:
    """List every graph launch with recorded events, for each device.

    They are in the order of the calls.
    """
    return tuple(
        _summarize_replay(trace, rows) for rows in find_nodes_of_replays(trace)
    )


def find_nodes_of_replays(trace: Trace) -> list[Rows]:
    """Return the GPU events of each replay of a CUDA graph, separately for each device.

    A replay is one launch of a graph, and its events are the nodes of the graph.
    Replays are in the order of their launch calls, then of the process numbers of their
    devices; the events of each are sorted by start.
    """
    nodes = trace.gpu_rows[_mark_graph_nodes(trace)]
    device = trace.process_of_track[trace.track[nodes]]
    _, replay_of_node = distinct_rows((trace.launch[nodes], device))
    by_replay = grouped(replay_of_node, trace.start[nodes])
    nodes_of_replays = [nodes[members] for members in by_replay.members_of_each()]

    def start_of_launch_call(nodes_of_replay: Rows) -> int:
        """Return when the call that launched a replay starts."""
        call = trace.launch[nodes_of_replay[0]]
        return int(trace.start[call])

    return sorted(nodes_of_replays, key=start_of_launch_call)


def _mark_graph_nodes(trace: Trace) -> Flags:
    """Return a flag for each of `trace.gpu_rows`: whether it was launched as a node of
    a CUDA graph."""
    launch = trace.launch[trace.gpu_rows]
    is_launched: Flags = launch != NO_ROW
    return is_launched & mark_graph_calls(trace)[launch]


def _summarize_replay(trace: Trace, rows: Rows) -> GraphReplay:
    """Summarize one launch of a CUDA graph on one device: its call, its events and
    their times.

    Args:
        trace: The trace.
        rows: The GPU events of the launch by start, at least one.
    """
    call = int(trace.launch[rows[0]])
    start = trace.start[rows]
    end = trace.end[rows]
    return GraphReplay(
        call=trace.name_of(call),
        call_start_ns=int(trace.start[call]) - trace.begin_ns,
        call_ns=int(trace.dur[call]),
        device=exact_id(trace.track_of(int(rows[0])).pid),
        events=len(rows),
        kernels=int((trace.role[rows] == Role.KERNEL).sum()),
        start_ns=int(start[0]) - trace.begin_ns,
        span_ns=int(end.max() - start[0]),
        busy_ns=union_length(start, end),
    )


class _Figures(msgspec.Struct, frozen=True):
    """The fields that `Calls` and `ThreadLaunches` share; see there."""

    count: int
    total_ns: int
    mean_ns: int
    p99_ns: int
    max_ns: int
    share: float | None
    events: int


def _compute_figures(
    trace: Trace, rows: Rows, events: Int64s, groups: Groups, span_ns: int
) -> list[_Figures]:
    """Compute count, times, share and launched events of groups of launch calls.

    Args:
        trace: The trace.
        rows: The calls.
        events: How many GPU events each of them launched.
        groups: Their groups, in which calls are sorted by duration.
        span_ns: The time from the first start to the last end on their thread;
            shares are of it.
    """
    dur = trace.dur[rows]
    sorted_dur = dur[groups.order]
    first = groups.begins[:-1]
    p99 = percentiles_of_runs(sorted_dur, first, groups.counts, 99)
    longest = percentiles_of_runs(sorted_dur, first, groups.counts, 100)
    figures = []
    for count, total_ns, p99_ns, max_ns, events_of_group in zip(
        groups.counts.tolist(),
        groups.sums(dur).tolist(),
        p99.tolist(),
        longest.tolist(),
        groups.sums(events).tolist(),
        strict=True,
    ):
        figures_of_group = _Figures(
            count=count,
            total_ns=total_ns,
            mean_ns=total_ns // count,
            p99_ns=p99_ns,
            max_ns=max_ns,
            share=total_ns / span_ns if span_ns else None,
            events=events_of_group,
        )
        figures.append(figures_of_group)
    return figures


def _measure_thread_spans(trace: Trace) -> dict[int, int]:
    """Measure the time from the first start to the last end recorded on each CPU
    thread.

    Returns:
        ns by the number of the thread, as in `thread_of_track`. Threads without
        slices are left out.
    """
    first_start: dict[int, int] = {}
    last_end: dict[int, int] = {}
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if track.layer not in CPU_LAYERS or not len(track):
            continue
        start = int(trace.start[track.first_row])
        end = int(trace.end[track.rows].max())
        first_start[thread] = min(start, first_start.get(thread, start))
        last_end[thread] = max(end, last_end.get(thread, end))
    return {thread: last_end[thread] - first_start[thread] for thread in first_start}


_COUNTER_GROUP: Final = "launch queue"


class QueueLength(msgspec.Struct, frozen=True, rename={"label": "name"}):
    """How long one queue was, from its first launch to its last end."""

    label: str
    most: int
    mean: float  # over time
    empty_ns: int  # while nothing was launched or running
    span_ns: int


def summarize_queue(queue: Counter) -> QueueLength:
    """Summarize the length of a launch queue over time: its mean, its maximum, and how
    long it was empty.

    E.g. a queue that holds 2 events for 10 us, none for 10 us, and 1 for 20 us has the
    mean 1 and the maximum 2, and is empty for 10 us.

    Args:
        queue: The length of the queue of one device over time; see `measure_queues`.
    """
    lasted_ns = np.diff(queue.time)
    length = queue.value[:-1]
    span_ns = int(lasted_ns.sum())
    mean = float((lasted_ns * length).sum()) / span_ns if span_ns else 0.0
    return QueueLength(
        label=queue.label,
        most=int(queue.value.max()),
        mean=mean,
        empty_ns=int(lasted_ns[length == 0].sum()),
        span_ns=span_ns,
    )


def measure_queues(trace: Trace) -> tuple[Counter, ...]:
    """Return the length of the launch queue of each device over time.

    Only events whose launch is known count, so a device without any has no counter. The
    devices are in the order of the numbers that the trace gives their processes.
    """
    launched = trace.gpu_rows[trace.launch[trace.gpu_rows] != NO_ROW]
    device = trace.process_of_track[trace.track[launched]]
    counters = []
    for process in distinct(device):
        counters.append(_measure_queue(trace, launched[device == process]))
    return tuple(counters)


def _measure_queue(trace: Trace, rows: Rows) -> Counter:
    """Return the length of the launch queue of one device over time.

    An event is in the queue from the begin of its launch call to its own end.

    Args:
        trace: The trace.
        rows: The events of the device whose launch is known; at least one.
    """
    from fusetui.trace.layout.counters import Counter  # most questions are about others

    # Clocks that differ may let an event start before its launch call.
    launched_at = trace.start[trace.launch[rows]]
    begin = np.minimum(launched_at, trace.start[rows])
    queued = _count_open(begin, trace.end[rows])
    pid = trace.track_of(int(rows[0])).pid
    return Counter(
        group=_COUNTER_GROUP,
        label=f"{device_label(pid)} queue",
        unit="",
        pid=pid,
        time=queued.time,
        value=queued.number,
    )


class _OpenIntervals(NamedTuple):
    """How many of some intervals are open from each time on, up to the next time."""

    time: Int64s  # ns at which the number changes, ascending
    number: NDArray[np.float64]


def _count_open(begin: Int64s, end: Int64s) -> _OpenIntervals:
    """Count how many of some intervals have begun and not ended, over time.

    E.g. intervals from 0 to 10 and from 6 to 15 ns: 1 from 0 on, 2 from 6 on, 1 from 10
    on, and 0 from 15 on.

    Args:
        begin: The begin of each interval, in any order.
        end: The end of each.
    """
    time = distinct(np.concatenate((begin, end)))
    begun_count = last_at_or_before(np.sort(begin), time) + 1
    ended_count = last_at_or_before(np.sort(end), time) + 1
    open_count = begun_count - ended_count
    is_changed = begins_runs(open_count)
    return _OpenIntervals(
        time=time[is_changed], number=open_count[is_changed].astype(np.float64)
    )


@memo()
def mark_graph_calls(trace: Trace) -> Flags:
    """Return a flag for each row of the trace: whether it is a call that launches a
    graph."""
    launches_graph = np.zeros(len(trace), dtype=np.bool_)
    launches_graph[trace.rows_named(is_graph_launch, Role.CALL)] = True
    return launches_graph


def find_outer_calls(trace: Trace, wanted: re.Pattern[str]) -> Rows:
    """Return the calls in whose name a pattern is found.

    Of calls inside one another, as when CUDA's runtime calls the driver, it is the
    outer one.
    """
    rows = trace.rows_named(wanted.search, Role.CALL)
    if not len(rows):  # in most traces, which then need not be searched further
        return rows
    is_inside_another = mark_inside(trace, rows)[rows]
    return rows[~is_inside_another]


class CaptureCalls(NamedTuple):
    """The calls that begin and end captures of graphs; one entry per capture."""

    begin: Rows  # the call that begins the capture, ascending
    # The next call on its thread that ends a capture; NO_ROW (-1) for none.
    end: Rows


@memo()
def find_capture_calls(trace: Trace) -> CaptureCalls:
    """Find the calls that begin and end the captures of graphs."""
    begins = find_outer_calls(trace, BEGINS_CAPTURE)
    ends = find_outer_calls(trace, _ENDS_CAPTURE)
    ends = ends[np.argsort(trace.start[ends], kind="stable")]
    thread_of_begin = trace.thread_of_track[trace.track[begins]]
    thread_of_end = trace.thread_of_track[trace.track[ends]]

    next_end = np.full(len(begins), NO_ROW)
    for thread in distinct(thread_of_begin).tolist():
        of_thread = np.flatnonzero(thread_of_begin == thread)
        ends_of_thread = ends[thread_of_end == thread]
        begin_is_over = trace.end[begins[of_thread]]
        index = np.searchsorted(trace.start[ends_of_thread], begin_is_over)
        next_end[of_thread] = at(ends_of_thread, index, missing=NO_ROW)
    return CaptureCalls(begin=begins, end=next_end)


def wants_capture(trace: Trace) -> bool:
    """Return whether graphs launched GPU events of which no capture tells the op.

    A trace of their capture, which can be joined with this one, would tell it.
    """
    lacks_op = _mark_graph_nodes(trace)
    if isinstance(trace, Joined):
        lacks_op &= trace.captured[trace.gpu_rows] == NO_ROW
    return bool(lacks_op.any())
