"""Finds the call in the generated wrapper for each recorded kernel.

Within a graph, the n-th kernel of a name is the n-th call of that name, if a call of
the graph recorded as many as its wrapper has. Where the counts differ, all calls of the
name are possible.
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
    """Items of a trace that are the same kernel of a graph.

    They are joined with the same calls of a wrapper; or they could not be joined, for
    the same reason.
    """

    join: GraphJoin
    name: str  # as the wrapper writes it; as it was recorded where it is not joined
    # Calls of the wrapper. If there are several, it may be any of them.
    calls: tuple[KernelCall, ...]
    lines: tuple[CodeLine, ...]  # behind these calls
    why_not: Why | None  # why `lines` are not known; None if they are

    @property
    def is_possible(self) -> bool:
        """Whether the recorded counts do not say which of several calls it is."""
        return len(self.calls) > 1

    @property
    def is_joined(self) -> bool:
        """Whether the lines of the kernel are known."""
        return self.why_not is None


class JoinedKernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels of a trace, joined with the compile log."""

    trace: Trace
    regions: RegionsOfTrace
    calls: JoinedCalls
    kernels: tuple[KernelOfGraph, ...]
    kernel_of_item: Int32s  # for each item of the trace its index in `kernels`

    @property
    def items(self) -> CalledKernels:
        """The calls of kernels in the trace."""
        return self.regions.items

    def kernel_for_item(self, item: int) -> KernelOfGraph:
        """Return the kernel that an item is a run of."""
        return self.kernels[int(self.kernel_of_item[item])]

    def item_ns(self) -> Int64s:
        """Return the GPU time of each item in ns.

        For an item without GPU events it is the time of its op.
        """
        trace = self.trace
        items = self.items
        gpu_ns = np.zeros(len(items), dtype=np.int64)

        events_of_items = np.flatnonzero(items.item_of_gpu_event >= 0)
        events = trace.gpu_rows[events_of_items]
        np.add.at(gpu_ns, items.item_of_gpu_event[events_of_items], trace.dur[events])

        cpu_ns = trace.dur[items.spans.rows]
        return np.where(items.has_gpu_events, gpu_ns, cpu_ns)


@memo(2)
def joined_kernels(trace: Trace, log: CompileLog | None) -> JoinedKernels:
    """Join the kernels of the compiled regions of a trace with its log.

    Args:
        trace: The trace.
        log: The compile log; without it nothing is joined.
    """
    regions = regions_of(trace)
    calls = joined_calls(regions, log)
    kinds = _kinds_of_items(trace, regions, calls, log)
    joins = (*calls.joins, OUTSIDE)

    # Kinds that are joined with the same calls are one kernel.
    index_of_kernel: dict[tuple[GraphJoin, str, tuple[KernelCall, ...]], int] = {}
    kernels: list[KernelOfGraph] = []
    kernel_of_kind: list[int] = []
    for kind in kinds.distinct:
        join = joins[kind.join]
        if join.graph is None and kind.file and log is not None:
            join = _join_by_kernel_file(log, join, kind.file)

        name = regions.items.names[kind.name]
        kernel = _join_with_calls(
            log, join, name, position=kind.position, count=kind.items
        )

        key = (kernel.join, kernel.name, kernel.calls)
        if key not in index_of_kernel:
            index_of_kernel[key] = len(kernels)
            kernels.append(kernel)
        kernel_of_kind.append(index_of_kernel[key])

    kernel_indices = np.array(kernel_of_kind, dtype=np.int32)
    return JoinedKernels(
        trace=trace,
        regions=regions,
        calls=calls,
        kernels=tuple(kernels),
        kernel_of_item=kernel_indices[kinds.kind_of_item],
    )


OUTSIDE = GraphJoin(key="", compile_id=None, graph=None, by=None, why_not=Why.OUTSIDE)
"""Of items outside of calls of graphs."""


class _ItemKind(NamedTuple):
    """Items that are joined in the same way."""

    join: int  # index into JoinedCalls.joins, its length for items outside of calls
    name: int  # index into CalledKernels.names
    position: int  # the n-th item of this name in a call of a graph, from 0
    items: int  # how many items of this name the call has
    file: str  # the arg `kernel_file` if it is needed, else ""


class _ItemKinds(NamedTuple):
    """The kinds of all items."""

    distinct: list[_ItemKind]  # each kind once
    kind_of_item: Rows  # for each item its index in `distinct`


def _kinds_of_items(
    trace: Trace, regions: RegionsOfTrace, calls: JoinedCalls, log: CompileLog | None
) -> _ItemKinds:
    """Group the items that are joined in the same way.

    Items of one kind have the same join, name and file, and the same position among
    equally many items of that name in a call of a graph.
    """
    items = regions.items
    outside = len(calls.joins)

    join_of_item = at(calls.join_of_call, items.call, missing=outside)

    # One number stands for the call and the name together.
    call_and_name = items.call.astype(np.int64) * max(1, len(items.names)) + items.name
    position_in_call = ordinals(call_and_name)
    _, group, items_of_group = np.unique(
        call_and_name, return_inverse=True, return_counts=True
    )

    files, file_of_item = _kernel_files(trace, items, calls, join_of_item, log)

    # Each column describes one item; equal columns are one kind.
    columns = np.stack(
        (
            join_of_item,
            items.name,
            position_in_call,
            items_of_group[group],
            file_of_item,
        )
    )
    distinct, kind_of_item = np.unique(columns, axis=1, return_inverse=True)

    kinds = [
        _ItemKind(
            join=join, name=name, position=position, items=count, file=files[file]
        )
        for join, name, position, count, file in distinct.T.tolist()
    ]
    return _ItemKinds(distinct=kinds, kind_of_item=kind_of_item.reshape(-1))


