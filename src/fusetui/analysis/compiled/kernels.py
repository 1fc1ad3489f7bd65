"""Which call in the generated wrapper each recorded kernel is of.

Within a graph, the n-th kernel of a name is the n-th call of that name, if a call of the
graph recorded as many as its wrapper has. Where the counts differ, all calls of the name
are possible.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.compiled.graphs import (
    GraphJoin,
    JoinedBy,
    JoinedCalls,
    Why,
    are_equal,
    joined_calls,
)
from fusetui.analysis.compiled.lines import lines_of_graph
from fusetui.analysis.compiled.regions import (
    NONE,
    CalledKernels,
    RegionsOfTrace,
    regions_of,
    wrapper_name,
)
from fusetui.trace.compile_log.log import (
    CompiledGraph,
    CompileLog,
    stacks_of,
    wrapper_in,
)
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.compile_log.wrapper import KernelCall, Wrapper
from fusetui.trace.model.arrays import Int32s, Int64s, Rows, at, ordinals
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.memo import memo


class KernelOfGraph(msgspec.Struct, frozen=True):
    """One kind of items: a kernel of a graph that is joined with the same calls of its
    wrapper; or what could not be joined, for one reason."""

    join: GraphJoin
    name: str  # as the wrapper writes it; as it was recorded where it is not joined
    calls: tuple[KernelCall, ...]  # of the wrapper; several: each of them is possible
    lines: tuple[CodeLine, ...]  # behind these calls
    why_not: Why | None  # None: `lines` are known

    @property
    def is_possible(self) -> bool:
        """Whether the recorded counts do not tell which of several calls it is."""
        return len(self.calls) > 1

    @property
    def is_joined(self) -> bool:
        return self.why_not is None


class JoinedKernels(msgspec.Struct, frozen=True, eq=False):
    """`kernel_of_item`: for each item of the trace its place in `kernels`; shape
    [items]."""

    trace: Trace
    regions: RegionsOfTrace
    calls: JoinedCalls
    kernels: tuple[KernelOfGraph, ...]
    kernel_of_item: Int32s

    @property
    def items(self) -> CalledKernels:
        return self.regions.items

    def of_item(self, item: int) -> KernelOfGraph:
        return self.kernels[int(self.kernel_of_item[item])]

    def item_ns(self) -> Int64s:
        """The GPU time of each item, of one without GPU events the time of its op;
        shape [items]."""
        trace, items = self.trace, self.items
        gpu_ns = np.zeros(len(items), dtype=np.int64)
        of_items = np.flatnonzero(items.item_of_gpu_event >= 0)
        events = trace.gpu_rows[of_items]
        np.add.at(gpu_ns, items.item_of_gpu_event[of_items], trace.dur[events])
        cpu_ns = trace.dur[items.spans.rows]
        return np.where(items.has_gpu_events, gpu_ns, cpu_ns)


@memo(2)
def joined_kernels(trace: Trace, log: CompileLog | None) -> JoinedKernels:
    """The kernels of the compiled regions of a trace, joined with the log."""
    regions = regions_of(trace)
    calls = joined_calls(regions, log)
    kinds = _kinds_of_items(trace, regions, calls, log)
    joins = (*calls.joins, OUTSIDE)
    places: dict[tuple[GraphJoin, str, tuple[KernelCall, ...]], int] = {}
    kernels: list[KernelOfGraph] = []
    kernel_of_kind: list[int] = []
    for kind in kinds.distinct:
        join = joins[kind.join]
        if join.graph is None and kind.file and log is not None:
            join = _by_kernel_file(log, join, kind.file)
        name = regions.items.names[kind.name]
        kernel = _kernel(log, join, name, place=kind.place, count=kind.items)
        key = (kernel.join, kernel.name, kernel.calls)
        if key not in places:
            places[key] = len(kernels)
            kernels.append(kernel)
        kernel_of_kind.append(places[key])
    numbers = np.array(kernel_of_kind, dtype=np.int32)
    return JoinedKernels(
        trace=trace,
        regions=regions,
        calls=calls,
        kernels=tuple(kernels),
        kernel_of_item=numbers[kinds.kind_of_item],
    )


OUTSIDE = GraphJoin(key="", compile_id=None, graph=None, by=None, why_not=Why.OUTSIDE)
"""Of items outside of calls of graphs."""


class _ItemKind(NamedTuple):
    """Items that are joined in the same way."""

    join: int  # index into JoinedCalls.joins, its length for items outside of calls
    name: int  # index into CalledKernels.names
    place: int  # among the items of this name in one call of a graph
    items: int  # how many those are
    file: str  # kernel_file, where it is needed; else ""


class _ItemKinds(NamedTuple):
    """The kinds of all items, each once."""

    distinct: list[_ItemKind]
    kind_of_item: Rows  # shape [items]


def _kinds_of_items(
    trace: Trace, regions: RegionsOfTrace, calls: JoinedCalls, log: CompileLog | None
) -> _ItemKinds:
    """Items of one kind have the same join, name and file, and the same place among
    equally many items of that name in a call of a graph."""
    items = regions.items
    outside = len(calls.joins)
    join_of_item = at(calls.join_of_call, items.call, missing=outside)
    call_and_name = items.call.astype(np.int64) * max(1, len(items.names)) + items.name
    place_in_call = ordinals(call_and_name)
    _, group, items_of_group = np.unique(
        call_and_name, return_inverse=True, return_counts=True
    )
    files, file_of_item = _kernel_files(trace, items, calls, join_of_item, log)
    columns = np.stack(
        (join_of_item, items.name, place_in_call, items_of_group[group], file_of_item)
    )
    distinct, kind_of_item = np.unique(columns, axis=1, return_inverse=True)
    kinds = [
        _ItemKind(join=join, name=name, place=place, items=count, file=files[file])
        for join, name, place, count, file in distinct.T.tolist()
    ]
    return _ItemKinds(distinct=kinds, kind_of_item=kind_of_item.reshape(-1))


def _kernel_files(
    trace: Trace,
    items: CalledKernels,
    calls: JoinedCalls,
    join_of_item: Rows,
    log: CompileLog | None,
) -> tuple[list[str], Int64s]:
    """The `kernel_file` args of items whose call has no graph in the log, each once, ""
    last; and for each item its place in that list. Args of other items are not read."""
    file_of_item = np.full(len(items), NONE, dtype=np.int64)
    has_graph = np.array([*(join.graph is not None for join in calls.joins), False])
    wanted = np.flatnonzero(~has_graph[join_of_item]) if len(items) else NO_ITEMS
    if log is None or not len(wanted):
        return [""], file_of_item
    orders = trace.order[items.spans.rows[wanted]]
    read = arguments(trace.elements, orders, ("kernel_file",))
    file_of_item[wanted] = read.number
    files = [parsed(text) for (text,) in read.distinct]
    return [
        *(file if isinstance(file, str) else "" for file in files),
        "",
    ], file_of_item


NO_ITEMS = np.empty(0, dtype=np.intp)


def _by_kernel_file(log: CompileLog, join: GraphJoin, file: str) -> GraphJoin:
    """The join of a kernel by its generated file, if one wrapper alone has it."""
    graphs = [graph for graph in log.graphs if file in _kernel_paths(log, graph)]
    if not graphs:
        return join
    if len(graphs) > 1 and not are_equal(graphs):
        return replace(join, why_not=Why.TWO_WRAPPERS)
    return replace(join, graph=graphs[-1], by=JoinedBy.KERNEL_FILE, why_not=None)


def _kernel_paths(log: CompileLog, graph: CompiledGraph) -> frozenset[str]:
    """The files of the kernels that a wrapper defines."""
    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return frozenset()
    return frozenset(
        definition.path for definition in wrapper.definitions if definition.path
    )


def _kernel(
    log: CompileLog | None, join: GraphJoin, name: str, *, place: int, count: int
) -> KernelOfGraph:
    """The kernel of the `place`-th of `count` items of a name in one call of a graph."""
    graph = join.graph
    if log is None or graph is None:
        return _unjoined(join, name, join.why_not or Why.NO_LOG)
    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return _unjoined(join, name, Why.NO_CODE)
    named = calls_named(wrapper, name)
    if not named:
        return _unjoined(join, name, Why.NOT_IN_WRAPPER)
    calls = (named[place],) if count == len(named) else named
    lines = lines_of_calls(log, graph, calls)
    why_not = None
    if not lines:
        is_stale = any(call.handle in stacks_of(log, graph) for call in calls)
        why_not = Why.CACHED if is_stale else Why.NO_PROVENANCE
    return KernelOfGraph(
        join=join, name=calls[0].name, calls=calls, lines=lines, why_not=why_not
    )


def _unjoined(join: GraphJoin, name: str, why_not: Why) -> KernelOfGraph:
    return KernelOfGraph(join=join, name=name, calls=(), lines=(), why_not=why_not)


def calls_named(wrapper: Wrapper, name: str) -> tuple[KernelCall, ...]:
    """The calls of a wrapper whose name is, as it is compared, this one."""
    return tuple(call for call in wrapper.calls if wrapper_name(call.name) == name)


def lines_of_calls(
    log: CompileLog, graph: CompiledGraph, calls: tuple[KernelCall, ...]
) -> tuple[CodeLine, ...]:
    """The lines behind any of these calls, in the order of file and line."""
    of_handle = lines_of_graph(log, graph)
    by_place: dict[tuple[str, int], CodeLine] = {}
    for call in calls:
        for line in of_handle.get(call.handle, ()):
            by_place.setdefault((line.file, line.line), line)
    return tuple(by_place[place] for place in sorted(by_place))
