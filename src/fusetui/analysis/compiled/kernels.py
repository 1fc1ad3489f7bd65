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
from fusetui.analysis.compiled.lines import find_lines_of_graph, sort_distinct_lines
from fusetui.analysis.compiled.regions import (
    CompiledCode,
    KernelRuns,
    find_compiled_code,
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
    group_size_of_each,
    ordinals,
    summed,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import arguments, parsed
from fusetui.trace.model.memo import memo


class KernelOfGraph(msgspec.Struct, frozen=True):
    """Runs of kernels in a trace that are the same kernel of a compiled graph.

    They are joined with the same calls of a wrapper, the generated code of the graph;
    or they could not be joined, for the same reason.
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

    @property
    def handle(self) -> str:
        """The handle of its call, such as `cpp_fused_add_0:3`; "" unless there is one."""
        return self.calls[0].handle if len(self.calls) == 1 else ""


class JoinedKernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels of a trace, joined with the compile log."""

    trace: Trace
    compiled: CompiledCode
    calls: JoinedCalls
    kernels: tuple[KernelOfGraph, ...]
    kernel_of_run: Int32s  # for each run of the trace its index in `kernels`

    @property
    def kernel_runs(self) -> KernelRuns:
        """The calls of kernels in the trace."""
        return self.compiled.kernel_runs

    def kernel_for_run(self, run: int) -> KernelOfGraph:
        """Return the kernel that a run is a run of."""
        return self.kernels[int(self.kernel_of_run[run])]

    def runs_of_kernels(self) -> Int64s:
        """Count how often each kernel ran."""
        return np.bincount(self.kernel_of_run, minlength=len(self.kernels))

    def ns_of_kernels(self) -> Int64s:
        """Add up how long each kernel took over all of its runs, in ns."""
        return summed(self.kernel_of_run, self.run_ns(), len(self.kernels))

    def run_ns(self) -> Int64s:
        """Return how long each run of a kernel took, in ns.

        That is the time of the GPU events that it launched. For a run without any, as
        on a CPU, it is the time of its op.
        """
        trace = self.trace
        runs = self.kernel_runs
        event_ns = trace.dur[trace.gpu_rows]
        run_of_event = runs.run_of_gpu_event
        has_run = run_of_event >= 0

        gpu_ns = summed(run_of_event[has_run], event_ns[has_run], len(runs))
        cpu_ns = trace.dur[runs.spans.rows]
        return np.where(runs.has_gpu_events, gpu_ns, cpu_ns)


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
    compiled = find_compiled_code(trace)
    calls = join_calls_with_log(compiled, log)
    grouped = _group_equal_runs(trace, compiled, calls, log)

    # Groups that are joined with the same calls are one kernel.
    index_of_kernel: dict[tuple[GraphJoin, str, tuple[KernelCall, ...]], int] = {}
    kernels: list[KernelOfGraph] = []
    kernel_of_group: list[int] = []
    for equal_runs in grouped.groups:
        join = equal_runs.join
        if join.graph is None and equal_runs.file and log is not None:
            join = _join_by_kernel_file(log, join, equal_runs.file)

        kernel = _join_with_calls(
            log,
            join,
            equal_runs.name,
            position=equal_runs.position,
            count=equal_runs.count_in_call,
        )
        key = (kernel.join, kernel.name, kernel.calls)
        if key not in index_of_kernel:
            index_of_kernel[key] = len(kernels)
            kernels.append(kernel)
        kernel_of_group.append(index_of_kernel[key])

    kernel_indices = np.array(kernel_of_group, dtype=np.int32)
    return JoinedKernels(
        trace=trace,
        compiled=compiled,
        calls=calls,
        kernels=tuple(kernels),
        kernel_of_run=kernel_indices[grouped.group_of_run],
    )


OUTSIDE = GraphJoin(key="", compile_id=None, graph=None, by=None, why_not=Why.OUTSIDE)
"""Of runs outside of calls of graphs."""


class _EqualRuns(NamedTuple):
    """Runs of kernels that are looked up in the log in the same way."""

    join: GraphJoin  # of the call that they are in
    name: str  # of the kernel
    position: int  # the n-th run of this name in a call of a graph, from 0
    count_in_call: int  # how many runs of this name the call has
    file: str  # the arg `kernel_file` if it is needed, else ""


class _RunGroups(NamedTuple):
    """All runs of kernels, in groups of equal ones."""

    groups: list[_EqualRuns]
    group_of_run: Rows  # for each run its index in `groups`


def _group_equal_runs(
    trace: Trace, compiled: CompiledCode, calls: JoinedCalls, log: CompileLog | None
) -> _RunGroups:
    """Group the runs of kernels for which the same lines are looked up in the compile
    log.

    Runs of one group have the same graph, name and file. They also have the same
    position among equally many runs of that name in a call of the graph. E.g. if each
    call runs `triton_0` twice, all first runs are one group, and all second ones.
    """
    runs = compiled.kernel_runs
    joins = (*calls.joins, OUTSIDE)
    outside = len(calls.joins)
    join_of_run = at(calls.join_of_call, runs.call, missing=outside)

    numbering = _number_runs_in_calls(runs)

    # The file is looked up in the log if the graph of a kernel is not known. For other
    # kernels it is not read.
    needs_file = np.zeros(len(runs), np.bool_)
    if log is not None:
        lacks_graph = np.array([join.graph is None for join in joins], np.bool_)
        needs_file = lacks_graph[join_of_run]
    files = _read_kernel_files(trace, runs, np.flatnonzero(needs_file))

    first_runs, group_of_run = distinct_rows(
        (
            join_of_run,
            runs.name,
            numbering.position,
            numbering.total,
            files.path_of_run,
        )
    )
    groups = []
    for run in first_runs.tolist():
        equal_runs = _EqualRuns(
            join=joins[join_of_run[run]],
            name=runs.names[runs.name[run]],
            position=int(numbering.position[run]),
            count_in_call=int(numbering.total[run]),
            file=files.paths[files.path_of_run[run]],
        )
        groups.append(equal_runs)
    return _RunGroups(groups=groups, group_of_run=group_of_run)


class _NumberedRuns(NamedTuple):
    """The runs of kernels, numbered among those of the same name in the same call of a
    graph; one entry per run."""

    position: Int64s  # from 0
    total: Int64s  # how many runs of its name the call has


def _number_runs_in_calls(runs: KernelRuns) -> _NumberedRuns:
    """Number the runs of the same kernel in each call of a graph.

    E.g. if a call runs a, b and a, their positions are 0, 0 and 1, and the totals 2,
    1 and 2.
    """
    _, name_in_call = distinct_rows((runs.call, runs.name))
    return _NumberedRuns(
        position=ordinals(name_in_call), total=group_size_of_each(name_in_call)
    )


class _KernelFiles(NamedTuple):
    """The generated files of runs of kernels, as far as they were read."""

    paths: list[str]  # distinct; the last one is "", for runs without a file
    path_of_run: Int64s  # for each run its index in `paths`; -1 is the last one


def _read_kernel_files(trace: Trace, runs: KernelRuns, selected: Rows) -> _KernelFiles:
    """Read the `kernel_file` args of some runs of kernels.

    Args:
        trace: The trace.
        runs: All runs of compiled kernels.
        selected: The indices of the runs whose args to read; others get no file.
    """
    path_of_run = np.full(len(runs), -1, dtype=np.int64)
    if not len(selected):
        return _KernelFiles(paths=[""], path_of_run=path_of_run)

    orders = trace.order[runs.spans.rows[selected]]
    read = arguments(trace.elements, orders, ("kernel_file",))
    path_of_run[selected] = read.number

    paths = []
    for (text,) in read.distinct:
        path = parsed(text)
        paths.append(path if isinstance(path, str) else "")
    return _KernelFiles(paths=[*paths, ""], path_of_run=path_of_run)


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

    E.g. if the code calls `triton_0` twice, and a call of the graph ran it twice, its
    second run is the second call. If it ran three times, each run may be either.

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
    calls = calls_of_name
    if count == len(calls_of_name):
        calls = (calls_of_name[position],)

    why_not = None
    lines = collect_lines_of_calls(log, graph, calls)
    if not lines:
        # Stacks without usable lines came with the code from a cache.
        has_stacks = any(call.handle in stacks_of(log, graph) for call in calls)
        why_not = Why.CACHED if has_stacks else Why.NO_PROVENANCE

    return KernelOfGraph(
        join=join, name=calls[0].name, calls=calls, lines=lines, why_not=why_not
    )


def _make_kernel_without_lines(
    join: GraphJoin, name: str, why_not: Why
) -> KernelOfGraph:
    """Return the kernel of runs of which no call in generated code is known."""
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
    lines: list[CodeLine] = []
    for call in calls:
        lines += lines_of_handle.get(call.handle, ())
    return sort_distinct_lines(lines)
