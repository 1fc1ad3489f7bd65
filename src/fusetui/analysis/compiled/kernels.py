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
    have_equal_code,
    join_calls_with_log,
)
from fusetui.analysis.compiled.lines import find_lines_of_graph
from fusetui.analysis.compiled.regions import (
    NONE,
    CalledKernels,
    RegionsOfTrace,
    find_regions,
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
from fusetui.trace.model.arrays import (
    Int32s,
    Int64s,
    Rows,
    at,
    distinct_rows,
    ordinals,
    summed,
)
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

    def runs_of_kernels(self) -> Int64s:
        """Count how often each kernel ran."""
        return np.bincount(self.kernel_of_item, minlength=len(self.kernels))

    def ns_of_kernels(self) -> Int64s:
        """Add up how long each kernel took over all of its runs, in ns."""
        return summed(self.kernel_of_item, self.item_ns(), len(self.kernels))

    def item_ns(self) -> Int64s:
        """Return how long each run of a kernel took, in ns.

        That is the time of the GPU events that it launched. For a run without any, as
        on a CPU, it is the time of its op.
        """
        trace = self.trace
        items = self.items
        is_of_item = items.item_of_gpu_event >= 0
        gpu_ns = summed(
            items.item_of_gpu_event[is_of_item],
            trace.dur[trace.gpu_rows[is_of_item]],
            len(items),
        )
        cpu_ns = trace.dur[items.spans.rows]
        return np.where(items.has_gpu_events, gpu_ns, cpu_ns)


@memo(2)
def join_kernels(trace: Trace, log: CompileLog | None) -> JoinedKernels:
    """Find for each kernel of the compiled regions of a trace the Python lines that it
    computes.

    A *region* is one call of code that torch.compile compiled. The lines are those of
    the compile log.

    Args:
        trace: The trace.
        log: The compile log; without it no lines are found.
    """
    regions = find_regions(trace)
    calls = join_calls_with_log(regions, log)
    kinds = _group_items_by_kind(trace, regions, calls, log)
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


def _group_items_by_kind(
    trace: Trace, regions: RegionsOfTrace, calls: JoinedCalls, log: CompileLog | None
) -> _ItemKinds:
    """Group the runs of kernels for which the same lines are looked up in the compile
    log.

    Runs of one kind have the same graph, name and file. They also have the same
    position among equally many runs of that name in a call of the graph. E.g. if each
    call runs `triton_0` twice, all first runs are one kind, and all second ones.
    """
    items = regions.items
    no_join = len(calls.joins)

    join_of_item = at(calls.join_of_call, items.call, missing=no_join)

    # The items of one call with the same name, which are numbered in their order.
    _, group_of_item = distinct_rows((items.call, items.name))
    position_in_call = ordinals(group_of_item)
    items_of_group = np.bincount(group_of_item)
    count_in_call = items_of_group[group_of_item]

    files, file_of_item = _read_kernel_files(trace, items, calls, join_of_item, log)
    first_items, kind_of_item = distinct_rows(
        (join_of_item, items.name, position_in_call, count_in_call, file_of_item)
    )
    kinds = [
        _ItemKind(
            join=int(join_of_item[item]),
            name=int(items.name[item]),
            position=int(position_in_call[item]),
            items=int(count_in_call[item]),
            file=files[file_of_item[item]],
        )
        for item in first_items.tolist()
    ]
    return _ItemKinds(distinct=kinds, kind_of_item=kind_of_item)


def _read_kernel_files(
    trace: Trace,
    items: CalledKernels,
    calls: JoinedCalls,
    join_of_item: Rows,
    log: CompileLog | None,
) -> tuple[list[str], Int64s]:
    """Read the `kernel_file` args of items whose call has no graph in the log.

    For other items they are not needed, and not read.

    Args:
        trace: The trace.
        items: The runs of compiled kernels.
        calls: The calls of graphs, as they were joined with the log.
        join_of_item: For each item the index of the join of its call; one more than the
            last index for an item outside of calls.
        log: The compile log; without it nothing is read.

    Returns:
        The distinct files and "" at the end, such as ["/tmp/ab.py", ""], and for each
        item its index in that list; -1, the last entry, for an item without a file.
    """
    file_of_item = np.full(len(items), NONE, dtype=np.int64)
    outside_has_graph = False
    has_graph = np.array(
        [*(join.graph is not None for join in calls.joins), outside_has_graph]
    )

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
    graphs = [graph for graph in log.graphs if file in _list_kernel_paths(log, graph)]
    if not graphs:
        return join
    if len(graphs) > 1 and not have_equal_code(graphs):
        return replace(join, why_not=Why.TWO_WRAPPERS)
    return replace(join, graph=graphs[-1], by=JoinedBy.KERNEL_FILE, why_not=None)


def _list_kernel_paths(log: CompileLog, graph: CompiledGraph) -> frozenset[str]:
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
    """Find which calls in the generated code of a graph a run of a kernel may be.

    Args:
        log: The compile log.
        join: The graph that was called.
        name: The name of the kernel.
        position: The run is the n-th of this name in a call of the graph, from 0.
        count: How many runs of this name the call has.
    """
    graph = join.graph
    if log is None or graph is None:
        return _make_kernel_without_lines(join, name, join.why_not or Why.NO_LOG)

    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return _make_kernel_without_lines(join, name, Why.NO_CODE)

    calls_of_name = select_calls_named(wrapper, name)
    if not calls_of_name:
        return _make_kernel_without_lines(join, name, Why.NOT_IN_WRAPPER)

    # Where the counts differ, any call of this name is possible.
    calls = (calls_of_name[position],) if count == len(calls_of_name) else calls_of_name
    lines = collect_lines_of_calls(log, graph, calls)

    why_not = None
    if not lines:
        is_stale = any(call.handle in stacks_of(log, graph) for call in calls)
        why_not = Why.CACHED if is_stale else Why.NO_PROVENANCE

    return KernelOfGraph(
        join=join, name=calls[0].name, calls=calls, lines=lines, why_not=why_not
    )


def _make_kernel_without_lines(
    join: GraphJoin, name: str, why_not: Why
) -> KernelOfGraph:
    """Return the kernel of items that could not be joined."""
    return KernelOfGraph(join=join, name=name, calls=(), lines=(), why_not=why_not)


def select_calls_named(wrapper: Wrapper, name: str) -> tuple[KernelCall, ...]:
    """Return the calls of a wrapper with a name, as names are compared."""
    return tuple(call for call in wrapper.calls if wrapper_name(call.name) == name)


def collect_lines_of_calls(
    log: CompileLog, graph: CompiledGraph, calls: tuple[KernelCall, ...]
) -> tuple[CodeLine, ...]:
    """Return the Python lines that any of some kernel calls compute, each line once.

    They are sorted by file and line. The result is empty if no line is known.

    Args:
        log: The compile log.
        graph: The graph whose wrapper has the calls.
        calls: The calls.
    """
    lines_of_handle = find_lines_of_graph(log, graph)
    line_by_position: dict[tuple[str, int], CodeLine] = {}
    for call in calls:
        for line in lines_of_handle.get(call.handle, ()):
            line_by_position.setdefault((line.file, line.line), line)

    return tuple(line_by_position[position] for position in sorted(line_by_position))
