"""Finds what a change is about in a trace and in its graph: items, and times of threads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import search, texts_of
from fusetui.analysis.replay.changes import Named, NoMatchError, WrongChangeError
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.why.account import line_of, waiting_frames
from fusetui.analysis.why.backward_threads import RUNS_BACKWARD, engines_of
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.thread_activity import ThreadActivity, Threads
from fusetui.gpu.roofline.peaks import PEAKS, Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, common, joined, union, without
from fusetui.trace.program.origin import origins

Covers = dict[int, Cover]
"""By the number of a thread's chain: stretches of time as in a Graph."""
ROLES_OF_SLICES = {
    "op": ((Role.OP,), (Role.CALL,)),
    "python": ((Role.PYTHON,),),
    "module": ((Role.PYTHON, Role.ANNOTATION),),
    "wait": ((Role.OP, Role.CALL, Role.PYTHON, Role.ANNOTATION),),
}
"""What slices may be; of several kinds the first of which there are any."""
NOTHING_OF_KIND = {
    "op": "No op",
    "module": "No module",
    "python": "No Python frame",
    "wait": "Nothing",
}


def rows_like(trace: Trace, pattern: str, *roles: Role) -> Rows:
    """Return the slices with exactly a name, or else those that a search finds.

    Args:
        trace: The trace.
        pattern: The name, or the query.
        roles: The roles that the slices may have.

    Raises:
        WrongChangeError: If the query is wrong, or asks for args.
    """
    rows = trace.rows_of(*roles)
    if pattern in trace.names:
        has_name = trace.name[rows] == trace.names.index(pattern)
        if has_name.any():
            named: Rows = rows[has_name]
            return named

    try:
        query = parse(pattern)
        hits = search(trace, texts_of(trace), query)
    except WrongQueryError as error:
        raise WrongChangeError(f"{error}.".replace("..", ".")) from None
    if query.reads_args:
        raise WrongChangeError(
            f"{pattern} asks for args, by which no change is chosen."
        )
    return np.intersect1d(rows, hits)


def items_like(trace: Trace, graph: Graph, what: Named, pattern: str) -> Rows:
    """Return the nodes of the kernels, copies and sets that a change names.

    Raises:
        WrongChangeError: If there are none.
    """
    if what in ("library", "family"):
        rows = rows_like(trace, f'{what}:"{pattern}"', Role.KERNEL)
    elif what == "kind":
        rows = rows_like(trace, f'kind:"{pattern}"', *GPU_ROLES)
    else:
        rows = rows_like(trace, pattern, *GPU_ROLES)
    items = graph.nodes(Node.ITEM, rows=rows)
    if not len(items):
        raise NoMatchError(f"No kernel matches {what}:{pattern}.")
    return items


def slices_like(trace: Trace, graph: Graph, what: str, pattern: str) -> Rows:
    """Return the slices that a change names, on threads of the graph.

    These are ops, or else calls; Python frames; modules and annotations with what runs
    backward for them; or whatever may contain a wait.

    Raises:
        WrongChangeError: If there are none.
    """
    for roles in ROLES_OF_SLICES[what]:
        rows = rows_like(trace, pattern, *roles)
        if what == "module":
            rows = _with_backward(trace, graph, rows)
        is_replayed = _chain_of_track(trace, graph)[trace.track[rows]] >= 0
        if is_replayed.any():
            return rows[is_replayed]
    raise NoMatchError(
        f"{NOTHING_OF_KIND[what]} on a thread that is replayed matches {pattern}."
    )


def _with_backward(trace: Trace, graph: Graph, rows: Rows) -> Rows:
    """Return the modules and annotations among some rows, with their backward work.

    That is the work whose forward op lies in one of them.
    """
    all_origins = origins(trace)
    backward = all_origins.backward
    regions = np.intersect1d(rows, all_origins.regions.rows)
    has_forward = np.flatnonzero(backward.forward >= 0)
    in_regions = covers(trace, graph, regions)
    is_of_region = inside(trace, graph, in_regions, backward.forward[has_forward])
    return np.concatenate((regions, backward.rows[has_forward[is_of_region]]))


def _chain_of_track(trace: Trace, graph: Graph) -> Rows:
    """Return for each track the chain of its thread, -1 for none."""
    chain_of_thread = np.full(len(trace.tracks) + 1, -1)
    for index, chain in enumerate(graph.chains):
        if not chain.is_stream:
            chain_of_thread[chain.thread] = index
    return chain_of_thread[trace.thread_of_track]


