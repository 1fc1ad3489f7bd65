"""Finds the forward op to which the work of a backward pass belongs.

Kineto's rule (torch/csrc/autograd/profiler_kineto.cpp): of all ops on the forward
thread with the sequence number of a backward op, the one that started last created its
node. Numbers are not unique: an op that creates no node has the number of the next one
that does. Flows of the category fwdbwd follow the same rule, but only for the op that
created the node; they are used if ops have no numbers. Other flows tell which nodes of
a graph wait for which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.links import last_before
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Integers,
    Rows,
    distinct,
    distinct_rows,
    equal_ranges,
    first_with,
    last_at_or_before,
    last_marked,
)
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.intervals import EnclosingIndex
from fusetui.trace.model.memo import memo
from fusetui.trace.model.raw import Thread
from fusetui.trace.model.report import Stop, never
from fusetui.trace.read.autograd import Autograd, FlowEnd, read_autograd, read_flows

BACKWARD = lazy_pattern(r"backward|bwd|autograd", re.IGNORECASE)
NODE = lazy_pattern(r"autograd::engine::evaluate_function: |\w+Backward\d*\Z")
"""The engine's names for the ops it runs; before 2021 they are named after their node
alone."""
ENGINE = "autograd::engine::evaluate_function: "
KEPT_AS = "autograd"  # the name of the numbers and flows in the cache
MAX_COMPARED_THREADS = 64  # of torch's numbers, and of threads that each may mean


class Subtrees(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some rows in order, each with all rows inside it; arrays of shape [rows]."""

    rows: Int32s
    end_row: Int32s

    def around(self, rows: Integers) -> Rows:
        """Find the innermost subtree that each row lies in.

        With the subtrees of rows 2 to 9 and of rows 4 to 5, the rows 3, 5 and 20 give
        the indices 0, 1 and -1.

        Args:
            rows: Rows of the trace; -1 gives -1.
        """
        last_begun = last_at_or_before(self.rows, rows)
        return self._reach.last(last_begun, np.asarray(rows, dtype=np.int64))

    @cached_property
    def _reach(self) -> EnclosingIndex:
        """A search tree over the ends of the subtrees, to find what contains a row."""
        return EnclosingIndex(self.end_row.astype(np.int64))


class Backward(Subtrees, frozen=True, eq=False, dict=True):
    """The ops that ran backward."""

    forward: Int32s  # the row of the op that created the node; -1 if none was recorded
    forward_ops: Subtrees  # the ops that created a node which ran backward

    def forward_of(self, ops: Integers) -> Int32s:
        """Return the forward op that the work of each op belongs to.

        It is that of the innermost backward op around it whose forward op is known.

        Args:
            ops: Rows of ops; -1 gives -1.

        Returns:
            The row of an op for each; -1 for work that is not backward or has no known
            forward op.
        """
        index = self._linked.around(ops)
        return self._forward_of_linked[index]

    @cached_property
    def _linked(self) -> Subtrees:
        """The backward ops whose forward op is known, each with the rows below it."""
        is_known = self.forward != NO_ROW
        return Subtrees(rows=self.rows[is_known], end_row=self.end_row[is_known])

    @cached_property
    def _forward_of_linked(self) -> Int32s:
        """The forward op of each backward op in `_linked`, followed by -1, which the
        index -1 finds."""
        return np.append(self.forward[self.forward != NO_ROW], np.int32(NO_ROW))


def backward_ops(trace: Trace, stop: Stop = never) -> Backward:
    """Return the ops that ran backward, with their forward ops.

    Reads the file again, which takes a second per GB, if the name of any op says that
    it may belong to a backward pass, unless the cache has what that would give.

    Args:
        trace: The trace.
        stop: Is asked while the file is read. Once it returns True, reading ends, and
            what was read by then is the result, which is not kept.
    """
    if not may_run_backward(trace):
        no_forward = np.full(len(trace), NO_ROW, dtype=np.int32)
        return _collected(trace, no_forward, ran_backward=np.zeros(0, np.intp))
    events = trace.elements.own
    autograd = events.recall(KEPT_AS, Autograd)
    if autograd is None:
        autograd = read_autograd(events, stop)
        if not stop():  # not interrupted
            events.keep(KEPT_AS, autograd)
    return linked_by(trace, autograd)


