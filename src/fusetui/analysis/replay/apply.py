"""Applies changes to a graph: what each kind of change edits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.loaders import loader_rows, worker_rows
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
    ACROSS,
    IN_CHAIN,
    NO_BATCHES,
    Graph,
    Node,
)
from fusetui.analysis.replay.select import Covers
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rules.fusion import inside_of, runs_of
from fusetui.trace.model.arrays import Flags, Floats, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NOTHING, Cover
from fusetui.trace.model.quantiles import median

ASSUMED_GRAPH_LAUNCH_NS = 10_000
"""What a call that launches a graph takes, if the trace has none."""
UNKNOWN_BOUND = -1


def changed(
    trace: Trace, graph: Graph, changes: Sequence[Change], *, latest: bool = False
) -> tuple[Graph, tuple[str, ...]]:
    """Apply changes to the graph of a trace, one after the other.

    Args:
        trace: The trace.
        graph: Its graph.
        changes: The changes.
        latest: Whether changes that give a range (`is_range`) take its later end.

    Returns:
        The changed graph, and what has to be said about the changes: keys of NOTES.

    Raises:
        WrongChangeError: For a change that cannot be made, or changes nothing.
    """
    draft = Draft(trace, graph, latest)
    for change in changes:
        EDITS[type(change)](change, draft)
    return draft.finished(), tuple(dict.fromkeys(draft.notes))


def is_range(changes: Sequence[Change]) -> bool:
    """Return whether these changes give a range instead of a number."""
    return any(isinstance(change, OnDevice) for change in changes)


def _scale(change: Scaled, draft: Draft) -> None:
    """Change how long something takes.

    It then takes a share of its time, a fixed time, or the least time of its kernels.
    """
    if change.what in ("op", "module", "python"):
        _scale_threads(change, draft)
        return
    if change.what == "comm":
        items = _communication(draft)
    else:
        items = select.items_like(draft.trace, draft.graph, change.what, change.pattern)
    if communicates(draft.trace, draft.graph.row[items]).any():
        draft.notes.append("waits_scaled")

    factor = change.factor
    fixed_ns = change.ns
    if factor is not None:
        draft.scale_items(items, lambda current_ns: current_ns * factor)
    elif fixed_ns is not None:
        new_ns = np.full(len(items), float(fixed_ns))
        draft.scale_items(items, lambda _: new_ns)
    else:
        _shorten_to_bound(draft, items, change.pattern)


def _scale_threads(change: Scaled, draft: Draft) -> None:
    """Change how long threads take in ops, modules or Python, to a share of it.

    What takes no time any more calls nothing and waits for no batch.
    """
    trace = draft.trace
    graph = draft.graph
    factor = change.factor or 0.0
    if change.what == "python" and not change.pattern:
        if not (trace.role == Role.PYTHON).any():
            draft.notes.append("python_is_all_but_ops")
        draft.scale_threads(select.in_python(trace, graph), factor)
        return

    rows = select.slices_like(trace, graph, change.what, change.pattern)
    covers = select.covers(trace, graph, rows)
    draft.scale_threads(covers, factor)
    if not factor:
        draft.remove_nodes(select.called_in(trace, graph, covers))
        draft.wait_for_no_batch(covers)
    calls = graph.nodes(Node.LAUNCH, Node.WAIT, rows=rows)
    draft.dur[calls] = np.rint(draft.dur[calls] * factor).astype(np.int64)


def _shorten_to_bound(draft: Draft, items: Rows, pattern: str) -> None:
    """Make kernels take their least time, where it is known and shorter.

    Raises:
        WrongChangeError: If it is known for no kernel.
    """
    trace = draft.trace
    bound_of_row = np.full(len(trace), UNKNOWN_BOUND)
    bound_of_row[trace.gpu_rows] = kernels_of(trace).bounded.bound_ns
    bound_ns = bound_of_row[draft.graph.row[items]]
    is_known = bound_ns > UNKNOWN_BOUND
    if not is_known.any():
        raise WrongChangeError(f"The least time of no kernel like {pattern} is known.")
    if not is_known.all():
        draft.notes.append("some_bounds_unknown")

    known_bound_ns = bound_ns[is_known].astype(np.float64)
    draft.scale_items(
        items[is_known], lambda current_ns: np.minimum(current_ns, known_bound_ns)
    )


def kernels_of(trace: Trace) -> Kernels:
    """Return all GPU events of a trace."""
    return Kernels(trace, trace.gpu_rows, trace.begin_ns, trace.end_ns)


class _ChosenRuns(NamedTuple):
    """Runs of kernels that are fused; one entry per run."""

    rows: Rows  # all GPU events in the order of their streams
    begin: Rows  # the index in `rows` of the first kernel of each run
    end: Rows  # the index behind its last one
    ns: Floats  # how long its kernels take
    share_of_time: Floats  # of that, what the fused one takes; nan if not known


def _fuse(change: FusedKernels, draft: Draft) -> None:
    """Fuse runs of kernels.

    The first kernel of each run becomes the fused one. The others go, with the calls
    that launch nothing else.
    """
    runs = _chosen_runs(draft.trace, change.place)
    is_unknown = np.isnan(runs.share_of_time)
    if is_unknown.any():
        draft.notes.append("some_runs_keep_their_time")
    share_of_time = np.where(is_unknown, 1.0, runs.share_of_time)
    fused_ns = share_of_time * runs.ns
    item_of_row = draft.graph.node_of(draft.trace, Node.ITEM)
    first_items = item_of_row[runs.rows[runs.begin]]
    draft.scale_items(first_items, lambda _: fused_ns)

    is_other = inside_of(runs.begin + 1, runs.end, len(runs.rows))
    other_rows = runs.rows[is_other]
    draft.remove_nodes(item_of_row[other_rows])
    draft.remove_nodes(_launches_of_nothing_else(draft, other_rows))


def _chosen_runs(trace: Trace, place: int | None) -> _ChosenRuns:
    """Return the fusable runs of kernels, or the one with a certain kernel.

    Args:
        trace: The trace.
        place: The index in traceEvents of that kernel; None for all runs.

    Raises:
        NoMatchError: If there is no such run.
    """
    kernels = kernels_of(trace)
    runs = runs_of(kernels)
    rows = kernels.rows[kernels.stream_order]
    is_chosen = np.ones(len(runs.ns), dtype=np.bool_)
    which = ""
    if place is not None:
        which = f" with event {place}"
        is_chosen[:] = False
        for kernel in np.flatnonzero(trace.order[rows] == place).tolist():  # or none
            is_chosen |= (runs.begin <= kernel) & (kernel < runs.end)
    if not is_chosen.any():
        raise NoMatchError(f"The trace has no fusable run of kernels{which}.")
    return _ChosenRuns(
        rows=rows,
        begin=runs.begin[is_chosen],
        end=runs.end[is_chosen],
        ns=runs.ns[is_chosen].astype(np.float64),
        share_of_time=runs.moved[is_chosen],
    )


def _launches_of_nothing_else(draft: Draft, rows: Rows) -> Rows:
    """Return the LAUNCHes of GPU events whose call launches nothing else."""
    trace = draft.trace
    calls = trace.launch[rows]
    calls = calls[calls >= 0]
    launch = trace.launch[trace.gpu_rows]
    events_of_call = np.bincount(launch[launch >= 0], minlength=len(trace))
    single_launches = calls[events_of_call[calls] == 1]
    nodes = draft.graph.node_of(trace, Node.LAUNCH)[single_launches]
    launches: Rows = nodes[nodes > 0]  # 0 stands for none
    return launches


def _launch_as_graphs(change: Graphed, draft: Draft) -> None:
    """Replace the launches of each range of the program by one graph launch.

    A range is a step or a slice. Only what lies between the launches of a step goes; of
    a slice, all that the thread does in it.

    Raises:
        NoMatchError: If no range has several launches.
    """
    launch_ns = _graph_launch_ns(draft)
    is_of_steps = not change.pattern or change.pattern.isdecimal()
    graphs = 0
    for begin, end, chains in select.ranges_of(
        draft.trace, draft.graph, change.pattern
    ):
        calls = _calls_between(draft, begin, end, chains)
        launches = calls[draft.graph.kind[calls] == Node.LAUNCH]
        if len(launches) < 2:
            continue
        graphs += 1
        since = begin
        until = end
        if is_of_steps:
            rows = draft.graph.row[launches]
            since = int(draft.trace.start[rows[0]])
            until = int(draft.trace.end[rows].max())
        _refuse_waits(draft, calls, since, until)
        _launch_as_one_graph(draft, launches, launch_ns)
        _skip(draft, chains, since, until)
    if not graphs:
        raise NoMatchError("The trace has no such range with several launches.")


def _graph_launch_ns(draft: Draft) -> int:
    """Return how long a call takes that launches a graph.

    It is the median of those in the trace. If there are none, it is assumed to be
    ASSUMED_GRAPH_LAUNCH_NS, which is noted.
    """
    trace = draft.trace
    recorded_ns = trace.dur[graph_calls(trace)]
    if len(recorded_ns):
        return median(recorded_ns)
    draft.notes.append("graph_launch_assumed")
    return ASSUMED_GRAPH_LAUNCH_NS


def _skip(draft: Draft, chains: Rows, since: int, until: int) -> None:
    """Make some threads take no time between two times, in ns of the file."""
    origin_ns = draft.graph.origin_ns
    cover = Cover(np.array([since - origin_ns]), np.array([until - origin_ns]))
    draft.scale_threads(dict.fromkeys(chains.tolist(), cover), 0.0)


def _calls_between(draft: Draft, begin: int, end: int, chains: Rows) -> Rows:
    """Return the LAUNCHes and WAITs of some threads in a range of time, by start."""
    trace = draft.trace
    graph = draft.graph
    calls = graph.nodes(Node.LAUNCH, Node.WAIT)
    start = trace.start[graph.row[calls]]
    stop = trace.end[graph.row[calls]]
    is_within = (start >= begin) & (stop <= end)
    is_of_threads = np.isin(graph.chain[calls], chains)
    within = np.flatnonzero(is_within & is_of_threads)
    by_start = np.argsort(start[within], kind="stable")
    return calls[within[by_start]]


def _refuse_waits(draft: Draft, calls: Rows, since: int, until: int) -> None:
    """Check that no call waits for the device between two times.

    Raises:
        WrongChangeError: If one does, because a graph cannot wait.
    """
    trace = draft.trace
    row = draft.graph.row[calls]
    is_within = (trace.start[row] >= since) & (trace.end[row] <= until)
    waits = row[is_within & (draft.graph.kind[calls] == Node.WAIT)]
    if len(waits):
        name = trace.name_of(int(waits[0]))
        reason = f"{name} lies between its launches"
        raise WrongChangeError(f"A graph cannot wait for the device: {reason}.")


def _launch_as_one_graph(draft: Draft, launches: Rows, launch_ns: int) -> None:
    """Make the first launch that of a graph with the items of all launches."""
    graph = draft.graph
    first = launches[0]
    draft.dur[launches] = 0
    draft.dur[first] = launch_ns
    draft.remove_edges(ACROSS, launches[1:])

    # An item waits for what is before its launch call.
    launching_row = draft.trace.launch[graph.row[draft.items]]
    items = draft.items[np.isin(launching_row, graph.row[launches])]
    draft.source[ACROSS, items] = draft.source[IN_CHAIN, first]
    draft.residual[ACROSS, items] = 0


def _remove_waits(change: Unsynced, draft: Draft) -> None:
    """Make calls that wait for the device return at once.

    Raises:
        NoMatchError: If none of the calls is known to wait.
    """
    trace = draft.trace
    graph = draft.graph
    rows = select.slices_like(trace, graph, "wait", change.pattern)
    called = select.called_in(trace, graph, select.covers(trace, graph, rows))
    waits = called[graph.kind[called] == Node.WAIT]
    waits = waits[graph.has_edge(ACROSS, waits)]
    if not len(waits):
        raise NoMatchError(
            f"No call like {change.pattern} is known to wait for the device."
        )
    draft.return_at_once(waits)


def _load_beside(change: Loaded, draft: Draft) -> None:
    """Make workers load the batches.

    If workers do so already, no call for a batch waits any more. Otherwise each worker
    fetches every nth batch, one after the other, from the first one on.

    Raises:
        WrongChangeError: If no thread loads batches, or only one.
    """
    trace = draft.trace
    graph = draft.graph
    loading = select.covers(trace, graph, loader_rows(trace))
    if not loading:
        raise NoMatchError("No thread that launches work loads data.")

    with_workers = select.covers(trace, graph, worker_rows(trace))
    if with_workers:
        draft.batches = NO_BATCHES
        draft.notes.append("loader_never_waits")
        loading = _without(loading, with_workers)
        if not loading:
            return

    if all(len(cover.start) < 2 for cover in loading.values()):
        reason = "when a worker would have begun it is not known"
        raise WrongChangeError(f"Only one batch is loaded: {reason}.")
    draft.scale_threads(loading, 0.0)
    draft.notes.append("loader_beside")
    for chain, cover in loading.items():
        _wait_for_batches(draft, chain, cover, change.workers)


def _wait_for_batches(draft: Draft, chain: int, loading: Cover, workers: int) -> None:
    """Make a thread wait for each batch where it used to load the batch itself.

    It does not wait for a batch where it waits for something else.

    Args:
        draft: The graph that is being changed.
        chain: The thread, a chain of the graph.
        loading: When it loaded batches.
        workers: How many workers load them now.
    """
    graph = draft.graph
    ready = _batches_ready(loading, workers)
    nodes = np.flatnonzero(graph.chain == chain)
    first_after = nodes[np.searchsorted(graph.began[nodes], loading.end)]
    is_free = ~graph.has_edge(ACROSS, first_after)
    waiting = first_after[is_free]
    draft.source[ACROSS, waiting] = 0  # the origin
    draft.lag[ACROSS, waiting] = ready[is_free]


def _batches_ready(loading: Cover, workers: int) -> Rows:
    """Return when each batch is ready if workers load them in turn, in ns."""
    took_ns = loading.end - loading.start
    ready = np.full(len(took_ns), loading.start[0], dtype=np.int64)
    for worker in range(min(workers, len(took_ns))):
        every_nth = slice(worker, None, workers)
        ready[every_nth] += np.cumsum(took_ns[every_nth])
    return ready


def _without(covers: Covers, others: Covers) -> Covers:
    """Return the intervals of covers in which nothing of the other covers lies."""
    remaining: Covers = {}
    for chain, cover in covers.items():
        other_ns = others.get(chain, NOTHING).within(cover.start, cover.end)
        is_free = other_ns == 0
        if is_free.any():
            remaining[chain] = Cover(cover.start[is_free], cover.end[is_free])
    return remaining


def _communication(draft: Draft) -> Rows:
    """Return the items that communicate between devices.

    Raises:
        NoMatchError: If there are none.
    """
    items = draft.items
    communication = items[communicates(draft.trace, draft.graph.row[items])]
    if not len(communication):
        raise NoMatchError("The trace has no communication between devices.")
    return communication


def _overlap(_: Overlapped, draft: Draft) -> None:
    """Let what follows communication on a stream follow what is before it instead."""
    graph = draft.graph
    communication = _communication(draft)
    draft.notes += ["other_ranks_unchanged", "unrecorded_consumers"]
    is_moved = np.zeros(len(graph), dtype=np.bool_)
    is_moved[communication] = True
    before_moved = _before_communication(draft, communication, is_moved)

    followers = _followers(draft, is_moved)
    new_source = before_moved[draft.source[IN_CHAIN, followers]]
    same_chain = graph.chain[new_source] == graph.chain[followers]
    has_source = (new_source > 0) & same_chain
    draft.source[IN_CHAIN, followers] = new_source
    draft.residual[IN_CHAIN, followers] = 0
    draft.remove_edges(IN_CHAIN, followers[~has_source])


def _followers(draft: Draft, is_moved: Flags) -> Rows:
    """Return the nodes that come right after a moved item and do not move themselves.

    A JOIN counts as the item that follows it on the stream.

    Args:
        draft: The graph that is being changed.
        is_moved: Which nodes are moved.
    """
    graph = draft.graph
    nodes = graph.nodes(Node.ITEM, Node.JOIN)
    source = draft.source[IN_CHAIN, nodes]
    is_on_stream = graph.chain[source] == graph.chain[nodes]
    followers = nodes[is_moved[source] & is_on_stream]

    # Sort items by stream and node, and find the first one from each follower on.
    sort_key = graph.chain.astype(np.int64) * len(graph) + np.arange(len(graph))
    items = draft.items[np.argsort(sort_key[draft.items])]
    item_of_follower = items[np.searchsorted(sort_key[items], sort_key[followers])]
    unmoved: Rows = followers[~is_moved[item_of_follower]]
    return unmoved


def _before_communication(draft: Draft, communication: Rows, is_moved: Flags) -> Rows:
    """Return for each communication the last node before it that does not communicate.

    That node is on its stream, or at a JOIN. For all other nodes the node itself is
    returned.

    Args:
        draft: The graph that is being changed.
        communication: The nodes that communicate, in order.
        is_moved: Which nodes are moved.
    """
    graph = draft.graph
    source = draft.source
    before = np.arange(len(graph))
    for node in communication.tolist():
        chain = graph.chain[node]
        last = int(source[IN_CHAIN, node])
        while graph.kind[last] == Node.JOIN and is_moved[source[ACROSS, last]]:
            if graph.chain[source[ACROSS, last]] != chain:
                break
            # The JOIN waits for communication of this stream, which moves too.
            last = int(source[IN_CHAIN, last])

        # The nodes are in order, so the result for an earlier one is known.
        moves_too = is_moved[last] and graph.chain[last] == chain
        before[node] = before[last] if moves_too else last
    return before


class Scalable(NamedTuple):
    """The kernels whose least time is known on both devices; one entry per kernel."""

    nodes: Rows
    ratio: Floats  # how many times as long the least time is on the other device
    least_ns: Floats  # see select.OnOtherDevice


def scalable(trace: Trace, graph: Graph, device: str) -> Scalable:
    """Return the kernels that another device would scale.

    Args:
        trace: The trace.
        graph: Its graph.
        device: The name of the other device.

    Raises:
        WrongChangeError: If the device is unknown, or if there is no such kernel.
    """
    items = graph.nodes(Node.ITEM)
    on_device = select.on_device(kernels_of(trace), device)
    ratio_of_row = np.full(len(trace), np.nan)
    ratio_of_row[trace.gpu_rows] = on_device.ratio
    least_of_row = np.full(len(trace), np.nan)
    least_of_row[trace.gpu_rows] = on_device.least_ns

    ratio = ratio_of_row[graph.row[items]]
    least_ns = least_of_row[graph.row[items]]
    is_known = ~np.isnan(ratio)
    if not is_known.any():
        raise WrongChangeError(
            f"The least time of no kernel is known both here and on {device}."
        )
    return Scalable(
        nodes=items[is_known], ratio=ratio[is_known], least_ns=least_ns[is_known]
    )


def _move_to_device(change: OnDevice, draft: Draft) -> None:
    """Make kernels take the time that they would take on another device.

    A kernel keeps either its ratio to its least time, or its excess over it. These are
    the two ends of a range.
    """
    kernels = scalable(draft.trace, draft.graph, change.name)
    draft.notes.append("host_unchanged")
    if len(kernels.nodes) < len(draft.items):
        draft.notes.append("unscaled")
    earlier_or_later = np.maximum if draft.latest else np.minimum

    def on_device(current_ns: Floats) -> Floats:
        """Return the time of each kernel on the other device."""
        same_ratio_ns = current_ns * kernels.ratio
        least_ns = np.minimum(kernels.least_ns, current_ns)
        same_excess_ns = current_ns + (kernels.ratio - 1) * least_ns
        return earlier_or_later(same_ratio_ns, same_excess_ns)

    draft.scale_items(kernels.nodes, on_device)


EDITS: dict[type[Change], Callable[[Any, Draft], None]] = {
    Scaled: _scale,
    FusedKernels: _fuse,
    Graphed: _launch_as_graphs,
    Unsynced: _remove_waits,
    Loaded: _load_beside,
    Overlapped: _overlap,
    OnDevice: _move_to_device,
}
"""What each kind of change does to a draft; may raise WrongChangeError."""