def covers(trace: Trace, graph: Graph, rows: NDArray[np.integer]) -> Covers:
    """Return when each thread is in any of some slices.

    Threads that never are are left out.
    """
    chain = _chain_of_track(trace, graph)[trace.track[rows]]
    start = trace.start[rows] - graph.origin_ns
    end = trace.end[rows] - graph.origin_ns
    cover_of_chain: Covers = {}
    for index in distinct(chain[chain >= 0]).tolist():
        is_of_chain = chain == index
        cover_of_chain[index] = union(start[is_of_chain], end[is_of_chain])
    return cover_of_chain


def inside(
    trace: Trace, graph: Graph, within: Covers, rows: NDArray[np.integer]
) -> Flags:
    """Mark the slices of threads that lie within covers.

    Args:
        trace: The trace.
        graph: Its graph.
        within: The covers.
        rows: The slices; -1 lies nowhere.
    """
    chain_of_track = _chain_of_track(trace, graph)
    chain = np.where(rows >= 0, chain_of_track[trace.track[rows]], -1)
    is_inside = np.zeros(len(rows), dtype=np.bool_)
    for index, cover in within.items():
        of_chain = np.flatnonzero(chain == index)
        start = trace.start[rows[of_chain]] - graph.origin_ns
        end = trace.end[rows[of_chain]] - graph.origin_ns
        interval = cover.place_of(start)
        is_inside[of_chain] = (interval >= 0) & (end <= cover.end[interval])
    return is_inside


def called_in(trace: Trace, graph: Graph, within: Covers) -> Rows:
    """Return the nodes of the calls within covers, and of what they launch."""
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    items = graph.nodes(Node.ITEM)
    nodes = np.append(calls, items)
    call_rows = np.append(graph.row[calls], trace.launch[graph.row[items]])
    return nodes[inside(trace, graph, within, call_rows)]


def in_python(trace: Trace, graph: Graph) -> Covers:
    """Return when threads run Python.

    That is when they are in a Python frame, but in none that waits or asks for
    backward, nor in an op or a call inside of it. In a trace without frames it is when
    they are in neither an op nor a call. Threads that run backward are left out.
    """
    cover_of_chain: Covers = {}
    has_frames = bool((trace.role == Role.PYTHON).any())
    engines = engines_of(trace)
    for index, chain in enumerate(graph.chains):
        nodes = np.flatnonzero(graph.chain == index)
        if chain.is_stream or chain.thread in engines or not len(nodes):
            continue
        for line, offset in line_of(trace, chain.thread):
            shift = graph.origin_ns + offset  # from the graph's time to the line's
            begin = graph.began[nodes].min() + shift
            end = graph.ended[nodes].max() + shift
            lifetime = Cover(np.array([begin]), np.array([end]))
            if has_frames:
                python = _in_frames(trace, line, lifetime)
            else:
                ops_and_calls = joined(*line.covers[: ThreadActivity.OP + 1])
                python = without(lifetime, ops_and_calls)
            cover_of_chain[index] = Cover(python.start - shift, python.end - shift)
    return cover_of_chain


def _in_frames(trace: Trace, line: Threads, lifetime: Cover) -> Cover:
    """When a thread is in a Python frame during its lifetime, but in none that waits or
    asks for backward; in the time of its line."""
    frames = line.slices(ThreadActivity.PYTHON)
    runs_backward = trace.matching(frames.rows, RUNS_BACKWARD.search)
    asking = frames.only(runs_backward)
    waits = joined(waiting_frames(trace, line), union(asking.start, asking.end))
    in_frames = common(lifetime, line.covers[ThreadActivity.PYTHON])
    return without(in_frames, waits)


class LaunchRange(NamedTuple):
    """A range of time in which threads launch work."""

    begin: int  # ns of the file
    end: int
    chains: Rows  # of the thread, and of those that run backward for it


class _Threads:
    """The threads of a graph; arrays of shape [threads], in the order of their chains,
    which come before those of streams."""

    def __init__(self, trace: Trace, graph: Graph) -> None:
        """The threads of a graph of this trace."""
        threads = [chain.thread for chain in graph.chains if not chain.is_stream]
        self._thread = np.array(threads, dtype=np.intp)
        self._runs_backward = np.isin(self._thread, engines_of(trace))
        process_of_thread = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
        process_of_thread[trace.thread_of_track] = trace.process_of_track
        self._process_of_thread = process_of_thread

    @property
    def process(self) -> Int64s:
        """The process of each thread."""
        process: Int64s = self._process_of_thread[self._thread]
        return process

    def with_engines(self, thread: int) -> Rows:
        """The chain of a thread, and those of its process that run backward."""
        is_of_process = self.process == self._process_of_thread[thread]
        is_thread = self._thread == thread
        return np.flatnonzero(is_thread | (self._runs_backward & is_of_process))


