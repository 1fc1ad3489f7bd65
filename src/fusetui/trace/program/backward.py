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
    Flags,
    Int32s,
    Int64s,
    Integers,
    Rows,
    distinct,
    first_with,
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
        """For each of `rows`, the index of the innermost of these subtrees that it lies
        in, else -1; -1 stays -1."""
        last_begun = np.searchsorted(self.rows, rows, side="right") - 1
        return self._reach.last(last_begun, np.asarray(rows, dtype=np.int64))

    @cached_property
    def _reach(self) -> EnclosingIndex:
        return EnclosingIndex(self.end_row.astype(np.int64))


class Backward(Subtrees, frozen=True, eq=False, dict=True):
    """The ops that ran backward."""

    forward: Int32s  # the row of the op that created the node; -1 if none was recorded
    forward_ops: Subtrees  # the ops that created a node which ran backward

    def forward_of(self, ops: Integers) -> Int32s:
        """Of each row of an op the forward op that its work belongs to, else -1: that
        of the innermost backward op around it whose forward op is known."""
        place = self._linked.around(ops)
        return self._forward_of_linked[place]

    @cached_property
    def _linked(self) -> Subtrees:
        """The backward ops whose forward op is known."""
        is_known = self.forward >= 0
        return Subtrees(rows=self.rows[is_known], end_row=self.end_row[is_known])

    @cached_property
    def _forward_of_linked(self) -> Int32s:
        """The forward op of each of `_linked`; then -1, which the index -1 finds."""
        return np.append(self.forward[self.forward >= 0], np.int32(-1))


def backward_ops(trace: Trace, stop: Stop = never) -> Backward:
    """The backward ops. Reads the file again if any op may belong to a backward
    pass."""
    if not may_run_backward(trace):
        no_forward = np.full(len(trace), -1, dtype=np.int32)
        return _collected(trace, no_forward, ran_backward=np.zeros(0, np.intp))
    events = trace.elements.own
    autograd = events.recall(KEPT_AS, Autograd)
    if autograd is None:
        autograd = read_autograd(events, stop)
        if not stop():  # not interrupted
            events.keep(KEPT_AS, autograd)
    return linked_by(trace, autograd)


def may_run_backward(trace: Trace) -> bool:
    """Whether any op may belong to a backward pass, by its name."""
    names_of_ops = distinct(trace.name[trace.role == Role.OP])
    return any(BACKWARD.search(trace.names[name]) for name in names_of_ops.tolist())


def linked_by(trace: Trace, autograd: Autograd) -> Backward:
    """The backward ops according to the file, or by their names if the file says
    nothing."""
    numbered = _numbered_ops(trace, autograd)
    is_backward = numbered.forward_thread > 0
    backward = numbered.only(is_backward)
    forward = np.full(len(trace), -1, dtype=np.int32)  # the forward op of each row
    forward[backward.rows] = _forward_by_number(
        trace, backward, forward=numbered.only(~is_backward)
    )
    begins, ends = _pairs(autograd.flows)
    flow_from = _ops_at(trace, begins)
    flow_to = _ops_at(trace, ends)
    links_ops = (flow_from >= 0) & (flow_to >= 0)
    ends_of_flows = flow_to[links_ops]
    forward[ends_of_flows] = flow_from[links_ops]
    _lift(trace, forward)
    ran_backward = np.concatenate((backward.rows, ends_of_flows))
    return _collected(trace, forward, ran_backward)


def _collected(trace: Trace, forward: Int32s, ran_backward: Integers) -> Backward:
    """`forward`: the forward op of each row, or -1; shape [slices]. `ran_backward`:
    rows that ran backward according to the file; by their names there may be more."""
    is_backward = _runs_backward(trace)[trace.name] & (trace.role == Role.OP)
    is_backward[ran_backward] = True
    rows = np.flatnonzero(is_backward).astype(np.int32)
    forward_rows = distinct(forward[rows])
    forward_rows = forward_rows[forward_rows >= 0]
    return Backward(
        rows=rows,
        end_row=trace.end_row[rows],
        forward=forward[rows],
        forward_ops=Subtrees(rows=forward_rows, end_row=trace.end_row[forward_rows]),
    )