def may_run_backward(trace: Trace) -> bool:
    """Whether the trace has an op that may belong to a backward pass, judged by its
    name."""
    names_of_ops = distinct(trace.name[trace.role == Role.OP])
    return any(BACKWARD.search(trace.names[name]) for name in names_of_ops.tolist())


def linked_by(trace: Trace, autograd: Autograd) -> Backward:
    """Link backward ops with their forward ops.

    Sequence numbers come first. Flows of the category fwdbwd, from the forward op to
    the backward op, override them.

    Args:
        trace: The trace.
        autograd: The sequence numbers and the flows of its file.
    """
    numbered = _numbered_ops(trace, autograd)
    is_backward = numbered.forward_thread > 0
    backward = numbered.only(is_backward)
    forward = np.full(len(trace), NO_ROW, dtype=np.int32)  # the forward op of each row
    forward[backward.rows] = _forward_by_number(
        trace, backward, forward=numbered.only(~is_backward)
    )

    flows = _pair_flow_ends(autograd.flows)
    flow_from = _ops_at(trace, flows.begins)
    flow_to = _ops_at(trace, flows.ends)
    links_ops = (flow_from != NO_ROW) & (flow_to != NO_ROW)
    ends_of_flows = flow_to[links_ops]
    forward[ends_of_flows] = flow_from[links_ops]

    _lift_to_engine_ops(trace, forward)
    ran_backward = np.concatenate((backward.rows, ends_of_flows))
    return _collected(trace, forward, ran_backward)


def _collected(trace: Trace, forward: Int32s, ran_backward: Integers) -> Backward:
    """Collect the ops that ran backward: by the file, or by their names.

    Args:
        trace: The trace.
        forward: The forward op of each row of the trace; -1 for none.
        ran_backward: Rows that ran backward according to the file. Ops whose names say
            so are added.
    """
    is_backward = _mark_backward_names(trace)[trace.name] & (trace.role == Role.OP)
    is_backward[ran_backward] = True
    rows = np.flatnonzero(is_backward).astype(np.int32)
    forward_rows = distinct(forward[rows])
    forward_rows = forward_rows[forward_rows != NO_ROW]
    return Backward(
        rows=rows,
        end_row=trace.end_row[rows],
        forward=forward[rows],
        forward_ops=Subtrees(rows=forward_rows, end_row=trace.end_row[forward_rows]),
    )


def _mark_backward_names(trace: Trace) -> Flags:
    """A flag for each name of the trace: whether ops of this name run backward. One
    more entry, False, stands for no name; shape [names + 1]."""
    return trace.named(lambda name: NODE.match(name) is not None)


class _NumberedOps(NamedTuple):
    """Ops with a sequence number; arrays of shape [ops]."""

    rows: Int32s
    number: Int64s
    forward_thread: Int64s  # torch's number of it, of a backward op; else 0

    def only(self, which: Flags | Rows) -> _NumberedOps:
        """The ops that `which` selects, by rows or by flags."""
        return _NumberedOps(
            rows=self.rows[which],
            number=self.number[which],
            forward_thread=self.forward_thread[which],
        )


def _numbered_ops(trace: Trace, autograd: Autograd) -> _NumberedOps:
    """Return the ops of the trace that have a sequence number in the file.

    Exports of Nsight Systems do not say which thread ran forward. There, ops with the
    name of a backward op get the thread 1, which stands for some thread.
    """
    ops = trace.rows_of(Role.OP)
    rows = first_with(trace.order[ops], ops, autograd.order)
    numbers_of_file = _NumberedOps(
        rows=rows, number=autograd.number, forward_thread=autograd.thread
    )
    numbered = numbers_of_file.only(rows != NO_ROW)
    names_forward_thread = bool((numbered.forward_thread > 0).any())
    if names_forward_thread or autograd.flows:
        return numbered
    runs_backward = _mark_backward_names(trace)[trace.name[numbered.rows]]
    return numbered._replace(forward_thread=runs_backward.astype(np.int64))


