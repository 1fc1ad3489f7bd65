"""What a replay takes its time for: the critical path in a few rows, and what has time
to spare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.busy import communicates, effective_ns
from fusetui.analysis.questions.loaders import loader_rows
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.replay import (
    LAG,
    OWN,
    Route,
    last_of,
    replay,
    residual_share,
    route_to,
)
from fusetui.analysis.why.account import line_of
from fusetui.analysis.why.host import LAYERS, together
from fusetui.analysis.why.kernels import by_text
from fusetui.analysis.why.model import DeviceResidual
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.arrays import Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.model.intervals import Cover, pieces, without
from fusetui.trace.model.memo import memo, once

Kind = Literal["host", "launch", "kernel", "copy", "communication", "wait", "residual"]
MOST_ROWS = 12
MOST_GROUPS = 8  # of kernels, and of ops, of which slack is told
MOST_REPLAYED = 400_000  # nodes of a graph that is replayed dozens of times
MOST_TRIES = 32


class PathRow(msgspec.Struct, frozen=True):
    """Stretches of the critical path of one kind. `what`: the name of the kernel, of
    the call, or of the innermost op, Python frame or annotation; "" for several, for
    time in which nothing was recorded, and for what has no name: latency (launch),
    switches from item to item (wait)."""

    kind: Kind
    what: str
    count: int
    ns: int
    share: float


class Slack(msgspec.Struct, frozen=True):
    """How much longer all kernels of a family, or an op on its thread, could take
    together without moving the end, if each took longer by the same factor."""

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
    graph = once(trace, graph_of)
    route = route_to(graph, graph.recorded)
    devices = residuals_of(trace)
    large = len(graph) > MOST_REPLAYED
    return Path(
        span_ns=int(route.ns.sum()),
        rows=rows_of(trace, graph, route),
        slack=() if large else tuple(_slack(trace, graph, route)),
        slack_left_out=large,
        devices=devices,
        residual_share=max((one.residual_share for one in devices), default=0.0),
        inferred_waits=graph.inferred_waits,
    )


@memo()
def residuals_of(trace: Trace) -> tuple[DeviceResidual, ...]:
    graph = once(trace, graph_of)
    devices = dict.fromkeys(chain.device for chain in graph.chains if chain.is_stream)
    return tuple(
        DeviceResidual(exact_id(one), residual_share(graph, graph.recorded, one))
        for one in devices
    )


def rows_of(trace: Trace, graph: Graph, route: Route) -> tuple[PathRow, ...]:
    """The stretches of a route by kind and name, at most MOST_ROWS; what is left of
    each kind is one row."""
    total: dict[tuple[Kind, str], list[int]] = {}
    for kind, name, count, ns in (
        *_by_node(trace, graph, route),
        *_by_host(trace, graph, route),
    ):
        one = total.setdefault((kind, name), [0, 0])
        one[0] += count
        one[1] += ns
    ordered = sorted(total.items(), key=lambda one: (-one[1][1], one[0]))
    ordered = [one for one in ordered if one[1][1]]
    kept = len(ordered)
    while kept and kept + len({key[0] for key, _ in ordered[kept:]}) > MOST_ROWS:
        kept -= 1
    folded = dict(ordered[:kept])
    for (kind, _), (count, ns) in ordered[kept:]:
        before = folded.get((kind, ""), [0, 0])
        folded[kind, ""] = [before[0] + count, before[1] + ns]
    span = int(route.ns.sum())
    rows = (PathRow(k, what, n, ns, ns / span) for (k, what), (n, ns) in folded.items())
    return tuple(sorted(rows, key=lambda row: (-row.ns, row.kind, row.what)))


Told = tuple[Kind, str, int, int]  # kind, name, count and ns


def _by_node(trace: Trace, graph: Graph, route: Route) -> Iterator[Told]:
    """What is no host's own time."""
    node, ns = route.node, route.ns
    kind, row = graph.kind[node], graph.row[node]
    items, own = kind == Node.ITEM, route.part == OWN
    moves = np.zeros(len(node), dtype=np.bool_)
    moves[items] = communicates(trace, row[items])
    kernel = trace.role[row] == Role.KERNEL
    lag = route.part == LAG
    # by the node before
    launched = lag & items & (graph.kind[np.roll(node, 1)] == Node.HOST)
    by_worker = np.isin(node, graph.batches.node)
    loads = lag & (by_worker | (kind == Node.MARK)) & (ns > 0)
    groups: tuple[tuple[Kind, bool, Rows], ...] = (
        ("kernel", True, np.flatnonzero(own & items & kernel & ~moves)),
        ("copy", True, np.flatnonzero(own & items & ~kernel & ~moves)),
        ("communication", True, np.flatnonzero(own & items & moves)),
        ("launch", True, np.flatnonzero(own & (kind == Node.LAUNCH))),
        ("wait", True, np.flatnonzero(own & (kind == Node.WAIT))),
        ("launch", False, np.flatnonzero(launched)),
        ("wait", False, np.flatnonzero(lag & ~launched & ~loads)),
        ("residual", False, np.flatnonzero(~lag & ~own)),
    )
    for name, named, which in groups:
        which = which[ns[which] > 0]
        if named:
            told = by_text(trace, row[which].astype(np.intp), ns[which], str)
            yield from ((name, what, *found) for what, found in told.items())
        else:
            yield name, "", len(which), int(ns[which].sum())
    if loads.any():
        first = int(loader_rows(trace)[0])
        yield "host", trace.name_of(first), int(loads.sum()), int(ns[loads].sum())


class HostTimes(NamedTuple):
    node: Rows
    row: Rows  # the innermost slice, -1: nothing was recorded
    ns: Int64s  # at the pace of the graph


