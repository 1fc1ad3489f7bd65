"""Finds the source of a slice: Python lines, graph nodes and generated code."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.compiled.graphs import GraphJoin
from fusetui.analysis.compiled.kernels import (
    JoinedKernels,
    KernelOfGraph,
    join_kernels,
)
from fusetui.analysis.compiled.lines import convert_stacks_to_lines, find_lines_of_graph
from fusetui.analysis.compiled.regions import (
    NONE,
    CompiledCode,
    find_calls_of_rows,
    find_regions_of_rows,
    find_runs_of_rows,
    parse_compile_id,
)
from fusetui.trace.compile_log.log import (
    CompiledGraph,
    CompileId,
    CompileLog,
    code_of,
    graph_lines_of,
    nodes_of,
    wrapper_in,
)
from fusetui.trace.compile_log.stacks import CodeLine, frames_in
from fusetui.trace.compile_log.wrapper import KernelDefinition
from fusetui.trace.model.columns import Trace

MAX_NODES = 200  # of a kernel, that are shown
MAX_STACKS = 100  # of an arg


class CalledKernel(msgspec.Struct, frozen=True):
    """A call of a kernel in a graph, and its lines of Python."""

    name: str  # its handle; without provenance its name
    lines: tuple[CodeLine, ...]


class SliceSource(msgspec.Struct, frozen=True, eq=False):
    """Where the work of a slice comes from.

    Texts are those of the log and not escaped. Line numbers of the wrapper count from
    1.
    """

    name: str  # of the slice
    kernel: str  # its handle or name in the wrapper; "" for no kernel
    compile_id: CompileId | None
    join: GraphJoin | None  # None: it lies in no call of a compiled graph
    why_not: str  # why `lines` are not known; "" if they are
    is_possible: bool  # `lines` are those of several calls
    lines: tuple[CodeLine, ...]
    kernels: tuple[CalledKernel, ...]  # of a slice that is no kernel: all of its graph
    nodes: tuple[str, ...]  # lines of the graph after its passes
    wrapper_path: str
    code: str  # of the wrapper; "" without one
    call_lines: tuple[int, ...]  # of the wrapper
    definition: KernelDefinition | None
    kernel_file: str  # the path that the trace names; it is never opened


def find_source(trace: Trace, log: CompileLog | None, row: int) -> SliceSource | None:
    """Find the source of a slice of a compiled region.

    The details of the app show it. Without a log it is what the trace itself has:
    stacks in its args, and the file of its kernel.

    Args:
        trace: The trace.
        log: The compile log of the trace.
        row: The slice.

    Returns:
        The source; None for a slice that is in no compiled region.
    """
    joined = join_kernels(trace, log)
    run = int(find_runs_of_rows(joined.compiled, np.array([row]))[0])

    args = _merge_args_with_op(trace, joined.compiled, run, row)
    lines = _parse_lines_in_args(args)
    file_arg = args.get("kernel_file")
    kernel_file = file_arg if isinstance(file_arg, str) else ""

    if run != NONE:
        kernel = joined.kernel_for_run(run)
        return _describe_kernel_source(trace, log, row, kernel, lines, kernel_file)

    join = _find_join_of_row(joined, row)
    if join is None and not lines:
        return None

    source = _describe_graph_source(trace, log, row, join, lines, kernel_file)
    if log is None or join is None or join.graph is None:
        return source

    kernels = _list_kernels_of_graph(log, join.graph)
    return msgspec.structs.replace(source, kernels=kernels)


def _list_kernels_of_graph(
    log: CompileLog, graph: CompiledGraph
) -> tuple[CalledKernel, ...]:
    """List all kernels that the generated code of a graph calls, each with the Python
    lines that it computes. Returns () if the log does not have that code."""
    wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return ()

    lines = find_lines_of_graph(log, graph)
    return tuple(
        CalledKernel(name=call.handle or call.name, lines=lines.get(call.handle, ()))
        for call in wrapper.calls
    )


def _describe_kernel_source(
    trace: Trace,
    log: CompileLog | None,
    row: int,
    kernel: KernelOfGraph,
    lines_in_args: tuple[CodeLine, ...],
    kernel_file: str,
) -> SliceSource:
    """Build the source of a slice that is a kernel of a graph.

    Args:
        trace: The trace.
        log: Its compile log.
        row: The slice.
        kernel: The kernel that the slice is a run of.
        lines_in_args: The lines of the stacks in its args.
        kernel_file: The file in its args; "" if there is none.
    """
    # The log also tells the nodes and the definition of the kernel.
    graph = kernel.join.graph
    nodes: tuple[str, ...] = ()
    definition: KernelDefinition | None = None
    if log is not None and graph is not None:
        nodes = _list_lines_of_nodes(log, graph, kernel)
        wrapper = wrapper_in(log, graph)
        if wrapper is not None:
            definition = wrapper.definition_of(kernel.name)

    why_not = ""
    if kernel.why_not is not None and not lines_in_args:
        why_not = kernel.why_not.value

    source = _describe_graph_source(
        trace, log, row, kernel.join, kernel.lines, kernel_file
    )
    return msgspec.structs.replace(
        source,
        kernel=kernel.handle or kernel.name,
        lines=kernel.lines or lines_in_args,
        why_not=why_not,
        is_possible=kernel.is_possible,
        nodes=nodes,
        call_lines=tuple(call.line for call in kernel.calls),
        definition=definition,
    )


def _describe_graph_source(
    trace: Trace,
    log: CompileLog | None,
    row: int,
    join: GraphJoin | None,
    lines: tuple[CodeLine, ...],
    kernel_file: str,
) -> SliceSource:
    """Build the source of a slice from the graph that it belongs to.

    Args:
        trace: The trace.
        log: Its compile log.
        row: The slice.
        join: What the call around the slice was joined with; None if there is none.
        lines: The lines that are known.
        kernel_file: The file in its args; "" if there is none.
    """
    graph: CompiledGraph | None = None
    compile_id: CompileId | None = None
    why_not = ""
    if join is not None:
        graph = join.graph
        compile_id = join.compile_id
        if join.why_not is not None and not lines:
            why_not = join.why_not.value
    if compile_id is None and graph is not None:
        compile_id = graph.compile_id

    wrapper_path = ""
    code = ""
    if graph is not None:
        wrapper_path = graph.wrapper_path
        code = "" if log is None else code_of(log, graph)

    return SliceSource(
        name=trace.name_of(row),
        kernel="",
        compile_id=compile_id,
        join=join,
        why_not=why_not,
        is_possible=False,
        lines=lines,
        kernels=(),
        nodes=(),
        wrapper_path=wrapper_path,
        code=code,
        call_lines=(),
        definition=None,
        kernel_file=kernel_file,
    )


def _list_lines_of_nodes(
    log: CompileLog, graph: CompiledGraph, kernel: KernelOfGraph
) -> tuple[str, ...]:
    """Return the lines of a graph's text that define the nodes that a kernel computes.

    They are in the order of the graph, at most MAX_NODES. A node without such a line is
    represented by its name.
    """
    line_of_node = graph_lines_of(log, graph)  # in the order of the graph
    nodes_of_handle = nodes_of(log, graph)

    # The nodes of all calls; the dict is an ordered set.
    nodes: dict[str, None] = {}
    for call in kernel.calls:
        nodes |= dict.fromkeys(nodes_of_handle.get(call.handle, ()))

    lines = [line for node, line in line_of_node.items() if node in nodes]
    names_without_line = [node for node in nodes if node not in line_of_node]
    return (*lines, *names_without_line)[:MAX_NODES]


def _find_join_of_row(joined: JoinedKernels, row: int) -> GraphJoin | None:
    """Find the graph to which a slice belongs that is no kernel.

    It is that of the call around the slice, else the first graph of its compiled
    region. Returns None if it is in no region.
    """
    compiled = joined.compiled
    rows = np.array([row])
    call = int(find_calls_of_rows(compiled, rows)[0])
    if call != NONE:
        return joined.calls.join_for_call(call)

    region = int(find_regions_of_rows(compiled, rows)[0])
    if region == NONE:
        return None

    name = compiled.trace.name_of(int(compiled.regions.rows[region]))
    compile_id = parse_compile_id(name)
    for join in joined.calls.joins:
        if join.compile_id == compile_id:
            return join

    return None


def _merge_args_with_op(
    trace: Trace, compiled: CompiledCode, run: int, row: int
) -> dict[str, object]:
    """Return the args of a slice together with those of the op that launched it.

    If both have an arg of the same name, that of the slice counts.
    """
    args_of_op: dict[str, object] = {}
    if run != NONE:
        op = int(compiled.kernel_runs.spans.rows[run])
        args_of_op = trace.args_of(op)
    return {**args_of_op, **trace.args_of(row)}


def _parse_lines_in_args(args: dict[str, object]) -> tuple[CodeLine, ...]:
    """Return the lines of the stacks in the args of a kernel.

    torch's `inductor_trace_handler` adds them as `args.stack`, a list of texts.
    """
    stacks = args.get("stack")
    if not isinstance(stacks, list):
        return ()

    stack_texts = [text for text in stacks[:MAX_STACKS] if isinstance(text, str)]
    return convert_stacks_to_lines([frames_in(text) for text in stack_texts])
