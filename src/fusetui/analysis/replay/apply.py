"""Applies changes to a graph: the effect of each kind of change on nodes and edges.

The words node, task, edge, lag and residual are defined in graph.py; a *draft* is a
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
    OTHER_LANE,
    SAME_LANE,
    Graph,
    Node,
)
from fusetui.analysis.replay.select import Covers
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rules.fusion import runs_of
from fusetui.trace.model.arrays import Flags, Floats, Rows, inside_ranges
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
NO_NODE = 0
"""In the result of Graph.node_of: there is no such node. It is the origin, which is no
call or task."""


def changed(
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
        EDITS[type(change)](change, draft)
    return draft.finished(), tuple(dict.fromkeys(draft.notes))


def is_range(changes: Sequence[Change]) -> bool:
    """Return whether some of these changes gives a range of times instead of one time.

    That is so for a change of the device: how long a kernel takes on another one is
    known only within bounds.
    """
    return any(isinstance(change, OnDevice) for change in changes)


def _scale_durations(change: Scaled, draft: Draft) -> None:
    """Change how long kernels, communication or threads take.

    Depending on the change, the new time is a factor of the recorded one, a fixed time,
    or the least time that the device allows.

    Raises:
        WrongChangeError: If the trace has nothing that the change names.
    """
    if change.what in ("op", "module", "python"):
        _scale_threads(change, draft)
        return
    if change.what == "comm":
        tasks = _find_communication(draft)
    else:
        tasks = select.find_gpu_tasks(
            draft.trace, draft.graph, change.what, change.pattern
        )
    if communicates(draft.trace, draft.graph.row[tasks]).any():
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
    long. With the factor 0 these are not run at all: they launch nothing and wait for
    no batch.

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

    rows = select.find_slices(trace, graph, change.what, change.pattern)
    covers = select.covers(trace, graph, rows)
    draft.scale_threads(covers, factor)
    if not factor:
        draft.remove_nodes(select.find_calls_within(trace, graph, covers))
        draft.wait_for_no_batch(covers)

    # The slices may be calls themselves (see ROLES_OF_SLICES), which are nodes of their
    # own and no time of the thread.
    calls = graph.nodes(Node.LAUNCH, Node.WAIT, rows=rows)
    draft.dur[calls] = np.rint(draft.dur[calls] * factor).astype(np.int64)


def _shorten_to_bound(draft: Draft, tasks: Rows, pattern: str) -> None:
    """Make kernels take the least time that the device allows, if that is shorter.

    Kernels whose least time is not known take as long as before.

    Args:
        draft: The graph that is being changed.
        tasks: The kernels.
        pattern: What the user named them by, for the message.

    Raises:
        WrongChangeError: If the least time is known for no kernel.
    """
    trace = draft.trace
    bound_of_row = np.full(len(trace), UNKNOWN_BOUND)
    bound_of_row[trace.gpu_rows] = describe_kernels(trace).bounded.bound_ns
    bound_ns = bound_of_row[draft.graph.row[tasks]]
    is_known = bound_ns > UNKNOWN_BOUND
    if not is_known.any():
        raise WrongChangeError(
            f"No kernel that matches {pattern} has a known roofline bound."
        )
    if not is_known.all():
        draft.notes.append("some_bounds_unknown")

    known_bound_ns = bound_ns[is_known].astype(np.float64)
    draft.scale_gpu_tasks(
        tasks[is_known], lambda current_ns: np.minimum(current_ns, known_bound_ns)
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
    task_of_row = draft.graph.node_of(draft.trace, Node.GPU_TASK)
    first_tasks = task_of_row[runs.rows[runs.begin]]
    draft.scale_gpu_tasks(first_tasks, lambda _: fused_ns)

    is_other_kernel = inside_ranges(runs.begin + 1, runs.end, len(runs.rows))
    other_rows = runs.rows[is_other_kernel]
    draft.remove_nodes(task_of_row[other_rows])
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
    runs = runs_of(kernels)
    rows = kernels.rows[kernels.stream_order]
    is_chosen = np.ones(len(runs.ns), dtype=np.bool_)
    condition = ""
    if event is not None:
        condition = f" with event {event}"
        is_chosen[:] = False
        # There is one kernel with this index, or none.
        for kernel in np.flatnonzero(trace.order[rows] == event).tolist():
            is_chosen |= (runs.begin <= kernel) & (kernel < runs.end)
    if not is_chosen.any():
        raise NoMatchError(f"The trace has no fusable run of kernels{condition}.")
    return _ChosenRuns(
        rows=rows,
        begin=runs.begin[is_chosen],
        end=runs.end[is_chosen],
        ns=runs.ns[is_chosen].astype(np.float64),
        # Such kernels take as long as moving their data, so the share of the bytes that
        # a fused one moves is also its share of the time.
        share_of_time=runs.moved[is_chosen],
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
    calls = trace.launch[rows]
    calls = calls[calls >= 0]
    launch_of_event = trace.launch[trace.gpu_rows]
    has_launch = launch_of_event >= 0
    events_of_call = np.bincount(launch_of_event[has_launch], minlength=len(trace))
    single_launches = calls[events_of_call[calls] == 1]
    nodes = draft.graph.node_of(trace, Node.LAUNCH)[single_launches]
    launches: Rows = nodes[nodes != NO_NODE]
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
    launch_ns = _measure_graph_launch(draft)
    graphs = 0
    for begin, end, lanes in select.find_launch_ranges(
        draft.trace, draft.graph, change
    ):
        calls = _find_calls_between(draft, begin, end, lanes)
        launches = calls[draft.graph.kind[calls] == Node.LAUNCH]
        if len(launches) < MIN_GRAPHED_LAUNCHES:
            continue
        graphs += 1
        graph_begin = begin
        graph_end = end
        if change.is_of_steps:
            rows = draft.graph.row[launches]
            graph_begin = int(draft.trace.start[rows[0]])
            graph_end = int(draft.trace.end[rows].max())
        _refuse_waits(draft, calls, graph_begin, graph_end)
        _launch_as_one_graph(draft, launches, launch_ns)
        _skip_own_time(draft, lanes, graph_begin, graph_end)
    if not graphs:
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


def _skip_own_time(draft: Draft, lanes: Rows, begin: int, end: int) -> None:
    """Make the own time of some threads between two times disappear.

    It is the time in which they neither call CUDA nor wait for others.

    Args:
        draft: The graph that is being changed.
        lanes: The threads, as indices in Graph.lanes.
        begin: The first time, in ns of the file.
        end: The second time.
    """
    origin_ns = draft.graph.origin_ns
    cover = Cover(np.array([begin - origin_ns]), np.array([end - origin_ns]))
    draft.scale_threads(dict.fromkeys(lanes.tolist(), cover), 0.0)


def _find_calls_between(draft: Draft, begin: int, end: int, lanes: Rows) -> Rows:
    """Find the nodes of the calls that launch work or wait for it, in a range of time,
    by start.

    Args:
        draft: The graph that is being changed.
        begin: The begin of the range, in ns of the file.
        end: The end of the range.
        lanes: The threads, as indices in Graph.lanes.
    """
    trace = draft.trace
    graph = draft.graph
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    call_start = trace.start[graph.row[calls]]
    call_end = trace.end[graph.row[calls]]
    is_within = (call_start >= begin) & (call_end <= end)
    is_of_threads = np.isin(graph.lane[calls], lanes)
    within = np.flatnonzero(is_within & is_of_threads)
    by_start = np.argsort(call_start[within], kind="stable")
    return calls[within[by_start]]


def _refuse_waits(draft: Draft, calls: Rows, begin: int, end: int) -> None:
    """Raise an error if a call between two times waits for the device.

    A CUDA graph is to replace these calls, and it cannot contain such a wait.

    Args:
        draft: The graph that is being changed.
        calls: The nodes of the launching and waiting calls to check.
        begin: The first time, in ns of the file.
        end: The second time.

    Raises:
        WrongChangeError: If one does, because a graph cannot wait.
    """
    trace = draft.trace
    row = draft.graph.row[calls]
    is_within = (trace.start[row] >= begin) & (trace.end[row] <= end)
    is_wait = draft.graph.kind[calls] == Node.WAIT
    waits = row[is_within & is_wait]
    if len(waits):
        name = trace.name_of(int(waits[0]))
        reason = f"{name} runs between its launches"
        raise WrongChangeError(
            f"A graph cannot contain a wait for the device: {reason}."
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

    # A GPU task waits for what the thread does before its launch call (see graph.py). So
    # all tasks now wait for what is before the first call.
    launching_row = draft.trace.launch[graph.row[draft.gpu_tasks]]
    tasks = draft.gpu_tasks[np.isin(launching_row, graph.row[launches])]
    draft.source[OTHER_LANE, tasks] = draft.source[SAME_LANE, first_launch]
    draft.residual[OTHER_LANE, tasks] = 0


def _remove_waits(change: Unsynced, draft: Draft) -> None:
    """Make calls that wait for the device return at once.

    Raises:
        NoMatchError: If none of the calls is known to wait.
    """
    trace = draft.trace
    graph = draft.graph
    rows = select.find_slices(trace, graph, "wait", change.pattern)
    called = select.find_calls_within(trace, graph, select.covers(trace, graph, rows))
    waits = called[graph.kind[called] == Node.WAIT]
    waits = waits[graph.has_edge(OTHER_LANE, waits)]
    if not len(waits):
        raise NoMatchError(
            f"No call that matches {change.pattern} is known to wait for the device."
        )
    draft.return_at_once(waits)


def _load_by_workers(change: Loaded, draft: Draft) -> None:
    """Make workers load the batches that a thread loads itself.

    Each worker fetches every nth batch, one after the other, from the first one on. If
    workers load batches already, no call for such a batch waits any more.

    Raises:
        WrongChangeError: If no thread loads batches, or only one batch is loaded.
    """
    trace = draft.trace
    graph = draft.graph
    loading = select.covers(trace, graph, find_loader_calls(trace))
    if not loading:
        raise NoMatchError(
            "No thread that launches work loads data, so there is nothing to speed up."
        )

    with_workers = select.covers(trace, graph, find_worker_loader_calls(trace))
    if with_workers:
        draft.batches = NO_BATCHES
        draft.notes.append("loader_never_waits")
        loading = _select_free_intervals(loading, with_workers)
        if not loading:
            return

    batches_of_threads = [len(cover.start) for cover in loading.values()]
    if max(batches_of_threads) < MIN_LOADED_BATCHES:
        reason = "when a worker would have started it is unknown"
        raise WrongChangeError(f"Only one batch is loaded, and {reason}.")
    draft.scale_threads(loading, 0.0)
    draft.notes.append("loader_beside")
    for lane, cover in loading.items():
        _wait_for_batches(draft, lane, cover, change.workers)


def _wait_for_batches(draft: Draft, lane: int, loading: Cover, workers: int) -> None:
    """Make a thread wait for each batch where it used to load the batch itself.

    What follows the loading waits until the batch is ready. A node that waits for
    something else already, by its edge OTHER_LANE, has no edge left and is not changed.

    Args:
        draft: The graph that is being changed.
        lane: The thread, an index in Graph.lanes.
        loading: When it loaded batches, in ns after the origin.
        workers: How many workers load them now.
    """
    graph = draft.graph
    ready = _predict_ready_batches(loading, workers)
    nodes = np.flatnonzero(graph.lane == lane)
    first_node_after = nodes[np.searchsorted(graph.began[nodes], loading.end)]
    has_free_edge = ~graph.has_edge(OTHER_LANE, first_node_after)
    waiting = first_node_after[has_free_edge]
    # An edge from the origin, at the time 0, with the time of the batch as its lag.
    draft.source[OTHER_LANE, waiting] = 0
    draft.lag[OTHER_LANE, waiting] = ready[has_free_edge]


def _predict_ready_batches(loading: Cover, workers: int) -> Rows:
    """Predict when each batch is ready if workers load them in turn.

    All workers begin when the first batch was begun, and a batch takes a worker as long
    as it took the thread.

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


