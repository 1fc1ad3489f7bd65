"""Which forward op the work of a backward pass belongs to.

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
        """The forward op of each of `_linked`; then -1, for none."""
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
    backward_rows = numbered.rows[is_backward]
    forward = np.full(len(trace), -1, dtype=np.int32)  # the forward op of each row
    forward[backward_rows] = _forward_by_number(
        trace, backward=numbered.only(is_backward), forward=numbered.only(~is_backward)
    )
    begins, ends = _pairs(autograd.flows)
    flow_from = _ops_at(trace, begins)
    flow_to = _ops_at(trace, ends)
    links_ops = (flow_from >= 0) & (flow_to >= 0)
    forward[flow_to[links_ops]] = flow_from[links_ops]
    _lift(trace, forward)
    ran_backward = np.concatenate((backward_rows, flow_to[links_ops]))
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
        return _NumberedOps(
            rows=self.rows[which],
            number=self.number[which],
            forward_thread=self.forward_thread[which],
        )


def _numbered_ops(trace: Trace, autograd: Autograd) -> _NumberedOps:
    ops = trace.rows_of(Role.OP)
    rows = first_with(trace.order[ops], ops, autograd.order)
    ops_of_file = _NumberedOps(
        rows=rows, number=autograd.number, forward_thread=autograd.thread
    )
    numbered = ops_of_file.only(rows >= 0)
    if (numbered.forward_thread > 0).any() or autograd.flows:
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
    thread_of_forward = trace.thread_of_track[trace.track[forward.rows]]
    # of the process and torch's number together
    processes = len(trace.tracks) + 1
    torch_thread = backward.forward_thread * processes + process_of_backward
    forward_rows = np.full(len(backward.rows), -1, dtype=np.int32)
    for thread in _most_frequent(torch_thread):
        places = np.flatnonzero(torch_thread == thread)
        ops = backward.only(places)
        in_process = process_of_forward == process_of_backward[places[0]]
        best = np.full(len(places), -1, dtype=np.int32)
        for candidate in _most_frequent(thread_of_forward[in_process]):
            on_candidate = in_process & (thread_of_forward == candidate)
            explained = _last_with_number(trace, ops, forward.only(on_candidate))
            if (explained >= 0).sum() > (best >= 0).sum():
                best = explained
        forward_rows[places] = best
    return forward_rows


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
    order = np.lexsort((forward.rows, trace.start[forward.rows], forward.number))
    forward_rows = forward.rows[order]
    numbers = forward.number[order]
    first = np.searchsorted(numbers, backward.number, side="left")
    end = np.searchsorted(numbers, backward.number, side="right")
    with_candidates = np.flatnonzero(first < end)
    starts = trace.start[forward_rows]
    until = trace.start[backward.rows[with_candidates]]
    place = last_before(
        starts, low=first[with_candidates], high=end[with_candidates] - 1, until=until
    )
    last_rows = np.full(len(backward.rows), -1, dtype=np.int32)
    is_early = starts[place] <= until
    last_rows[with_candidates] = np.where(is_early, forward_rows[place], -1)
    return last_rows


def _pairs(flows: Iterable[FlowEnd]) -> tuple[list[FlowEnd], list[FlowEnd]]:
    """The begins and the ends of the flows that have both."""
    begins = {flow.key: flow for flow in flows if flow.begins}
    ends = [flow for flow in flows if not flow.begins and flow.key in begins]
    return [begins[end.key] for end in ends], ends


def _places(trace: Trace, ends: Sequence[FlowEnd]) -> tuple[Int64s, Int64s]:
    """The thread of each, as `Trace.thread_of_track` numbers them, -1 for none; and its
    time."""
    thread_of_lane: dict[Thread, int] = {}
    for track, thread in zip(trace.tracks, trace.thread_of_track.tolist(), strict=True):
        thread_of_lane[track.pid, track.tid] = thread
    threads = [thread_of_lane.get(end.thread, -1) for end in ends]
    times = [end.time for end in ends]
    return np.array(threads, dtype=np.int64), np.array(times, dtype=np.int64)


def _ops_at(trace: Trace, ends: Sequence[FlowEnd]) -> Int32s:
    """The op at each end of a flow: the one that starts then on its thread, or of
    several, the last one before the flow in the file; else -1."""
    threads, times = _places(trace, ends)
    ops = trace.rows_of(Role.OP)
    ops = ops[np.isin(trace.start[ops], times)]
    # ops and ends of flows in one list, sorted by thread, time and order in the file
    order_of_ends = np.array([end.order for end in ends], dtype=np.int64)
    order = np.concatenate((trace.order[ops], order_of_ends))
    time = np.concatenate((trace.start[ops], times))
    thread = np.concatenate((trace.thread_of_track[trace.track[ops]], threads))
    by_place = np.lexsort((order, time, thread))
    time = time[by_place]
    thread = thread[by_place]
    is_op = by_place < len(ops)
    positions = np.arange(len(by_place))
    last_op = np.maximum.accumulate(np.where(is_op, positions, -1))
    has_op = (last_op >= 0) & (time[last_op] == time) & (thread[last_op] == thread)
    is_end = has_op & ~is_op
    op_rows = np.full(len(ends), -1, dtype=np.int32)
    op_rows[by_place[is_end] - len(ops)] = ops[by_place[last_op[is_end]]]
    return op_rows


def _lift(trace: Trace, forward: Int32s) -> None:
    """Gives the engine's op around a linked op the same forward op, because it does the
    same work: flows name the inner one. `forward` has shape [slices]."""
    is_of_engine = trace.named(lambda name: name.startswith(ENGINE))
    linked = np.flatnonzero(forward >= 0)
    around = trace.parent[linked]
    lifted = (around >= 0) & is_of_engine[trace.name[around]] & (forward[around] < 0)
    forward[around[lifted]] = forward[linked[lifted]]


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
    before = _row_at(_Moments(flows.left, flows.ended), rows, threads, trace.end[rows])
    after = _row_at(
        _Moments(flows.came, flows.started), rows, threads, trace.start[rows]
    )
    is_clear: Flags = (before >= 0) & (after >= 0) & (before != after)
    is_clear &= trace.correlation[before] == trace.correlation[after]
    return Dependencies(
        before=before[is_clear],
        after=after[is_clear],
        unclear=int((~is_clear).sum()),
    )


def _node_flows(trace: Trace) -> Flows:
    """Reads the whole file."""
    flow_ends = read_flows(trace.elements.own, never, NODE_FLOWS, MIN_NODE_FLOW_ID)
    begins, ends = _pairs(flow_ends)
    left, ended = _places_of_nodes(trace, begins)
    came, started = _places_of_nodes(trace, ends)
    return Flows(left=left, ended=ended, came=came, started=started)


def _node_rows(trace: Trace) -> Rows:
    """All rows that may be nodes of graphs."""
    is_node_category = np.array(
        [category in NODE_CATEGORIES for category in trace.categories], dtype=np.bool_
    )
    is_gpu_event = np.isin(trace.role, GPU_ROLES)
    is_other_node = (trace.role == Role.SYNC) & is_node_category[trace.cat]
    return np.flatnonzero(is_gpu_event | is_other_node)


def _places_of_nodes(trace: Trace, ends: Sequence[FlowEnd]) -> tuple[Int64s, Int64s]:
    """As `_places`, but an end on a lane that no slice is on has the number of that
    lane."""
    threads, times = _places(trace, ends)
    for place, end in enumerate(ends):
        _, lane = end.thread
        if threads[place] < 0 and isinstance(lane, int):
            threads[place] = _number_of_lane(lane)
    return threads, times


def _number_of_lane(lane: int) -> int:
    """The number of a lane without slices, which is below -1, as those of threads are
    not; -1 for what is no lane of a GPU."""
    return -2 - lane if 0 <= lane <= MAX_STREAM_ID else -1


def _threads_of_nodes(trace: Trace, rows: Rows, flows: Flows) -> Int64s:
    """The thread of each node; where flows name lanes without slices, the lane that the
    exporter showed it on (`args.stream`), as the node itself is on the stream that ran
    it."""
    threads = trace.thread_of_track[trace.track[rows]].astype(np.int64)
    named = np.concatenate((flows.left, flows.came))
    named_lanes = named[named < -1]
    if not len(named_lanes):
        return threads
    read = arguments(trace.elements.own, trace.order[rows], ("stream",))
    lane_of_stream = []  # by the distinct texts of the arg
    for (text,) in read.distinct:
        stream = parsed(text)
        is_number = isinstance(stream, int)
        lane_of_stream.append(_number_of_lane(stream) if is_number else -1)
    lane_of_stream.append(-1)  # of nodes without the arg
    lane = np.array(lane_of_stream, dtype=np.int64)[read.number]
    return np.where(np.isin(lane, named_lanes), lane, threads)


class _Moments(NamedTuple):
    """Times on threads; arrays of one shape."""

    thread: Int64s
    time: Int64s


def _row_at(moments: _Moments, rows: Rows, threads: Int64s, times: Int64s) -> Int32s:
    """For each moment the one row with that thread and time; -1 if there is none, or
    several. `threads` and `times` are those of `rows`."""
    all_times = np.concatenate((times, moments.time))
    _, number = np.unique(all_times, return_inverse=True)
    number_of_time = number.reshape(-1).astype(np.int64)
    key_of_row = threads * len(all_times) + number_of_time[: len(rows)]
    key = moments.thread * len(all_times) + number_of_time[len(rows) :]
    order = np.argsort(key_of_row, kind="stable")
    first = np.searchsorted(key_of_row[order], key, side="left")
    end = np.searchsorted(key_of_row[order], key, side="right")
    none = len(rows)
    place = np.where(end - first == 1, first, none)
    return np.append(rows[order], -1)[place].astype(np.int32)
