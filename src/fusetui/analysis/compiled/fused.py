"""Finds the Python lines that were fused into one kernel."""

from __future__ import annotations

import msgspec
import numpy as np

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

    item_ns = joined.item_ns()
    fused = []
    for kernel_index, kernel in enumerate(joined.kernels):
        graph = kernel.join.graph
        is_generated = kernel.name.startswith(GENERATED)
        if graph is None or not is_generated or kernel.is_possible or not kernel.lines:
            continue

        # A kernel of one line with one op fuses nothing.
        lines = _collect_lines_with_ops(log, graph, kernel)
        if len(lines) < 2 and all(len(line.ops) < 2 for line in lines):
            continue

        is_of_kernel = joined.kernel_of_item == kernel_index
        fused.append(
            FusedKernel(
                name=kernel.name,
                runs=int(np.count_nonzero(is_of_kernel)),
                total_ns=int(item_ns[is_of_kernel].sum()),
                lines=lines,
            )
        )

    fused.sort(key=lambda kernel: (-kernel.total_ns, kernel.name))
    return tuple(fused)


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
    dynamo_nodes = dynamo_nodes_of(log, graph)
    line_of_node = lines_of_dynamo_nodes(log, graph)
    op_of_node = ops_of_dynamo_nodes(log, graph)

    # Go from the nodes of the final graph back to those of Dynamo's graph. The dict is
    # an ordered set.
    nodes_of_kernel: dict[str, None] = {}
    for post_node in nodes_of(log, graph).get(kernel.calls[0].handle, ()):
        nodes_of_kernel |= dict.fromkeys(dynamo_nodes.get(post_node, ()))

    nodes_in_order = [node for node in line_of_node if node in nodes_of_kernel]
    ops_of_line: dict[tuple[str, int], list[str]] = {}
    for node in nodes_in_order:
        line = line_of_node[node]
        if node in op_of_node:
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