def _runs_backward(trace: Trace) -> Flags:
    """Which names are those of ops that run backward; shape [names + 1]."""
    return trace.named(lambda name: NODE.match(name) is not None)


class _NumberedOps(NamedTuple):
    """Ops with a sequence number; arrays of shape [ops]."""

    rows: Int32s
    number: Int64s
    forward_thread: Int64s  # torch's number of it, of a backward op; else 0

    def only(self, which: Flags | Rows) -> _NumberedOps:
        """The ops of these rows, or with this flag."""
        return _NumberedOps(
            rows=self.rows[which],
            number=self.number[which],
            forward_thread=self.forward_thread[which],
        )


def _numbered_ops(trace: Trace, autograd: Autograd) -> _NumberedOps:
    """The ops of the trace that have a sequence number in the file."""
    ops = trace.rows_of(Role.OP)
    rows = first_with(trace.order[ops], ops, autograd.order)
    numbers_of_file = _NumberedOps(
        rows=rows, number=autograd.number, forward_thread=autograd.thread
    )
    numbered = numbers_of_file.only(rows >= 0)
    names_forward_thread = bool((numbered.forward_thread > 0).any())
    if names_forward_thread or autograd.flows:
        return numbered
    # ranges of NVTX do not say the thread; their names say that they ran backward
    runs_backward = _runs_backward(trace)[trace.name[numbered.rows]]
    return numbered._replace(forward_thread=runs_backward.astype(np.int64))


