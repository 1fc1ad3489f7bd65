"""A graph to which changes are being applied.

The words node, task, lane, edge, lag and residual are defined in graph.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import measure_effective_ns
from fusetui.analysis.replay.graph import (
    NEVER,
    ORIGIN_NODE,
    OTHER_LANE,
    SAME_LANE,
    Graph,
    Node,
)
from fusetui.analysis.replay.select import ThreadIntervals
from fusetui.trace.model.arrays import Flags, Floats, Rows, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import NO_INTERVAL


class Draft:
    """Copies of the columns of a graph, for changes to write to.

    Each change edits them; `make_changed_graph` then makes a graph of them.
    """

    def __init__(self, trace: Trace, graph: Graph, latest: bool) -> None:
        """Copy the columns of a graph.

        Args:
            trace: The trace.
            graph: Its work as nodes, with what each of them waits for.
            latest: Whether a change whose effect is a range takes the later end.
        """
        self.trace = trace
        self.graph = graph
        self.latest = latest

        self.dur = graph.dur.copy()
        self.unexplained = graph.unexplained.copy()
        self.source = graph.source.copy()
        self.lag = graph.lag.copy()
        self.residual = graph.residual.copy()
        self.is_removed = graph.is_removed.copy()
        self.time_scales = list(graph.time_scales)
        self.batches = graph.batches
        # What has to be said about the changes, see whatif.Note.
        self.notes: list[str] = []

    @property
    def gpu_tasks(self) -> Rows:
        """The nodes of kernels, copies and sets."""
        return self.graph.gpu_tasks

    def remove_edges(self, edge: int, nodes: Rows) -> None:
        """Make nodes wait for nothing by one of their two edges.

        Args:
            edge: SAME_LANE, to the node before it on its thread or stream, or
                OTHER_LANE, to a node of another one.
            nodes: The nodes.
        """
        self.source[edge, nodes] = ORIGIN_NODE
        self.residual[edge, nodes] = 0
        self.lag[edge, nodes] = NEVER

    def remove_nodes(self, nodes: Rows) -> None:
        """Take nodes out: they take no time and wait only for the one before them.

        What waits for a removed GPU task (kernel, copy or set) waits for it without
        delay. An unexplained delay (residual) was recorded between these two only, so
        it goes with the task.

        Args:
            nodes: The nodes of calls or tasks.
        """
        self.is_removed[nodes] = True
        self.dur[nodes] = 0
        self.unexplained[nodes] = 0
        self.remove_edges(OTHER_LANE, nodes)

        is_gpu_task = self.graph.kind[nodes] == Node.GPU_TASK
        tasks = nodes[is_gpu_task]
        has_task_before = self.lag[SAME_LANE, tasks] != NEVER
        later_tasks = tasks[has_task_before]
        self.lag[SAME_LANE, later_tasks] = 0
        self.residual[SAME_LANE, later_tasks] = 0

        # A negative lag lets a node begin before its source has ended. A source of no
        # length has nothing to overlap with.
        is_edge = (self.lag != NEVER) & (self.source != ORIGIN_NODE)
        is_from_removed = is_edge & np.isin(self.source, tasks)
        self.residual[is_from_removed] = 0
        self.lag[is_from_removed] = np.maximum(self.lag[is_from_removed], 0)

    def scale_gpu_tasks(
        self, nodes: Rows, new_effective_ns: Callable[[Floats], Floats]
    ) -> None:
        """Change the effective durations of GPU tasks: kernels, copies and sets.

        The effective duration of a task is its duration without the time by which it
        overlaps the task before it on its stream. That overlap stays as it is: a kernel
        of 10 ns, of which 4 ns overlap, takes 4 + 3 ns at half its effective duration.

        Args:
            nodes: The tasks.
            new_effective_ns: Computes the new effective durations from the current
                ones; both are ns, one for each of `nodes`.
        """
        effective_of_row = np.zeros(len(self.trace), dtype=np.int64)
        effective_of_row[self.trace.gpu_rows] = measure_effective_ns(self.trace)
        rows = self.graph.row[nodes]
        recorded_ns = effective_of_row[rows]
        overlap_ns = self.graph.lasted[nodes] - recorded_ns

        # An earlier change may have made the task shorter than the overlap.
        current_ns = np.maximum(self.dur[nodes] - overlap_ns, 0).astype(np.float64)
        changed_ns = np.rint(new_effective_ns(current_ns)).astype(np.int64)
        self.dur[nodes] = overlap_ns + changed_ns

    def scale_threads(self, intervals: ThreadIntervals, factor: float) -> None:
        """Make what threads do during some intervals take longer or less.

        Args:
            intervals: The intervals of each thread.
            factor: How many times as long it takes.
        """
        for lane, cover in intervals.items():
            scale = self.time_scales[lane]
            self.time_scales[lane] = scale.scaled_within(cover, factor)

    def return_at_once(self, waits: Rows) -> None:
        """Make calls that wait for the device (cudaStreamSynchronize) return at once.

        They still take the usual time to return. Where a call returned unexplainedly
        late after what it waited for, the time beyond the usual was waiting, too.

        Args:
            waits: The nodes (WAIT) of the calls.
        """
        self.remove_edges(OTHER_LANE, waits)
        self.dur[waits] -= self.unexplained[waits]
        self.unexplained[waits] = 0

    def wait_for_no_batch(self, intervals: ThreadIntervals) -> None:
        """Let threads wait for no batch of a data loader during some intervals.

        Args:
            intervals: The intervals of each thread. A wait counts if it lies in one of
                them as a whole.
        """
        batches = self.batches
        lane = self.graph.lane[batches.node]
        wait_ends = self.graph.began[batches.node]
        wait_begins = wait_ends - batches.waited
        still_waits = np.ones(len(lane), dtype=np.bool_)

        for lane_of_thread, cover in intervals.items():
            is_of_thread = lane == lane_of_thread
            interval = cover.place_of(wait_begins)
            begins_inside = interval != NO_INTERVAL
            ends_inside = wait_ends <= cover.end[interval]
            still_waits &= ~(is_of_thread & begins_inside & ends_inside)
        self.batches = batches.take(still_waits)

    def make_changed_graph(self) -> Graph:
        """Return the changed graph.

        What follows from all the changes together is computed here: how long threads
        take, which launches wait for room in a full queue, and that no GPU task starts
        before the one before it on its stream.
        """
        graph = self.graph
        self._apply_time_scales()
        removes_nodes = (self.is_removed & ~graph.is_removed).any()
        if removes_nodes:
            self._queue_launches_again()

        # A node cannot begin earlier before the end of a task than the task now takes.
        overlaps = self._mark_overlapping_edges()
        lag_within_task = np.maximum(self.lag, -self.dur[self.source])
        self.lag = np.where(overlaps, lag_within_task, self.lag)
        return msgspec.structs.replace(
            graph,
            dur=self.dur,
            unexplained=np.minimum(self.unexplained, self.dur),
            source=self.source,
            lag=self.lag,
            residual=self.residual,
            is_removed=self.is_removed,
            time_scales=tuple(self.time_scales),
            batches=self.batches,
        )

    def _apply_time_scales(self) -> None:
        """Make the own time of threads as long as the changes say.

        Each thread has a time scale: how many times as long each stretch of its
        recorded time takes. It applies to what the thread does between calls.
        """
        graph = self.graph
        cpu_work = graph.nodes(Node.CPU_WORK)
        for lane, scale in enumerate(self.time_scales):
            nodes = cpu_work[graph.lane[cpu_work] == lane]
            until_begin = scale.elapsed_until(graph.began[nodes])
            until_end = scale.elapsed_until(graph.ended[nodes])
            self.dur[nodes] = until_end - until_begin

    def _mark_overlapping_edges(self) -> Flags:
        """Mark the edges by which a node begins before the kernel, copy or set that it
        waits for ends.

        Such an edge has a negative lag. If the lag is longer than the kernel itself,
        the node seems to begin before the kernel does: this comes from clocks that
        differ, is no overlap, and does not depend on how long the kernel takes.

        Returns:
            Flags of shape [2, nodes].
        """
        is_from_task: Flags = self.graph.kind[self.source] == Node.GPU_TASK
        is_early: Flags = self.lag < 0
        is_within_task: Flags = self.lag >= -self.graph.lasted[self.source]
        return is_early & is_from_task & is_within_task

    def _queue_launches_again(self) -> None:
        """Make launch calls wait for room in full queues again, after kernels, copies
        or sets were removed.

        A removed one takes no room in the queue of its stream, so the calls behind it
        wait for others than before.
        """
        graph = self.graph
        tasks = self.gpu_tasks
        stream_of_task = graph.lane[tasks]

        # A launch call that waits for a GPU task waits for room in the task's queue.
        launches = graph.nodes(Node.LAUNCH)
        awaited = graph.source[OTHER_LANE, launches]
        awaited_tasks = awaited[graph.kind[awaited] == Node.GPU_TASK]
        full_streams = distinct(graph.lane[awaited_tasks])
        for stream in full_streams.tolist():
            self._queue_launches_again_on(stream, tasks[stream_of_task == stream])

    def _queue_launches_again_on(self, stream: int, tasks: Rows) -> None:
        """Make launch calls wait for room in the queue of one stream.

        If the queue holds n tasks, each call waits for the task that was launched n
        tasks before its own.

        Args:
            stream: The stream, an index in Graph.lanes.
            tasks: All of its kernels, copies and sets, as nodes. Some of their launch
                calls wait for one of them.
        """
        graph = self.graph
        rows_of_launches = self.trace.launch[graph.row[tasks]]
        launch_of_row = graph.node_of(self.trace, Node.LAUNCH)
        launch_of_task = launch_of_row[rows_of_launches]
        has_launch = launch_of_task != ORIGIN_NODE

        # The queue holds as many tasks as lie between the task of a call that waited
        # and the task that made room for it.
        makes_room = graph.source[OTHER_LANE, launch_of_task]
        waited_for_room = has_launch & (graph.lane[makes_room] == stream)
        index_of_room = np.searchsorted(tasks, makes_room)
        tasks_between = np.arange(len(tasks)) - index_of_room
        queue_length = int(tasks_between[waited_for_room].max())

        self.remove_edges(OTHER_LANE, launch_of_task[waited_for_room])
        is_removed = self.is_removed[tasks] | self.is_removed[launch_of_task]
        is_left = has_launch & ~is_removed
        remaining_tasks = tasks[is_left]
        remaining_launches = launch_of_task[is_left]

        # The first ones find room without waiting.
        waiting_launches = remaining_launches[queue_length:]
        now_makes_room = remaining_tasks[: len(waiting_launches)]
        self.source[OTHER_LANE, waiting_launches] = now_makes_room
        self.lag[OTHER_LANE, waiting_launches] = 0
