"""Builds the graph of a trace, which records what each piece of work waited for.

The time at which a node begins is explained in two parts: a *lag* is the delay that
such work usually has after what it waits for, and a *residual* is the rest. So a replay
of the unchanged graph gives the recorded times to the nanosecond.

A *cut* is a call that launches work or waits, or another event of a thread that matters
to others (see thread_cuts.py); a *GPU task* is a kernel, copy or set (see items.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.replay.graph import (
    AS_RECORDED,
    NEVER,
    ORIGIN_NODE,
    OTHER_LANE,
    SAME_LANE,
    Batches,
    Graph,
    Lane,
    Node,
    renumber_batches,
    sort_nodes,
)
from fusetui.analysis.replay.items import (
    MAX_SWITCH_NS,
    SYNCHRONIZES,
    GpuTasks,
    Syncs,
    WaitPairs,
    collect_gpu_tasks,
    collect_syncs,
    find_recorded_waits,
    find_waits_of_calls,
    infer_waits,
    infer_waits_for_communication,
    infer_waits_for_full_queues,
    merge_by_waiting,
)
from fusetui.analysis.replay.thread_cuts import HANDING_NS, ThreadCuts, find_thread_cuts
from fusetui.analysis.why.account import Accounts
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int32s,
    Int64s,
    Rows,
    ends_runs,
    ordinals,
)
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import upper_median

LATE_NS = 5_000
"""A GPU task that starts more than this after its edges explain is late. It may wait
for something that was not recorded."""
MAX_LATENCY_NS = 100_000
"""A longer usual latency from a launch to its task, measured from few launches, is not
believed: the tasks waited for something else."""
MAX_RETURN_NS = 100_000
"""If a synchronization returns later than this after the task for which it waited, it
must have waited for something else as well."""
NO_LANE = -1


class NodeOrder(NamedTuple):
    """Which nodes of a GraphDraft stand for which cuts and GPU tasks.

    The nodes are, in this order:

    1. the origin;
    2. for each thread: CPU_WORK and a node for each of its cuts, in turn, and a last
       CPU_WORK for the time behind its last cut;
    3. the GPU tasks;
    4. the JOINs, which are added while the draft is connected.
    """

    cut: Rows  # per cut: its node
    tail: Rows  # per thread: its last CPU_WORK
    task: Rows  # per GPU task: its node
    size: int  # how many nodes there are without JOINs

    @property
    def before_cut(self) -> Rows:
        """The CPU_WORK before each cut: what the thread itself does until the cut."""
        return self.cut - 1

    @property
    def first_of_thread(self) -> Rows:
        """The first node of each thread."""
        # The first thread begins behind the origin, the others behind a thread.
        threads = len(self.tail)
        return np.append(1, self.tail[:-1] + 1)[:threads]


class _Delays(NamedTuple):
    """How long work that is ready usually takes to start, in ns."""

    switch: (
        Int64s  # per stream: from the end of a GPU task to the start of the next one
    )
    latency: Int64s  # per task: from the begin of its launch call to its start


class GraphDraft:
    """The nodes of a graph while their edges are being added.

    The nodes are in the order of NodeOrder. Arrays have the shape [nodes], or
    [2, nodes] for the edges SAME_LANE and OTHER_LANE. Times are ns after the origin.
    """

    def __init__(self, size: int) -> None:
        """Make a draft of unconnected JOINs, which are overwritten with other nodes.

        Args:
            size: How many nodes there are.
        """
        self.kind = np.full(size, Node.JOIN, dtype=np.uint8)
        self.lane = np.full(size, NO_LANE, dtype=np.int32)
        self.row = np.full(size, NO_ROW, dtype=np.int32)
        self.began = np.zeros(size, dtype=np.int64)
        self.ended = np.zeros(size, dtype=np.int64)
        # See Graph.unexplained.
        self.unexplained = np.zeros(size, dtype=np.int64)
        # Of nodes that begin and end at the same time, the smaller one comes first.
        self.tie_order = np.arange(size, dtype=np.float64)
        self.source = np.zeros((2, size), dtype=np.int32)
        # The usual lag of each edge, NEVER where there is no edge. If the recording
        # shows a shorter one, that replaces it when the graph is finished.
        self.usual_lag = np.full((2, size), NEVER)

    def connect(
        self, edge: int, target: Rows, source: Rows, usual_lag: Int64s | int = 0
    ) -> None:
        """Make each target wait for its source by one of its two edges.

        Args:
            edge: Which edge: SAME_LANE (to the node before it on its thread or stream)
                or OTHER_LANE (to one of another). What it was before is lost.
            target: The nodes that wait.
            source: The node that each of them waits for.
            usual_lag: How long the target usually begins after its source has ended,
                in ns, of each edge or of all.
        """
        self.source[edge, target] = source
        self.usual_lag[edge, target] = usual_lag

    def follow_origin(self, target: Rows) -> None:
        """Make nodes wait for the origin only, as first nodes of threads and streams."""
        self.connect(SAME_LANE, target, np.full(len(target), ORIGIN_NODE))

    def join(self, edge: int, pairs: WaitPairs, usual_lag: Int64s | int = 0) -> None:
        """Make nodes wait for any number of sources besides those that they have.

        A node has two edges only, so more sources need JOINs, which are nodes that take
        no time. If a node waits for a already, and now for b and c as well, it becomes

            a --> JOIN 1 --> JOIN 2 --> node
            b ------^          ^
            c -----------------'

        If the edge of the node is still free, its first source takes it without a JOIN.

        Args:
            edge: By which edge the nodes wait, SAME_LANE or OTHER_LANE.
            pairs: Nodes in ascending order, with the nodes that they wait for.
            usual_lag: The usual lag of each pair, or of all, in ns.
        """
        target = pairs.waiting
        source = pairs.awaited
        lag = np.broadcast_to(usual_lag, len(target))

        # A first source takes the edge of its target, if that is free.
        is_first_of_target = ordinals(target) == 0
        is_edge_free = self.usual_lag[edge, target] == NEVER
        takes_edge = is_first_of_target & is_edge_free
        self.connect(edge, target[takes_edge], source[takes_edge], lag[takes_edge])

        # All others get a JOIN each.
        needs_join = ~takes_edge
        joins = self._new_joins(target[needs_join])
        self.connect(OTHER_LANE, joins, source[needs_join], lag[needs_join])
        self._connect_joins(edge, target[needs_join], joins)

    def _connect_joins(self, edge: int, target: Rows, joins: Rows) -> None:
        """Connect the JOINs of each target in a row, and the target behind the last.

        A JOIN is a node that takes no time and waits for two others, so that its target
        can wait for any number of nodes.

        Args:
            edge: The edge of the target that its first JOIN takes over, and by which
                the target then waits for its last JOIN.
            target: The target of each JOIN, ascending.
            joins: The JOINs.
        """
        # Each further JOIN waits for the one before it.
        is_first_of_target = ordinals(target) == 0
        later_joins = joins[~is_first_of_target]
        self.connect(SAME_LANE, later_joins, later_joins - 1)

        # The first JOIN waits for what its target has waited for.
        distinct_targets = target[is_first_of_target]
        self.connect(
            SAME_LANE,
            joins[is_first_of_target],
            self.source[edge, distinct_targets],
            self.usual_lag[edge, distinct_targets],
        )

        # The target waits for its last JOIN.
        is_last_of_target = ends_runs(target)
        self.connect(edge, target[is_last_of_target], joins[is_last_of_target])

    def _new_joins(self, target: Rows) -> Rows:
        """Add JOINs, nodes without a duration, each just before the node that needs it.

        E.g. for the targets 7, 7 and 9 in a draft of 20 nodes, the nodes 20, 21 and 22
        are added. They begin and end when their target begins; of nodes at that time,
        20 and 21 come between the nodes 6 and 7, and 22 between 8 and 9.

        Args:
            target: The target of each JOIN, ascending. Targets may repeat.

        Returns:
            The new nodes.
        """
        joins = len(self.kind) + np.arange(len(target))
        self._append(GraphDraft(len(target)))
        self.began[joins] = self.began[target]
        self.ended[joins] = self.began[target]
        self.lane[joins] = self.lane[target]

        # Put them between the node before the target (target - 1) and the target, in
        # the order of their sources: at target - 0.5, and then less than 0.5 later.
        nth_of_target = ordinals(target)
        most_joins = nth_of_target.max(initial=0) + 1
        self.tie_order[joins] = target - 0.5 + nth_of_target / (2 * most_joins)
        return joins

    def _append(self, other: GraphDraft) -> None:
        """Append the nodes of another draft, column by column."""
        for name, column in vars(self).items():
            longer = np.concatenate((column, getattr(other, name)), axis=-1)
            setattr(self, name, longer)

    def measure_lateness(self, nodes: Rows) -> Int64s:
        """Measure how much later some nodes begin than their edges explain.

        An edge explains a begin by the end of its source and the usual delay after it.
        E.g. a node that begins at 20 ns is 3 ns late if its source ended at 15 ns and
        the usual lag is 2 ns.

        Args:
            nodes: The nodes.

        Returns:
            ns for each of `nodes`.
        """
        source_ended = self.ended[self.source[:, nodes]]
        recorded_lag = self.began[nodes] - source_ended
        lag = np.minimum(self.usual_lag[:, nodes], recorded_lag)
        explained_begin = (source_ended + lag).max(axis=0)
        late_ns: Int64s = self.began[nodes] - explained_begin
        return late_ns


@memo()
def build_graph(trace: Trace) -> Graph:
    """Build the graph of a trace: its work as nodes, with what each of them waited for.

    It has all kernels, copies and sets, all threads that launch work, and those that
    run backward for them. Without a GPU it has the busiest thread only.
    """
    cuts = find_thread_cuts(trace)
    tasks = collect_gpu_tasks(trace, cuts)
    syncs = collect_syncs(trace, tasks)
    found_waits = find_waits_of_calls(trace, cuts, tasks, syncs)
    waits_of_calls = _collect_waits_of_calls(trace, cuts, tasks, found_waits.pairs)
    origin = _find_origin(cuts, tasks)
    delays = _measure_usual_delays(trace, tasks)

    # Lay out threads and tasks, and connect each node with its thread or stream.
    layout = _lay_out_nodes(cuts, tasks)
    draft = GraphDraft(layout.size)
    _fill_in_threads(draft, layout, cuts, origin)
    _fill_in_begins_of_cuts(draft, layout, cuts, tasks, waits_of_calls, origin)
    _fill_in_gpu_tasks(draft, layout, cuts, tasks, origin)
    _connect_gpu_tasks(draft, layout, cuts, tasks, delays)

    # Make calls wait for tasks, threads for each other, and tasks for tasks of other
    # streams.
    waiting_cuts = layout.cut[waits_of_calls.waiting]
    awaited_tasks = layout.task[waits_of_calls.awaited]
    draft.join(OTHER_LANE, WaitPairs(waiting=waiting_cuts, awaited=awaited_tasks))
    _connect_threads(draft, layout, cuts)
    inferred_between_streams = _connect_streams(
        trace, draft, layout, tasks, syncs, delays
    )

    _mark_unexplained_waits(trace, draft)
    return _finish_graph(
        draft,
        origin=origin,
        lanes=_list_lanes(trace, cuts, tasks),
        batches=_find_batches(draft, layout, cuts),
        inferred=found_waits.inferred + inferred_between_streams,
    )


def _connect_streams(
    trace: Trace,
    draft: GraphDraft,
    layout: NodeOrder,
    tasks: GpuTasks,
    syncs: Syncs,
    delays: _Delays,
) -> int:
    """Make GPU tasks wait for tasks of other streams, as recorded or as inferred.

    A wait is inferred for a task that starts more than LATE_NS (5 us) later than what
    it is known to wait for explains, unless the recording says that it waits.

    Args:
        trace: The trace.
        draft: The nodes, connected with their own threads and streams; they get further
            edges, in place.
        layout: Which nodes stand for which tasks.
        tasks: All kernels, copies and sets, by stream and start.
        syncs: The waits that CUPTI recorded.
        delays: How long tasks usually take to start.

    Returns:
        How many waits were inferred.
    """
    recorded = merge_by_waiting([*find_recorded_waits(trace, tasks, syncs)])

    # Infer what late tasks wait for, unless that was recorded.
    is_late = draft.measure_lateness(layout.task) > LATE_NS
    late_tasks = np.flatnonzero(is_late)
    waits_as_recorded = np.isin(late_tasks, recorded.waiting)
    inferred = infer_waits(trace, tasks, late_tasks[~waits_as_recorded])

    waits = _collect_waits_of_gpu_tasks(trace, tasks, [recorded, inferred])
    pairs_of_nodes = WaitPairs(
        waiting=layout.task[waits.waiting], awaited=layout.task[waits.awaited]
    )
    switch_ns = delays.switch[tasks.stream_of(waits.waiting)]
    draft.join(SAME_LANE, pairs_of_nodes, switch_ns)
    return len(inferred.waiting)


def _find_origin(cuts: ThreadCuts, tasks: GpuTasks) -> int:
    """Find the origin of the graph: when the first thread or stream begins, in ns of
    the file.

    Returns 0 if the trace has neither.
    """
    first_tasks = tasks.bounds[:-1]  # of each stream
    begins_of_streams = tasks.start[first_tasks].tolist()
    begins_of_threads = cuts.first.tolist()
    return min([*begins_of_threads, *begins_of_streams], default=0)


def _collect_waits_of_calls(
    trace: Trace, cuts: ThreadCuts, tasks: GpuTasks, found_waits: list[WaitPairs]
) -> WaitPairs:
    """Collect all GPU tasks that calls wait for, sorted by call.

    Args:
        trace: The trace.
        cuts: The cuts of its threads.
        tasks: All kernels, copies and sets, by stream and start.
        found_waits: The tasks that synchronizations wait for. The communication before
            these is added, and the tasks that make room in full queues.

    Returns:
        Calls, as cuts, with the tasks that they wait for.
    """
    communication = infer_waits_for_communication(
        trace, tasks, merge_by_waiting(found_waits)
    )
    full_queues = infer_waits_for_full_queues(cuts, tasks)
    return merge_by_waiting([*found_waits, communication.implied, *full_queues])


def _collect_waits_of_gpu_tasks(
    trace: Trace, tasks: GpuTasks, waits_for_events: list[WaitPairs]
) -> WaitPairs:
    """Collect all tasks of other streams that GPU tasks wait for, sorted by what waits.

    A pair is left out if the awaited task starts after the waiting one: the recording
    contradicts it.

    Args:
        trace: The trace.
        tasks: All kernels, copies and sets, by stream and start.
        waits_for_events: The waits for events, as recorded or inferred. Waits for the
            communication before these are added.
    """
    pairs = merge_by_waiting(waits_for_events)
    communication = infer_waits_for_communication(trace, tasks, pairs)
    all_pairs = merge_by_waiting(
        [pairs, communication.implied, communication.of_communication]
    )

    waiting = all_pairs.waiting
    awaited = all_pairs.awaited
    starts_first = tasks.start[awaited] <= tasks.start[waiting]
    is_possible = starts_first & (awaited != waiting)
    return WaitPairs(waiting=waiting[is_possible], awaited=awaited[is_possible])


def _mark_unexplained_waits(trace: Trace, draft: GraphDraft) -> None:
    """Note how much longer than usual synchronizations take to return, in the draft.

    They usually return within MAX_RETURN_NS (100 us) after the end of what they wait
    for: of one that returns after 130 us, 30 us are unexplained.
    """
    waits = np.flatnonzero(draft.kind == Node.WAIT)
    rows = draft.row[waits].astype(np.intp)
    is_synchronization = trace.matching(rows, SYNCHRONIZES.search)
    synchronizations = waits[is_synchronization]
    returned_after_ns = draft.ended[synchronizations] - draft.began[synchronizations]
    unexplained_ns = np.maximum(returned_after_ns - MAX_RETURN_NS, 0)
    draft.unexplained[synchronizations] = unexplained_ns


def _list_lanes(trace: Trace, cuts: ThreadCuts, tasks: GpuTasks) -> tuple[Lane, ...]:
    """List the lanes of the graph, in which nodes follow each other: the threads, then
    the streams."""
    device_of_stream = {}
    for thread, track in zip(trace.thread_of_track.tolist(), trace.tracks, strict=True):
        if track.layer is Layer.STREAM:
            device_of_stream[thread] = track.pid

    threads = [Lane(thread) for thread in cuts.threads.tolist()]
    streams = [
        Lane(stream, is_stream=True, device=device_of_stream[stream])
        for stream in tasks.streams.tolist()
    ]
    return (*threads, *streams)


def _find_batches(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> Batches:
    """Find the nodes at which workers of data loaders hand over batches.

    They are in the order of their threads and times. Up to HANDING_NS (10 ms) of a wait
    may be what the thread itself does to take over the batch.

    Args:
        draft: The nodes of the graph.
        layout: Which nodes stand for which cuts.
        cuts: The cuts of threads, some of which are waits for a batch.
    """
    node = layout.cut[cuts.batches]
    waited_ns = cuts.end[cuts.batches] - cuts.begin[cuts.batches]
    return Batches(
        node=node,
        waited=waited_ns,
        unsure=np.minimum(waited_ns, HANDING_NS),
        loader=draft.lane[node],
    )


def _lay_out_nodes(cuts: ThreadCuts, tasks: GpuTasks) -> NodeOrder:
    """Decide which node of the graph stands for which part of a trace.

    Node 0 is the origin. E.g. a thread with two cuts, such as calls, has the nodes 1 to
    5: what it does before the first cut, that cut (2), what it does between them, the
    second cut (4), and the rest (5). The nodes of the next thread begin at 6; the GPU
    tasks come behind those of all threads.

    Args:
        cuts: The cuts of all threads.
        tasks: The kernels, copies and sets.
    """
    threads = len(cuts.threads)
    earlier_cuts = np.arange(len(cuts.kind))
    earlier_threads = cuts.thread_of_cut
    # Before the node of a cut there are the origin, two nodes for each earlier cut, the
    # rest of each earlier thread, and what this thread does before the cut.
    cut = 1 + 2 * earlier_cuts + earlier_threads + 1

    # Before the rest of a thread there are the origin, two nodes for each cut up to its
    # last one, and the rest of each earlier thread.
    cuts_until_end = cuts.bounds[1:]
    tail = 1 + 2 * cuts_until_end + np.arange(threads)
    first_task = 1 + 2 * len(cut) + threads
    return NodeOrder(
        cut=cut,
        tail=tail,
        task=first_task + np.arange(len(tasks.rows)),
        size=first_task + len(tasks.rows),
    )


def _fill_in_threads(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, origin: int
) -> None:
    """Fill in the nodes of threads, and connect those of each thread in a row.

    The time between two cuts is the thread's own time (CPU_WORK). When the cuts
    themselves begin is filled in later, by `_fill_in_begins_of_cuts`.

    Args:
        draft: The nodes of the graph that is built; they are filled in, in place.
        layout: Which nodes stand for which cuts.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
        origin: The time of the origin, in ns of the file.
    """
    draft.kind[ORIGIN_NODE] = Node.ORIGIN
    draft.kind[layout.cut] = cuts.kind
    draft.row[layout.cut] = cuts.row
    draft.lane[layout.cut] = cuts.thread_of_cut
    draft.ended[layout.cut] = cuts.end - origin

    draft.kind[layout.before_cut] = Node.CPU_WORK
    draft.lane[layout.before_cut] = cuts.thread_of_cut
    draft.ended[layout.before_cut] = cuts.begin - origin
    draft.kind[layout.tail] = Node.CPU_WORK
    draft.lane[layout.tail] = np.arange(len(cuts.threads))
    draft.ended[layout.tail] = cuts.last - origin

    # The nodes of a thread follow each other, so the one before node n is n - 1.
    cpu_work = np.concatenate((layout.before_cut, layout.tail))
    nodes_of_threads = np.concatenate((layout.cut, cpu_work))
    draft.connect(SAME_LANE, nodes_of_threads, nodes_of_threads - 1)
    draft.follow_origin(layout.first_of_thread)
    draft.began[cpu_work] = draft.ended[cpu_work - 1]
    draft.began[layout.first_of_thread] = cuts.first - origin


def _fill_in_begins_of_cuts(
    draft: GraphDraft,
    layout: NodeOrder,
    cuts: ThreadCuts,
    tasks: GpuTasks,
    waits: WaitPairs,
    origin: int,
) -> None:
    """Fill in when the node of each cut begins: when its waiting is over.

    A cut is a stretch of a thread, such as a call, at which it depends on others.

    The waiting of a call is over once the last task that it waits for has ended, but at
    the latest when the call ends. A handoff, in which a thread waits for another
    thread, consists of waiting only, so it begins at its end.

    Args:
        draft: The nodes of the graph that is built; they are filled in, in place.
        layout: Which nodes stand for which cuts.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
        tasks: All kernels, copies and sets, by stream and start.
        waits: Calls, as cuts, with the tasks that they wait for.
        origin: The time of the origin, in ns of the file.
    """
    wait_is_over = cuts.begin.copy()
    # Unlike an indexed assignment, maximum.at takes all tasks of one call into account.
    np.maximum.at(wait_is_over, waits.waiting, tasks.end[waits.awaited])
    wait_is_over = np.minimum(wait_is_over, cuts.end)

    is_handoff = cuts.kind == Node.HANDOFF
    began = np.where(is_handoff, cuts.end, wait_is_over)
    draft.began[layout.cut] = began - origin


def _connect_threads(draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts) -> None:
    """Connect threads that work for other threads, such as autograd's for backward.

    The *asking* thread calls backward and waits; the *engine* is the thread that runs
    it:

        asking    ... own time | waits for the work              | own time ...
        engine    waits to be asked | own time (backward) | done | ...

    So the engine goes on when the own time of the asking thread ends, and the asking
    thread goes on when the engine is done. If that is the first work of the engine, it
    has not existed before it was asked.

    Args:
        draft: The nodes of the graph that is built; they get edges, in place.
        layout: Which nodes stand for which cuts.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
    """
    asking_waits = layout.cut[cuts.handoffs.asking_waits]
    engine_waits = layout.cut[cuts.handoffs.engine_waits]
    engine_is_done = layout.cut[cuts.handoffs.engine_is_done]
    # The nodes of a thread follow each other: before node n is n - 1.
    asking_own_time = asking_waits - 1
    engine_before = engine_waits - 1
    draft.connect(OTHER_LANE, engine_waits, asking_own_time)

    is_first_of_thread = draft.source[SAME_LANE, engine_before] == ORIGIN_NODE
    takes_no_time = draft.began[engine_before] == draft.ended[engine_waits]
    is_first_work = is_first_of_thread & takes_no_time
    draft.connect(
        SAME_LANE, engine_before[is_first_work], asking_own_time[is_first_work]
    )

    order = np.argsort(asking_waits, kind="stable")  # `join` takes ascending nodes
    waits_for_engine = WaitPairs(
        waiting=asking_waits[order], awaited=engine_is_done[order]
    )
    draft.join(OTHER_LANE, waits_for_engine)


def _fill_in_gpu_tasks(
    draft: GraphDraft, layout: NodeOrder, cuts: ThreadCuts, tasks: GpuTasks, origin: int
) -> None:
    """Fill in the nodes of GPU tasks (kernels, copies and sets), without their edges.

    Args:
        draft: The nodes of the graph that is built; they are filled in, in place.
        layout: Which nodes stand for which tasks.
        cuts: The cuts of the threads, whose lanes come before those of the streams.
        tasks: All kernels, copies and sets, by stream and start.
        origin: The time of the origin, in ns of the file.
    """
    node = layout.task
    draft.kind[node] = Node.GPU_TASK
    draft.row[node] = tasks.rows
    draft.lane[node] = len(cuts.threads) + tasks.stream_of(np.arange(len(node)))
    draft.began[node] = tasks.start - origin
    draft.ended[node] = tasks.end - origin


def _connect_gpu_tasks(
    draft: GraphDraft,
    layout: NodeOrder,
    cuts: ThreadCuts,
    tasks: GpuTasks,
    delays: _Delays,
) -> None:
    """Make each GPU task wait for the one before it on its stream, and for its launch.

    A task (kernel, copy or set) may start while its launch call still runs, so it waits
    for what the thread did before that call, with the usual latency as lag. E.g. a
    thread works until 10 us, when a launch call begins: with a latency of 5 us its
    kernel starts at 15 us, or later if the kernel before it ends later.

    Args:
        draft: The nodes of the graph that is built; they get edges, in place.
        layout: Which nodes stand for which cuts and tasks.
        cuts: The calls that launch or wait, and other cuts of the threads' time.
        tasks: All kernels, copies and sets, by stream and start.
        delays: How long tasks usually take to start.
    """
    node = layout.task
    later_tasks = np.flatnonzero(~tasks.is_first_of_stream)
    switch_ns = delays.switch[tasks.stream_of(later_tasks)]
    draft.connect(SAME_LANE, node[later_tasks], node[later_tasks - 1], switch_ns)

    # The launch call may lie inside another call, which is then the cut. So it may
    # begin later than the cut does.
    launched_tasks = np.flatnonzero(tasks.has_launch)
    launch_cut = tasks.launch_cut[launched_tasks]
    since_cut_began = tasks.launched_at[launched_tasks] - cuts.begin[launch_cut]
    lag = delays.latency[launched_tasks] + since_cut_began
    before_launch = layout.before_cut[launch_cut]
    draft.connect(OTHER_LANE, node[launched_tasks], before_launch, lag)

    waits_for_nothing = tasks.is_first_of_stream & ~tasks.has_launch
    draft.follow_origin(node[waits_for_nothing])


def _measure_usual_delays(trace: Trace, tasks: GpuTasks) -> _Delays:
    """Measure how long kernels, copies and sets that are ready usually take to start.

    Two delays are measured: the switch of a stream from one to the next, and the
    latency from the launch call.
    """
    latency_of_process = _measure_latency(trace)
    process_of_task = trace.process_of_track[trace.track[tasks.rows]]
    latency = latency_of_process[process_of_task]
    return _Delays(switch=_measure_switches(tasks, latency), latency=latency)


def _measure_switches(tasks: GpuTasks, latency: Int64s) -> Int64s:
    """Measure how long each stream usually takes to switch from one GPU task to the
    next.

    It is the upper median of the gaps between tasks: 2 us for gaps of 1, 2 and 3 us. A
    gap counts only if the second task had been launched long enough before the first
    one ended, so that nothing but the switch can fill it, and if it is at most
    MAX_SWITCH_NS (10 us).

    Args:
        tasks: All kernels, copies and sets, by stream and start.
        latency: The usual launch latency of each task, in ns.

    Returns:
        ns per stream; 0 where no gap counts.
    """
    switches = np.zeros(len(tasks.streams), dtype=np.int64)
    could_start_at = tasks.launched_at + latency
    for stream, of_stream in enumerate(tasks.slices_of_streams):
        # Each task but the first, with the one before it.
        start = tasks.start[of_stream][1:]
        end_before = tasks.end[of_stream][:-1]
        gap_ns = start - end_before
        was_ready = could_start_at[of_stream][1:] <= end_before
        switch_ns = gap_ns[was_ready & (gap_ns <= MAX_SWITCH_NS)]
        if len(switch_ns):
            # Tasks that overlap would make it negative.
            switches[stream] = max(0, upper_median(switch_ns))
    return switches


def _measure_latency(trace: Trace) -> Int64s:
    """Measure the usual latency of each device from a launch call to its GPU task.

    It is measured at tasks that start after a gap on an otherwise idle device. If a
    device has too few gaps for that, even few gaps and the first task count, unless the
    result is longer than MAX_LATENCY_NS (100 us).

    Returns:
        ns, indexed by the process of the device (Trace.process_of_track); 0 where it is
        not known.
    """
    latency_of_process = np.zeros(len(trace.tracks) + 1, dtype=np.int64)
    for devices in Accounts(trace).devices_by_axis:
        # The time before the first task is a gap, too.
        gaps = devices.find_gaps_with_lead(trace.begin_ns - 1)
        by_few_gaps = devices.find_lower_quartile_latency(gaps, fewest=1)
        by_few_gaps = np.where(by_few_gaps <= MAX_LATENCY_NS, by_few_gaps, 0)
        by_many_gaps = devices.latency_ns
        latency_of_device = np.where(by_many_gaps > 0, by_many_gaps, by_few_gaps)

        # A device is a process of the trace: the one that its events are in.
        events = devices.events
        process_of_event = trace.process_of_track[trace.track[events]]
        device_of_event = devices.find_device_indices(events)
        latency_of_process[process_of_event] = latency_of_device[device_of_event]
    return latency_of_process


def _finish_graph(
    draft: GraphDraft,
    *,
    origin: int,
    lanes: tuple[Lane, ...],
    batches: Batches,
    inferred: int,
) -> Graph:
    """Make the graph of a draft.

    The nodes are sorted so that sources come first, which a replay in a single pass
    needs, and the edges get their lags and residuals.

    Args:
        draft: The draft with all its edges.
        origin: The time of the origin, in ns of the file.
        lanes: The threads and streams.
        batches: The nodes at which batches are handed over, as nodes of the draft.
        inferred: How many waits were inferred.
    """
    order = sort_nodes(draft.began, draft.ended, draft.tie_order, draft.source)
    # The inverse of a sorting order says which node each node becomes.
    new_node = np.empty(len(order), dtype=np.int32)
    new_node[order] = np.arange(len(order))

    kind = draft.kind[order]
    began = draft.began[order]
    ended = draft.ended[order]
    source, lag = _renumber_edges(draft, order, new_node)
    _set_times_of_joins(kind, began, ended, source, lag)
    residual = _compute_residuals(kind, began, ended, source, lag)
    # When a batch is ready is bounded by the replay itself, see replay.BatchReadiness.
    batches = renumber_batches(batches, new_node)
    residual[:, batches.node] = 0

    threads = sum(not lane.is_stream for lane in lanes)
    return Graph(
        origin_ns=origin,
        lanes=lanes,
        kind=kind,
        lane=draft.lane[order],
        row=draft.row[order],
        dur=ended - began,
        unexplained=draft.unexplained[order],
        source=source,
        lag=lag,
        residual=residual,
        began=began,
        lasted=ended - began,
        is_removed=np.zeros(len(order), dtype=np.bool_),
        time_scales=(AS_RECORDED,) * threads,
        inferred_waits=inferred,
        batches=batches,
    )


class _Edges(NamedTuple):
    """The edges of all nodes; arrays of shape [2, nodes]."""

    source: Int32s
    lag: Int64s  # ns


def _renumber_edges(draft: GraphDraft, order: Rows, new_node: Int32s) -> _Edges:
    """Renumber the edges of a draft after its nodes were sorted, and give each its lag.

    The lag is the least delay from the end of the source to the begin of the node. It
    is the usual one, or less if the recorded one is shorter.

    Args:
        draft: The draft.
        order: The nodes of the draft in their new order.
        new_node: The new node of each node of the draft.
    """
    began = draft.began[order]
    ended = draft.ended[order]
    source = new_node[draft.source[:, order]]
    usual_lag = draft.usual_lag[:, order]

    # The edges of the origin lead to itself, and sorting breaks circles of nodes that
    # wait for each other. Both leave edges that lead backward, which are removed.
    is_backward = source >= np.arange(len(order))
    source[is_backward] = ORIGIN_NODE
    usual_lag[is_backward] = NEVER

    lag = np.minimum(usual_lag, began - ended[source])
    # A node without any edge waits for the origin.
    has_no_edge = (lag[SAME_LANE] == NEVER) & (lag[OTHER_LANE] == NEVER)
    lag[SAME_LANE, has_no_edge] = 0
    return _Edges(source=source, lag=lag)


def _set_times_of_joins(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> None:
    """Set when JOINs begin and end: when both of their sources are done.

    `began` and `ended` are changed in place. This loops over JOINs, because each may
    need the one before it.
    """
    for join in np.flatnonzero(kind == Node.JOIN).tolist():
        ends_of_sources = ended[source[:, join]]
        sources_done = (ends_of_sources + lag[:, join]).max()
        began[join] = sources_done
        ended[join] = sources_done


def _compute_residuals(
    kind: NDArray[np.uint8], began: Int64s, ended: Int64s, source: Int32s, lag: Int64s
) -> Int64s:
    """Compute how much later each node begins than its edges explain.

    E.g. 3 ns for a node that begins at 20 ns, if its edges let it begin at 11 and at 17
    ns. This residual is put on the edge that ends last. If that edge comes from a JOIN,
    the JOIN is delayed instead: its times in `began` and `ended` change, and the
    residual is put on the edge of the JOIN that ends last.

    Returns:
        ns of shape [2, nodes]; 0 on the other edge of each node.
    """
    residual = np.zeros_like(lag)
    is_work = (kind != Node.JOIN) & (kind != Node.ORIGIN)
    nodes = np.flatnonzero(is_work)
    while len(nodes):
        edges_end = ended[source[:, nodes]] + lag[:, nodes]
        last_edge = np.argmax(edges_end, axis=0)
        late_ns = began[nodes] - edges_end.max(axis=0)
        residual[last_edge, nodes] = late_ns

        # Move the residuals that belong to JOINs there, and repeat with these JOINs.
        last_source = source[last_edge, nodes]
        is_behind_join = kind[last_source] == Node.JOIN
        delays_join = (late_ns > 0) & is_behind_join
        joins = last_source[delays_join]
        began[joins] += late_ns[delays_join]
        ended[joins] = began[joins]
        residual[last_edge[delays_join], nodes[delays_join]] = 0
        nodes = joins
    residual[:, ORIGIN_NODE] = 0
    return residual
