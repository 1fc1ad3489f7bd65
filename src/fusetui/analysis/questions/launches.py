"""What launching cost the CPU, which calls launch graphs, and what each replay of one
did.

A launch call is a runtime or driver call that launched a GPU event of the trace, or
whose name says that it launches a kernel or a graph; one that copies or fills is known
by its event alone. If such calls are nested (a driver call in a runtime call), the
outer one counts, with the events of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.computing import within
from fusetui.analysis.questions.totals import Groups, grouped
from fusetui.text.patterns import LONGEST_NAME, late
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, device_label, exact_id
from fusetui.trace.model.intervals import union_length
from fusetui.trace.model.joined import Joined
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import percentiles_of_runs

if TYPE_CHECKING:
    from fusetui.trace.layout.counters import Counter

LAUNCHES = late(r"Launch(?!HostFunc)", re.IGNORECASE)
GRAPH = late(r"GraphLaunch", re.IGNORECASE)
BEGINS_CAPTURE, ENDS_CAPTURE = late(r"StreamBeginCapture"), late(r"StreamEndCapture")


def launched_without_events(trace: Trace) -> bool:
    """Whether calls that launch kernels or graphs were recorded, and no GPU event at
    all: recording the GPU was asked for."""
    return (
        not len(trace.gpu_rows)
        and len(trace.rows_named(LAUNCHES.search, Role.CALL)) > 0
    )


class Calls(msgspec.Struct, frozen=True):
    """Launch calls of one name on one thread."""

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
    """One launch of a graph on one device; times in ns, starts after that of the
    trace."""

    call: str
    call_start_ns: int
    call_ns: int
    device: Id
    events: int
    kernels: int
    start_ns: int  # of its first event
    span_ns: int  # first start to last end of its events
    busy_ns: int  # the length of their union


def is_replay(name: str) -> bool:
    """Whether a call of this name launches a graph."""
    return GRAPH.search(name, 0, LONGEST_NAME) is not None


def thread_launches(trace: Trace) -> tuple[ThreadLaunches, ...]:
    """The launch calls of every thread that has any, the largest total first."""
    rows, events = launch_calls(trace)
    spans, found = _spans(trace), []
    by_thread = grouped(trace.thread_of_track[trace.track[rows]], trace.dur[rows])
    for number, key in enumerate(by_thread.keys.tolist()):
        places = by_thread.places(number)
        own, span = rows[places], spans[key]
        by_name = grouped(trace.name[own], trace.dur[own])
        names = [trace.names[name] for name in by_name.keys.tolist()]
        each = zip(
            names, _figures(trace, own, events[places], by_name, span), strict=True
        )
        calls = sorted(
            (Calls(n, *of) for n, of in each), key=lambda c: (-c.total_ns, c.name)
        )
        track = trace.track_of(int(own[0]))
        ids = exact_id(track.pid), exact_id(track.tid)
        every = grouped(np.zeros(len(own), dtype=np.intp), trace.dur[own])
        (figures,) = _figures(trace, own, events[places], every, span)
        fields = (*ids, span, *figures, tuple(calls))
        found.append(ThreadLaunches(*fields))
    return tuple(sorted(found, key=lambda thread: -thread.total_ns))


def launch_calls(trace: Trace) -> tuple[Rows, Int64s]:
    """The rows of all launch calls, ascending, and the number of GPU events that each
    launched."""
    launch = trace.launch[trace.gpu_rows]
    events = np.bincount(launch[launch >= 0], minlength=len(trace))
    rows = trace.rows_named(LAUNCHES.search, Role.CALL)
    rows = distinct(np.concatenate((np.flatnonzero(events), rows)))
    outer = rows[~within(trace, rows)[rows]]
    before = np.concatenate(([0], np.cumsum(events)))
    return outer, before[trace.end_row[outer]] - before[outer]


def replays(trace: Trace) -> tuple[GraphReplay, ...]:
    """Every graph launch with recorded events, for each device, in the order of the
    calls."""
    return tuple(_replay(trace, rows) for rows in nodes_of_replays(trace))


def nodes_of_replays(trace: Trace) -> list[Rows]:
    """The GPU rows of each graph launch on each device, by start; in order of the
    calls."""
    rows = trace.gpu_rows
    launch = trace.launch[rows]
    rows = rows[(launch >= 0) & graph_calls(trace)[launch]]
    launch, device = trace.launch[rows], trace.process_of_track[trace.track[rows]]
    key = launch.astype(np.int64) * (len(trace.tracks) + 1) + device
    groups = grouped(key, trace.start[rows])
    each = [rows[groups.places(number)] for number in range(len(groups))]
    return sorted(each, key=lambda own: int(trace.start[trace.launch[own[0]]]))


def _replay(trace: Trace, rows: Rows) -> GraphReplay:
    call = int(trace.launch[rows[0]])
    start, end = trace.start[rows], trace.end[rows]
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


def _figures(
    trace: Trace, rows: Rows, events: Int64s, groups: Groups, span_ns: int
) -> Iterator[tuple[Any, ...]]:
    """From the count on those of each group of calls, which are sorted by duration
    within it."""
    dur = trace.dur[rows]
    count, total = np.diff(groups.begins), groups.sums(dur)
    ascending = dur[groups.order]
    most = [
        percentiles_of_runs(ascending, groups.begins[:-1], count, percent)
        for percent in (99, 100)
    ]
    shares = [ns / span_ns if span_ns else None for ns in total.tolist()]
    columns = (of.tolist() for of in (count, total, total // count, *most))
    return zip(*columns, shares, groups.sums(events).tolist(), strict=True)


def _spans(trace: Trace) -> dict[int, int]:
    """First start to last end of all that was recorded on each thread, by
    `thread_of_track`."""
    ends: dict[int, list[int]] = {}
    for number, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if track.layer in CPU_LAYERS and len(track):
            own = int(trace.start[track.first_row]), int(trace.end[track.rows].max())
            ends.setdefault(number, []).extend(own)
    return {number: max(own) - min(own) for number, own in ends.items()}


GROUP = "launch queue"


class QueueLength(msgspec.Struct, frozen=True, rename={"label": "name"}):
    """How long one queue was, from its first launch to its last end."""

    label: str
    most: int
    mean: float  # over time
    empty_ns: int  # while nothing was launched or running
    span_ns: int


def length_of(queue: Counter) -> QueueLength:
    """The figures of one of `queues`."""
    lasted, value = np.diff(queue.time), queue.value[:-1]
    span = int(lasted.sum())
    mean = float((lasted * value).sum()) / span if span else 0.0
    most, empty = int(queue.value.max()), int(lasted[value == 0].sum())
    return QueueLength(queue.label, most, mean, empty, span)


def queues(trace: Trace) -> tuple[Counter, ...]:
    """The length of the queue of each device with linked events, in lane order."""
    from fusetui.trace.layout.counters import Counter  # most questions are about others

    rows = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    device, found = trace.process_of_track[trace.track[rows]], []
    for own in (rows[device == number] for number in distinct(device)):
        begin = np.minimum(trace.start[trace.launch[own]], trace.start[own])
        pid = trace.track_of(int(own[0])).pid
        queue = _running(begin, trace.end[own])
        found.append(Counter(GROUP, f"{device_label(pid)} queue", "", pid, *queue))
    return tuple(found)


def _running(begin: Int64s, end: Int64s) -> tuple[Int64s, NDArray[np.float64]]:
    """The times at which something begins or ends, and how many have begun and not
    ended then."""
    time, at = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.bincount(at[: len(begin)], minlength=len(time)).astype(np.int64)
    change -= np.bincount(at[len(begin) :], minlength=len(time))
    value = np.cumsum(change)
    new = np.concatenate(([True], np.diff(value) != 0))
    return time[new], value[new].astype(np.float64)


@memo()
def graph_calls(trace: Trace) -> Flags:
    """For each row, whether it is a call that launches a graph."""
    found = np.zeros(len(trace), dtype=np.bool_)
    found[trace.rows_named(is_replay, Role.CALL)] = True
    return found


def outer_calls(trace: Trace, wanted: re.Pattern[str]) -> Rows:
    """Calls of such a name; of nested ones (CUDA's runtime calls the driver) the outer
    one."""
    rows = trace.rows_named(wanted.search, Role.CALL)
    return rows[~within(trace, rows)[rows]] if len(rows) else rows


@memo()
def capture_calls(trace: Trace) -> tuple[Rows, Rows]:
    """The calls that begin a capture, and of each the next one on its thread that ends
    one; -1 for none."""
    begins, ends = (outer_calls(trace, one) for one in (BEGINS_CAPTURE, ENDS_CAPTURE))
    thread = trace.thread_of_track[trace.track]
    ends = ends[np.lexsort((trace.start[ends], thread[ends]))]
    key = np.rec.fromarrays((thread[ends], trace.start[ends]))
    place = key.searchsorted(np.rec.fromarrays((thread[begins], trace.end[begins])))
    next_ = np.append(ends, -1)[place]
    return begins, np.where(thread[next_] == thread[begins], next_, -1)


def wants_capture(trace: Trace) -> bool:
    """Whether the trace has nodes of graphs that were not joined."""
    rows = trace.gpu_rows
    launch = trace.launch[rows]
    nodes = (launch >= 0) & graph_calls(trace)[launch]
    left = trace.captured[rows] < 0 if isinstance(trace, Joined) else True
    return bool((nodes & left).any())