def _select_free_intervals(covers: Covers, others: Covers) -> Covers:
    """Select the intervals of threads that do not overlap any of some other intervals.

    Args:
        covers: The intervals of each thread.
        others: The other intervals of each thread.

    Returns:
        The remaining intervals, without the threads that have none.
    """
    remaining: Covers = {}
    for lane, cover in covers.items():
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
    communication = tasks[communicates(draft.trace, draft.graph.row[tasks])]
    if not len(communication):
        raise NoMatchError("The trace has no communication between devices.")
    return communication


def _overlap_communication(_: Overlapped, draft: Draft) -> None:
    """Let work that follows communication on its stream no longer wait for it.

    It waits for what is before the communication instead. Work that waits for the
    communication by an event still does.

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
    new_source = node_before[draft.source[SAME_LANE, followers]]
    same_lane = graph.lane[new_source] == graph.lane[followers]
    has_source = (new_source > 0) & same_lane
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

    # Look up the task of each follower: the first task of its stream from the follower
    # on. For that, nodes are numbered by stream first, and then by their order.
    sort_key = graph.lane.astype(np.int64) * len(graph) + np.arange(len(graph))
    tasks = draft.gpu_tasks[np.argsort(sort_key[draft.gpu_tasks])]
    task_of_follower = tasks[np.searchsorted(sort_key[tasks], sort_key[followers])]
    not_communicating: Rows = followers[~is_communication[task_of_follower]]
    return not_communicating


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
    graph = draft.graph
    source = draft.source
    node_before = np.arange(len(graph))
    for node in communication.tolist():
        lane = graph.lane[node]
        last_node = int(source[SAME_LANE, node])
        while (
            graph.kind[last_node] == Node.JOIN
            and is_communication[source[OTHER_LANE, last_node]]
        ):
            is_of_other_stream = graph.lane[source[OTHER_LANE, last_node]] != lane
            if is_of_other_stream:
                break
            last_node = int(source[SAME_LANE, last_node])

        # The nodes are in order, so the result for an earlier communication is known.
        follows_communication = (
            is_communication[last_node] and graph.lane[last_node] == lane
        )
        node_before[node] = (
            node_before[last_node] if follows_communication else last_node
        )
    return node_before


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
    tasks = graph.nodes(Node.GPU_TASK)
    on_device = select.on_device(describe_kernels(trace), device)
    ratio_of_row = np.full(len(trace), np.nan)
    ratio_of_row[trace.gpu_rows] = on_device.ratio
    least_of_row = np.full(len(trace), np.nan)
    least_of_row[trace.gpu_rows] = on_device.least_ns

    ratio = ratio_of_row[graph.row[tasks]]
    least_ns = least_of_row[graph.row[tasks]]
    is_known = ~np.isnan(ratio)
    if not is_known.any():
        raise WrongChangeError(
            f"No kernel has a known roofline bound on both this device and {device}."
        )
    return Scalable(
        nodes=tasks[is_known], ratio=ratio[is_known], least_ns=least_ns[is_known]
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
    earlier_or_later = np.maximum if draft.latest else np.minimum

    def on_device(current_ns: Floats) -> Floats:
        """Return how long each kernel takes on the other device, in ns."""
        same_ratio_ns = current_ns * kernels.ratio
        # A kernel that another change made faster than its least time has no excess.
        least_ns = np.minimum(kernels.least_ns, current_ns)
        same_excess_ns = current_ns + (kernels.ratio - 1) * least_ns
        return earlier_or_later(same_ratio_ns, same_excess_ns)

    draft.scale_gpu_tasks(kernels.nodes, on_device)


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