def _forward_by_number(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """Find the forward op of each backward op by their sequence numbers.

    A backward op has torch's own number of its forward thread, but nothing in the file
    says which thread that is. So for each such number, all threads of the process are
    tried, and the one is taken that has forward ops for most of its backward ops.

    Args:
        trace: The trace.
        backward: The backward ops.
        forward: All other ops with a sequence number.

    Returns:
        The row of the forward op of each backward op; -1 for none.
    """
    process_of_backward = trace.process_of_track[trace.track[backward.rows]]
    process_of_forward = trace.process_of_track[trace.track[forward.rows]]
    # processes number their threads alike
    first_of_thread, thread_of_backward = distinct_rows(
        [backward.forward_thread, process_of_backward]
    )
    forward_rows = np.full(len(backward.rows), NO_ROW, dtype=np.int32)
    for thread in _most_frequent(thread_of_backward):
        is_of_thread = thread_of_backward == thread
        process = process_of_backward[first_of_thread[thread]]
        forward_rows[is_of_thread] = _best_explained(
            trace,
            backward=backward.only(is_of_thread),
            forward=forward.only(process_of_forward == process),
        )
    return forward_rows


def _best_explained(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """Find the forward ops of backward ops whose forward ops are all on one thread.

    It is the thread of `forward` on which most of the backward ops have one.

    Returns:
        The row of the forward op of each backward op; -1 for none.
    """
    best = np.full(len(backward.rows), NO_ROW, dtype=np.int32)
    most_explained = 0
    thread_of_forward = trace.thread_of_track[trace.track[forward.rows]]
    for thread in _most_frequent(thread_of_forward):
        ops_of_thread = forward.only(thread_of_forward == thread)
        forward_rows = _last_with_number(trace, backward, ops_of_thread)
        explained = int((forward_rows != NO_ROW).sum())
        if explained > most_explained:
            best = forward_rows
            most_explained = explained
    return best


def _most_frequent(values: Integers) -> list[int]:
    """Return the distinct values, the most frequent first, MAX_COMPARED_THREADS at
    most: [7, 3, 7] gives [7, 3]. Of equally frequent ones the smaller comes first."""
    distinct_values, counts = np.unique(values, return_counts=True)
    by_count = np.argsort(-counts, kind="stable")
    ranked: list[int] = distinct_values[by_count].tolist()
    return ranked[:MAX_COMPARED_THREADS]


def _last_with_number(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """Find for each backward op the last forward op that can have created its node.

    It has the same sequence number and started before the backward op, or together with
    it. If the forward ops of number 5 start at 10, 20 and 90, a backward op of number 5
    that starts at 50 gets the second.

    Returns:
        The row of a forward op for each backward op; -1 for none.
    """
    forward_start = trace.start[forward.rows]
    candidates = forward.only(np.lexsort((forward.rows, forward_start, forward.number)))
    candidate_start = trace.start[candidates.rows]
    with_number = equal_ranges(candidates.number, backward.number)
    has_candidates = with_number.first < with_number.end

    backward_start = trace.start[backward.rows[has_candidates]]
    chosen = last_before(
        candidate_start,
        low=with_number.first[has_candidates],
        high=with_number.end[has_candidates] - 1,
        until=backward_start,
    )
    is_early = candidate_start[chosen] <= backward_start
    last_rows = np.full(len(backward.rows), NO_ROW, dtype=np.int32)
    last_rows[has_candidates] = np.where(is_early, candidates.rows[chosen], NO_ROW)
    return last_rows


class _PairedFlows(NamedTuple):
    """Both ends of flows: entry n of the two lists is the same flow."""

    begins: list[FlowEnd]
    ends: list[FlowEnd]


def _pair_flow_ends(flows: Iterable[FlowEnd]) -> _PairedFlows:
    """Return the flows of which both ends are in the file. A begin is repeated if it
    has several ends."""
    begin_of_key: dict[tuple[str, str], FlowEnd] = {}
    for flow in flows:
        if flow.begins:
            begin_of_key[flow.key] = flow
    ends = [flow for flow in flows if not flow.begins and flow.key in begin_of_key]
    begins = [begin_of_key[end.key] for end in ends]
    return _PairedFlows(begins=begins, ends=ends)


class _Moments(NamedTuple):
    """Times on threads; arrays of one shape."""

    thread: Int64s
    time: Int64s


def _locate_flow_ends(trace: Trace, ends: Sequence[FlowEnd]) -> _Moments:
    """Return the thread and the time of each end of a flow.

    The thread is the number that `Trace.thread_of_track` has; -1 if the trace has no
    slices on it.
    """
    thread_of_lane: dict[Thread, int] = {}
    for track, thread in zip(trace.tracks, trace.thread_of_track.tolist(), strict=True):
        thread_of_lane[track.pid, track.tid] = thread
    threads = [thread_of_lane.get(end.thread, -1) for end in ends]
    times = [end.time for end in ends]
    return _Moments(
        thread=np.array(threads, dtype=np.int64), time=np.array(times, dtype=np.int64)
    )


def _ops_at(trace: Trace, ends: Sequence[FlowEnd]) -> Int32s:
    """Find the op that each end of a flow belongs to.

    It starts on the thread and at the time of the end. If several do, it is the last
    one that stands before the end in the file.

    Args:
        trace: The trace.
        ends: Begins or ends of flows.

    Returns:
        The row of an op for each; -1 for none.
    """
    moments = _locate_flow_ends(trace, ends)
    all_ops = trace.rows_of(Role.OP)
    ops = all_ops[np.isin(trace.start[all_ops], moments.time)]
    thread_of_op = trace.thread_of_track[trace.track[ops]]
    order_of_ends = np.array([end.order for end in ends], dtype=np.int64)

    # One table of the ops and then the ends, sorted by thread, time and place in the
    # file. The op of an end is the last op above it, if thread and time are equal.
    thread = np.concatenate((thread_of_op, moments.thread))
    time = np.concatenate((trace.start[ops], moments.time))
    place_in_file = np.concatenate((trace.order[ops], order_of_ends))
    is_end = np.arange(len(thread)) >= len(ops)
    by_moment = np.lexsort((place_in_file, time, thread))
    thread = thread[by_moment]
    time = time[by_moment]
    is_end = is_end[by_moment]

    last_op = last_marked(~is_end)
    has_op = is_end & (last_op >= 0)
    has_op &= time[last_op] == time
    has_op &= thread[last_op] == thread

    op_of_end = np.full(len(ends), NO_ROW, dtype=np.int32)
    number_of_end = by_moment[has_op] - len(ops)
    op_of_end[number_of_end] = ops[by_moment[last_op[has_op]]]
    return op_of_end


def _lift_to_engine_ops(trace: Trace, forward: Int32s) -> None:
    """Give the op of the autograd engine around a linked op the same forward op.

    A flow names AddmmBackward0, which is inside
    `autograd::engine::evaluate_function: AddmmBackward0` and does all of its work.

    Args:
        trace: The trace.
        forward: The forward op of each row; -1 for none. It is changed.
    """
    names_engine = trace.named(lambda name: name.startswith(ENGINE))
    linked = np.flatnonzero(forward != NO_ROW)
    parent = trace.parent[linked]
    is_engine = (parent != NO_ROW) & names_engine[trace.name[parent]]
    is_lifted = is_engine & (forward[parent] == NO_ROW)
    forward[parent[is_lifted]] = forward[linked[is_lifted]]


NODE_FLOWS = "ac2g"
"""The category of flows between nodes of a graph, and from launches to GPU events."""
MIN_NODE_FLOW_ID = 1 << 40
"""Smaller ids are those of launches."""
NODE_CATEGORIES = ("graph_event_node", "graph_host_node")
"""Nodes besides kernels, copies and sets."""
DEPENDENCIES_KEPT_AS = "dependencies"  # the name of the flows in the cache
MAX_STREAM_ID = (1 << 32) - 1


class Dependencies(msgspec.Struct, frozen=True, eq=False):
    """Which nodes of a graph wait for which, as torch's CUPTI monitor records it: as
    flows from the end of a node to the start of another, with ids of their own.

    A flow names a stream and a time, not a node. An end at which several nodes end (or
    start) on that stream tells none of them; such a flow is counted, and belongs to no
    pair. Arrays of shape [pairs], rows of the trace, in the order of the file.
    """

    before: Int32s  # a node
    after: Int32s  # a node of the same replay that waits for it
    unclear: int  # flows of which an end may be that of several nodes, or of none


def waits_for(pairs: Dependencies, row: int) -> tuple[Int32s, Int32s]:
    """The rows of the nodes of a CUDA graph that run before a node, and of those that
    wait for it. Only known dependencies count."""
    return pairs.before[pairs.after == row], pairs.after[pairs.before == row]


class Flows(msgspec.Struct, frozen=True, eq=False):
    """Where a node ends and where another one starts; arrays of shape [flows]. The
    cache keeps them under these names."""

    left: Int64s  # the thread of the first node, see _places_of_nodes
    ended: Int64s  # ns of the file
    came: Int64s  # the thread of the second node
    started: Int64s  # ns of the file


@memo()
def dependencies(trace: Trace) -> Dependencies:
    """Return which nodes of CUDA graphs wait for which, in all replays of the trace.

    Reads the whole file, unless the cache has what that would give.
    """
    flows = _kept_node_flows(trace)
    rows = _node_rows(trace)
    threads = _threads_of_nodes(trace, rows, flows)
    ends = _Moments(thread=threads, time=trace.end[rows])
    starts = _Moments(thread=threads, time=trace.start[rows])
    leaves = _Moments(thread=flows.left, time=flows.ended)
    arrives = _Moments(thread=flows.came, time=flows.started)
    before = _only_row_at(leaves, rows, ends)
    after = _only_row_at(arrives, rows, starts)

    is_pair = (before >= 0) & (after >= 0) & (before != after)
    is_of_one_replay = trace.correlation[before] == trace.correlation[after]
    is_clear: Flags = is_pair & is_of_one_replay
    return Dependencies(
        before=before[is_clear],
        after=after[is_clear],
        unclear=int((~is_clear).sum()),
    )


def _kept_node_flows(trace: Trace) -> Flows:
    """Return the flows between nodes of CUDA graphs: from the cache, or else from the
    file, which are then put into the cache."""
    events = trace.elements.own
    flows = events.recall(DEPENDENCIES_KEPT_AS, Flows)
    if flows is None:
        flows = _node_flows(trace)
        events.keep(DEPENDENCIES_KEPT_AS, flows)
    return flows


def _node_flows(trace: Trace) -> Flows:
    """Read the flows between nodes of CUDA graphs from the file, all of it."""
    flow_ends = read_flows(trace.elements.own, never, NODE_FLOWS, MIN_NODE_FLOW_ID)
    paired = _pair_flow_ends(flow_ends)
    leaves = _places_of_nodes(trace, paired.begins)
    arrives = _places_of_nodes(trace, paired.ends)
    return Flows(
        left=leaves.thread,
        ended=leaves.time,
        came=arrives.thread,
        started=arrives.time,
    )


def _node_rows(trace: Trace) -> Rows:
    """Return all rows that may be nodes of CUDA graphs: GPU events, and synchronizations
    with a category of NODE_CATEGORIES."""
    is_node_category = np.array(
        [category in NODE_CATEGORIES for category in trace.categories], dtype=np.bool_
    )
    is_gpu_event = np.isin(trace.role, GPU_ROLES)
    is_other_node = (trace.role == Role.SYNC) & is_node_category[trace.cat]
    return np.flatnonzero(is_gpu_event | is_other_node)


def _places_of_nodes(trace: Trace, ends: Sequence[FlowEnd]) -> _Moments:
    """Return the thread and the time of each end of a flow between nodes.

    An end on a lane without slices has the number of that lane (`_number_of_lane`) in
    place of a thread.
    """
    moments = _locate_flow_ends(trace, ends)
    for number, end in enumerate(ends):
        _, lane = end.thread
        if moments.thread[number] < 0 and isinstance(lane, int):
            moments.thread[number] = _number_of_lane(lane)
    return moments


def _number_of_lane(lane: int) -> int:
    """Return what stands for a lane without slices among the numbers of threads.

    Those of threads are 0 and more, and -1 is none, so lane 0 is -2, lane 7 is -9. What
    is no stream of a GPU gives -1.
    """
    return -2 - lane if 0 <= lane <= MAX_STREAM_ID else -1


def _threads_of_nodes(trace: Trace, rows: Rows, flows: Flows) -> Int64s:
    """Return the thread of each node in the terms of the flows, so that they match.

    A node is on the stream that ran it. Some flows instead name the lane on which the
    exporter showed the node, its arg `stream`. Nodes on such lanes get the number of
    the lane.

    Args:
        trace: The trace.
        rows: The nodes.
        flows: The flows.
    """
    threads = trace.thread_of_track[trace.track[rows]].astype(np.int64)
    threads_of_flows = np.concatenate((flows.left, flows.came))
    is_lane = threads_of_flows < -1  # see _number_of_lane
    named_lanes = threads_of_flows[is_lane]
    if not len(named_lanes):
        return threads
    shown_on = arguments(trace.elements.own, trace.order[rows], ("stream",))
    lanes = []  # of each distinct text of the arg
    for (text,) in shown_on.distinct:
        stream = parsed(text)
        lanes.append(_number_of_lane(stream) if isinstance(stream, int) else -1)
    lanes.append(-1)  # found by the number -1 of nodes without the arg
    lane = np.array(lanes, dtype=np.int64)[shown_on.number]
    return np.where(np.isin(lane, named_lanes), lane, threads)


def _only_row_at(moments: _Moments, rows: Rows, moments_of_rows: _Moments) -> Int32s:
    """Find the row that has each of some threads and times.

    Args:
        moments: The threads and times to look for.
        rows: The rows.
        moments_of_rows: The thread and the time of each row.

    Returns:
        A row for each of `moments`; -1 if no row has it, or if several have it.
    """
    key_of_row, key_of_moment = _common_keys(moments_of_rows, moments)
    by_key = np.argsort(key_of_row, kind="stable")
    with_key = equal_ranges(key_of_row[by_key], key_of_moment)
    is_only = with_key.end - with_key.first == 1
    row_of_moment = np.full(len(key_of_moment), -1, dtype=np.int32)
    row_of_moment[is_only] = rows[by_key[with_key.first[is_only]]]
    return row_of_moment


def _common_keys(a: _Moments, b: _Moments) -> tuple[Int64s, Int64s]:
    """Replace each pair of a thread and a time by one number, the same in both sets.

    Returns:
        A number for each entry of `a`, and one for each of `b`.
    """
    time = np.concatenate((a.time, b.time))
    thread = np.concatenate((a.thread, b.thread))
    # Times take up 64 bits, but their ranks leave room for the thread.
    _, rank_of_time = np.unique(time, return_inverse=True)
    key = thread * len(time) + rank_of_time.reshape(-1).astype(np.int64)
    return key[: len(a.time)], key[len(a.time) :]