def _forward_by_number(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """For each backward op its forward op, else -1.

    Which thread torch's number of the forward thread means is not recorded: it is the
    one of the same process whose ops explain most of them.
    """
    process_of_backward = trace.process_of_track[trace.track[backward.rows]]
    process_of_forward = trace.process_of_track[trace.track[forward.rows]]
    # one number for the process and torch's number of the thread
    processes = len(trace.tracks) + 1
    torch_thread = backward.forward_thread * processes + process_of_backward
    forward_rows = np.full(len(backward.rows), -1, dtype=np.int32)
    for thread in _most_frequent(torch_thread):
        places = np.flatnonzero(torch_thread == thread)
        process = process_of_backward[places[0]]
        forward_rows[places] = _best_explained(
            trace,
            backward=backward.only(places),
            forward=forward.only(process_of_forward == process),
        )
    return forward_rows


def _best_explained(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """For each backward op its forward op, else -1. All of these are on one thread: the
    one of `forward` whose ops explain most of the backward ops."""
    best = np.full(len(backward.rows), -1, dtype=np.int32)
    most_explained = 0
    thread_of_forward = trace.thread_of_track[trace.track[forward.rows]]
    for thread in _most_frequent(thread_of_forward):
        ops_of_thread = forward.only(thread_of_forward == thread)
        forward_rows = _last_with_number(trace, backward, ops_of_thread)
        explained = int((forward_rows >= 0).sum())
        if explained > most_explained:
            best = forward_rows
            most_explained = explained
    return best


def _most_frequent(values: Integers) -> list[int]:
    """The MAX_COMPARED_THREADS most frequent of the distinct values; the most frequent
    first."""
    distinct_values, counts = np.unique(values, return_counts=True)
    by_count = np.argsort(-counts, kind="stable")
    ranked: list[int] = distinct_values[by_count].tolist()
    return ranked[:MAX_COMPARED_THREADS]


def _last_with_number(
    trace: Trace, backward: _NumberedOps, forward: _NumberedOps
) -> Int32s:
    """For each backward op the last forward op with its number that started before it,
    or at the same time; else -1."""
    start = trace.start[forward.rows]
    by_number = forward.only(np.lexsort((forward.rows, start, forward.number)))
    first = np.searchsorted(by_number.number, backward.number, side="left")
    end = np.searchsorted(by_number.number, backward.number, side="right")
    last_rows = np.full(len(backward.rows), -1, dtype=np.int32)
    with_candidates = np.flatnonzero(first < end)
    starts = trace.start[by_number.rows]
    until = trace.start[backward.rows[with_candidates]]
    place = last_before(
        starts, low=first[with_candidates], high=end[with_candidates] - 1, until=until
    )
    is_early = starts[place] <= until
    last_rows[with_candidates] = np.where(is_early, by_number.rows[place], -1)
    return last_rows


def _pairs(flows: Iterable[FlowEnd]) -> tuple[list[FlowEnd], list[FlowEnd]]:
    """The begins and the ends of the flows that have both."""
    begins = {flow.key: flow for flow in flows if flow.begins}
    ends = [flow for flow in flows if not flow.begins and flow.key in begins]
    return [begins[end.key] for end in ends], ends


class _Moments(NamedTuple):
    """Times on threads; arrays of one shape."""

    thread: Int64s
    time: Int64s


def _places(trace: Trace, ends: Sequence[FlowEnd]) -> _Moments:
    """The thread and the time of each end of a flow; a thread has the number of
    `Trace.thread_of_track`, or -1 if no slice is on it. Shape [ends]."""
    thread_of_lane: dict[Thread, int] = {}
    for track, thread in zip(trace.tracks, trace.thread_of_track.tolist(), strict=True):
        thread_of_lane[track.pid, track.tid] = thread
    threads = [thread_of_lane.get(end.thread, -1) for end in ends]
    times = [end.time for end in ends]
    return _Moments(
        thread=np.array(threads, dtype=np.int64), time=np.array(times, dtype=np.int64)
    )


def _ops_at(trace: Trace, ends: Sequence[FlowEnd]) -> Int32s:
    """The op at each end of a flow: the one that starts then on its thread, or of
    several, the last one before the flow in the file; else -1."""
    moments = _places(trace, ends)
    all_ops = trace.rows_of(Role.OP)
    ops = all_ops[np.isin(trace.start[all_ops], moments.time)]
    thread_of_op = trace.thread_of_track[trace.track[ops]]
    order_of_ends = np.array([end.order for end in ends], dtype=np.int64)
    # one list of the ops, then the ends, sorted by thread, time and order in the file
    thread = np.concatenate((thread_of_op, moments.thread))
    time = np.concatenate((trace.start[ops], moments.time))
    order = np.concatenate((trace.order[ops], order_of_ends))
    in_order = np.lexsort((order, time, thread))

    last_op = _last_op_in_order(in_order, len(ops))
    has_op = last_op >= 0
    has_op &= time[last_op] == time[in_order]
    has_op &= thread[last_op] == thread[in_order]
    is_end = in_order >= len(ops)
    ends_with_op = has_op & is_end
    op_rows = np.full(len(ends), -1, dtype=np.int32)
    op_rows[in_order[ends_with_op] - len(ops)] = ops[last_op[ends_with_op]]
    return op_rows


def _last_op_in_order(in_order: Rows, op_count: int) -> Rows:
    """For each place of `in_order` the last number below `op_count` that stands there
    or before, -1 if there is none."""
    places = np.arange(len(in_order))
    is_op = in_order < op_count
    last_place = np.maximum.accumulate(np.where(is_op, places, -1))
    return np.where(last_place >= 0, in_order[last_place], -1)


def _lift(trace: Trace, forward: Int32s) -> None:
    """Gives the engine's op around a linked op the same forward op, because it does the
    same work: flows name the inner one. `forward` has shape [slices]."""
    names_engine = trace.named(lambda name: name.startswith(ENGINE))
    linked = np.flatnonzero(forward >= 0)
    parent = trace.parent[linked]
    is_engine = (parent >= 0) & names_engine[trace.name[parent]]
    is_lifted = is_engine & (forward[parent] < 0)
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
    """The rows that are known to come before and after a node."""
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
    """The dependencies of all replays. Reads the whole file, unless the cache has
    them."""
    events = trace.elements.own
    flows = events.recall(DEPENDENCIES_KEPT_AS, Flows)
    if flows is None:
        flows = _node_flows(trace)
        events.keep(DEPENDENCIES_KEPT_AS, flows)
    rows = _node_rows(trace)
    threads = _threads_of_nodes(trace, rows, flows)
    ends = _Moments(thread=threads, time=trace.end[rows])
    starts = _Moments(thread=threads, time=trace.start[rows])
    leaves = _Moments(thread=flows.left, time=flows.ended)
    arrives = _Moments(thread=flows.came, time=flows.started)
    before = _row_at(leaves, rows, ends)
    after = _row_at(arrives, rows, starts)
    is_pair = (before >= 0) & (after >= 0) & (before != after)
    is_of_one_replay = trace.correlation[before] == trace.correlation[after]
    is_clear: Flags = is_pair & is_of_one_replay
    return Dependencies(
        before=before[is_clear],
        after=after[is_clear],
        unclear=int((~is_clear).sum()),
    )


def _node_flows(trace: Trace) -> Flows:
    """The flows between nodes of graphs; reads the whole file."""
    flow_ends = read_flows(trace.elements.own, never, NODE_FLOWS, MIN_NODE_FLOW_ID)
    begins, ends = _pairs(flow_ends)
    leaves = _places_of_nodes(trace, begins)
    arrives = _places_of_nodes(trace, ends)
    return Flows(
        left=leaves.thread,
        ended=leaves.time,
        came=arrives.thread,
        started=arrives.time,
    )


def _node_rows(trace: Trace) -> Rows:
    """All rows that may be nodes of graphs."""
    is_node_category = np.array(
        [category in NODE_CATEGORIES for category in trace.categories], dtype=np.bool_
    )
    is_gpu_event = np.isin(trace.role, GPU_ROLES)
    is_other_node = (trace.role == Role.SYNC) & is_node_category[trace.cat]
    return np.flatnonzero(is_gpu_event | is_other_node)


def _places_of_nodes(trace: Trace, ends: Sequence[FlowEnd]) -> _Moments:
    """As `_places`, but an end on a lane that no slice is on has the number of that
    lane."""
    moments = _places(trace, ends)
    for number, end in enumerate(ends):
        _, lane = end.thread
        if moments.thread[number] < 0 and isinstance(lane, int):
            moments.thread[number] = _number_of_lane(lane)
    return moments


def _number_of_lane(lane: int) -> int:
    """The number of a lane without slices, which is below -1, as those of threads are
    not; -1 for what is no lane of a GPU."""
    return -2 - lane if 0 <= lane <= MAX_STREAM_ID else -1


def _threads_of_nodes(trace: Trace, rows: Rows, flows: Flows) -> Int64s:
    """The thread of each node; where flows name lanes without slices, the lane that the
    exporter showed it on (`args.stream`), as the node itself is on the stream that ran
    it."""
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
    lanes.append(-1)  # of nodes without the arg
    lane = np.array(lanes, dtype=np.int64)[shown_on.number]
    return np.where(np.isin(lane, named_lanes), lane, threads)


def _row_at(moments: _Moments, rows: Rows, moments_of_rows: _Moments) -> Int32s:
    """For each moment the one row with that thread and time; -1 if there is none, or
    several. `moments_of_rows` has the moment of each of `rows`."""
    time = np.concatenate((moments_of_rows.time, moments.time))
    thread = np.concatenate((moments_of_rows.thread, moments.thread))
    _, number_of_time = np.unique(time, return_inverse=True)
    # one number for the thread and the time
    key = thread * len(time) + number_of_time.reshape(-1).astype(np.int64)
    key_of_row = key[: len(rows)]
    key_of_moment = key[len(rows) :]

    by_key = np.argsort(key_of_row, kind="stable")
    sorted_keys = key_of_row[by_key]
    first = np.searchsorted(sorted_keys, key_of_moment, side="left")
    end = np.searchsorted(sorted_keys, key_of_moment, side="right")
    is_only = end - first == 1
    row_of_moment = np.full(len(first), -1, dtype=np.int32)
    row_of_moment[is_only] = rows[by_key[first[is_only]]]
    return row_of_moment