def _kernel_files(
    trace: Trace,
    items: CalledKernels,
    calls: JoinedCalls,
    join_of_item: Rows,
    log: CompileLog | None,
) -> tuple[list[str], Int64s]:
    """Read the `kernel_file` args of items whose call has no graph in the log.

    Args of other items are not read.

    Returns:
        The distinct files and "" at the end, and for each item its index in that list;
        -1 is the "" at the end.
    """
    file_of_item = np.full(len(items), NONE, dtype=np.int64)
    has_graph = np.array([*(join.graph is not None for join in calls.joins), False])

    unjoined = np.flatnonzero(~has_graph[join_of_item]) if len(items) else NO_ITEMS
    if log is None or not len(unjoined):
        return [""], file_of_item

    orders = trace.order[items.spans.rows[unjoined]]
    read = arguments(trace.elements, orders, ("kernel_file",))
    file_of_item[unjoined] = read.number

    files = []
    for (text,) in read.distinct:
        file = parsed(text)
        files.append(file if isinstance(file, str) else "")

    return [*files, ""], file_of_item


NO_ITEMS = np.empty(0, dtype=np.intp)


def _join_by_kernel_file(log: CompileLog, join: GraphJoin, file: str) -> GraphJoin:
    """Join a kernel by its generated file, if only one wrapper has it.

    Args:
        log: The compile log.
        join: The join so far, which has no graph.
        file: The path of the generated file.

    Returns:
        The join with the graph of that wrapper, or with the reason why there is none.
    """
    graphs = [graph for graph in log.graphs if file in _kernel_paths(log, graph)]
    if not graphs:
        return join
    if len(graphs) > 1 and not are_equal(graphs):
        return replace(join, why_not=Why.TWO_WRAPPERS)
    return replace(join, graph=graphs[-1], by=JoinedBy.KERNEL_FILE, why_not=None)


def _kernel_paths(log: CompileLog, graph: CompiledGraph) -> frozenset[str]:
    """Return the files of the kernels that the wrapper of a graph defines."""
    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return frozenset()
    return frozenset(
        definition.path for definition in wrapper.definitions if definition.path
    )


def _join_with_calls(
    log: CompileLog | None, join: GraphJoin, name: str, *, position: int, count: int
) -> KernelOfGraph:
    """Join an item with the calls of its name in the wrapper of its graph.

    Args:
        log: The compile log.
        join: What its call was joined with.
        name: The name of the item.
        position: The item is the n-th of this name in a call of the graph, from 0.
        count: How many items of this name the call has.
    """
    graph = join.graph
    if log is None or graph is None:
        return _kernel_without_lines(join, name, join.why_not or Why.NO_LOG)

    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return _kernel_without_lines(join, name, Why.NO_CODE)

    calls_of_name = calls_named(wrapper, name)
    if not calls_of_name:
        return _kernel_without_lines(join, name, Why.NOT_IN_WRAPPER)

    # Where the counts differ, any call of this name is possible.
    calls = (calls_of_name[position],) if count == len(calls_of_name) else calls_of_name
    lines = lines_of_calls(log, graph, calls)

    why_not = None
    if not lines:
        is_stale = any(call.handle in stacks_of(log, graph) for call in calls)
        why_not = Why.CACHED if is_stale else Why.NO_PROVENANCE

    return KernelOfGraph(
        join=join, name=calls[0].name, calls=calls, lines=lines, why_not=why_not
    )


def _kernel_without_lines(join: GraphJoin, name: str, why_not: Why) -> KernelOfGraph:
    """Return the kernel of items that could not be joined."""
    return KernelOfGraph(join=join, name=name, calls=(), lines=(), why_not=why_not)


def calls_named(wrapper: Wrapper, name: str) -> tuple[KernelCall, ...]:
    """Return the calls of a wrapper with a name, as names are compared."""
    return tuple(call for call in wrapper.calls if wrapper_name(call.name) == name)


def lines_of_calls(
    log: CompileLog, graph: CompiledGraph, calls: tuple[KernelCall, ...]
) -> tuple[CodeLine, ...]:
    """Return the lines behind any of some calls, in the order of file and line.

    Each line is there once.
    """
    lines_of_handle = lines_of_graph(log, graph)
    line_by_position: dict[tuple[str, int], CodeLine] = {}
    for call in calls:
        for line in lines_of_handle.get(call.handle, ()):
            line_by_position.setdefault((line.file, line.line), line)

    return tuple(line_by_position[position] for position in sorted(line_by_position))
