"""Sums up the critical path in a few rows, and finds what has time to spare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates, effective_ns
from fusetui.analysis.questions.loaders import loader_rows
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.replay import last_of, replay
from fusetui.analysis.replay.route import LAG, OWN, Route, residual_share, route_to
from fusetui.analysis.why.account import line_of
from fusetui.analysis.why.kernels import by_text
from fusetui.analysis.why.model import DeviceResidual
from fusetui.analysis.why.thread_activity import (
    LAYERS,
    ThreadActivity,
    Threads,
    merged_slices,
)
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.model.intervals import Cover, pieces, without
from fusetui.trace.model.memo import memo

Kind = Literal["host", "launch", "kernel", "copy", "communication", "wait", "residual"]
MAX_ROWS = 12
MAX_GROUPS = 8
"""Of kernels, and of ops, of which slack is told."""
MAX_REPLAYED_NODES = 400_000
"""Of a graph that is replayed dozens of times."""
MAX_TRIES = 32
"""Replays to find the slack of one group."""
NOTHING_RECORDED = -1


class PathRow(msgspec.Struct, frozen=True):
    """The parts of the critical path of one kind and name.

    `what` is the name of the kernel or call, or that of the innermost op, Python frame
    or annotation. It is "" for several names, for time without a recording, and for
    parts without a name: latency (launch) and switches from item to item (wait).
    """

    kind: Kind
    what: str
    count: int
    ns: int
    share: float


class Slack(msgspec.Struct, frozen=True):
    """The time that all kernels of a kind, or an op on its thread, have to spare.

    They could take so much longer in total without delaying the end, if all took longer
    by the same factor.
    """

    what: str
    kind: Literal["kernel", "op"]
    ns: int


class Path(msgspec.Struct, frozen=True):
    """The critical path; the rows, of which the longest come first, add up to
    `span_ns`."""

    span_ns: int
    rows: tuple[PathRow, ...]
    slack: tuple[Slack, ...]
    slack_left_out: bool  # as the trace is too large for it
    devices: tuple[DeviceResidual, ...]
    residual_share: float  # the largest of all devices
    inferred_waits: int


@memo()
def path(trace: Trace) -> Path:
    """Return the critical path of a trace as recorded."""
    graph = graph_of(trace)
    route = route_to(graph, graph.recorded)
    devices = residuals_of(trace)
    is_too_large = len(graph) > MAX_REPLAYED_NODES
    return Path(
        span_ns=route.span_ns,
        rows=rows_of(trace, graph, route),
        slack=() if is_too_large else _slack(trace, graph, route),
        slack_left_out=is_too_large,
        devices=devices,
        residual_share=max((device.residual_share for device in devices), default=0.0),
        inferred_waits=graph.inferred_waits,
    )


@memo()
def residuals_of(trace: Trace) -> tuple[DeviceResidual, ...]:
    """Return for each device the share of its time that the replay does not understand."""
    graph = graph_of(trace)
    devices = dict.fromkeys(chain.device for chain in graph.chains if chain.is_stream)
    residuals = []
    for device in devices:
        share = residual_share(graph, graph.recorded, device)
        residuals.append(DeviceResidual(exact_id(device), share))
    return tuple(residuals)


class _Total(NamedTuple):
    """The sum of the stretches of the critical path of one kind and name."""

    kind: Kind
    name: str
    events: int
    ns: int


def rows_of(trace: Trace, graph: Graph, route: Route) -> tuple[PathRow, ...]:
    """Sum up the stretches of a path by kind and name.

    Returns:
        At most MAX_ROWS rows, the longest first. What does not get a row of its own is
        one row for each kind.
    """
    totals_of_nodes = _of_nodes(trace, graph, route)
    totals_of_threads = _of_threads(trace, graph, route)
    totals = _summed([*totals_of_nodes, *totals_of_threads])
    totals = [total for total in totals if total.ns]
    totals.sort(key=lambda total: (-total.ns, total.kind, total.name))

    kept = _kept_totals(totals)
    nameless = [total._replace(name="") for total in totals[kept:]]
    rows = []
    for total in _summed([*totals[:kept], *nameless]):
        row = PathRow(
            kind=total.kind,
            what=total.name,
            count=total.events,
            ns=total.ns,
            share=total.ns / route.span_ns,
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.kind, row.what)))


def _kept_totals(totals: list[_Total]) -> int:
    """Return how many of the first totals get rows of their own.

    They are as many as leave room, within MAX_ROWS, for one row for each kind of the
    other totals.
    """
    kept = len(totals)
    while kept:
        kinds_left = {total.kind for total in totals[kept:]}
        if kept + len(kinds_left) <= MAX_ROWS:
            break
        kept -= 1
    return kept


def _summed(totals: list[_Total]) -> list[_Total]:
    """Add up the totals of each kind and name, in the order of their first ones."""
    sums: dict[tuple[Kind, str], _Total] = {}
    for total in totals:
        key = (total.kind, total.name)
        if key in sums:
            before = sums[key]
            total = total._replace(
                events=before.events + total.events, ns=before.ns + total.ns
            )
        sums[key] = total
    return list(sums.values())


def _of_nodes(trace: Trace, graph: Graph, route: Route) -> Iterator[_Total]:
    """Yield the totals of everything but the threads' own time.

    These are items and calls by their names, then what comes before them.
    """
    kind = graph.kind[route.node]
    row = graph.row[route.node]
    does_something = route.part == OWN
    is_item = kind == Node.ITEM
    is_communication = np.zeros(len(kind), dtype=np.bool_)
    is_communication[is_item] = communicates(trace, row[is_item])
    is_kernel = trace.role[row] == Role.KERNEL
    is_computing = is_item & ~is_communication

    stretches_of_kind: dict[Kind, Flags] = {
        "kernel": is_computing & is_kernel,
        "copy": is_computing & ~is_kernel,
        "communication": is_communication,
        "launch": kind == Node.LAUNCH,
        "wait": kind == Node.WAIT,
    }
    for name_of_kind, stretches in stretches_of_kind.items():
        yield from _by_name(
            trace, graph, route, name_of_kind, does_something & stretches
        )
    yield from _before_nodes(trace, graph, route)


def _before_nodes(trace: Trace, graph: Graph, route: Route) -> Iterator[_Total]:
    """Yield the totals of what comes before nodes.

    These are the latency of launches, waits, delays that are not understood, and the
    loading of batches, under the name of the first call that loads one.
    """
    kind = graph.kind[route.node]
    is_lag = route.part == LAG
    follows_thread = graph.kind[np.roll(route.node, 1)] == Node.HOST
    is_latency = is_lag & (kind == Node.ITEM) & follows_thread
    is_batch = np.isin(route.node, graph.batches.node)
    arrives = is_batch | (kind == Node.MARK)
    is_loading = is_lag & arrives & (route.ns > 0)

    yield _nameless(route, "launch", is_latency)
    yield _nameless(route, "wait", is_lag & ~is_latency & ~is_loading)
    yield _nameless(route, "residual", ~is_lag & (route.part != OWN))
    if is_loading.any():
        first = int(loader_rows(trace)[0])
        loading = _nameless(route, "host", is_loading)
        yield loading._replace(name=trace.name_of(first))


def _by_name(
    trace: Trace, graph: Graph, route: Route, kind: Kind, is_counted: Flags
) -> Iterator[_Total]:
    """Yield the totals of flagged stretches, by the names of their calls or items."""
    stretches = np.flatnonzero(is_counted & (route.ns > 0))
    rows = graph.row[route.node[stretches]].astype(np.intp)
    for name, (events, ns) in by_text(trace, rows, route.ns[stretches], str).items():
        yield _Total(kind, name, events, ns)


def _nameless(route: Route, kind: Kind, is_counted: Flags) -> _Total:
    """Return the total of flagged stretches that have no name."""
    ns = route.ns[is_counted & (route.ns > 0)]
    return _Total(kind, "", events=len(ns), ns=int(ns.sum()))


class HostTimes(NamedTuple):
    """The own time of threads, in parts that each lie in one innermost slice."""

    node: Rows
    row: Rows  # the innermost slice, -1: nothing was recorded
    ns: Int64s  # in the time of the graph, see TimeScale


def host_parts(trace: Trace, graph: Graph, nodes: Rows) -> HostTimes:
    """Divide the own time of threads by what they were doing.

    Each moment counts for the innermost op or Python frame, or else for the innermost
    annotation. Calls are nodes of their own and do not count.

    Args:
        trace: The trace.
        graph: Its graph.
        nodes: The nodes to divide. Only those of own time count.
    """
    parts = _OwnTimes()
    own_time = nodes[(graph.kind[nodes] == Node.HOST) & (graph.lasted[nodes] > 0)]
    for chain in distinct(graph.chain[own_time]).tolist():
        nodes_of_thread = np.sort(own_time[graph.chain[own_time] == chain])
        _add_parts_of_thread(parts, trace, graph, chain, nodes_of_thread)

    # Stretch the parts as the time scales of their threads say.
    node = np.concatenate(parts.node)
    start = np.concatenate(parts.start)
    end = np.concatenate(parts.end)
    ns = np.zeros(len(node), dtype=np.int64)
    for chain, scale in enumerate(graph.time_scales):
        is_of_chain = graph.chain[node] == chain
        until_end = scale.elapsed_until(end[is_of_chain])
        ns[is_of_chain] = until_end - scale.elapsed_until(start[is_of_chain])
    return HostTimes(node=node, row=np.concatenate(parts.row), ns=ns)


class _OwnTimes:
    """Collects the own time of threads in parts.

    Each list has one array for each call of `add`. Times are ns of the graph.
    """

    def __init__(self) -> None:
        self.node: list[Rows] = [np.empty(0, dtype=np.intp)]
        self.row: list[Rows] = [np.empty(0, dtype=np.intp)]
        self.start: list[Int64s] = [np.empty(0, dtype=np.int64)]
        self.end: list[Int64s] = [np.empty(0, dtype=np.int64)]

    def add(self, node: Rows, row: Rows, start: Int64s, end: Int64s) -> None:
        """Add parts; the four arrays have one entry per part."""
        self.node.append(node)
        self.row.append(row)
        self.start.append(start)
        self.end.append(end)


def _add_parts_of_thread(
    parts: _OwnTimes, trace: Trace, graph: Graph, chain: int, nodes: Rows
) -> None:
    """Add the parts of the nodes of one thread.

    First come those in ops and Python frames, then of what is left those in
    annotations, and last the time in which nothing was recorded.

    Args:
        parts: Where to add them.
        trace: The trace.
        graph: Its graph.
        chain: The thread, a chain of the graph.
        nodes: Its nodes, in order.
    """
    began = graph.began[nodes]
    remaining = Cover(began, graph.ended[nodes])

    def node_at(start: Int64s) -> Rows:
        """Return the node in which each time lies."""
        return nodes[np.searchsorted(began, start, side="right") - 1]

    for line, offset in line_of(trace, graph.chains[chain].thread):
        shift = -graph.origin_ns - offset  # from the line's time to the graph's
        for kinds in LAYERS[1:]:
            on_line = Cover(remaining.start - shift, remaining.end - shift)
            inside = _inside_slices(line, kinds, on_line)
            parts.add(
                node=node_at(remaining.start[inside.place]),
                row=inside.row,
                start=inside.start + shift,
                end=inside.end + shift,
            )
            in_slices = Cover(inside.slices.start + shift, inside.slices.end + shift)
            remaining = without(remaining, in_slices)

    parts.add(
        node=node_at(remaining.start),
        row=np.full(len(remaining.start), NOTHING_RECORDED),
        start=remaining.start,
        end=remaining.end,
    )


class _InsideSlices(NamedTuple):
    """The parts of some intervals that lie in slices; times in ns of the line."""

    place: Rows  # the index of the interval
    row: Rows  # the innermost slice
    start: Int64s
    end: Int64s
    slices: Cover  # what is innermost, within and around the intervals


def _inside_slices(
    line: Threads, kinds: Sequence[ThreadActivity], intervals: Cover
) -> _InsideSlices:
    """Return the parts of intervals in which a slice of some kinds is innermost.

    Parts of no length are left out.
    """
    touching = []
    for kind in kinds:
        slices = line.slices(kind)
        touching.append(slices.touching(intervals.start, intervals.end))
    innermost = merged_slices(touching).parts()
    slices_cover = Cover(innermost.start, innermost.end)

    inside, interval = pieces(intervals, slices_cover)
    has_length = inside.start < inside.end
    start = inside.start[has_length]
    index_of_slice = innermost.end.searchsorted(start, side="right")
    return _InsideSlices(
        place=interval[has_length],
        row=innermost.rows[index_of_slice],
        start=start,
        end=inside.end[has_length],
        slices=slices_cover,
    )


def _of_threads(trace: Trace, graph: Graph, route: Route) -> Iterator[_Total]:
    """Yield the totals of the threads' own time, by what is innermost.

    If only a part of a node lies on the path, it is the last part.
    """
    is_own_time = (graph.kind[route.node] == Node.HOST) & (route.part == OWN)
    stretches = np.flatnonzero(is_own_time & (route.ns > 0))
    if not len(stretches):
        return
    node = route.node[stretches]
    on_path_ns = np.zeros(len(graph), dtype=np.int64)
    on_path_ns[node] = route.ns[stretches]

    parts = _last_first(host_parts(trace, graph, node))
    counted_ns = _counted(parts, on_path_ns)
    counts = counted_ns > 0
    row = parts.row[counts]
    counted_ns = counted_ns[counts]
    has_name = row != NOTHING_RECORDED
    names = by_text(trace, row[has_name], counted_ns[has_name], str)
    for name, (events, ns) in names.items():
        yield _Total("host", name, events, ns)

    nameless_ns = counted_ns[~has_name]
    yield _Total("host", "", events=len(nameless_ns), ns=int(nameless_ns.sum()))


def _last_first(parts: HostTimes) -> HostTimes:
    """Sort parts by node, the last part of each node first."""
    order = np.lexsort((-np.arange(len(parts.node)), parts.node))
    return HostTimes(node=parts.node[order], row=parts.row[order], ns=parts.ns[order])


def _counted(parts: HostTimes, limit_ns: Int64s) -> Int64s:
    """Return how much of each part counts, if only the end of each node does.

    Args:
        parts: The parts by node, the last part of each node first.
        limit_ns: For each node of the graph, how much of it counts from its end back.

    Returns:
        ns per part.
    """
    sums = np.cumsum(parts.ns)
    first_of_node = np.searchsorted(parts.node, parts.node)
    sum_before_node = (sums - parts.ns)[first_of_node]

    # How far the begin and the end of each part lie before the end of its node.
    begin_before_end = sums - sum_before_node
    end_before_end = begin_before_end - parts.ns
    limit = limit_ns[parts.node]
    counted: Int64s = np.minimum(begin_before_end, limit) - np.minimum(
        end_before_end, limit
    )
    return counted


def _slack(trace: Trace, graph: Graph, route: Route) -> tuple[Slack, ...]:
    """Return the slack of the largest families of kernels and of the largest ops.

    The one with the most slack comes first.
    """
    slack_of_kernels = _slack_by_name(
        graph,
        route,
        kind="kernel",
        times=_kernel_times(trace, graph),
        names=[_family(name) for name in trace.names],
    )
    slack_of_ops = _slack_by_name(
        graph,
        route,
        kind="op",
        times=_op_times(trace, graph),
        names=list(trace.names),
    )
    slack = [*slack_of_kernels, *slack_of_ops]
    return tuple(sorted(slack, key=lambda each: (-each.ns, each.kind, each.what)))


class _NamedTimes(NamedTuple):
    """How long nodes take under a name; a node may be repeated."""

    node: Rows
    ns: Int64s
    name: NDArray[np.integer]  # its index in Trace.names


def _kernel_times(trace: Trace, graph: Graph) -> _NamedTimes:
    """Return the effective times of all kernels."""
    items = graph.nodes(Node.ITEM)
    kernels = items[trace.role[graph.row[items]] == Role.KERNEL]
    rows = graph.row[kernels].astype(np.intp)
    effective_of_row = np.zeros(len(trace), dtype=np.int64)
    effective_of_row[trace.gpu_rows] = effective_ns(trace)
    return _NamedTimes(node=kernels, ns=effective_of_row[rows], name=trace.name[rows])


def _op_times(trace: Trace, graph: Graph) -> _NamedTimes:
    """Return the own time of threads in ops."""
    parts = host_parts(trace, graph, graph.nodes(Node.HOST))
    is_in_op = (parts.row >= 0) & (trace.role[parts.row] == Role.OP)
    return _NamedTimes(
        node=parts.node[is_in_op],
        ns=parts.ns[is_in_op],
        name=trace.name[parts.row[is_in_op]],
    )


def _family(name: str) -> str:
    """Return the op or the family of a kernel; its name if it is not recognized."""
    kernel = decode(name)
    if kernel is None:
        return name
    return kernel.op or kernel.family or name


def _slack_by_name(
    graph: Graph,
    route: Route,
    *,
    kind: Literal["kernel", "op"],
    times: _NamedTimes,
    names: list[str],
) -> Iterator[Slack]:
    """Yield the slack of the MAX_GROUPS names that take the most time.

    Args:
        graph: The graph.
        route: Its critical path. What lies on it has no slack.
        kind: What the names are of.
        times: How long nodes take under a name.
        names: For each of Trace.names the name that counts; several may be the same.
    """
    group_of_text = {name: group for group, name in enumerate(dict.fromkeys(names))}
    group_of_name = np.array([group_of_text[name] for name in names] or [0])
    group_of_time = group_of_name[times.name]
    group_ns = np.bincount(group_of_time, times.ns, minlength=len(group_of_text))
    largest = np.argsort(-group_ns, kind="stable")[:MAX_GROUPS]

    group_names = list(group_of_text)
    end = int(graph.ended.max())
    for group in largest.tolist():
        is_of_group = group_of_time == group
        ns_of_node = summed(times.node[is_of_group], times.ns[is_of_group], len(graph))
        if not ns_of_node.any():
            continue
        is_critical = ns_of_node[route.node].any()
        spare_ns = 0 if is_critical else _spare(graph, ns_of_node, end)
        yield Slack(what=group_names[group], kind=kind, ns=spare_ns)


def _spare(graph: Graph, extra: Int64s, end: int) -> int:
    """Find how much longer nodes could take in all before the end is delayed.

    They are made longer by a factor of `extra`. The end is convex in the factor, so
    Newton's method comes down to the largest one that does not delay it.

    Args:
        graph: The graph.
        extra: By how many ns each node is made longer at the factor 1.
        end: The end that must not be delayed, in ns after the origin.
    """
    factor = (end + 1) / int(extra.max())
    for _ in range(MAX_TRIES):
        longer_ns = np.floor(extra * factor).astype(np.int64)
        slower = msgspec.structs.replace(graph, dur=graph.dur + longer_ns)
        times = replay(slower)
        last = last_of(slower, times)
        late_ns = int(times.end[last]) - end
        if late_ns <= 0:
            return int(longer_ns.sum())
        on_path = distinct(route_to(slower, times, last).node)
        late_ns_per_factor = int(extra[on_path].sum())
        factor = max(0.0, factor - late_ns / late_ns_per_factor)
    return 0
