"""What a change is about: items, and stretches of threads, found in a trace and in its
graph."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import search, texts_of
from fusetui.analysis.replay.changes import Named, NoMatchError, WrongChangeError
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.why.account import line_of, waiting_frames
from fusetui.analysis.why.backward_threads import RUNS_BACKWARD, engines_of
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.kernels import Kernels
from fusetui.gpu.roofline.peaks import PEAKS, Peak
from fusetui.gpu.roofline.row import KernelJob
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Flags, Floats, Rows, distinct
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, common, joined, union, without
from fusetui.trace.program.origin import origins

# by the number of a thread's chain, stretches of time as in a Graph
Covers = dict[int, Cover]
INSIDE = {
    "op": ((Role.OP,), (Role.CALL,)),
    "python": ((Role.PYTHON,),),
    "module": ((Role.PYTHON, Role.ANNOTATION),),
    "wait": ((Role.OP, Role.CALL, Role.PYTHON, Role.ANNOTATION),),
}
"""Of what slices may be; of several kinds the first of which there are any."""
NOTHING = {
    "op": "No op",
    "module": "No module",
    "python": "No Python frame",
    "wait": "Nothing",
}


def rows_like(trace: Trace, pattern: str, *roles: Role) -> Rows:
    """Slices with exactly this name, else those that a search finds. Raises
    WrongChangeError."""
    rows = trace.rows_of(*roles)
    exact = trace.names.index(pattern) if pattern in trace.names else -1
    named: Rows = rows[trace.name[rows] == exact]
    if len(named):
        return named
    try:
        query = parse(pattern)
        found = search(trace, texts_of(trace), query)
    except WrongQueryError as error:
        raise WrongChangeError(f"{error}.".replace("..", ".")) from None
    if query.reads_args:
        raise WrongChangeError(
            f"{pattern} asks for args, by which no change is chosen."
        )
    return np.intersect1d(rows, found)


def items_like(trace: Trace, graph: Graph, what: Named, pattern: str) -> Rows:
    """The nodes of kernels, copies and sets. Raises WrongChangeError."""
    if what == "family":
        rows = rows_like(trace, f'family:"{pattern}"', GPU_ROLES[0])
    else:
        rows = rows_like(trace, pattern, *GPU_ROLES)
    found = graph.nodes(Node.ITEM, rows=rows)
    if not len(found):
        raise NoMatchError(f"No kernel matches {what}:{pattern}.")
    return found


def slices_like(trace: Trace, graph: Graph, what: str, pattern: str) -> Rows:
    """Slices of threads of the graph: ops, else calls; frames of Python; modules and
    annotations with what runs backward for them; what may contain a wait. Raises
    WrongChangeError."""
    for roles in INSIDE[what]:
        rows = rows_like(trace, pattern, *roles)
        if what == "module":
            every = origins(trace)
            backward, rows = every.backward, np.intersect1d(rows, every.regions.rows)
            known = np.flatnonzero(backward.forward >= 0)
            own = inside(
                trace, graph, covers(trace, graph, rows), backward.forward[known]
            )
            rows = np.concatenate((rows, backward.rows[known[own]]))
        rows = rows[_chain_of_track(trace, graph)[trace.track[rows]] >= 0]
        if len(rows):
            return rows
    raise NoMatchError(
        f"{NOTHING[what]} on a thread that is replayed matches {pattern}."
    )


def _chain_of_track(trace: Trace, graph: Graph) -> Rows:
    """For each track the number of its thread's chain, -1 for none."""
    chain = np.full(len(trace.tracks) + 1, -1)
    chain[[one.thread for one in graph.chains if not one.is_stream]] = np.arange(
        len(graph.time_scales)
    )
    return chain[trace.thread_of_track]


def covers(trace: Trace, graph: Graph, rows: NDArray[np.integer]) -> Covers:
    """When threads are in any of these slices."""
    chain = _chain_of_track(trace, graph)[trace.track[rows]]
    start, end = trace.start[rows] - graph.origin_ns, trace.end[rows] - graph.origin_ns
    return {
        number: union(start[chain == number], end[chain == number])
        for number in distinct(chain[chain >= 0]).tolist()
    }


def inside(
    trace: Trace, graph: Graph, within: Covers, rows: NDArray[np.integer]
) -> Flags:
    """Which of these slices of threads lie in covers; not -1."""
    chain = np.where(rows >= 0, _chain_of_track(trace, graph)[trace.track[rows]], -1)
    found = np.zeros(len(rows), dtype=np.bool_)
    for number, cover in within.items():
        own = np.flatnonzero(chain == number)
        place = cover.place_of(trace.start[rows[own]] - graph.origin_ns)
        found[own] = (place >= 0) & (
            trace.end[rows[own]] - graph.origin_ns <= cover.end[place]
        )
    return found


def called_in(trace: Trace, graph: Graph, within: Covers) -> Rows:
    """The nodes of calls in covers, and of what they launch."""
    calls, items = graph.nodes(Node.LAUNCH, Node.WAIT), graph.nodes(Node.ITEM)
    nodes, launched = np.append(calls, items), trace.launch[graph.row[items]]
    return nodes[inside(trace, graph, within, np.append(graph.row[calls], launched))]


