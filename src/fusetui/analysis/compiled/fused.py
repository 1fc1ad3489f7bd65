"""Finds the Python lines that were fused into one kernel."""

from __future__ import annotations

import msgspec

from fusetui.analysis.compiled.kernels import KernelOfGraph, join_kernels
from fusetui.trace.compile_log.log import (
    CompiledGraph,
    CompileLog,
    dynamo_nodes_of,
    lines_of_dynamo_nodes,
    nodes_of,
    ops_of_dynamo_nodes,
)
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.columns import Trace

GENERATED = ("cpp_", "triton_")
"""How the names of kernels begin that Inductor generates."""


class FusedLine(msgspec.Struct, frozen=True):
    """A line of Python that is part of a kernel."""

    ops: tuple[str, ...]  # of the line, as far as they are known: gelu, mul
    file: str
    line: int
    function: str
    code: str


class FusedKernel(msgspec.Struct, frozen=True):
    """A generated kernel with the work of several ops."""

    name: str
    runs: int
    total_ns: int
    lines: tuple[FusedLine, ...]


def list_fused_kernels(trace: Trace, log: CompileLog | None) -> tuple[FusedKernel, ...]:
    """List the generated kernels that are of several lines, or several ops of a line.

    Those that take most time come first. Nothing is listed without a log.
    """
    if log is None:
        return ()

    joined = join_kernels(trace, log)
    runs_of_kernel = joined.runs_of_kernels().tolist()
    ns_of_kernel = joined.ns_of_kernels().tolist()

    fused_kernels = []
    for kernel, runs, total_ns in zip(
        joined.kernels, runs_of_kernel, ns_of_kernel, strict=True
    ):
        graph = kernel.join.graph
        is_generated = kernel.name.startswith(GENERATED)
        has_certain_lines = len(kernel.lines) > 0 and not kernel.is_possible
        if graph is None or not is_generated or not has_certain_lines:
            continue

        # A kernel of one line with one op fuses nothing.
        lines = _collect_lines_with_ops(log, graph, kernel)
        has_several_ops = any(len(line.ops) > 1 for line in lines)
        if len(lines) > 1 or has_several_ops:
            fused = FusedKernel(
                name=kernel.name, runs=runs, total_ns=total_ns, lines=lines
            )
            fused_kernels.append(fused)

    fused_kernels.sort(key=lambda kernel: (-kernel.total_ns, kernel.name))
    return tuple(fused_kernels)


def _collect_lines_with_ops(
    log: CompileLog, graph: CompiledGraph, kernel: KernelOfGraph
) -> tuple[FusedLine, ...]:
    """Return the Python lines that a kernel computes, each with the ops on it.

    The ops are those that Dynamo recorded for these lines and that went into this
    kernel.

    Args:
        log: The compile log.
        graph: The graph that the kernel belongs to.
        kernel: The kernel, which has at least one call.
    """
    # The kernel computes nodes of the final graph; each came from nodes of Dynamo's
    # graph.
    dynamo_nodes = dynamo_nodes_of(log, graph)
    nodes_of_kernel: set[str] = set()
    for final_node in nodes_of(log, graph).get(kernel.handle, ()):
        nodes_of_kernel.update(dynamo_nodes.get(final_node, ()))

    op_of_node = ops_of_dynamo_nodes(log, graph)
    ops_of_line: dict[tuple[str, int], list[str]] = {}  # by file and line
    for node, line in lines_of_dynamo_nodes(log, graph).items():
        if node in nodes_of_kernel and node in op_of_node:
            ops_of_line.setdefault((line.file, line.line), []).append(op_of_node[node])

    return tuple(_make_fused_line(line, ops_of_line) for line in kernel.lines)


def _make_fused_line(
    line: CodeLine, ops: dict[tuple[str, int], list[str]]
) -> FusedLine:
    """Build the record of a line of a kernel.

    Args:
        line: The line.
        ops: By file and line, the ops there.
    """
    ops_of_line = ops.get((line.file, line.line), [])
    return FusedLine(
        ops=tuple(dict.fromkeys(ops_of_line)),
        file=line.file,
        line=line.line,
        function=line.function,
        code=line.code,
    )
