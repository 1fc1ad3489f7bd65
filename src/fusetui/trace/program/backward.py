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

import msgspec
import numpy as np

from fusetui.text.patterns import late
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
from fusetui.trace.model.intervals import Reach
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import Stop, never
from fusetui.trace.read.autograd import Autograd, FlowEnd, read_autograd, read_flows

BACKWARD = late(r"backward|bwd|autograd", re.IGNORECASE)
NODE = late(r"autograd::engine::evaluate_function: |\w+Backward\d*\Z")
"""The engine's names for the ops it runs; before 2021 they are named after their node
alone."""
ENGINE = "autograd::engine::evaluate_function: "
KEPT_AS = "autograd"
MOST = 64  # thread numbers of torch, and threads, that are compared


class Subtrees(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some rows in order, each with all rows inside it; arrays of shape [rows]."""

    rows: Int32s
    end_row: Int32s

    def over(self, asked: Integers) -> Rows:
        """For each row asked for, the index of the innermost of these rows that it is
        or lies in on its track, else -1; -1 stays -1."""
        last = np.searchsorted(self.rows, asked, side="right") - 1
        return self._reach.last(last, np.asarray(asked, dtype=np.int64))

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self.end_row.astype(np.int64))


class Backward(Subtrees, frozen=True, eq=False, dict=True):
    """The ops that ran backward."""

    forward: Int32s  # the row of the op that created the node; -1 if none was recorded
    made: Subtrees  # the ops that created a node which ran backward

    def forward_of(self, ops: Integers) -> Int32s:
        """Of each row of an op the forward op that its work belongs to, else -1."""
        linked, forward = self._linked
        return forward[linked.over(ops)]

    @cached_property
    def _linked(self) -> tuple[Subtrees, Int32s]:
        """Those whose forward op is known, and that; the last one stands for none."""
        known = self.forward >= 0
        linked = Subtrees(self.rows[known], self.end_row[known])
        return linked, np.append(self.forward[known], np.int32(-1))


def backward_ops(trace: Trace, stop: Stop = never) -> Backward:
    """The backward ops. Reads the file again if any op may belong to a backward
    pass."""
    if not may_run_backward(trace):
        return _collected(
            trace, np.full(len(trace), -1, dtype=np.int32), np.zeros(0, np.intp)
        )
    events = trace.elements.own
    found = events.recall(KEPT_AS, Autograd)
    if found is None:
        found = read_autograd(events, stop)
        if not stop():
            events.keep(KEPT_AS, found)
    return linked_by(trace, found)


def may_run_backward(trace: Trace) -> bool:
    """Whether any op may belong to a backward pass, by its name."""
    used = distinct(trace.name[trace.role == Role.OP])
    return any(BACKWARD.search(trace.names[n]) for n in used.tolist())


def linked_by(trace: Trace, autograd: Autograd) -> Backward:
    """The backward ops according to the file, or by their names if the file says
    nothing."""
    ops = trace.rows_of(Role.OP)
    rows = first_with(trace.order[ops], ops, autograd.order)
    known = rows >= 0
    rows, number, thread = rows[known], autograd.number[known], autograd.thread[known]
    # ranges of NVTX do not say the thread
    if not (thread > 0).any() and not autograd.flows:
        thread = _is_node(trace)[trace.name[rows]].astype(np.int64)
    forward = np.full(len(trace), -1, dtype=np.int32)
    back = thread > 0
    forward[rows[back]] = _by_number(trace, rows, number, thread)
    to, come_from = (_bound(trace, ends) for ends in _pairs(autograd.flows)[::-1])
    both = (to >= 0) & (come_from >= 0)  # flows with both ends on an op
    forward[to[both]] = come_from[both]
    _lift(trace, forward)
    return _collected(trace, forward, np.concatenate((rows[back], to[both])))


def _collected(trace: Trace, forward: Int32s, told: Integers) -> Backward:
    """`told`: rows that ran backward according to the file."""
    flags = _is_node(trace)[trace.name] & (trace.role == Role.OP)
    flags[told] = True
    rows = np.flatnonzero(flags).astype(np.int32)
    made = distinct(forward[rows].astype(np.int64)).astype(np.int32)
    made = made[made >= 0]
    return Backward(
        rows, trace.end_row[rows], forward[rows], Subtrees(made, trace.end_row[made])
    )


def _is_node(trace: Trace) -> Flags:
    """Which names are those of ops that run backward."""
    return trace.named(lambda name: NODE.match(name) is not None)


def _by_number(trace: Trace, rows: Int32s, number: Int64s, thread: Int64s) -> Int32s:
    """For each backward op, in order, its forward op, else -1.

    Which thread torch's number means is not recorded: it is the one of the same process
    whose ops explain most of them.
    """
    threads = trace.thread_of_track[trace.track[rows]]
    process = trace.process_of_track[trace.track[rows]]
    thread = np.where(thread > 0, thread * (len(trace.tracks) + 1) + process, 0)
    back, ahead = np.flatnonzero(thread > 0), np.flatnonzero(thread == 0)
    found = np.full(len(back), -1, dtype=np.int32)
    for name in _most(thread[back]):
        asking = np.flatnonzero(thread[back] == name)
        asked, wanted = rows[back[asking]], number[back[asking]]
        best = np.full(len(asking), -1, dtype=np.int32)
        here = ahead[process[ahead] == process[back[asking[0]]]]
        for own in _most(threads[here]):
            made = here[threads[here] == own]
            answer = _last_with(trace, rows[made], number[made], asked, wanted)
            if (answer >= 0).sum() > (best >= 0).sum():
                best = answer
        found[asking] = best
    return found


def _most(values: Integers) -> list[int]:
    """The distinct values, most frequent first; at most MOST of them."""
    distinct, counts = np.unique(values, return_counts=True)
    ranked: list[int] = distinct[np.argsort(-counts, kind="stable")].tolist()
    return ranked[:MOST]


def _last_with(
    trace: Trace, made: Int32s, numbers: Int64s, asked: Int32s, wanted: Int64s
) -> Int32s:
    """For each of `asked` the last row of `made` with its number that started before
    it, or -1."""
    order = np.lexsort((made, trace.start[made], numbers))
    made, numbers = made[order], numbers[order]
    first, end = (
        np.searchsorted(numbers, wanted, side=side) for side in ("left", "right")
    )
    known = np.flatnonzero(first < end)
    times, until = trace.start[made], trace.start[asked[known]]
    place = last_before(times, first[known], end[known] - 1, until)
    found = np.full(len(asked), -1, dtype=np.int32)
    found[known] = np.where(times[place] <= until, made[place], -1)
    return found


def _pairs(flows: Iterable[FlowEnd]) -> tuple[list[FlowEnd], list[FlowEnd]]:
    """The begins and the ends of the flows that have both."""
    begins = {flow.key: flow for flow in flows if flow.begins}
    ends = [flow for flow in flows if not flow.begins and flow.key in begins]
    return [begins[end.key] for end in ends], ends


def _places(trace: Trace, ends: Sequence[FlowEnd]) -> tuple[Int64s, Int64s]:
    """The thread of each, as `Trace.thread_of_track` numbers them, -1 for none; and its
    time."""
    lanes = ((track.pid, track.tid) for track in trace.tracks)
    numbers = dict(zip(lanes, trace.thread_of_track.tolist(), strict=True))
    thread = np.array([numbers.get(end.thread, -1) for end in ends], dtype=np.int64)
    return thread, np.array([end.time for end in ends], dtype=np.int64)


def _bound(trace: Trace, ends: Sequence[FlowEnd]) -> Int32s:
    """The op at each end of a flow: the one that starts then on its thread, or of
    several, the last one before the flow in the file; else -1."""
    thread, time = _places(trace, ends)
    order = np.array([end.order for end in ends], dtype=np.int64)
    ops = trace.rows_of(Role.OP)
    ops = ops[np.isin(trace.start[ops], time)]
    columns = (
        np.concatenate((trace.order[ops], order)),
        np.concatenate((trace.start[ops], time)),
        np.concatenate((trace.thread_of_track[trace.track[ops]], thread)),
    )
    by_place = np.lexsort(columns)
    is_op = by_place < len(ops)
    # op before each
    last = np.maximum.accumulate(np.where(is_op, np.arange(len(by_place)), -1))
    op = by_place[np.maximum(last, 0)]
    fits = (last >= 0) & (columns[1][op] == columns[1][by_place])
    fits &= columns[2][op] == columns[2][by_place]
    found = np.full(len(by_place), -1, dtype=np.int32)
    found[by_place[fits]] = np.append(ops, -1)[np.minimum(op[fits], len(ops))]
    return found[len(ops) :]


def _lift(trace: Trace, forward: Int32s) -> None:
    """The engine's op around a linked op does the same work: flows name the inner
    one."""
    engine = trace.named(lambda name: name.startswith(ENGINE))
    linked = np.flatnonzero(forward >= 0)
    over = trace.parent[linked]
    around = (over >= 0) & engine[trace.name[over]] & (forward[over] < 0)
    forward[over[around]] = forward[linked[around]]


FLOW, FIRST = "ac2g", 1 << 40  # smaller ids are those of launches
NODES = ("graph_event_node", "graph_host_node")  # besides kernels, copies and sets
WAITS = "dependencies"  # what they are kept as


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


def waits_for(found: Dependencies, row: int) -> tuple[Int32s, Int32s]:
    """The rows that are known to come before and after a node."""
    return found.before[found.after == row], found.after[found.before == row]


class Flows(msgspec.Struct, frozen=True, eq=False):
    """The `_places` where a node ends and where another one starts; arrays of shape
    [flows]."""

    left: Int64s
    ended: Int64s
    came: Int64s
    started: Int64s


@memo()
def dependencies(trace: Trace) -> Dependencies:
    """The dependencies of all replays. Reads the whole file, the first time; `once`
    keeps them."""
    events = trace.elements.own
    flows = events.recall(WAITS, Flows)
    if flows is None:
        begins, ends = _pairs(read_flows(events, never, FLOW, FIRST))
        flows = Flows(*_places_of_nodes(trace, begins), *_places_of_nodes(trace, ends))
        events.keep(WAITS, flows)
    roles = np.isin(trace.role, GPU_ROLES)
    kinds = np.array([name in NODES for name in trace.categories] or [False])
    rows = np.flatnonzero(roles | ((trace.role == Role.SYNC) & kinds[trace.cat]))
    lanes = _lanes_of_nodes(trace, rows, flows)
    before = _only_one(rows, lanes, trace.end, flows.left, flows.ended)
    after = _only_one(rows, lanes, trace.start, flows.came, flows.started)
    known: Flags = (before >= 0) & (after >= 0) & (before != after)
    known &= trace.correlation[before] == trace.correlation[after]
    return Dependencies(before[known], after[known], int((~known).sum()))


def _places_of_nodes(trace: Trace, ends: Sequence[FlowEnd]) -> tuple[Int64s, Int64s]:
    """As `_places`, but an end on a lane that no slice is on has the number of that
    lane."""
    threads, times = _places(trace, ends)
    for place, end in enumerate(ends):
        lane = end.thread[1]
        if threads[place] < 0 and isinstance(lane, int):
            threads[place] = _number_of_lane(lane)
    return threads, times


def _number_of_lane(lane: int) -> int:
    """A number beside those of threads, below -1; -1 for no lane of a GPU."""
    return -2 - lane if 0 <= lane < 1 << 32 else -1


def _lanes_of_nodes(trace: Trace, rows: Int64s, flows: Flows) -> Int64s:
    """The thread of each node; where flows name lanes without slices, the lane that the
    exporter showed it on (`args.stream`), as the node itself is on the stream that ran
    it."""
    lanes = trace.thread_of_track[trace.track[rows]].astype(np.int64)
    if not ((flows.left < -1) | (flows.came < -1)).any():
        return lanes
    streams = arguments(trace.elements.own, trace.order[rows], ("stream",))
    numbers = [parsed(text) for (text,) in streams.distinct]
    shown = [
        _number_of_lane(number) if isinstance(number, int) else -1 for number in numbers
    ]
    lane = np.array([*shown, -1], dtype=np.int64)[streams.number]
    is_asked_for = np.isin(lane, np.concatenate((flows.left, flows.came))) & (lane < -1)
    return np.where(is_asked_for, lane, lanes)


def _only_one(
    rows: Int64s, lanes: Int64s, at: Int64s, threads: Int64s, times: Int64s
) -> Int32s:
    """For each thread and time the one row of `rows` on that thread (`lanes` has those
    of the rows) whose time `at` it is; -1 if there is none, or several."""
    every = np.concatenate((at[rows], times))
    time = np.unique(every, return_inverse=True)[1].reshape(-1).astype(np.int64)
    own = lanes * len(every) + time[: len(rows)]
    asked = threads * len(every) + time[len(rows) :]
    order = np.argsort(own, kind="stable")
    first, last = (
        np.searchsorted(own[order], asked, side=side) for side in ("left", "right")
    )
    found = np.append(rows[order], -1)[np.where(last - first == 1, first, len(rows))]
    return found.astype(np.int32)
