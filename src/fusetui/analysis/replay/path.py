"""Summarizes the critical path in a few rows, and finds work with slack.

The critical path and its stretches are defined in route.py; the words node, task and
lane in graph.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates, measure_effective_ns
from fusetui.analysis.questions.loaders import find_loader_calls
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.replay import find_last_node, replay
from fusetui.analysis.replay.route import (
    CriticalPath,
    StretchKind,
    find_critical_path,
    measure_residual_share,
)
from fusetui.analysis.why.account import find_axis
from fusetui.analysis.why.kernels import add_up_by_text
from fusetui.analysis.why.model import DeviceResidual
from fusetui.analysis.why.thread_activity import (
    LAYERS,
    ThreadActivity,
    Threads,
    merge_slices,
)
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Rows,
    distinct,
    last_at_or_before,
    prefix_sums,
    summed,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.model.intervals import Cover, pieces, without
from fusetui.trace.model.memo import memo

Kind = Literal["host", "launch", "kernel", "copy", "communication", "wait", "residual"]
MAX_ROWS = 12
MAX_GROUPS = 8
"""For how many names of kernels, and of ops, the slack is computed."""
MAX_REPLAYED_NODES = 400_000
"""The slack of names takes dozens of replays; it is left out of a larger graph."""
MAX_TRIES = 32
"""How many replays the slack of one name may take."""
NOTHING_RECORDED = -1
"""In place of the row of a slice: nothing was recorded then."""


class PathRow(msgspec.Struct, frozen=True):
    """The stretches of the critical path of one kind and name.

    `what` is the name of the kernel or call, or that of the innermost op, Python frame
    or annotation. It is "" for several names together, for time in which nothing was
    recorded, and for delays: the latency of launches (launch) and the switches from one
    GPU event to the next (wait).
    """

    kind: Kind
    what: str
    count: int  # how many stretches or slices
    ns: int
    share: float  # of the path, from 0 to 1


class Slack(msgspec.Struct, frozen=True):
    """The slack of all kernels of one kind, or of one op.

    All of them could take so much longer in total without delaying the end, if each
    took longer by the same factor. Of an op, the time on its thread counts.
    """

    what: str
    kind: Literal["kernel", "op"]
    ns: int


class Path(msgspec.Struct, frozen=True):
    """The critical path of a trace as recorded, summed up."""

    span_ns: int
    rows: tuple[PathRow, ...]  # the longest first; they add up to `span_ns`
    slack: tuple[Slack, ...]
    slack_left_out: bool  # whether the trace is too large for `slack`
    devices: tuple[DeviceResidual, ...]
    residual_share: float  # the largest one of all devices
    inferred_waits: int


@memo()
def path(trace: Trace) -> Path:
    """Compute the critical path of a trace as recorded: what its end waited for, back
    to its begin.

    It is summed up by kind and name. The slack, by how much other work could be slower,
    is left out of traces with more than MAX_REPLAYED_NODES nodes.
    """
    graph = build_graph(trace)
    critical_path = find_critical_path(graph, graph.recorded)
    devices = measure_residuals(trace)
    is_too_large = len(graph) > MAX_REPLAYED_NODES
    return Path(
        span_ns=critical_path.span_ns,
        rows=sum_up_path(trace, graph, critical_path),
        slack=() if is_too_large else _list_slack(trace, graph, critical_path),
        slack_left_out=is_too_large,
        devices=devices,
        residual_share=max((device.residual_share for device in devices), default=0.0),
        inferred_waits=graph.inferred_waits,
    )


@memo()
def measure_residuals(trace: Trace) -> tuple[DeviceResidual, ...]:
    """Measure for each device how much of its critical path is not understood.

    That is the share, from 0 to 1, of delays whose reason was not recorded.
    """
    graph = build_graph(trace)
    devices = dict.fromkeys(lane.device for lane in graph.lanes if lane.is_stream)
    residuals = []
    for device in devices:
        share = measure_residual_share(graph, graph.recorded, device)
        residuals.append(DeviceResidual(exact_id(device), share))
    return tuple(residuals)


class _Total(NamedTuple):
    """The stretches of the critical path of one kind and name, added up."""

    kind: Kind
    name: str  # "" for stretches without a name
    events: int  # how many stretches, or slices in them
    ns: int


def sum_up_path(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> tuple[PathRow, ...]:
    """Sum up the stretches of a path by kind and name.

    Args:
        trace: The trace.
        graph: Its graph, as recorded or changed.
        critical_path: The path, as stretches that belong to nodes.

    Returns:
        At most MAX_ROWS rows, the longest first. Names that get no row of their own are
        added up in one row without a name for each kind.
    """
    every_total = [
        *_sum_up_gpu_and_calls(trace, graph, critical_path),
        *_sum_up_delays(trace, graph, critical_path),
        *_sum_up_threads(trace, graph, critical_path),
    ]
    totals = [total for total in _merge_totals(every_total) if total.ns]
    totals.sort(key=lambda total: (-total.ns, total.kind, total.name))

    named_rows = _count_named_rows(totals)
    nameless = [total._replace(name="") for total in totals[named_rows:]]
    rows = []
    for total in _merge_totals([*totals[:named_rows], *nameless]):
        row = PathRow(
            kind=total.kind,
            what=total.name,
            count=total.events,
            ns=total.ns,
            share=total.ns / critical_path.span_ns,
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.kind, row.what)))


def _count_named_rows(totals: list[_Total]) -> int:
    """Count how many of the first totals get rows of their own.

    The others are added up in one row for each kind. All rows together are at most
    MAX_ROWS (12): of 20 totals, 10 get rows of their own if the others are of 2 kinds.

    Args:
        totals: The totals, the longest first.
    """
    named_rows = len(totals)
    while named_rows:
        other_kinds = {total.kind for total in totals[named_rows:]}
        if named_rows + len(other_kinds) <= MAX_ROWS:
            break
        named_rows -= 1
    return named_rows


def _merge_totals(totals: list[_Total]) -> list[_Total]:
    """Add up the totals of the same kind and name.

    Returns:
        One total per kind and name, in the order of their first ones.
    """
    sums: dict[tuple[Kind, str], _Total] = {}
    for total in totals:
        key = (total.kind, total.name)
        if key not in sums:
            sums[key] = total
            continue

        sum_so_far = sums[key]
        sums[key] = total._replace(
            events=sum_so_far.events + total.events, ns=sum_so_far.ns + total.ns
        )
    return list(sums.values())


def _sum_up_gpu_and_calls(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> Iterator[_Total]:
    """Yield how much of a path is kernels, copies and sets, and calls, by their names.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
    """
    kind = graph.kind[critical_path.node]
    row = graph.row[critical_path.node]
    is_work = critical_path.stretch_kind == StretchKind.WORK
    is_gpu_task = kind == Node.GPU_TASK
    is_communication = np.zeros(len(kind), dtype=np.bool_)
    is_communication[is_gpu_task] = communicates(trace, row[is_gpu_task])
    is_kernel = trace.role[row] == Role.KERNEL
    is_other_task = is_gpu_task & ~is_communication

    stretches_of_kind: dict[Kind, Flags] = {
        "kernel": is_other_task & is_kernel,
        "copy": is_other_task & ~is_kernel,
        "communication": is_communication,
        "launch": kind == Node.LAUNCH,
        "wait": kind == Node.WAIT,
    }
    for kind_of_row, is_of_kind in stretches_of_kind.items():
        yield from _sum_up_by_name(
            trace, graph, critical_path, kind_of_row, is_counted=is_work & is_of_kind
        )


def _sum_up_delays(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> Iterator[_Total]:
    """Yield how much of a path is delays between the end of one node and the next.

    There are three sorts: the latency from a launch call to its kernel, other known
    delays such as the switch between two kernels, and delays whose reason is not known.
    If a thread waits for a batch that workers load, the delay counts as time of the
    CPU, under the name of the first call in the trace that loads a batch.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
    """
    kind = graph.kind[critical_path.node]
    is_known_delay = critical_path.stretch_kind == StretchKind.KNOWN_DELAY
    is_unknown_delay = critical_path.is_unexplained

    # A kernel that comes after the time of a thread on the path waited for its launch.
    follows_thread = graph.kind[np.roll(critical_path.node, 1)] == Node.CPU_WORK
    is_latency = is_known_delay & (kind == Node.GPU_TASK) & follows_thread
    # After the change `loader`, it is the mark at which the batch arrives that waits.
    takes_batch = np.isin(critical_path.node, graph.batches.node) | (kind == Node.MARK)
    is_loading = is_known_delay & takes_batch & (critical_path.ns > 0)
    is_switch = is_known_delay & ~is_latency & ~is_loading

    yield _make_nameless_total(critical_path, "launch", is_latency)
    yield _make_nameless_total(critical_path, "wait", is_switch)
    yield _make_nameless_total(critical_path, "residual", is_unknown_delay)
    if is_loading.any():
        first_load = int(find_loader_calls(trace)[0])
        loading = _make_nameless_total(critical_path, "host", is_loading)
        yield loading._replace(name=trace.name_of(first_load))


def _sum_up_by_name(
    trace: Trace,
    graph: Graph,
    critical_path: CriticalPath,
    kind: Kind,
    *,
    is_counted: Flags,
) -> Iterator[_Total]:
    """Yield the totals of some stretches of a critical path by the names of their
    slices.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
        kind: The kind of the totals.
        is_counted: True for the stretches that count, all of calls or GPU tasks; one
            flag per stretch.
    """
    has_length = critical_path.ns > 0
    stretches = np.flatnonzero(is_counted & has_length)
    nodes = critical_path.node[stretches]
    rows = graph.row[nodes].astype(np.intp)
    sums = add_up_by_text(trace, rows, critical_path.ns[stretches], str)
    for name, (events, ns) in sums.items():
        yield _Total(kind=kind, name=name, events=events, ns=ns)


def _make_nameless_total(
    critical_path: CriticalPath, kind: Kind, is_counted: Flags
) -> _Total:
    """Make the total of some stretches of a path that have no name, such as delays.

    Args:
        critical_path: The path, as stretches that belong to nodes.
        kind: The kind of the total.
        is_counted: True for the stretches that count; one flag per stretch.
    """
    ns = critical_path.ns[is_counted & (critical_path.ns > 0)]
    return _Total(kind=kind, name="", events=len(ns), ns=int(ns.sum()))


class HostTimes(NamedTuple):
    """The own time of threads in parts, each of which lies in one innermost slice.

    There is one entry per part.
    """

    node: Rows  # the node (CPU_WORK) that the part belongs to
    row: Rows  # the innermost slice, a row of the trace, or NOTHING_RECORDED
    ns: Int64s  # how long the part takes with the time scale of its thread


def divide_thread_time(trace: Trace, graph: Graph, nodes: Rows) -> HostTimes:
    """Divide the own time of threads by what they were doing.

    Each moment counts for the innermost op or Python frame. If there is none, it counts
    for the innermost annotation. Calls are nodes of their own and do not count.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        nodes: The nodes to divide. Those that are no CPU_WORK are ignored.
    """
    is_own_time = graph.kind[nodes] == Node.CPU_WORK
    has_length = graph.lasted[nodes] > 0
    own_time = nodes[is_own_time & has_length]
    lane_of_node = graph.lane[own_time]

    parts = _OwnTimes()
    for lane in distinct(lane_of_node).tolist():
        nodes_of_thread = np.sort(own_time[lane_of_node == lane])
        _add_parts_of_thread(parts, trace, graph, lane, nodes_of_thread)

    # Stretch the parts as the time scales of their threads say. A thread is one lane.
    node = np.concatenate(parts.node)
    start = np.concatenate(parts.start)
    end = np.concatenate(parts.end)
    ns = np.zeros(len(node), dtype=np.int64)
    for lane, scale in enumerate(graph.time_scales):
        is_of_lane = graph.lane[node] == lane
        until_start = scale.elapsed_until(start[is_of_lane])
        until_end = scale.elapsed_until(end[is_of_lane])
        ns[is_of_lane] = until_end - until_start
    return HostTimes(node=node, row=np.concatenate(parts.row), ns=ns)


class _OwnTimes:
    """Collects parts of the own time of threads.

    Each list has one array for each call of `add`. The fields are those of HostTimes;
    times are recorded ns after the origin.
    """

    def __init__(self) -> None:
        # An empty array each, because np.concatenate takes no empty list.
        self.node: list[Rows] = [np.empty(0, dtype=np.intp)]
        self.row: list[Rows] = [np.empty(0, dtype=np.intp)]
        self.start: list[Int64s] = [np.empty(0, dtype=np.int64)]
        self.end: list[Int64s] = [np.empty(0, dtype=np.int64)]

    def add(self, node: Rows, row: Rows, start: Int64s, end: Int64s) -> None:
        """Add parts of the own time of threads; the four arrays have one entry per
        part.

        Args:
            node: The node of the graph in which each part lies.
            row: The innermost slice in each part, NOTHING_RECORDED for none.
            start: When each part starts, in ns after the origin.
            end: When each part ends.
        """
        self.node.append(node)
        self.row.append(row)
        self.start.append(start)
        self.end.append(end)


def _add_parts_of_thread(
    parts: _OwnTimes, trace: Trace, graph: Graph, lane: int, nodes: Rows
) -> None:
    """Divide the own time of one thread by what it was doing.

    Ops and Python frames come first. Of the time outside of these, what lies in
    annotations comes next, and last the time in which nothing was recorded. E.g. own
    time from 0 to 10 ns, an op from 2 to 5 and an annotation from 0 to 8 ns give 3 ns
    of the op, 5 ns of the annotation, and 2 ns of nothing.

    Args:
        parts: The parts of all threads so far; those of this one are added, in place.
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        lane: The thread, an index in Graph.lanes.
        nodes: Its nodes of own time (CPU_WORK), in order.
    """
    began = graph.began[nodes]
    remaining = Cover(began, graph.ended[nodes])

    def node_at(start: Int64s) -> Rows:
        """Return the node in which each time lies."""
        return nodes[last_at_or_before(began, start)]

    for threads, offset in find_axis(trace, graph.lanes[lane].thread):
        # To be added to times of the axis, for times after the origin.
        axis_to_graph_ns = -graph.origin_ns - offset
        # The first of LAYERS are calls, which are nodes of their own.
        for activities in LAYERS[1:]:
            inside = _find_parts_in_slices(
                threads, activities, remaining.shifted(-axis_to_graph_ns)
            )
            parts.add(
                node=node_at(remaining.start[inside.interval]),
                row=inside.row,
                start=inside.start + axis_to_graph_ns,
                end=inside.end + axis_to_graph_ns,
            )
            remaining = without(remaining, inside.slices.shifted(axis_to_graph_ns))

    parts.add(
        node=node_at(remaining.start),
        row=np.full(len(remaining.start), NOTHING_RECORDED),
        start=remaining.start,
        end=remaining.end,
    )


class _InsideSlices(NamedTuple):
    """The parts of some intervals that lie in slices; times in ns of the line.

    There is one entry per part, except in `slices`.
    """

    interval: Rows  # the index of the interval that the part belongs to
    row: Rows  # the innermost slice
    start: Int64s
    end: Int64s
    # When any slice is innermost, also where it reaches beyond the intervals.
    slices: Cover


def _find_parts_in_slices(
    line: Threads, activities: Sequence[ThreadActivity], intervals: Cover
) -> _InsideSlices:
    """Find the parts of intervals in which a slice of some activities is innermost.

    Parts of no length are left out.

    Args:
        line: The slices of a thread.
        activities: What the slices may be, such as ops and Python frames.
        intervals: The intervals, in ns of the line.
    """
    touching_slices = []
    for activity in activities:
        slices = line.find_slices(activity)
        touching_slices.append(slices.select_touching(intervals.start, intervals.end))
    innermost = merge_slices(touching_slices).cut_innermost_parts()
    slices_cover = Cover(innermost.start, innermost.end)

    parts_inside, interval = pieces(intervals, slices_cover)
    has_length = parts_inside.start < parts_inside.end
    start = parts_inside.start[has_length]
    # The innermost slice of a part is the first one that ends after the part starts.
    index_of_slice = innermost.end.searchsorted(start, side="right")
    return _InsideSlices(
        interval=interval[has_length],
        row=innermost.rows[index_of_slice],
        start=start,
        end=parts_inside.end[has_length],
        slices=slices_cover,
    )


def _sum_up_threads(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> Iterator[_Total]:
    """Yield how much of a path is the own time of threads, by the innermost slice.

    A moment counts for the op, Python frame or annotation that is innermost then. If
    only a part of a node lies on the path, it is the last part, because the node ends
    when the path goes on.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        critical_path: The path, as stretches that belong to nodes.
    """
    is_of_thread = graph.kind[critical_path.node] == Node.CPU_WORK
    is_own_time = is_of_thread & (critical_path.stretch_kind == StretchKind.WORK)
    stretches = np.flatnonzero(is_own_time & (critical_path.ns > 0))
    if not len(stretches):
        return
    node = critical_path.node[stretches]
    on_path_ns = np.zeros(len(graph), dtype=np.int64)
    on_path_ns[node] = critical_path.ns[stretches]

    parts = _sort_last_first(divide_thread_time(trace, graph, node))
    part_on_path_ns = _measure_parts_on_path(parts, on_path_ns)
    is_on_path = part_on_path_ns > 0
    is_in_slice = parts.row != NOTHING_RECORDED

    has_name = is_on_path & is_in_slice
    sums = add_up_by_text(trace, parts.row[has_name], part_on_path_ns[has_name], str)
    for name, (events, ns) in sums.items():
        yield _Total(kind="host", name=name, events=events, ns=ns)

    nameless_ns = part_on_path_ns[is_on_path & ~is_in_slice]
    yield _Total(
        kind="host", name="", events=len(nameless_ns), ns=int(nameless_ns.sum())
    )


def _sort_last_first(parts: HostTimes) -> HostTimes:
    """Sort parts of the time of threads by node, the last part of each node first.

    A node is a stretch of a thread between two calls, which several ops and frames
    divide into parts.
    """
    last_first = -np.arange(len(parts.node))
    order = np.lexsort((last_first, parts.node))
    return HostTimes(node=parts.node[order], row=parts.row[order], ns=parts.ns[order])


def _measure_parts_on_path(parts: HostTimes, on_path_ns: Int64s) -> Int64s:
    """Measure how much of each part lies on a path, if only the end of its node does.

    E.g. a node has parts of 5 ns (the last one) and 10 ns, and its last 8 ns lie on the
    path: so do 5 ns of the last part and 3 ns of the other.

    Args:
        parts: The parts by node, the last part of each node first.
        on_path_ns: For each node of the graph, how much of its end lies on the path.

    Returns:
        ns per part.
    """
    # How long the later parts of the same node take. In `parts`, they come before.
    sums: Int64s = prefix_sums(parts.ns)
    first_of_node = np.searchsorted(parts.node, parts.node)
    later_parts_ns = sums[:-1] - sums[first_of_node]

    # What these leave of the path is on the part, up to its own length.
    remaining_path_ns = on_path_ns[parts.node] - later_parts_ns
    return np.asarray(np.clip(remaining_path_ns, 0, parts.ns))


def _list_slack(
    trace: Trace, graph: Graph, critical_path: CriticalPath
) -> tuple[Slack, ...]:
    """List the slack of the kernels and of the ops that take the most time.

    The slack is how much longer they could take without delaying the end. Kernels are
    grouped by what they do, such as all matrix products.

    Returns:
        At most MAX_GROUPS of both sorts, the most slack first.
    """
    slack_of_kernels = _find_slack_by_name(
        graph,
        critical_path,
        kind="kernel",
        times=_measure_kernel_times(trace, graph),
        group_of_name=[_read_family(name) for name in trace.names],
    )
    slack_of_ops = _find_slack_by_name(
        graph,
        critical_path,
        kind="op",
        times=_measure_op_times(trace, graph),
        group_of_name=list(trace.names),
    )
    slack = [*slack_of_kernels, *slack_of_ops]
    return tuple(sorted(slack, key=lambda each: (-each.ns, each.kind, each.what)))


class _NamedTimes(NamedTuple):
    """How long nodes take under a name; one entry per node and part of it."""

    node: Rows
    ns: Int64s
    name: NDArray[np.integer]  # an index in Trace.names


def _measure_kernel_times(trace: Trace, graph: Graph) -> _NamedTimes:
    """Measure the effective time of each kernel: without what overlaps the kernel
    before it."""
    effective_of_row = np.zeros(len(trace), dtype=np.int64)
    effective_of_row[trace.gpu_rows] = measure_effective_ns(trace)

    tasks = graph.gpu_tasks
    rows_of_tasks = graph.row[tasks].astype(np.intp)
    is_kernel = trace.role[rows_of_tasks] == Role.KERNEL
    rows = rows_of_tasks[is_kernel]
    return _NamedTimes(
        node=tasks[is_kernel], ns=effective_of_row[rows], name=trace.name[rows]
    )


def _measure_op_times(trace: Trace, graph: Graph) -> _NamedTimes:
    """Measure the own time of threads in ops, in parts.

    A part is the time in one op between two CUDA calls. The own time is without these
    calls.
    """
    parts = divide_thread_time(trace, graph, graph.nodes(Node.CPU_WORK))
    is_recorded = parts.row != NOTHING_RECORDED
    # NOTHING_RECORDED looks up the last slice of the trace, which is not used.
    is_in_op = is_recorded & (trace.role[parts.row] == Role.OP)
    rows_of_ops = parts.row[is_in_op]
    return _NamedTimes(
        node=parts.node[is_in_op],
        ns=parts.ns[is_in_op],
        name=trace.name[rows_of_ops],
    )


def _read_family(name: str) -> str:
    """Read from the name of a kernel what it computes, such as "gemm".

    That is its op, or else its family. It is the name itself if it is not recognized.
    """
    kernel = decode(name)
    if kernel is None:
        return name
    return kernel.op or kernel.family or name


def _find_slack_by_name(
    graph: Graph,
    critical_path: CriticalPath,
    *,
    kind: Literal["kernel", "op"],
    times: _NamedTimes,
    group_of_name: list[str],
) -> Iterator[Slack]:
    """Yield the slack of the MAX_GROUPS groups of names that take the most time.

    The slack of a group is how much longer all of it could take without delaying the
    end.

    Args:
        graph: The work as nodes, with what each of them waits for.
        critical_path: Its critical path. A group of which anything lies on it has no
            slack.
        kind: What the names are of.
        times: How long nodes take under a name.
        group_of_name: For each of Trace.names the group in which it counts.
    """
    groups = list(dict.fromkeys(group_of_name))
    index_by_group = {group: index for index, group in enumerate(groups)}
    # At least one entry, because an empty array would be one of floats.
    index_of_name = np.array([index_by_group[group] for group in group_of_name] or [0])
    index_of_time = index_of_name[times.name]
    ns_of_group = np.bincount(index_of_time, times.ns, minlength=len(groups))
    largest_first = np.argsort(-ns_of_group, kind="stable")

    end = int(graph.ended.max())
    for index in largest_first[:MAX_GROUPS].tolist():
        is_of_group = index_of_time == index
        ns_of_node = summed(times.node[is_of_group], times.ns[is_of_group], len(graph))
        if not ns_of_node.any():
            continue
        is_critical = ns_of_node[critical_path.node].any()
        slack_ns = 0 if is_critical else _measure_slack_of_nodes(graph, ns_of_node, end)
        yield Slack(what=groups[index], kind=kind, ns=slack_ns)


def _measure_slack_of_nodes(graph: Graph, ns_of_node: Int64s, end: int) -> int:
    """Find how much longer some nodes could take in total without delaying the end.

    Each node is made longer by `factor` times its ns. The delay of the end grows ever
    faster with the factor (it is convex). So Newton's method, from a factor that is too
    large, comes down to the largest factor without a delay.

    Args:
        graph: The work as nodes, with what each of them waits for.
        ns_of_node: By how many ns each node of the graph is made longer at the
            factor 1; 0 for the nodes that stay as they are.
        end: When the replay ends now, in ns after the origin.

    Returns:
        ns; 0 if MAX_TRIES replays do not suffice to find it.
    """
    # With this factor, the longest one of these nodes alone would take too long.
    factor = (end + 1) / int(ns_of_node.max())
    for _ in range(MAX_TRIES):
        longer_ns = np.floor(ns_of_node * factor).astype(np.int64)
        slower = msgspec.structs.replace(graph, dur=graph.dur + longer_ns)
        times = replay(slower)
        last = find_last_node(slower, times)
        late_ns = int(times.end[last]) - end
        if late_ns <= 0:
            return int(longer_ns.sum())

        # The end is late by what the nodes on the critical path take longer.
        on_path = distinct(find_critical_path(slower, times, last).node)
        late_ns_per_factor = int(ns_of_node[on_path].sum())
        factor = max(0.0, factor - late_ns / late_ns_per_factor)
    return 0