def ranges_of(trace: Trace, graph: Graph, pattern: str) -> Iterator[LaunchRange]:
    """Yield the ranges of time that a change of launches names.

    Args:
        trace: The trace.
        graph: Its graph.
        pattern: "" for each step, the number of one step, or a search for slices, of
            which the outermost ones count. In a trace without steps, "" is all that a
            process launches.

    Raises:
        WrongChangeError: If there is no such step or slice.
    """
    steps = steps_of(trace)
    threads = _Threads(trace, graph)
    if pattern and not pattern.isdecimal():
        yield from _ranges_like(trace, graph, threads, pattern)
        return
    if pattern:
        index = steps.place(int(pattern))
        if index < 0:
            raise NoMatchError(f"There is no step {pattern}, but {steps.known}.")
        steps = steps.only(np.array([index]))

    for begin, end, row in zip(steps.start, steps.end, steps.rows, strict=True):
        thread = int(trace.thread_of_track[trace.track[row]])
        yield LaunchRange(int(begin), int(end), threads.with_engines(thread))
    if not len(steps):
        for process in distinct(threads.process).tolist():
            chains = np.flatnonzero(threads.process == process)
            yield LaunchRange(trace.begin_ns, trace.end_ns, chains)


def _ranges_like(
    trace: Trace, graph: Graph, threads: _Threads, pattern: str
) -> Iterator[LaunchRange]:
    """Yield the outermost slices of each thread that a search finds.

    Raises:
        NoMatchError: If there are none.
    """
    rows = slices_like(trace, graph, "wait", pattern)
    for index, cover in covers(trace, graph, rows).items():
        chains = threads.with_engines(graph.chains[index].thread)
        starts = (cover.start + graph.origin_ns).tolist()
        ends = (cover.end + graph.origin_ns).tolist()
        for begin, end in zip(starts, ends, strict=True):
            yield LaunchRange(begin, end, chains)


class OnOtherDevice(NamedTuple):
    """Of each kernel; nan where it is not known. Arrays of shape [kernels]."""

    ratio: Floats  # how many times as long its least time is on the other device
    least_ns: Floats  # how much of its time that is here


def on_device(kernels: Kernels, name: str) -> OnOtherDevice:
    """The least times of kernels on another device. They are not known without a rate
    of their arithmetic; here they are 0 where the data may come from the cache. Raises
    WrongChangeError."""
    other = _peak(name)
    here = kernels.peak
    if here is None:
        raise WrongChangeError("The limits of the device of this trace are not known.")

    def ratio(job: KernelJob) -> float | None:
        return _ratio_of_least_times(job, here, other)

    def least_ns(job: KernelJob) -> float | None:
        return job.limits.least_ns or 0.0

    return OnOtherDevice(
        ratio=kernels.figures_of_jobs(ratio), least_ns=kernels.figures_of_jobs(least_ns)
    )


def _ratio_of_least_times(job: KernelJob, here: Peak, other: Peak) -> float | None:
    """How many times as long the least time of a kernel is on another device; None if
    one of both is not known."""
    limits = job.limits
    if limits.bound is None:
        return None
    times_here: list[float] = []
    times_other: list[float] = []
    rates = (
        (
            limits.compute_ns,
            here.flop_per_s(limits.kind),
            other.flop_per_s(limits.kind),
        ),
        (limits.memory_ns, here.bytes_per_s, other.bytes_per_s),
    )
    for ns, rate_here, rate_other in rates:
        if ns is None or not rate_here:
            continue
        times_here.append(ns)
        times_other.append(ns * rate_here / rate_other if rate_other else math.inf)
    if min(times_here) <= 0 or max(times_other) == math.inf:
        return None
    return max(times_other) / max(times_here)


def _peak(name: str) -> Peak:
    """The limits of the device with this name. Raises WrongChangeError."""
    peaks = [peak for peak in PEAKS if re.search(peak.pattern, name)][:1]
    if not peaks:
        peaks = [peak for peak in PEAKS if name.lower() in _plain_name(peak).lower()]
    if not peaks:
        raise NoMatchError(f"The limits of {name} are not known.")
    if len(peaks) > 1:
        names = ", ".join(map(_plain_name, peaks))
        raise WrongChangeError(f"{name} may be {names}: name one of them.")
    return peaks[0]


def _plain_name(peak: Peak) -> str:
    """A pattern as a name, whose alternatives are left out."""
    return re.sub(r"\\b|\$|\(|\)|\\|\[\d+\]", "", peak.pattern.replace("|", " or "))