def in_python(trace: Trace, graph: Graph) -> Covers:
    """When threads that run no backward are in a Python frame, but in none that waits
    or asks for backward, nor in an op or a call inside that; of a trace without frames,
    when they are in neither an op nor a call."""
    found: Covers = {}
    framed, engines = bool((trace.role == Role.PYTHON).any()), engines_of(trace)
    for number, chain in enumerate(graph.chains):
        own = np.flatnonzero(graph.chain == number)
        if chain.is_stream or chain.thread in engines or not len(own):
            continue
        for line, offset in line_of(trace, chain.thread):
            shift = graph.origin_ns + offset
            begin, end = graph.began[own].min() + shift, graph.ended[own].max() + shift
            whole = Cover(np.array([begin]), np.array([end]))
            if framed:
                frames = line.slices(Host.PYTHON)
                asks = frames.only(trace.matching(frames.rows, RUNS_BACKWARD.search))
                waits = joined(waiting_frames(trace, line), union(*asks[1:]))
                free = without(common(whole, line.covers[Host.PYTHON]), waits)
            else:
                free = without(whole, joined(*line.covers[: Host.OP + 1]))
            found[number] = Cover(free.start - shift, free.end - shift)
    return found


def ranges_of(
    trace: Trace, graph: Graph, pattern: str
) -> Iterator[tuple[int, int, Rows]]:
    """Begin and end (ns of the file), and the chains of the thread and of those that
    run backward for it, of each step, of one, or of the outermost slices like a
    pattern; without steps, of all that a process launches. Raises WrongChangeError."""
    steps, process_of = steps_of(trace), np.zeros(len(trace.tracks) + 1, dtype=np.int64)
    process_of[trace.thread_of_track] = trace.process_of_track
    threads = np.array(
        [one.thread for one in graph.chains if not one.is_stream], dtype=np.intp
    )
    engine = np.isin(threads, engines_of(trace))

    def chains(thread: int) -> Rows:
        own = (threads == thread) | (
            engine & (process_of[threads] == process_of[thread])
        )
        return np.flatnonzero(own)

    if pattern.isdecimal():
        place = steps.place(int(pattern))
        if place < 0:
            raise NoMatchError(f"There is no step {pattern}, but {steps.known}.")
        steps = steps.only(np.array([place]))
    elif pattern:
        rows = slices_like(trace, graph, "wait", pattern)
        for number, cover in covers(trace, graph, rows).items():
            own = chains(graph.chains[number].thread)
            for begin, end in zip(
                cover.start.tolist(), cover.end.tolist(), strict=True
            ):
                yield begin + graph.origin_ns, end + graph.origin_ns, own
        return
    for begin, end, row in zip(steps.start, steps.end, steps.rows, strict=True):
        yield int(begin), int(end), chains(int(trace.thread_of_track[trace.track[row]]))
    if not len(steps):
        for process in distinct(process_of[threads]).tolist():
            own = np.flatnonzero(process_of[threads] == process)
            yield trace.begin_ns, trace.end_ns, own


def on_device(kernels: Kernels, name: str) -> tuple[Floats, Floats]:
    """How many times as long the least time of each kernel is on another device, and
    how much of its time that is here (ns; 0 where its data may come from the cache):
    nan where the least time on one of them is not known, as without a rate of its
    arithmetic. Raises WrongChangeError."""
    new, old = _peak(name), kernels.peak
    if old is None:
        raise WrongChangeError("The limits of the device of this trace are not known.")

    def ratio(job: KernelJob) -> float | None:
        limits, bytes_per_s = job.limits, (old.bytes_per_s, new.bytes_per_s)
        rates = old.flop_per_s(limits.kind), new.flop_per_s(limits.kind)
        least, other = list[float](), list[float]()
        for ns, (here, there) in (
            (limits.compute_ns, rates),
            (limits.memory_ns, bytes_per_s),
        ):
            if ns is not None and here:
                least.append(ns)
                other.append(ns * here / there if there else math.inf)
        known = limits.bound is not None and min(least) > 0 and max(other) < math.inf
        return max(other) / max(least) if known else None

    return kernels.of_jobs(ratio), kernels.of_jobs(
        lambda job: job.limits.least_ns or 0.0
    )


def _peak(name: str) -> Peak:
    found = [peak for peak in PEAKS if re.search(peak.pattern, name)]
    found = found[:1] or [one for one in PEAKS if name.lower() in _plain(one).lower()]
    if not found:
        raise NoMatchError(f"The limits of {name} are not known.")
    if len(found) > 1:
        raise WrongChangeError(
            f"{name} may be {', '.join(map(_plain, found))}: name one of them."
        )
    return found[0]


def _plain(peak: Peak) -> str:
    """A pattern as a name, whose alternatives are left out."""
    return re.sub(r"\\b|\$|\(|\)|\\|\[\d+\]", "", peak.pattern.replace("|", " or "))
