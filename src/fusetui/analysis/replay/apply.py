"""Applies changes to a graph: the effect of each kind of change on nodes and edges.

The words node, GPU task, edge, lag and residual are defined in graph.py; a *draft* is a
graph that is being changed, see draft.py. A LAUNCH is the node of a call that launches
GPU work, a WAIT that of a call that waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.launches import mark_graph_calls
from fusetui.analysis.questions.loaders import (
    find_loader_calls,
    find_worker_loader_calls,
)
from fusetui.analysis.replay import select
from fusetui.analysis.replay.changes import (
    Change,
    FusedKernels,
    Graphed,
    Loaded,
    NoMatchError,
    OnDevice,
    Overlapped,
    Scaled,
    Unsynced,
    WrongChangeError,
)
from fusetui.analysis.replay.draft import Draft
from fusetui.analysis.replay.graph import (
    NO_BATCHES,
    ORIGIN_NODE,
    OTHER_LANE,
    SAME_LANE,
    Graph,
    Node,
)
from fusetui.analysis.replay.select import LaunchRange, ThreadIntervals
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rules.fusion import find_fusable_runs
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Floats,
    Rows,
    distinct,
    inside_ranges,
    sums_of_ranges,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NOTHING, Cover
from fusetui.trace.model.quantiles import median

ASSUMED_GRAPH_LAUNCH_NS = 10_000
"""How long a call that launches a graph is assumed to take, if the trace has none."""
MIN_GRAPHED_LAUNCHES = 2
"""One graph launch in place of fewer launches than this would change nothing."""
MIN_LOADED_BATCHES = 2
"""If a thread loads fewer batches than this, it is not known when a worker would have
begun the only one."""
UNKNOWN_BOUND = -1
"""The least time of a kernel is not known."""


def apply_changes(
    trace: Trace, graph: Graph, changes: Sequence[Change], *, latest: bool = False
) -> tuple[Graph, tuple[str, ...]]:
    """Apply changes to the graph of a trace, one after the other.

    The graph itself stays as it is. E.g. after `kernel:gemm x0.5`, the nodes of these
    kernels take half as long; when they begin then is left to a replay.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changes: The changes.
        latest: Whether changes that give a range (`is_range`) take its later end.

    Returns:
        The changed graph, and what has to be said about the changes (see whatif.Note).

    Raises:
        WrongChangeError: For a change that cannot be made, or changes nothing.
    """
    draft = Draft(trace, graph, latest)
    for change in changes:
        edit = EDITS[type(change)]
        edit(change, draft)
    notes = tuple(dict.fromkeys(draft.notes))  # each once
    return draft.make_changed_graph(), notes


def is_range(changes: Sequence[Change]) -> bool:
    """Return whether some of these changes gives a range of times instead of one time.

    That is so for a change of the device: how long a kernel takes on another one is
    known only within bounds.
    """
    return any(isinstance(change, OnDevice) for change in changes)


def _scale_durations(change: Scaled, draft: Draft) -> None:
    """Change how long kernels, communication or threads take.

    Depending on the change, the new time is a factor of the current one, a fixed time,
    or the least time that the device allows. Threads take only a factor.

    Raises:
        WrongChangeError: If the trace has nothing that the change names.
    """
    if change.what in ("op", "module", "python"):
        _scale_threads(change, draft)
        return

    trace = draft.trace
    graph = draft.graph
    if change.what == "comm":
        tasks = _find_communication(draft)
    else:
        tasks = select.find_gpu_tasks(trace, graph, change.what, change.pattern)
    if communicates(trace, graph.row[tasks]).any():
        draft.notes.append("waits_scaled")

    factor = change.factor
    fixed_ns = change.ns
    if factor is not None:
        draft.scale_gpu_tasks(tasks, lambda current_ns: current_ns * factor)
    elif fixed_ns is not None:
        new_ns = np.full(len(tasks), float(fixed_ns))
        draft.scale_gpu_tasks(tasks, lambda _: new_ns)
    else:
        _shorten_to_bound(draft, tasks, change.pattern)


def _scale_threads(change: Scaled, draft: Draft) -> None:
    """Apply a change such as `op:attn x0.5`, `module:mlp x0` or `python x0.5`.

    What threads do in the named ops, modules or Python frames takes `factor` times as
    long. With the factor 0, or without one, these are not run at all: they launch
    nothing and wait for no batch. `python` alone notes it if no frames were recorded.

    Args:
        change: The change.
        draft: The graph, which is changed in place.

    Raises:
        WrongChangeError: If the trace has nothing that the change names.
    """
    trace = draft.trace
    graph = draft.graph
    factor = change.factor or 0.0
    is_all_python = change.what == "python" and not change.pattern
    if is_all_python:
        if not (trace.role == Role.PYTHON).any():
            draft.notes.append("python_is_all_but_ops")
        draft.scale_threads(select.find_python_time(trace, graph), factor)
        return

    slices = select.find_slices(trace, graph, change.what, change.pattern)
    intervals = select.find_intervals(trace, graph, slices)
    draft.scale_threads(intervals, factor)
    is_skipped = factor == 0
    if is_skipped:
        draft.remove_nodes(select.find_calls_within(trace, graph, intervals))
        draft.wait_for_no_batch(intervals)

    # The slices may be calls themselves (see ROLES_OF_SLICES), which are nodes of their
    # own and no time of the thread.
    calls = graph.nodes(Node.LAUNCH, Node.WAIT, rows=slices)
    draft.dur[calls] = np.rint(draft.dur[calls] * factor).astype(np.int64)


def _shorten_to_bound(draft: Draft, kernels: Rows, pattern: str) -> None:
    """Make kernels take the least time that the device allows, if that is shorter.

    Kernels whose least time is not known take as long as before.

    Args:
        draft: The graph that is being changed.
        kernels: The nodes of the kernels.
        pattern: What the user named them by, for the message.

    Raises:
        WrongChangeError: If the least time is known for no kernel.
    """
    trace = draft.trace
    least_of_row = np.full(len(trace), UNKNOWN_BOUND)
    least_of_row[trace.gpu_rows] = describe_kernels(trace).bounds.bound_ns
    rows = draft.graph.row[kernels]
    least_ns = least_of_row[rows]
    is_known = least_ns != UNKNOWN_BOUND
    if not is_known.any():
        raise WrongChangeError(
            f"No kernel that matches {pattern} has a known roofline bound."
        )
    if not is_known.all():
        draft.notes.append("some_bounds_unknown")

    known_least_ns = least_ns[is_known].astype(np.float64)
    draft.scale_gpu_tasks(
        kernels[is_known], lambda current_ns: np.minimum(current_ns, known_least_ns)
    )


def describe_kernels(trace: Trace) -> Kernels:
    """Describe all GPU events of a trace with their limits, as the answer of `why` uses
    them.

    The limits are the least times that the device allows.
    """
    return Kernels(trace, trace.gpu_rows, trace.begin_ns, trace.end_ns)


class _ChosenRuns(NamedTuple):
    """The runs of kernels that are fused; one entry per run, except in `rows`."""

    rows: Rows  # all GPU events, in the order of their streams
    begin: Rows  # the index in `rows` of the first kernel of the run
    end: Rows  # the index behind that of its last kernel
    ns: Floats  # how long its kernels take together
    # The share of `ns` that the fused kernel takes, from 0 to 1; nan if not known.
    share_of_time: Floats


def _fuse_kernels(change: FusedKernels, draft: Draft) -> None:
    """Fuse runs of kernels into one kernel each.

    The first kernel of each run becomes the fused one. The others are removed, with the
    calls that launch nothing else.

    Raises:
        NoMatchError: If there is no such run.
    """
    runs = _choose_runs(draft.trace, change.event)
    is_unknown = np.isnan(runs.share_of_time)
    if is_unknown.any():
        draft.notes.append("some_runs_keep_their_time")
    share_of_time = np.where(is_unknown, 1.0, runs.share_of_time)
    fused_ns = share_of_time * runs.ns

    node_of_row = draft.graph.node_of(draft.trace, Node.GPU_TASK)
    first_rows = runs.rows[runs.begin]
    first_kernels = node_of_row[first_rows]
    draft.scale_gpu_tasks(first_kernels, lambda _: fused_ns)

    is_other_kernel = inside_ranges(runs.begin + 1, runs.end, len(runs.rows))
    other_rows = runs.rows[is_other_kernel]
    draft.remove_nodes(node_of_row[other_rows])
    draft.remove_nodes(_find_single_launches(draft, other_rows))


def _choose_runs(trace: Trace, event: int | None) -> _ChosenRuns:
    """Return the runs of kernels that can be fused, or the one with a certain kernel.

    Args:
        trace: The trace.
        event: The index of that kernel in traceEvents; None for all runs.

    Raises:
        NoMatchError: If there is no such run.
    """
    kernels = describe_kernels(trace)
    runs = find_fusable_runs(kernels)
    rows = kernels.rows[kernels.stream_order]
    if event is None:
        is_chosen = np.ones(len(runs.ns), dtype=np.bool_)
        condition = ""
    else:
        event_of_kernel = trace.order[rows]
        is_event = event_of_kernel == event
        is_chosen = sums_of_ranges(is_event, runs.begin, runs.end) > 0
        condition = f" with event {event}"
    if not is_chosen.any():
        raise NoMatchError(f"The trace has no fusable run of kernels{condition}.")
    return _ChosenRuns(
        rows=rows,
        begin=runs.begin[is_chosen],
        end=runs.end[is_chosen],
        ns=runs.ns[is_chosen].astype(np.float64),
        # Such kernels take as long as moving their data, so the share of the bytes that
        # a fused one moves is also its share of the time.
        share_of_time=runs.share_moved[is_chosen],
    )


def _find_single_launches(draft: Draft, rows: Rows) -> Rows:
    """Find the launch calls of GPU events, without those that also launch other work.

    Args:
        draft: The graph that is being changed.
        rows: The GPU events.

    Returns:
        The nodes of the calls in the graph; none for calls that are not in it.
    """
    trace = draft.trace
    all_launches = trace.launch[trace.gpu_rows]
    known_launches = all_launches[all_launches != NO_ROW]
    events_of_call = np.bincount(known_launches, minlength=len(trace))

    calls = trace.launch[rows]
    calls = calls[calls != NO_ROW]
    single_launches = calls[events_of_call[calls] == 1]
    nodes = draft.graph.node_of(trace, Node.LAUNCH)[single_launches]
    is_in_graph = nodes != ORIGIN_NODE
    launches: Rows = nodes[is_in_graph]
    return launches


def _launch_as_graphs(change: Graphed, draft: Draft) -> None:
    """Replace the launches of each range of the program by one graph launch.

    A range is a step or a slice. A step does other things besides launching, such as
    reading data, so only the time between its first and its last launch disappears. Of
    a slice, all of the thread's own time in it disappears.

    Raises:
        NoMatchError: If no range has several launches.
        WrongChangeError: If a range waits for the device, which a graph cannot.
    """
    trace = draft.trace
    graph = draft.graph
    launch_ns = _measure_graph_launch(draft)
    graph_launches = 0
    for launch_range in select.find_launch_ranges(trace, graph, change):
        calls = _find_calls_between(draft, launch_range)
        launches = calls[graph.kind[calls] == Node.LAUNCH]
        if len(launches) < MIN_GRAPHED_LAUNCHES:
            continue
        graph_launches += 1

        captured = launch_range
        if change.is_of_steps:
            rows = graph.row[launches]
            captured = launch_range._replace(
                begin=int(trace.start[rows[0]]), end=int(trace.end[rows].max())
            )

        _refuse_waits(draft, calls, captured)
        _launch_as_one_graph(draft, launches, launch_ns)
        _skip_own_time(draft, captured)
    if not graph_launches:
        raise NoMatchError(
            "The trace has no matching range with several launches to capture."
        )


def _measure_graph_launch(draft: Draft) -> int:
    """Measure how long a call takes that launches a CUDA graph, in ns.

    It is the median of those in the trace. If there are none, it is assumed to be
    ASSUMED_GRAPH_LAUNCH_NS, which becomes a note.
    """
    trace = draft.trace
    recorded_ns = trace.dur[mark_graph_calls(trace)]
    if len(recorded_ns):
        return median(recorded_ns)
    draft.notes.append("graph_launch_assumed")
    return ASSUMED_GRAPH_LAUNCH_NS


def _skip_own_time(draft: Draft, launch_range: LaunchRange) -> None:
    """Make the own time of the threads of a range of time disappear.

    It is the time in which they neither call CUDA nor wait for others.

    Args:
        draft: The graph that is being changed.
        launch_range: The begin and the end, and the threads.
    """
    begin = launch_range.begin - draft.graph.origin_ns
    end = launch_range.end - draft.graph.origin_ns
    interval = Cover(np.array([begin]), np.array([end]))
    threads = launch_range.lanes.tolist()
    draft.scale_threads(dict.fromkeys(threads, interval), 0.0)


def _find_calls_between(draft: Draft, launch_range: LaunchRange) -> Rows:
    """Find the nodes of the calls that launch work or wait for it, in a range of time,
    by start.

    Args:
        draft: The graph that is being changed.
        launch_range: The begin and the end, and the threads whose calls count.
    """
    trace = draft.trace
    graph = draft.graph
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    rows = graph.row[calls]
    start = trace.start[rows]
    starts_inside = start >= launch_range.begin
    ends_inside = trace.end[rows] <= launch_range.end
    is_of_threads = np.isin(graph.lane[calls], launch_range.lanes)
    is_inside = starts_inside & ends_inside & is_of_threads

    calls_inside = calls[is_inside]
    by_start = np.argsort(start[is_inside], kind="stable")
    return calls_inside[by_start]


def _refuse_waits(draft: Draft, calls: Rows, captured: LaunchRange) -> None:
    """Raise an error if a call within a range of time waits for the device.

    A CUDA graph is to replace these calls, and it cannot contain such a wait.

    Args:
        draft: The graph that is being changed.
        calls: The nodes of the launching and waiting calls to check.
        captured: The range of time.

    Raises:
        WrongChangeError: If one does.
    """
    trace = draft.trace
    waits = calls[draft.graph.kind[calls] == Node.WAIT]
    rows = draft.graph.row[waits]
    starts_inside = trace.start[rows] >= captured.begin
    ends_inside = trace.end[rows] <= captured.end
    rows_inside = rows[starts_inside & ends_inside]
    if not len(rows_inside):
        return

    first_wait = trace.name_of(int(rows_inside[0]))
    raise WrongChangeError(
        "A graph cannot contain a wait for the device: "
        f"{first_wait} runs between its launches."
    )


def _launch_as_one_graph(draft: Draft, launches: Rows, launch_ns: int) -> None:
    """Make the first of some launch calls launch a CUDA graph with the work of all of
    them.

    Args:
        draft: The graph that is being changed.
        launches: The nodes of the launch calls, by start.
        launch_ns: How long the launch of the graph takes.
    """
    graph = draft.graph
    first_launch = launches[0]
    draft.dur[launches] = 0
    draft.dur[first_launch] = launch_ns
    draft.remove_edges(OTHER_LANE, launches[1:])

    # A GPU task waits for what the thread does before its launch call (see graph.py).
    # So all tasks of the graph now wait for what is before the first call.
    all_tasks = draft.gpu_tasks
    rows_of_tasks = graph.row[all_tasks]
    launching_rows = draft.trace.launch[rows_of_tasks]
    is_of_graph = np.isin(launching_rows, graph.row[launches])
    tasks = all_tasks[is_of_graph]
    draft.source[OTHER_LANE, tasks] = draft.source[SAME_LANE, first_launch]
    draft.residual[OTHER_LANE, tasks] = 0


def _remove_waits(change: Unsynced, draft: Draft) -> None:
    """Make calls that wait for the device return at once.

    Raises:
        NoMatchError: If none of the calls is known to wait.
    """
    trace = draft.trace
    graph = draft.graph
    slices = select.find_slices(trace, graph, "wait", change.pattern)
    intervals = select.find_intervals(trace, graph, slices)
    nodes = select.find_calls_within(trace, graph, intervals)
    waits = nodes[graph.kind[nodes] == Node.WAIT]
    waits_for_known_task = graph.has_edge(OTHER_LANE, waits)
    known_waits = waits[waits_for_known_task]

    if not len(known_waits):
        raise NoMatchError(
            f"No call that matches {change.pattern} is known to wait for the device."
        )
    draft.return_at_once(known_waits)


def _load_by_workers(change: Loaded, draft: Draft) -> None:
    """Make workers load the batches that a thread loads itself.

    Each worker fetches every nth batch, one after the other, from the first one on. If
    workers load batches already, no call for such a batch waits any more.

    Raises:
        WrongChangeError: If no thread loads batches, or only one batch is loaded.
    """
    trace = draft.trace
    graph = draft.graph
    loading = select.find_intervals(trace, graph, find_loader_calls(trace))
    if not loading:
        raise NoMatchError(
            "No thread that launches work loads data, so there is nothing to speed up."
        )

    with_workers = select.find_intervals(trace, graph, find_worker_loader_calls(trace))
    if with_workers:
        draft.batches = NO_BATCHES
        draft.notes.append("loader_never_waits")
        loading = _select_free_intervals(loading, with_workers)
        if not loading:
            return

    batches_of_threads = [len(cover.start) for cover in loading.values()]
    if max(batches_of_threads) < MIN_LOADED_BATCHES:
        raise WrongChangeError(
            "Only one batch is loaded, and when a worker would have started it is "
            "unknown."
        )

    draft.scale_threads(loading, 0.0)
    draft.notes.append("loader_beside")
    for lane, cover in loading.items():
        _wait_for_batches(draft, lane, cover, change.workers)


def _wait_for_batches(draft: Draft, lane: int, loading: Cover, workers: int) -> None:
    """Make a thread wait for each batch where it used to load the batch itself.

    What follows the loading waits until the batch is ready. A node that waits for
    another thread or for the device already has no edge left and is not changed.

    Args:
        draft: The graph that is being changed.
        lane: The thread, an index in Graph.lanes.
        loading: When it loaded batches, in ns after the origin.
        workers: How many workers load them now.
    """
    graph = draft.graph
    ready = _predict_ready_batches(loading, workers)

    # For each batch the first node that begins when it had been loaded, or later.
    nodes_of_thread = np.flatnonzero(graph.lane == lane)
    index = np.searchsorted(graph.began[nodes_of_thread], loading.end)
    first_node_after = nodes_of_thread[index]

    has_free_edge = ~graph.has_edge(OTHER_LANE, first_node_after)
    waiting = first_node_after[has_free_edge]
    # An edge from the origin, at the time 0, with the time of the batch as its lag.
    draft.source[OTHER_LANE, waiting] = ORIGIN_NODE
    draft.lag[OTHER_LANE, waiting] = ready[has_free_edge]


def _predict_ready_batches(loading: Cover, workers: int) -> Rows:
    """Predict when each batch is ready if workers load them in turn.

    All workers begin when the first batch was begun, and a batch takes a worker as long
    as it took the thread. E.g. batches that took 3, 4 and 5 ns, from 10 ns on, are
    ready at 13, 14 and 18 ns with two workers.

    Args:
        loading: When the thread loaded each batch, in ns after the origin.
        workers: How many workers there are.

    Returns:
        ns after the origin, one entry per batch.
    """
    took_ns = loading.end - loading.start
    ready = np.full(len(took_ns), loading.start[0], dtype=np.int64)
    for worker in range(min(workers, len(took_ns))):
        batches_of_worker = slice(worker, None, workers)
        ready[batches_of_worker] += np.cumsum(took_ns[batches_of_worker])
    return ready


def _select_free_intervals(
    intervals: ThreadIntervals, others: ThreadIntervals
) -> ThreadIntervals:
    """Select the intervals of threads that do not overlap any of some other intervals.

    E.g. of [0, 10) and [20, 30) the second one, if [5, 6) is another interval.

    Args:
        intervals: The intervals of each thread.
        others: The other intervals of each thread.

    Returns:
        The remaining intervals, without the threads that have none.
    """
    remaining: ThreadIntervals = {}
    for lane, cover in intervals.items():
        other_ns = others.get(lane, NOTHING).within(cover.start, cover.end)
        is_free = other_ns == 0
        if is_free.any():
            remaining[lane] = Cover(cover.start[is_free], cover.end[is_free])
    return remaining


def _find_communication(draft: Draft) -> Rows:
    """Find the kernels and copies that communicate between devices, as nodes of the
    graph.

    Raises:
        NoMatchError: If there are none.
    """
    tasks = draft.gpu_tasks
    is_communication = communicates(draft.trace, draft.graph.row[tasks])
    communication = tasks[is_communication]
    if not len(communication):
        raise NoMatchError("The trace has no communication between devices.")
    return communication


def _overlap_communication(_: Overlapped, draft: Draft) -> None:
    """Let work that follows communication on its stream no longer wait for it.

    It waits for what is before the communication instead: of kernel A, an all-reduce
    and kernel B on a stream, B then waits for A. Work that waits for the communication
    by an event still does.

    Raises:
        NoMatchError: If nothing communicates.
    """
    graph = draft.graph
    communication = _find_communication(draft)
    draft.notes += ["other_ranks_unchanged", "unrecorded_consumers"]
    is_communication = np.zeros(len(graph), dtype=np.bool_)
    is_communication[communication] = True
    node_before = _find_nodes_before(draft, communication, is_communication)

    followers = _find_followers(draft, is_communication)
    old_source = draft.source[SAME_LANE, followers]
    new_source = node_before[old_source]
    is_same_lane = graph.lane[new_source] == graph.lane[followers]
    has_source = (new_source != ORIGIN_NODE) & is_same_lane
    draft.source[SAME_LANE, followers] = new_source
    draft.residual[SAME_LANE, followers] = 0
    draft.remove_edges(SAME_LANE, followers[~has_source])


def _find_followers(draft: Draft, is_communication: Flags) -> Rows:
    """Find the nodes that follow communication on a stream, but do not communicate.

    A GPU task (a kernel, copy or set) that also waits for events is preceded by JOINs,
    nodes that only wait. Its first JOIN is returned in its place.

    Args:
        draft: The graph that is being changed.
        is_communication: Which nodes of the graph communicate.
    """
    graph = draft.graph
    nodes = graph.nodes(Node.GPU_TASK, Node.JOIN)
    source = draft.source[SAME_LANE, nodes]
    is_on_stream = graph.lane[source] == graph.lane[nodes]
    followers = nodes[is_communication[source] & is_on_stream]

    # The task of a follower is the first one on its stream from the follower on.
    tasks = draft.gpu_tasks
    task_of_follower = np.empty_like(followers)
    stream_of_task = graph.lane[tasks]
    stream_of_follower = graph.lane[followers]
    for stream in distinct(stream_of_follower).tolist():
        tasks_of_stream = tasks[stream_of_task == stream]
        is_of_stream = stream_of_follower == stream
        index = np.searchsorted(tasks_of_stream, followers[is_of_stream])
        task_of_follower[is_of_stream] = tasks_of_stream[index]

    is_before_communication = is_communication[task_of_follower]
    other_followers: Rows = followers[~is_before_communication]
    return other_followers


def _find_nodes_before(
    draft: Draft, communication: Rows, is_communication: Flags
) -> Rows:
    """Find for each communication the last node before it that does not communicate.

    That is the node before it on its stream, past all other communication. If a JOIN (a
    node that only waits) is before it, that JOIN counts, unless it only waits for other
    communication of the stream.

    Args:
        draft: The graph that is being changed.
        communication: The nodes that communicate, in order.
        is_communication: Which nodes of the graph communicate.

    Returns:
        One node for each node of the graph. For those that do not communicate it is the
        node itself.
    """
    node_before = np.arange(len(draft.graph))
    for node in communication.tolist():
        stream = draft.graph.lane[node]
        before = int(draft.source[SAME_LANE, node])
        while _only_awaits_communication(draft, before, stream, is_communication):
            before = int(draft.source[SAME_LANE, before])

        # The nodes are in order, so the result for an earlier communication is known.
        is_on_stream = draft.graph.lane[before] == stream
        if is_communication[before] and is_on_stream:
            before = int(node_before[before])
        node_before[node] = before
    return node_before


def _only_awaits_communication(
    draft: Draft, node: int, stream: int, is_communication: Flags
) -> bool:
    """Return whether a node is a JOIN, which only waits, for communication of a stream.

    Args:
        draft: The graph that is being changed.
        node: The node.
        stream: The stream, an index in Graph.lanes.
        is_communication: Which nodes of the graph communicate.
    """
    if draft.graph.kind[node] != Node.JOIN:
        return False
    awaited = draft.source[OTHER_LANE, node]
    is_on_stream = draft.graph.lane[awaited] == stream
    return bool(is_communication[awaited] and is_on_stream)


class Scalable(NamedTuple):
    """The kernels whose least time is known on both devices; one entry per kernel.

    See select.OnOtherDevice.
    """

    nodes: Rows
    ratio: Floats  # how many times as long the least time is on the other device
    least_ns: Floats  # the least time on the device of the trace


def find_scalable_kernels(trace: Trace, graph: Graph, device: str) -> Scalable:
    """Find the kernels of which it is known how another device would scale them.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        device: The name of the other device.

    Raises:
        WrongChangeError: If the device is unknown, or if there is no such kernel.
    """
    comparison = select.compare_with_device(describe_kernels(trace), device)
    ratio_of_row = np.full(len(trace), np.nan)
    ratio_of_row[trace.gpu_rows] = comparison.ratio
    least_of_row = np.full(len(trace), np.nan)
    least_of_row[trace.gpu_rows] = comparison.least_ns

    nodes = graph.gpu_tasks
    rows = graph.row[nodes]
    is_known = ~np.isnan(ratio_of_row[rows])
    if not is_known.any():
        raise WrongChangeError(
            f"No kernel has a known roofline bound on both this device and {device}."
        )
    known_rows = rows[is_known]
    return Scalable(
        nodes=nodes[is_known],
        ratio=ratio_of_row[known_rows],
        least_ns=least_of_row[known_rows],
    )


def _move_to_device(change: OnDevice, draft: Draft) -> None:
    """Make kernels take the time that they would take on another device.

    A kernel takes longer than its least time. On another device either the ratio of
    both may stay the same, or the difference. These are the two ends of a range.

    Raises:
        WrongChangeError: If the device is unknown, or if it scales no kernel.
    """
    kernels = find_scalable_kernels(draft.trace, draft.graph, change.name)
    draft.notes.append("host_unchanged")
    if len(kernels.nodes) < len(draft.gpu_tasks):
        draft.notes.append("unscaled")

    def scale_to_device(current_ns: Floats) -> Floats:
        """Return how long each kernel takes on the other device, in ns."""
        same_ratio_ns = current_ns * kernels.ratio
        # A kernel that another change made faster than its least time has no excess.
        least_ns = np.minimum(kernels.least_ns, current_ns)
        same_excess_ns = current_ns + (kernels.ratio - 1) * least_ns
        if draft.latest:
            return np.maximum(same_ratio_ns, same_excess_ns)
        return np.minimum(same_ratio_ns, same_excess_ns)

    draft.scale_gpu_tasks(kernels.nodes, scale_to_device)


EDITS: dict[type[Change], Callable[[Any, Draft], None]] = {
    Scaled: _scale_durations,
    FusedKernels: _fuse_kernels,
    Graphed: _launch_as_graphs,
    Unsynced: _remove_waits,
    Loaded: _load_by_workers,
    Overlapped: _overlap_communication,
    OnDevice: _move_to_device,
}
"""What each kind of change does to a draft. Each may raise WrongChangeError."""