def host_parts(trace: Trace, graph: Graph, nodes: Rows) -> HostTimes:
    """By the innermost op or Python frame, else the innermost annotation."""
    found = [(nodes[:0], nodes[:0], graph.began[:0], graph.began[:0])]
    nodes = nodes[(graph.kind[nodes] == Node.HOST) & (graph.lasted[nodes] > 0)]
    for chain in distinct(graph.chain[nodes]).tolist():
        own = np.sort(nodes[graph.chain[nodes] == chain])
        rest = Cover(graph.began[own], graph.ended[own])
        for line, offset in line_of(trace, graph.chains[chain].thread):
            shift = -graph.origin_ns - offset
            for kinds in LAYERS[1:]:
                placed = Cover(rest.start - shift, rest.end - shift)
                slices = together(
                    [line.slices(k).touching(*placed[:2]) for k in kinds]
                ).parts()
                (start, end, _), place = pieces(placed, Cover(slices.start, slices.end))
                known = start < end
                start, end, place = start[known], end[known], place[known]
                row = slices.rows[slices.end.searchsorted(start, side="right")]
                of = (
                    np.searchsorted(graph.began[own], rest.start[place], side="right")
                    - 1
                )
                found.append((own[of], row, start + shift, end + shift))
                rest = without(rest, Cover(slices.start + shift, slices.end + shift))
        of = own[np.searchsorted(graph.began[own], rest.start, side="right") - 1]
        found.append((of, np.full(len(of), -1), rest.start, rest.end))
    node, row, start, end = map(np.concatenate, zip(*found, strict=True))
    ns = np.zeros(len(node), dtype=np.int64)
    for chain, scale in enumerate(graph.time_scales):
        mine = graph.chain[node] == chain
        ns[mine] = scale.until(end[mine]) - scale.until(start[mine])
    return HostTimes(node, row, ns)


def _by_host(trace: Trace, graph: Graph, route: Route) -> Iterator[Told]:
    """The own time of threads, by what is innermost. A node of which only a part lies
    in the route counts with the last of its parts."""
    own = np.flatnonzero((graph.kind[route.node] == Node.HOST) & (route.part == OWN))
    own = own[route.ns[own] > 0]
    if not len(own):
        return
    parts = host_parts(trace, graph, route.node[own])
    # of each node the last first
    order = np.lexsort((-np.arange(len(parts.node)), parts.node))
    node, row, ns = (column[order] for column in parts)
    left = np.zeros(len(graph), dtype=np.int64)
    left[route.node[own]] = route.ns[own]
    until = np.cumsum(ns)
    until -= (until - ns)[np.searchsorted(node, node)]
    ns = np.minimum(until, left[node]) - np.minimum(until - ns, left[node])
    row, ns = row[ns > 0], ns[ns > 0]
    told = by_text(trace, row[row >= 0], ns[row >= 0], str)
    yield from (("host", what, *found) for what, found in told.items())
    yield "host", "", int((row < 0).sum()), int(ns[row < 0].sum())


def _slack(trace: Trace, graph: Graph, route: Route) -> Iterator[Slack]:
    """Of the largest families of kernels and ops; the most first."""
    items = graph.nodes(Node.ITEM)
    items = items[trace.role[graph.row[items]] == Role.KERNEL]
    effective = np.zeros(len(trace), dtype=np.int64)
    effective[trace.gpu_rows] = effective_ns(trace)
    parts = host_parts(trace, graph, graph.nodes(Node.HOST))
    in_op = (parts.row >= 0) & (trace.role[parts.row] == Role.OP)
    found, end = list[Slack](), int(graph.ended.max())
    kinds: tuple[tuple[Literal["kernel", "op"], Rows, Rows, Int64s], ...] = (
        (
            "kernel",
            items,
            graph.row[items].astype(np.intp),
            effective[graph.row[items]],
        ),
        ("op", parts.node[in_op], parts.row[in_op], parts.ns[in_op]),
    )
    for kind, nodes, rows, ns in kinds:
        decoded = (
            map(decode, trace.names) if kind == "kernel" else [None] * len(trace.names)
        )
        families = ((one.op or one.family) if one else "" for one in decoded)
        name = [own or name for own, name in zip(families, trace.names, strict=True)]
        numbers = {text: n for n, text in enumerate(dict.fromkeys(name))}
        of_name = np.array([numbers[text] for text in name] or [0])
        group = of_name[trace.name[rows]]
        sums = np.bincount(group, ns, minlength=len(numbers))
        texts = [*numbers]
        for number in np.argsort(-sums, kind="stable")[:MOST_GROUPS].tolist():
            extra = summed(nodes[group == number], ns[group == number], len(graph))
            if extra.any():
                spare = 0 if extra[route.node].any() else _spare(graph, extra, end)
                found.append(Slack(texts[number], kind, spare))
    yield from sorted(found, key=lambda one: (-one.ns, one.kind, one.what))


def _spare(graph: Graph, extra: Int64s, end: int) -> int:
    """How much longer nodes could take, in proportion to `extra`, before the end moves
    (ns in all). The end is convex in the factor, so Newton's method comes down to the
    largest one."""
    factor = (end + 1) / int(extra.max())
    for _ in range(MOST_TRIES):
        longer = np.floor(extra * factor).astype(np.int64)
        slower = msgspec.structs.replace(graph, dur=graph.dur + longer)
        times = replay(slower)
        last = last_of(slower, times)
        late = int(times.end[last]) - end
        if late <= 0:
            return int(longer.sum())
        slope = int(extra[distinct(route_to(slower, times, last).node)].sum())
        factor = max(0.0, factor - late / slope)
    return 0
