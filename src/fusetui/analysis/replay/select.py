"""Finds the target of a change in a trace and its graph: GPU work, and times of
threads.

The words node, GPU task and lane are defined in graph.py. ThreadIntervals say when
threads do something: for each thread, the intervals in which it does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import collect_name_texts, search
from fusetui.analysis.replay.changes import (
    Graphed,
    Named,
    NoMatchError,
    WrongChangeError,
)
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.why.account import cover_waiting_frames, find_axis
from fusetui.analysis.why.backward_threads import RUNS_BACKWARD, find_engines
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.thread_activity import ThreadActivity, Threads
from fusetui.gpu.roofline.peaks import PEAKS, Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import NO_ROW, Flags, Floats, Int64s, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    NO_INTERVAL,
    Cover,
    common,
    joined,
    union,
    without,
)
from fusetui.trace.program.origin import origins

ThreadIntervals = dict[int, Cover]
"""By thread (an index in Graph.lanes): intervals, in ns after the origin of the graph."""
NO_LANE = -1
"""A track belongs to no thread that is replayed."""
ROLES_OF_SLICES = {
    "op": ((Role.OP,), (Role.CALL,)),
    "python": ((Role.PYTHON,),),
    "module": ((Role.PYTHON, Role.ANNOTATION),),
    "wait": ((Role.OP, Role.CALL, Role.PYTHON, Role.ANNOTATION),),
}
"""Which roles the slices have that a change names, by `what` it is a change of. If there
are several groups of roles, the first one counts that has any such slice."""
NOTHING_OF_KIND = {
    "op": "No op",
    "module": "No module",
    "python": "No Python frame",
    "wait": "Nothing",
}
"""How the sentence begins that says that there are no such slices."""


def find_rows(trace: Trace, pattern: str, *roles: Role) -> Rows:
    """Find the slices whose name is the pattern, or else those that a search finds.

    Args:
        trace: The trace.
        pattern: The name, or the query.
        roles: The roles that the slices may have.

    Raises:
        WrongChangeError: If the query is wrong, or asks for args.
    """
    rows = trace.rows_of(*roles)
    has_name = trace.matching(rows, lambda name: name == pattern)
    if has_name.any():
        return rows[has_name]

    try:
        query = parse(pattern)
        hits = search(trace, collect_name_texts(trace), query)
    except WrongQueryError as error:
        # The message of the error may or may not end with a full stop.
        raise WrongChangeError(f"{str(error).removesuffix('.')}.") from None
    if query.reads_args:
        raise WrongChangeError(f"{pattern} uses args, which cannot select a change.")
    return np.intersect1d(rows, hits)


def find_gpu_tasks(trace: Trace, graph: Graph, what: Named, pattern: str) -> Rows:
    """Find the nodes of the kernels, copies and sets that a change names.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        what: By what they are named, such as "kind" or "kernel".
        pattern: The name, or a search.

    Raises:
        WrongChangeError: If there are none.
    """
    if what in ("library", "family"):
        rows = find_rows(trace, f'{what}:"{pattern}"', Role.KERNEL)
    elif what == "kind":
        rows = find_rows(trace, f'kind:"{pattern}"', *GPU_ROLES)
    else:
        rows = find_rows(trace, pattern, *GPU_ROLES)
    nodes = graph.nodes(Node.GPU_TASK, rows=rows)
    if not len(nodes):
        raise NoMatchError(f"No kernel matches {what}:{pattern}.")
    return nodes


def find_slices(trace: Trace, graph: Graph, what: str, pattern: str) -> Rows:
    """Find the slices that a change names, on threads that are replayed.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        what: What they are: "op" (ops, or else calls), "python" (Python frames),
            "module" (modules and annotations, with what runs backward for them), or
            "wait" (whatever may contain a wait).
        pattern: The name, or a search.

    Raises:
        WrongChangeError: If there are none.
    """
    lane_of_track = _find_lanes_of_tracks(trace, graph)
    for roles in ROLES_OF_SLICES[what]:
        rows = find_rows(trace, pattern, *roles)
        if what == "module":
            rows = _add_backward_ops(trace, graph, rows)

        track = trace.track[rows]
        is_replayed: Flags = lane_of_track[track] != NO_LANE
        if is_replayed.any():
            return rows[is_replayed]
    raise NoMatchError(
        f"{NOTHING_OF_KIND[what]} on a replayed thread matches {pattern}."
    )


def _add_backward_ops(trace: Trace, graph: Graph, rows: Rows) -> Rows:
    """Add to the modules and annotations among some slices their backward ops.

    E.g. with the slice of a linear layer, in which `aten::addmm` ran, the op
    `AddmmBackward0` that autograd ran for that very op later.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        rows: The slices.
    """
    all_origins = origins(trace)
    backward = all_origins.backward
    modules = np.intersect1d(rows, all_origins.regions.rows)
    intervals = find_intervals(trace, graph, modules)
    is_of_module = mark_slices_inside(trace, graph, intervals, backward.forward)
    return np.concatenate((modules, backward.rows[is_of_module]))


def _find_lanes_of_tracks(trace: Trace, graph: Graph) -> Rows:
    """Find for each track the index of its thread in Graph.lanes, NO_LANE if the thread
    is not replayed."""
    lane_of_thread = np.full(len(trace.tracks) + 1, NO_LANE)
    for index, lane in enumerate(graph.lanes):
        if not lane.is_stream:
            lane_of_thread[lane.thread] = index
    return lane_of_thread[trace.thread_of_track]


def find_intervals(
    trace: Trace, graph: Graph, rows: NDArray[np.integer]
) -> ThreadIntervals:
    """Find the intervals of time in which each thread is in any of some slices.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        rows: The slices.

    Returns:
        The intervals of each thread, without the threads that have none of the slices.
    """
    lane_of_track = _find_lanes_of_tracks(trace, graph)
    track = trace.track[rows]
    lane_of_slice = lane_of_track[track]
    start = trace.start[rows] - graph.origin_ns
    end = trace.end[rows] - graph.origin_ns

    intervals: ThreadIntervals = {}
    for lane in distinct(lane_of_slice[lane_of_slice != NO_LANE]).tolist():
        is_of_lane = lane_of_slice == lane
        intervals[lane] = union(start[is_of_lane], end[is_of_lane])
    return intervals


def mark_slices_inside(
    trace: Trace, graph: Graph, within: ThreadIntervals, rows: NDArray[np.integer]
) -> Flags:
    """Mark the slices of threads that lie as a whole within one of some intervals.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        within: The intervals of each thread.
        rows: The slices; NO_ROW stands for none, which lies nowhere.

    Returns:
        A flag for each of `rows`.
    """
    # For each of `rows`: its lane, its start and its end after the origin. NO_ROW looks
    # up the last slice of the trace, which is not used.
    track = trace.track[rows]
    lane_of_track = _find_lanes_of_tracks(trace, graph)
    lane = np.where(rows != NO_ROW, lane_of_track[track], NO_LANE)
    start = trace.start[rows] - graph.origin_ns
    end = trace.end[rows] - graph.origin_ns

    is_inside = np.zeros(len(rows), dtype=np.bool_)
    for lane_of_intervals, cover in within.items():
        of_lane = np.flatnonzero(lane == lane_of_intervals)
        interval = cover.place_of(start[of_lane])
        starts_inside = interval != NO_INTERVAL
        # Without an interval this looks up the last one, which is not used either.
        ends_inside = end[of_lane] <= cover.end[interval]
        is_inside[of_lane] = starts_inside & ends_inside
    return is_inside


def find_calls_within(trace: Trace, graph: Graph, within: ThreadIntervals) -> Rows:
    """Find the nodes of the calls within some intervals, and of what these launch.

    A call lies within an interval if it does as a whole. What it launches counts
    whenever it runs.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        within: The intervals of each thread.

    Returns:
        The nodes of the calls that launch or wait, then those of the GPU tasks
        (kernels, copies and sets).
    """
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    rows_of_calls = graph.row[calls]
    is_call_inside = mark_slices_inside(trace, graph, within, rows_of_calls)

    tasks = graph.gpu_tasks
    rows_of_tasks = graph.row[tasks]
    launching_calls = trace.launch[rows_of_tasks]
    is_launched_inside = mark_slices_inside(trace, graph, within, launching_calls)
    return np.append(calls[is_call_inside], tasks[is_launched_inside])


def find_python_time(trace: Trace, graph: Graph) -> ThreadIntervals:
    """Find the intervals in which threads run Python.

    A thread runs Python while it is in a Python frame, outside of ops and calls. It
    does not while the frame only waits, or runs backward, which other threads work on.
    In a trace without frames, all time of a thread outside of ops and calls counts.
    Threads that run backward are left out.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
    """
    intervals: ThreadIntervals = {}
    has_frames = bool((trace.role == Role.PYTHON).any())
    backward_threads = find_engines(trace)
    for index, lane in enumerate(graph.lanes):
        nodes = np.flatnonzero(graph.lane == index)
        if lane.is_stream or lane.thread in backward_threads or not len(nodes):
            continue

        for threads, offset in find_axis(trace, lane.thread):
            # To be added to times after the origin, for times of the axis.
            graph_to_axis_ns = graph.origin_ns + offset
            begin = graph.began[nodes].min() + graph_to_axis_ns
            end = graph.ended[nodes].max() + graph_to_axis_ns
            lifetime = Cover(np.array([begin]), np.array([end]))
            if has_frames:
                python = _find_time_in_frames(trace, threads, lifetime)
            else:
                # The covers are ordered by activity: those of calls first, up to ops.
                ops_and_calls = joined(*threads.covers[: ThreadActivity.OP + 1])
                python = without(lifetime, ops_and_calls)
            intervals[index] = python.shifted(-graph_to_axis_ns)
    return intervals


def _find_time_in_frames(trace: Trace, line: Threads, lifetime: Cover) -> Cover:
    """Find when a thread is in a Python frame that neither waits nor runs backward.

    Args:
        trace: The trace.
        line: The slices of the thread.
        lifetime: From when to when the thread is replayed, in ns of the line.

    Returns:
        The intervals, in ns of the line.
    """
    frames = line.find_slices(ThreadActivity.PYTHON)
    runs_backward = trace.matching(frames.rows, RUNS_BACKWARD.search)
    backward_frames = frames.select(runs_backward)
    backward = union(backward_frames.start, backward_frames.end)
    waiting = cover_waiting_frames(trace, line)
    in_frames = common(lifetime, line.covers[ThreadActivity.PYTHON])
    return without(in_frames, joined(waiting, backward))


class LaunchRange(NamedTuple):
    """A range of time, such as a step, whose launches become one launch of a graph."""

    begin: int  # ns of the file
    end: int
    # The thread of the range and those that run backward for it: indices in
    # Graph.lanes.
    lanes: Rows


class _Threads:
    """The threads of a graph, and which of them belong together.

    Arrays have one entry per thread, in the order of Graph.lanes. Threads come first
    there, so an index of a thread is also one of its lane.
    """

    def __init__(self, trace: Trace, graph: Graph) -> None:
        """Collect the threads of a graph.

        Args:
            trace: The trace.
            graph: Its work as nodes, with what each of them waits for.
        """
        threads = [lane.thread for lane in graph.lanes if not lane.is_stream]
        self._thread = np.array(threads, dtype=np.intp)
        self._runs_backward = np.isin(self._thread, find_engines(trace))
        self._process_of_thread = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
        self._process_of_thread[trace.thread_of_track] = trace.process_of_track

    @property
    def process(self) -> Int64s:
        """The process of each thread."""
        process: Int64s = self._process_of_thread[self._thread]
        return process

    def with_engines(self, thread: int) -> Rows:
        """Return the lane of a thread, and of those of its process that run backward.

        Args:
            thread: The number of the thread, as in Trace.thread_of_track.
        """
        is_of_process = self.process == self._process_of_thread[thread]
        is_thread = self._thread == thread
        return np.flatnonzero(is_thread | (self._runs_backward & is_of_process))


def find_launch_ranges(
    trace: Trace, graph: Graph, change: Graphed
) -> Iterator[LaunchRange]:
    """Yield the ranges of time whose launches a change turns into one each.

    They are all steps, one step, or the outermost ones of some slices. In a trace
    without steps, "all steps" is one range per process, with all that it launches.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        change: The change.

    Raises:
        WrongChangeError: If there is no such step or slice.
    """
    steps = steps_of(trace)
    threads = _Threads(trace, graph)
    if not change.is_of_steps:
        yield from _find_ranges(trace, graph, threads, change.pattern)
        return

    if change.pattern:
        index = steps.place(int(change.pattern))
        has_step = index >= 0
        if not has_step:
            raise NoMatchError(
                f"There is no step {change.pattern}: this trace has {steps.known}."
            )
        steps = steps.only(np.array([index]))

    for begin, end, row in zip(steps.start, steps.end, steps.rows, strict=True):
        track = trace.track[row]
        thread = int(trace.thread_of_track[track])
        yield LaunchRange(int(begin), int(end), threads.with_engines(thread))
    if not len(steps):
        for process in distinct(threads.process).tolist():
            lanes = np.flatnonzero(threads.process == process)
            yield LaunchRange(trace.begin_ns, trace.end_ns, lanes)


def _find_ranges(
    trace: Trace, graph: Graph, threads: _Threads, pattern: str
) -> Iterator[LaunchRange]:
    """Yield the outermost ones of the slices that a search finds, thread by thread.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        threads: The threads of the graph.
        pattern: The name of the slices, or the search.

    Raises:
        NoMatchError: If there are none.
    """
    rows = find_slices(trace, graph, "wait", pattern)
    for lane, cover in find_intervals(trace, graph, rows).items():
        lanes = threads.with_engines(graph.lanes[lane].thread)
        begins = (cover.start + graph.origin_ns).tolist()
        ends = (cover.end + graph.origin_ns).tolist()
        for begin, end in zip(begins, ends, strict=True):
            yield LaunchRange(begin=begin, end=end, lanes=lanes)


class OnOtherDevice(NamedTuple):
    """How kernels compare with another device; one entry per kernel.

    The *least time* of a kernel is the time that the limits of a device allow it: its
    arithmetic at the highest rate, or its data at the highest bandwidth. Both fields
    are nan where it is not known.
    """

    ratio: Floats  # how many times as long the least time is on the other device
    least_ns: Floats  # the least time on the device of the trace


def compare_with_device(kernels: Kernels, name: str) -> OnOtherDevice:
    """Compare the least times of kernels on the device of the trace and on another one.

    E.g. a ratio of 0.5 for a kernel that is limited by memory, if the other device has
    twice the bandwidth. It is not known for kernels whose rate of arithmetic is not
    known. The least time here is 0 for kernels whose data may come from the cache.

    Args:
        kernels: The kernels.
        name: The name of the other device, as a user wrote it.

    Raises:
        WrongChangeError: If the limits of either device are not known.
    """
    other = _find_peak(name)
    here = kernels.peak
    if here is None:
        raise WrongChangeError("The peak rates of this trace's device are unknown.")

    def ratio(job: KernelJob) -> float | None:
        """Return the ratio of the least times of what a kernel does."""
        return _ratio_of_least_times(job, here, other)

    def least_ns(job: KernelJob) -> float | None:
        """Return the least time here of what a kernel does, in ns."""
        return job.limits.least_ns or 0.0

    return OnOtherDevice(
        ratio=kernels.compute_from_jobs(ratio),
        least_ns=kernels.compute_from_jobs(least_ns),
    )


class _LimitOnDevices(NamedTuple):
    """How long a kernel takes on two devices if only one resource limits it, in ns."""

    here_ns: float
    other_ns: float  # inf if the other device lacks the resource


def _ratio_of_least_times(job: KernelJob, here: Peak, other: Peak) -> float | None:
    """Return how many times as long the least time of a kernel is on another device.

    The least time is the longer one of two: that of the arithmetic and that of the
    data. One that is not known here is ignored. E.g. a kernel of 10 us (arithmetic) and
    6 us (data) has the ratio 0.6 on a device with twice the arithmetic and the same
    bandwidth, where the data limits it.

    Args:
        job: What the kernel does, with its limits here.
        here: The limits of the device of the trace.
        other: The limits of the other device.

    Returns:
        The ratio; None if nothing limits the kernel here, if a time here is 0, or if
        the other device lacks a resource that the kernel needs.
    """
    limits = job.limits
    if limits.bound is None:
        return None
    arithmetic = _compare_limit(
        limits.compute_ns,
        rate_here=here.flop_per_s(limits.kind),
        rate_other=other.flop_per_s(limits.kind),
    )
    data = _compare_limit(
        limits.memory_ns, rate_here=here.bytes_per_s, rate_other=other.bytes_per_s
    )
    known_limits = [limit for limit in (arithmetic, data) if limit is not None]

    least_here_ns = max(limit.here_ns for limit in known_limits)
    least_other_ns = max(limit.other_ns for limit in known_limits)
    has_empty_limit = min(limit.here_ns for limit in known_limits) <= 0
    lacks_resource = least_other_ns == math.inf
    if has_empty_limit or lacks_resource:
        return None
    return least_other_ns / least_here_ns


def _compare_limit(
    here_ns: float | None, *, rate_here: float | None, rate_other: float | None
) -> _LimitOnDevices | None:
    """Compare how long a resource limits a kernel on two devices.

    Args:
        here_ns: How long it does on the device of the trace.
        rate_here: The rate of the resource there, such as bytes/s.
        rate_other: The rate on the other device. 0 or None means that it has none.

    Returns:
        None if the time here, or the rate here, is not known.
    """
    if here_ns is None or not rate_here:
        return None
    other_ns = here_ns * rate_here / rate_other if rate_other else math.inf
    return _LimitOnDevices(here_ns=here_ns, other_ns=other_ns)


def _find_peak(name: str) -> Peak:
    """Find the limits of a device (its peak rates) by its name.

    The name may be a full one, as devices report it, or a part of a known one.

    Args:
        name: The name, as a user wrote it.

    Raises:
        WrongChangeError: If no device, or more than one, may be meant.
    """
    for peak in PEAKS:
        if re.search(peak.pattern, name):
            return peak

    peaks = []
    for peak in PEAKS:
        if name.lower() in _make_plain_name(peak).lower():
            peaks.append(peak)
    if not peaks:
        raise NoMatchError(f"The peak rates of {name} are unknown.")
    if len(peaks) > 1:
        names = ", ".join(map(_make_plain_name, peaks))
        raise WrongChangeError(
            f"{name} is ambiguous ({names}): use one of these names."
        )
    return peaks[0]


def _make_plain_name(peak: Peak) -> str:
    """Return the name of a device to be read by people.

    It is the regular expression of its name without what only a search needs, and with
    "or" between alternatives.
    """
    return re.sub(r"\\b|\$|\(|\)|\\|\[\d+\]", "", peak.pattern.replace("|", " or "))
