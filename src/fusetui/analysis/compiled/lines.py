"""Finds the Python lines behind a kernel call.

Code that comes from a cache has the stacks of the program that filled the cache:
another function with the same graph, or the same function before its file was edited.
For such a graph, the nodes that a kernel computes lead to Dynamo's own graph. This one
is made anew for every compilation and has a line at each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusetui.trace.compile_log.log import (
    CompiledGraph,
    CompileLog,
    dynamo_nodes_of,
    lines_of_dynamo_nodes,
    nodes_of,
    stacks_of,
)
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.memo import memo
from fusetui.trace.program.own_code import is_own

FROM_CACHE = "hit"


@memo(64)
def find_lines_of_graph(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[CodeLine, ...]]:
    """Return the Python lines that each kernel call of a compiled graph computes.

    A *handle* names one call of a kernel, such as `cpp_fused_add_0:3`. A handle of
    cached code whose lines cannot be known is left out.

    Returns:
        By handle the lines, in the order of file and line.
    """
    lines: dict[str, tuple[CodeLine, ...]] = {}
    for handle, stacks in stacks_of(log, graph).items():
        lines_in_stacks = convert_stacks_to_lines(stacks)
        if graph.cache != FROM_CACHE:
            lines[handle] = lines_in_stacks
            continue

        # The stacks of cached code may be those of another program.
        lines_of_nodes = find_lines_of_nodes(log, graph, handle)
        if lines_of_nodes is not None:
            lines[handle] = lines_of_nodes
        elif _are_in_region_graph(log, graph, lines_in_stacks):
            lines[handle] = lines_in_stacks

    return lines


def find_lines_of_nodes(
    log: CompileLog, graph: CompiledGraph, handle: str
) -> tuple[CodeLine, ...] | None:
    """Return the Python lines that a kernel computes, by the nodes of Dynamo's graph.

    Args:
        log: The compile log.
        graph: A graph of the log.
        handle: The call of the kernel, such as `cpp_fused_add_0:3`.

    Returns:
        The lines, each once; None unless the line of every node is known.
    """
    dynamo_nodes = dynamo_nodes_of(log, graph)
    line_of_node = lines_of_dynamo_nodes(log, graph)

    # The kernel computes nodes of the final graph; each came from nodes of Dynamo's
    # graph.
    lines = []
    for final_node in nodes_of(log, graph).get(handle, ()):
        for node in dynamo_nodes.get(final_node, ()):
            if node not in line_of_node:
                return None
            lines.append(line_of_node[node])

    return sort_distinct_lines(lines) if lines else None


def _are_in_region_graph(
    log: CompileLog, graph: CompiledGraph, lines: Sequence[CodeLine]
) -> bool:
    """Return whether Dynamo's graph has nodes of all these lines of Python.

    If the log does not have that graph, the result is True.
    """
    lines_of_region = lines_of_dynamo_nodes(log, graph).values()
    known_lines = {(line.file, line.line, line.code) for line in lines_of_region}
    if not known_lines:
        return True

    return all((line.file, line.line, line.code) in known_lines for line in lines)


def convert_stacks_to_lines(
    stacks: Sequence[Sequence[CodeLine]],
) -> tuple[CodeLine, ...]:
    """Return the line that each call stack is shown as, sorted by file and line. Each
    is there once."""
    return sort_distinct_lines(choose_line(stack) for stack in stacks if stack)


def sort_distinct_lines(lines: Iterable[CodeLine]) -> tuple[CodeLine, ...]:
    """Sort lines by file and number. Of lines with the same ones, the first is kept."""
    line_by_position: dict[tuple[str, int], CodeLine] = {}
    for line in lines:
        line_by_position.setdefault((line.file, line.line), line)
    return tuple(line_by_position[position] for position in sorted(line_by_position))


def choose_line(stack: Sequence[CodeLine]) -> CodeLine:
    """Return the line that a stack is shown as.

    It is the innermost frame of the user's own code; if there is none, the innermost
    frame.

    Args:
        stack: At least one frame, outermost first.
    """
    for frame in reversed(stack):
        if is_own(frame.file):
            return frame
    return stack[-1]
